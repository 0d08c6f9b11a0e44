/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What moves a group's scaling state: sync and invalidate; and the amaxes of a run that are reduced
 * over several hosts, in one vector that is the same on all of them. On the loop.
 */
#include "daemon/collective_private.h"

#include <string.h>

/* The largest amax of a delayed weight that this host's ranks met since the last sync. */
static uint32_t amax_here(const struct collective *collective, uint32_t weight)
{
    return collective->table.num_sources > 0 ? collective_local_amax(collective, weight)
                                             : collective->group->scalings[weight].delayed.local;
}

/* Keeps for operators what the sync made of the weight. */
static void log_sync(struct group *group, uint32_t weight)
{
    const struct scaling *scaling = &group->scalings[weight];
    struct history_value value = {.amax = scaling->delayed.local};
    memcpy(&value.scale, &scaling->scale, sizeof(value.scale));
    if (!group->history)
        group->history = history_new(group->list->num_weights);
    if (group->history)
        history_add(group->history, weight, scaling->delayed.syncs, value);
}

/* A sync or an invalidate, which read no shard: they move the state of the group's own weights. */
void collective_move_state(struct collective *collective)
{
    struct group *group = collective->group;
    for (uint32_t w = 0; w < group->list->num_weights; w++) {
        const struct weight *weight = &group->list->weights[w];
        struct scaling *scaling = &group->scalings[w];
        if (weight->amax_group != 0)
            continue;
        if (collective->run.round.kind == ROUND_INVALIDATE) {
            scaling_invalidate(scaling, weight);
        } else if (weight->flavour == F8_PROTO_DELAYED) {
            scaling->delayed.local =
                collective->hosts ? collective->run.weights[w].amax : amax_here(collective, w);
            if (scaling_sync(scaling, weight))
                log_sync(group, w);
        }
        collective_push(collective, w);
    }
    group->syncs += collective->run.round.kind == ROUND_SYNC;
    collective_keep_state(group);
}

/* Whether the run needs the weight's amax of all hosts. */
static bool reduces(const struct collective *collective, uint32_t weight)
{
    const struct weight *w = &collective->group->list->weights[weight];
    if (w->amax_group != 0)
        return false;
    if (collective->run.round.kind == ROUND_SYNC)
        return w->flavour == F8_PROTO_DELAYED;
    return collective->run.round.kind != ROUND_INVALIDATE && collective_reduces(collective, weight);
}

/* The weights that a vector has entries for; those that need none have 0. */
static uint32_t range(const struct collective *collective, uint32_t *ret_first)
{
    const struct run *run = &collective->run;
    bool all = run->round.kind == ROUND_SYNC;
    *ret_first = all ? 0 : run->first;
    return all ? collective->group->list->num_weights : run->count;
}

uint32_t collective_count_amaxes(const struct collective *collective)
{
    uint32_t first, count = range(collective, &first);
    for (uint32_t w = first; w < first + count; w++)
        if (reduces(collective, w))
            return count;
    return 0;
}

void collective_write_amaxes(const struct collective *collective, uint32_t *ret_amaxes)
{
    uint32_t first, count = range(collective, &first);
    bool syncs = collective->run.round.kind == ROUND_SYNC;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t w = first + i;
        ret_amaxes[i] = !reduces(collective, w) ? 0
                        : syncs                 ? amax_here(collective, w)
                                                : collective->run.weights[w].amax;
    }
}

void collective_read_amaxes(struct collective *collective, const uint32_t *amaxes)
{
    uint32_t first, count = range(collective, &first);
    for (uint32_t i = 0; i < count; i++)
        if (reduces(collective, first + i))
            collective->run.weights[first + i].amax = amaxes[i];
}
