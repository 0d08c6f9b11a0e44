/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is done to a group's scaling state from outside of its rounds: it waits until none of them
 * runs that could use the state, or has results on the way that would change it. On the loop.
 */
#include "daemon/collective_hosts.h"

#include <fnmatch.h>

/* Whether a round of the group runs. */
static bool runs(const struct group *group)
{
    struct round_head head;
    return round_head(group->collective->rounds, &head) && head.running;
}

/* `starts`: a round of the group is about to begin, and does not count. */
static bool is_at_rest(const struct group *group, bool starts)
{
    bool busy = (!starts && runs(group)) || collective_awaits_sources(group);
    for (const struct group *s = group->sources; s; s = s->next_source)
        busy = busy || runs(s);
    return !busy;
}

void collective_serve_rest(struct collective *collective, bool starts)
{
    while (collective->rests && is_at_rest(collective->group, starts)) {
        struct collective_rest *rest = collective->rests;
        collective->rests = rest->next;
        rest->at_rest(rest, collective->group);
    }
}

void collective_await_rest(struct group *group, struct collective_rest *rest)
{
    struct collective_rest **link = &group->collective->rests;
    while (*link)
        link = &(*link)->next;
    rest->next = NULL;
    *link = rest;
    collective_serve_rest(group->collective, false);
}

void collective_drop_rests(struct collective *collective)
{
    while (collective->rests) {
        struct collective_rest *rest = collective->rests;
        collective->rests = rest->next;
        rest->at_rest(rest, NULL);
    }
}

bool collective_spans_hosts(const struct group *group)
{
    return group->collective->hosts || group->collective->next_hosts;
}

/* Whether the weight's amaxes are the group's own, and it has a history of them. */
static bool is_delayed(const struct weight *weight, const char *glob)
{
    return weight->flavour == F8_PROTO_DELAYED && weight->amax_group == 0 &&
           fnmatch(glob, weight->name, 0) == 0;
}

uint32_t collective_count_delayed(const struct group *group, const char *glob)
{
    uint32_t count = 0;
    for (uint32_t w = 0; group->list && w < group->list->num_weights; w++)
        count += is_delayed(&group->list->weights[w], glob);
    return count;
}

uint32_t collective_reset_amaxes(struct group *group, const char *glob)
{
    uint32_t count = 0;
    for (uint32_t w = 0; group->list && w < group->list->num_weights; w++) {
        if (!is_delayed(&group->list->weights[w], glob))
            continue;
        scaling_invalidate(&group->scalings[w], &group->list->weights[w]);
        collective_push(group->collective, w);
        count++;
    }
    if (count > 0)
        collective_keep_state(group);
    return count;
}
