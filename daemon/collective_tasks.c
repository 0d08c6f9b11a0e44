/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tasks of a round: which computations a rank's shard of a weight asks for, batch by batch, and
 * what they found. Called by collective_run.c, and by those that compute early or on devices. On
 * the loop.
 */
#include "daemon/collective_private.h"

#include <string.h>

static const void *shard_data(const struct shard *shard)
{
    return shard->region ? shard->region->data + shard->offset : NULL;
}

void collective_amax_task(
    const struct member *member, uint32_t weight, struct backend_task *ret_task)
{
    const struct group *group = member->group;
    const struct weight *w = &group->list->weights[weight];
    *ret_task = (struct backend_task){
        .op = BACKEND_AMAX,
        .src = shard_data(&member->shards[weight]),
        .count = weight_shard_count(w, group->world_size, member->rank),
        .dtype = (enum f8k_dtype)w->dtype,
    };
}

void collective_write_task(const struct collective *collective, const struct member *member,
    uint32_t weight, uint8_t *place, struct backend_task *ret_task)
{
    const struct group *group = collective->group;
    const struct weight *w = &group->list->weights[weight];
    uint64_t before =
        weight_chunk_count(w, group->world_size) * member->rank * f8_proto_wire_size(w->wire);
    *ret_task = (struct backend_task){
        .op = w->flavour == F8_PROTO_RAW        ? BACKEND_COPY
              : w->flavour == F8_PROTO_RAW_BF16 ? BACKEND_TO_BF16
                                                : BACKEND_CAST,
        .src = shard_data(&member->shards[weight]),
        .dst = place + w->offset + before,
        .count = weight_shard_count(w, group->world_size, member->rank),
        .dtype = (enum f8k_dtype)w->dtype,
        .format = (enum f8k_format)w->format,
        .scale = group->scalings[weight].scale,
        .take_amax = w->flavour == F8_PROTO_DELAYED,
    };
}

/* The zero rows after a short shard, if the place may hold anything else there. */
static bool padding_task(const struct collective *collective, const struct member *member,
    uint32_t weight, uint8_t *place, struct backend_task *ret_task)
{
    const struct group *group = collective->group;
    const struct weight *w = &group->list->weights[weight];
    uint64_t chunk = weight_chunk_count(w, group->world_size);
    uint64_t count = weight_shard_count(w, group->world_size, member->rank);
    if (!collective->dirty || count == chunk)
        return false;
    uint64_t size = f8_proto_wire_size(w->wire);
    *ret_task = (struct backend_task){
        .op = BACKEND_FILL,
        .dst = place + w->offset + (chunk * member->rank + count) * size,
        .count = (chunk - count) * size,
    };
    return true;
}

uint8_t *collective_run_place(const struct collective *collective, const struct member *member)
{
    const struct group *group = collective->group;
    return collective_base(group, member) +
           collective_place_offset(group, collective->run.round.place);
}

/* Whether an early task wrote the pair's bytes already, with the scale that holds now. */
static bool written_early(const struct backend_task *early, const struct backend_task *wanted)
{
    return early && early->dst == wanted->dst && early->op == wanted->op &&
           (early->op != BACKEND_CAST ||
               memcmp(&early->scale, &wanted->scale, sizeof(early->scale)) == 0);
}

static void add_counts(struct f8k_counts *sum, const struct f8k_counts *counts)
{
    sum->saturated += counts->saturated;
    sum->nan += counts->nan;
}

static void take_amax(struct run_weight *weight, uint32_t amax)
{
    if (amax > weight->amax)
        weight->amax = amax;
}

/* Another host's rank: its bytes come with the exchange, which leaves the padding after them. */
static uint32_t make_far_tasks(
    const struct collective *collective, uint32_t weight, uint32_t rank, struct backend_task *tasks)
{
    const struct run *run = &collective->run;
    if (run->phase == RUN_AMAX || collective->device)
        return 0; /* devices exchange the padding too */
    const struct member *member = run->members[rank];
    return padding_task(
        collective, member, weight, collective_run_place(collective, member), tasks);
}

/* Makes the tasks of one pair at `tasks`, which has room for two; gives their number. */
static uint32_t make_tasks(
    struct collective *collective, uint32_t weight, uint32_t rank, struct backend_task *tasks)
{
    struct run *run = &collective->run;
    if (run->members[rank]->far)
        return make_far_tasks(collective, weight, rank, tasks);
    uint32_t there;
    const struct member *member = collective_shard_of(collective, rank, weight, &there);
    const struct backend_task *early = NULL;
    if (run->round.kind == ROUND_GATHER)
        early = collective_early_task(collective, weight, rank);
    if (run->phase == RUN_AMAX) {
        if (!collective_reduces(collective, weight))
            return 0;
        if (early && early->op == BACKEND_AMAX) {
            take_amax(&run->weights[weight], early->amax);
            return 0;
        }
        collective_amax_task(member, there, tasks);
        return 1;
    }
    uint32_t count = 1;
    uint8_t *place = collective_run_place(collective, member);
    collective_write_task(collective, member, weight, place, tasks);
    if (written_early(early, tasks)) {
        take_amax(&run->weights[weight], early->amax);
        add_counts(&run->weights[weight].counts, &early->counts);
        count = 0;
    }
    return count + padding_task(collective, member, weight, place, tasks + count);
}

/* Says where on the devices the tasks of a pair work and leave their results. */
static void place_tasks(
    const struct collective *collective, struct backend_task *tasks, uint32_t count)
{
    const struct run *run = &collective->run;
    uint32_t there;
    if (run->members[run->rank]->far)
        return;
    const struct member *member = collective_shard_of(collective, run->rank, run->weight, &there);
    for (uint32_t t = 0; t < count && member->device; t++) {
        tasks[t].device = member->device->number;
        tasks[t].row = run->rank;
        tasks[t].slot = run->weight;
    }
}

bool collective_fill_batch(struct collective *collective)
{
    struct run *run = &collective->run;
    uint32_t world_size = collective->group->world_size;
    run->work.num_tasks = 0;
    while (run->weight < run->end && run->work.num_tasks + 2 <= run->max_tasks) {
        uint32_t at = run->work.num_tasks;
        uint32_t made = make_tasks(collective, run->weight, run->rank, run->tasks + at);
        for (uint32_t t = at; t < at + made; t++)
            run->task_weights[t] = run->weight;
        place_tasks(collective, run->tasks + at, made);
        run->work.num_tasks += made;
        if (++run->rank == world_size) {
            run->rank = 0;
            run->weight++;
        }
    }
    return run->weight == run->first + run->count;
}

void collective_take_results(struct run *run)
{
    for (uint32_t t = 0; t < run->work.num_tasks; t++) {
        struct run_weight *weight = &run->weights[run->task_weights[t]];
        take_amax(weight, run->tasks[t].amax);
        add_counts(&weight->counts, &run->tasks[t].counts);
    }
}
