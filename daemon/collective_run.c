/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a round does: amaxes of the weights that need a scale, then casts into the place, in
 * batches of tasks so that its memory does not grow with the number of weights. On the loop;
 * the backend computes.
 */
#include "daemon/collective_hosts.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/log.h"
#include "status.h"

/* Tasks of one batch: enough that its ends cost nothing, few enough to be small. */
#define MAX_TASKS 4096

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

bool collective_wants_amax(const struct collective *collective, uint32_t weight)
{
    const struct group *group = collective->group;
    return scaling_wants_amax(&group->scalings[weight], &group->list->weights[weight]);
}

bool collective_reduces(const struct collective *collective, uint32_t weight)
{
    const struct weight *w = &collective->group->list->weights[weight];
    if (collective->run.round.kind == ROUND_PRECOMPUTE)
        return w->flavour == F8_PROTO_DYNAMIC && w->amax_group == 0;
    return collective_wants_amax(collective, weight);
}

uint8_t *collective_base(const struct group *group, const struct member *member)
{
    return member->device ? arena_on(group->arena, member->device->number)->base
                          : group->arena->data;
}

static uint8_t *run_place(const struct collective *collective, const struct member *member)
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
    return padding_task(collective, member, weight, run_place(collective, member), tasks);
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
    uint8_t *place = run_place(collective, member);
    collective_write_task(collective, member, weight, place, tasks);
    if (written_early(early, tasks)) {
        take_amax(&run->weights[weight], early->amax);
        add_counts(&run->weights[weight].counts, &early->counts);
        count = 0;
    }
    return count + padding_task(collective, member, weight, place, tasks + count);
}

/* Takes the results of a batch. */
static void take_results(struct run *run)
{
    for (uint32_t t = 0; t < run->work.num_tasks; t++) {
        struct run_weight *weight = &run->weights[run->task_weights[t]];
        take_amax(weight, run->tasks[t].amax);
        add_counts(&weight->counts, &run->tasks[t].counts);
    }
}

void collective_set_scales(struct collective *collective)
{
    const struct run *run = &collective->run;
    struct group *group = collective->group;
    for (uint32_t w = run->first; w < run->first + run->count; w++) {
        const struct run_weight *result = &run->weights[w];
        if (!collective_reduces(collective, w) || group->list->weights[w].amax_group != 0)
            continue;
        if (run->round.kind == ROUND_PRECOMPUTE) {
            scaling_precomputed(
                &group->scalings[w], &group->list->weights[w], result->amax, result->version);
            collective_push(collective, w);
        } else
            scaling_in_gather(&group->scalings[w], &group->list->weights[w], result->amax);
    }
}

/* Once a generation: the counters of f8ctl say how often, and for which weights. */
static void warn_stale(struct collective *collective, uint32_t weight)
{
    const struct group *group = collective->group;
    if (collective->warned_stale)
        return;
    collective->warned_stale = true;
    log_warning("job %s, group %s: weight %s was gathered with a scale from before its values "
                "changed: it saturates if they grew; precompute after each change (f8ctl scales)",
        group->job->name, group->name, group->list->weights[weight].name);
}

/* The place is written: its scales follow, and the state learns of the gather. */
static void complete_gather(struct collective *collective)
{
    const struct run *run = &collective->run;
    struct group *group = collective->group;
    const struct bucket_info *bucket = &group->list->buckets[run->round.bucket];
    uint8_t *scales =
        collective->device ? NULL : run_place(collective, run->members[0]) + bucket->scales;
    struct findings findings = {0};
    for (uint32_t i = 0; i < run->count; i++) {
        struct scaling *scaling = &group->scalings[run->first + i];
        const struct run_weight *result = &run->weights[run->first + i];
        if (scales)
            memcpy(scales + i * sizeof(float), &scaling->scale, sizeof(float));
        if (scales && group->list->weights[run->first + i].flavour == F8_PROTO_DELAYED)
            scaling_cast(scaling, result->amax);
        bool stale = scaling_gathered(scaling, result->version, &result->counts);
        collective_count_met(collective, &findings, run->first + i, &result->counts, stale);
        if (stale)
            warn_stale(collective, run->first + i);
    }
    collective_tell_findings(collective, run->round.bucket, &findings);
    collective_forget_early(collective, run->round.bucket);
    collective_count_gather(collective);
}

void collective_end_run(struct collective *collective)
{
    /* A copy: the next round may start before this one's end is over. */
    const struct round_run round = collective->run.round;
    if (collective->hosts)
        comm_end_turn(collective->hosts);
    if (round.kind == ROUND_GATHER)
        complete_gather(collective);
    else if (round.kind == ROUND_SYNC || round.kind == ROUND_INVALIDATE)
        collective_move_state(collective);
    round_finished(collective->rounds, F8_OK);
    if (round.kind == ROUND_GATHER && collective->hosts)
        hosts_release_bucket(collective->hosts, round.bucket);
    collective_settle(collective);
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
    while (run->weight < run->first + run->count && run->work.num_tasks + 2 <= run->max_tasks) {
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

void collective_begin_phase(struct collective *collective, enum run_phase phase)
{
    collective->run.phase = phase;
    collective->run.weight = collective->run.first;
    collective->run.rank = 0;
}

static void begin_cast(struct collective *collective)
{
    struct run *run = &collective->run;
    run->phase = RUN_CAST;
    run->work.num_tasks = 0;
    if (run->round.kind != ROUND_GATHER)
        return;
    collective_begin_phase(collective, RUN_CAST);
    (void)collective_fill_batch(collective);
}

/* All amaxes of the run are there, but for those of other groups. */
static void after_amaxes(struct collective *collective)
{
    collective_set_scales(collective);
    if (collective->run.round.kind == ROUND_GATHER && collective_must_exchange(collective))
        collective->run.phase = RUN_EXCHANGE;
    else
        begin_cast(collective);
}

/*
 * Whether hosts meet in a reduction. What moves the state always does, even if there is nothing to
 * reduce: a host that begins it alone, as others break, would have another state than they.
 */
static bool must_reduce(const struct collective *collective)
{
    enum round_kind kind = collective->run.round.kind;
    return collective->hosts && (kind == ROUND_SYNC || kind == ROUND_INVALIDATE ||
                                    collective_count_amaxes(collective) > 0);
}

/* The next batch of the phase, or the first of the next phase; no tasks: the phase is over. */
static void next_batch(struct collective *collective)
{
    struct run *run = &collective->run;
    (void)collective_fill_batch(collective);
    if (run->work.num_tasks > 0 || run->phase == RUN_CAST)
        return;
    if (must_reduce(collective))
        run->phase = RUN_REDUCE;
    else
        after_amaxes(collective);
}

/* What comes after a batch, or after what another host or group had to give. */
static void go_on(struct collective *collective)
{
    struct run *run = &collective->run;
    if (run->phase == RUN_REDUCE) {
        engine_reduce(collective->hosts);
        collective_settle(collective);
    } else if (run->phase == RUN_EXCHANGE) {
        collective_exchange(collective);
    } else if (run->work.num_tasks > 0) {
        backend_submit(collective->backend, &run->work);
    } else if (run->round.kind == ROUND_GATHER && collective->hosts) {
        run->phase = RUN_SPREAD;
        engine_exchange(collective->hosts);
        collective_settle(collective);
    } else {
        collective_end_run(collective);
    }
}

static void batch_finished(struct backend_work *work, int status)
{
    struct collective *collective = work->owner;
    struct run *run = &collective->run;
    if (collective->device) {
        collective_device_finished(collective, status);
        return;
    }
    assert(status == F8_OK); /* a run is never cancelled */
    (void)status;
    take_results(run);
    if (run->phase == RUN_AMAX || run->phase == RUN_CAST)
        next_batch(collective);
    go_on(collective);
}

void collective_go_on(struct collective *collective)
{
    if (collective->device) {
        collective_device_go_on(collective);
        return;
    }
    begin_cast(collective);
    backend_submit(collective->backend, &collective->run.work);
}

void collective_reduced(struct collective *collective, const uint32_t *amaxes)
{
    collective_read_amaxes(collective, amaxes);
    after_amaxes(collective);
    go_on(collective);
}

void collective_fail(struct collective *collective, int status)
{
    if (collective->hosts)
        comm_end_turn(collective->hosts);
    round_finished(collective->rounds, status);
    collective_settle(collective);
}

/* The weights that the round goes over. */
static void set_range(struct collective *collective)
{
    struct run *run = &collective->run;
    const struct weight_list *list = collective->group->list;
    run->first = 0;
    run->count = run->round.kind == ROUND_PRECOMPUTE ? list->num_weights : 0;
    if (run->round.kind == ROUND_GATHER) {
        run->first = list->buckets[run->round.bucket].first;
        run->count = list->buckets[run->round.bucket].count;
    }
    memset(run->weights + run->first, 0, run->count * sizeof(*run->weights));
}

/* Who takes part: a rank may have died since it asked, and stays departed until this has ended. */
static void set_members(struct collective *collective)
{
    const struct group *group = collective->group;
    for (uint32_t r = 0; r < group->world_size; r++)
        collective->run.members[r] = group_member_of(group, r);
}

int collective_start(void *context, const struct round_run *round)
{
    struct collective *collective = context;
    struct run *run = &collective->run;
    run->round = *round;
    if (round->kind == ROUND_SEAL && collective->hosts && !hosts_formed(collective->hosts))
        return ROUND_LATER; /* all ranks are on this host, and its daemon waits for the table */
    if (round->kind == ROUND_SEAL)
        return collective_start_seal(collective);
    if (round->kind == ROUND_GATHER && collective_is_fenced(collective))
        return ROUND_LATER;
    /* What moves the state takes all that gathers have found. */
    bool moves = round->kind == ROUND_SYNC || round->kind == ROUND_INVALIDATE;
    if (moves && collective_awaits_sources(collective->group))
        return ROUND_LATER;
    set_range(collective);
    set_members(collective);
    collective_set_sources(collective);
    int status = collective_check_versions(collective, run->first, run->count, run->weights);
    if (status < 0)
        return status;
    collective_begin_phase(collective, RUN_AMAX);
    run->work = (struct backend_work){
        .tasks = run->tasks,
        .job = collective->group->job->id,
        .finished = batch_finished,
        .owner = collective,
    };
    if (collective->device)
        return collective_device_start(collective);
    next_batch(collective);
    /* Even without tasks: a round ends later, never inside its start. */
    backend_submit(collective->backend, &run->work);
    return F8_OK;
}

static uint32_t tasks_needed(const struct group *group)
{
    uint64_t most = (uint64_t)group->list->num_weights * group->world_size * 2;
    return most < MAX_TASKS ? (uint32_t)most : MAX_TASKS;
}

int collective_prepare_runs(struct collective *collective)
{
    struct run *run = &collective->run;
    const struct group *group = collective->group;
    collective_drop_runs(collective);
    collective_count_restart(collective);
    run->max_tasks = tasks_needed(group);
    run->members = calloc(group->world_size, sizeof(*run->members));
    run->weights = calloc(group->list->num_weights, sizeof(*run->weights));
    run->sources = calloc(
        (size_t)group->world_size * collective->table.num_sources + 1, sizeof(*run->sources));
    run->tasks = calloc(run->max_tasks, sizeof(*run->tasks));
    run->task_weights = calloc(run->max_tasks, sizeof(*run->task_weights));
    bool complete = run->members && run->sources && run->weights && run->tasks && run->task_weights;
    return complete ? F8_OK : F8_ENOMEM;
}

void collective_drop_runs(struct collective *collective)
{
    struct run *run = &collective->run;
    free(run->members);
    free(run->sources);
    free(run->weights);
    free(run->tasks);
    free(run->task_weights);
    run->members = NULL;
    run->sources = NULL;
    run->weights = NULL;
    run->tasks = NULL;
    run->task_weights = NULL;
}
