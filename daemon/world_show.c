/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What operators see of worlds that have not formed: at the root the hosts that have come and the
 * ranks that are missing; at other hosts whether the root was reached. Called by inspect, on the
 * loop.
 */
#include "daemon/world_private.h"

#include <inttypes.h>
#include <stdlib.h>

/* The root of the world, if it is here and still waits. */
static const struct world_root *waiting_root(const struct worlds *worlds, uint64_t number)
{
    const struct world_root *root = world_root_find((struct worlds *)worlds, number);
    return root && root->group && !root->formed ? root : NULL;
}

static bool is_meeting(const struct world *world)
{
    return !world->left && (world->state == WORLD_REACHING || world->state == WORLD_JOINED);
}

bool world_meeting(const struct world *world, struct world_meeting *ret_meeting)
{
    const struct world_root *root = waiting_root(world->worlds, world->id.number);
    struct reason *waits_for = &ret_meeting->waits_for;
    if (!is_meeting(world))
        return false;
    ret_meeting->began_ms = world->began_ms;
    ret_meeting->ends_ms = world->began_ms + world->deadline_ms;
    ret_meeting->missing = 0;
    if (root) {
        ret_meeting->ends_ms = root->ends_ms;
        ret_meeting->missing = root->world_size - root->num_claimed;
        (void)reason_set(waits_for, F8_OK, "%u of %u ranks are missing: %s ", ret_meeting->missing,
            root->world_size, ret_meeting->missing == 1 ? "rank" : "ranks");
        world_form_append_missing(root, waits_for);
    } else if (world->state == WORLD_JOINED)
        (void)reason_set(
            waits_for, F8_OK, "other hosts, of which the root at %s knows", world->root_address);
    else
        (void)reason_set(waits_for, F8_OK, "its root at %s, not reached in %u attempts%s%.200s",
            world->root_address, world->attempts, world->last.text[0] ? ": " : "",
            world->last.text);
    return true;
}

/* A host that came to a root here. */
static void tell_member(const struct world_member *member,
    void (*tell)(void *context, const struct world_guest *guest), void *context)
{
    const struct world_root *root = member->root;
    tell(context, &(struct world_guest){.group = root->group,
                      .name = member->name,
                      .address = member->address,
                      .ranks = member->ranks,
                      .num_ranks = member->num_ranks,
                      .came_ms = member->came_ms,
                      .ends_ms = root->ends_ms,
                      .silent_ms = member->own ? 0 : world_link_silent_ms(member->link),
                      .here = member->own,
                      .root = member->own});
}

/* This host, where the root is another. */
static void tell_own(const struct world *world,
    void (*tell)(void *context, const struct world_guest *guest), void *context)
{
    char name[65];
    uint32_t *ranks = calloc(world->num_ranks, sizeof(*ranks));
    for (uint32_t i = 0; ranks && i < world->num_ranks; i++)
        ranks[i] = world->ranks[i].rank;
    world_own_name(world->worlds->config, name);
    tell(context, &(struct world_guest){.group = world->group,
                      .name = name,
                      .address = world->address,
                      .ranks = ranks,
                      .num_ranks = ranks ? world->num_ranks : 0,
                      .came_ms = world->began_ms,
                      .ends_ms = world->began_ms + world->deadline_ms,
                      .here = true});
    free(ranks);
}

void worlds_guests(const struct worlds *worlds,
    void (*tell)(void *context, const struct world_guest *guest), void *context)
{
    for (const struct world_root *root = worlds->roots; root; root = root->next) {
        const struct world_member *member = root->members;
        for (; waiting_root(worlds, root->id.number) == root && member; member = member->next)
            if (member->joined)
                tell_member(member, tell, context);
    }
    for (const struct world *world = worlds->list; world; world = world->next)
        if (is_meeting(world) && !waiting_root(worlds, world->id.number))
            tell_own(world, tell, context);
}
