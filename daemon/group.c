/* SPDX-License-Identifier: Apache-2.0 */
/* Groups and their members: see registry.h. */
#include "daemon/registry.h"

#include <stdlib.h>
#include <string.h>

#include "status.h"

struct member *group_add_member(struct group *group, uint32_t rank, uint32_t pid, void *session)
{
    struct member *member = calloc(1, sizeof(*member));
    if (!member)
        return NULL;
    member->list = weights_new(group->world_size);
    if (!member->list) {
        free(member);
        return NULL;
    }
    member->group = group;
    member->session = session;
    member->rank = rank;
    member->pid = pid;
    member->generation = group->generation;
    group->members[rank] = member;
    return member;
}

static void member_free(struct member *member)
{
    for (uint32_t w = 0; w < member->shards_capacity; w++)
        region_unref(member->shards[w].region);
    weights_unref(member->list);
    free(member->shards);
    free(member->versions);
    free(member->quiesces);
    free(member->seal.import);
    ready_events_free(&member->ready);
    device_unref(member->device);
    free(member);
}

void group_remove_member(struct member *member)
{
    struct group *group = member->group;
    group->members[member->rank] = NULL;
    member->session = NULL;
    member->next = group->departed;
    group->departed = member;
}

struct member *group_member_of(const struct group *group, uint32_t rank)
{
    struct member *member = group->members[rank];
    if (member && member->generation == group->generation)
        return member;
    for (member = group->departed; member; member = member->next)
        if (member->rank == rank && member->generation == group->generation)
            return member;
    return NULL;
}

void group_bury(struct group *group)
{
    while (group->departed) {
        struct member *member = group->departed;
        group->departed = member->next;
        member_free(member);
    }
}

struct member *group_first_here(const struct group *group)
{
    for (uint32_t r = 0; r < group->world_size; r++)
        if (group->members[r] && !group->members[r]->far)
            return group->members[r];
    return NULL;
}

bool group_is_empty(const struct group *group)
{
    return !group_first_here(group);
}

uint32_t group_present(const struct group *group)
{
    uint32_t present = 0;
    for (uint32_t r = 0; r < group->world_size; r++)
        present += group->members[r] && group->members[r]->generation == group->generation;
    return present;
}

int member_reserve(struct member *member, uint32_t count)
{
    if (count <= member->shards_capacity)
        return F8_OK;
    uint32_t capacity = count < 2 * member->shards_capacity ? 2 * member->shards_capacity : count;
    struct shard *shards = realloc(member->shards, capacity * sizeof(*shards));
    if (!shards)
        return F8_ENOMEM;
    member->shards = shards;
    uint64_t *versions = realloc(member->versions, capacity * sizeof(*versions));
    if (!versions)
        return F8_ENOMEM;
    member->versions = versions;
    uint32_t added = capacity - member->shards_capacity;
    memset(shards + member->shards_capacity, 0, added * sizeof(*shards));
    memset(versions + member->shards_capacity, 0, added * sizeof(*versions));
    member->shards_capacity = capacity;
    return F8_OK;
}

void member_forget_versions(struct member *member)
{
    for (uint32_t w = 0; w < member->shards_capacity; w++)
        member->versions[w] = SCALING_VERSION_UNKNOWN;
}

void member_trim(struct member *member)
{
    uint32_t count = member->list->num_weights;
    if (count == 0 || count == member->shards_capacity)
        return;
    struct shard *shards = realloc(member->shards, count * sizeof(*shards));
    if (!shards)
        return; /* as good, only larger */
    member->shards = shards;
    member->shards_capacity = count;
    uint64_t *versions = realloc(member->versions, count * sizeof(*versions));
    if (versions)
        member->versions = versions;
}

void member_set_shard(
    struct member *member, uint32_t weight, struct region *region, uint64_t offset)
{
    struct region *old = member->shards[weight].region;
    member->shards[weight] =
        (struct shard){.region = region ? region_ref(region) : NULL, .offset = offset};
    region_unref(old);
}

const char *member_weight_in(const struct member *member, const struct region *region)
{
    for (uint32_t w = 0; w < member->list->num_weights; w++)
        if (member->shards[w].region == region)
            return member->list->weights[w].name;
    return NULL;
}

struct member *group_member_for(const struct group *group, const void *session)
{
    for (uint32_t r = 0; r < group->world_size; r++)
        if (group->members[r] && group->members[r]->session == session)
            return group->members[r];
    return NULL;
}

void group_link(struct group *source, struct group *amax_group)
{
    source->amax_group = amax_group;
    /* At the end, so that the order of the seals is the order of the list. */
    struct group **link = &amax_group->sources;
    while (*link)
        link = &(*link)->next_source;
    *link = source;
    source->next_source = NULL;
}

void group_unlink(struct group *source)
{
    if (!source->amax_group)
        return;
    struct group **link = &source->amax_group->sources;
    while (*link != source)
        link = &(*link)->next_source;
    *link = source->next_source;
    source->next_source = NULL;
    source->amax_group = NULL;
}
