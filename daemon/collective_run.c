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
    struct log_fields fields = collective_fields(group);
    fields.weight = group->list->weights[weight].name;
    log_of(&fields, LOG_LEVEL_WARNING,
        "job %s, group %s: weight %s was gathered with a scale from before its values changed: it "
        "saturates if they grew; precompute after each change (f8ctl scales)",
        fields.job, fields.group, fields.weight);
}

/* The place is written: its scales follow, and the state learns of the gather. */
static void complete_gather(struct collective *collective)
{
    const struct run *run = &collective->run;
    struct group *group = collective->group;
    const struct bucket_info *bucket = &group->list->buckets[run->round.bucket];
    uint8_t *scales = collective->device
                          ? NULL
                          : collective_run_place(collective, run->members[0]) + bucket->scales;
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

void collective_begin_phase(struct collective *collective, enum run_phase phase)
{
    collective->run.phase = phase;
    collective->run.weight = collective->run.first;
    collective->run.rank = 0;
    collective->run.end = collective->run.first + collective->run.count;
}

/* The next casts; no tasks: there are no more. Over hosts, no further than to the end of a piece.
 */
static void fill_casts(struct collective *collective)
{
    struct run *run = &collective->run;
    bool at_end = collective_fill_batch(collective);
    while (run->work.num_tasks == 0 && !at_end) {
        run->end = spread_next_piece(collective->hosts);
        at_end = collective_fill_batch(collective);
    }
}

static void begin_cast(struct collective *collective)
{
    struct run *run = &collective->run;
    run->phase = RUN_CAST;
    run->work.num_tasks = 0;
    if (run->round.kind != ROUND_GATHER)
        return;
    collective_begin_phase(collective, RUN_CAST);
    if (collective->hosts) {
        spread_begin(collective->hosts);
        run->end = run->first;
    }
    fill_casts(collective);
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
    if (run->phase == RUN_CAST) {
        fill_casts(collective);
        return;
    }
    (void)collective_fill_batch(collective);
    if (run->work.num_tasks > 0)
        return;
    if (must_reduce(collective))
        run->phase = RUN_REDUCE;
    else
        after_amaxes(collective);
}

static void submit(struct collective *collective)
{
    collective->run.computing = true;
    backend_submit(collective->backend, &collective->run.work);
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
        submit(collective);
    } else if (run->round.kind == ROUND_GATHER && collective->hosts) {
        run->phase = RUN_SPREAD;
        spread_cast(collective->hosts, run->first + run->count);
        collective_settle(collective);
    } else {
        collective_end_run(collective);
    }
}

/* What is cast goes to the other hosts; whether there is a use in casting more. */
static bool spread(struct collective *collective)
{
    const struct run *run = &collective->run;
    if (!collective->hosts || run->round.kind != ROUND_GATHER || run->phase != RUN_CAST)
        return true;
    spread_cast(collective->hosts, run->weight);
    return collective->hosts->engine.step != ENGINE_FAILED;
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
    run->computing = false;
    collective_take_results(run);
    if (!spread(collective)) {
        collective_settle(collective); /* the timer fails the round */
        return;
    }
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
    submit(collective);
}

void collective_reduced(struct collective *collective, const uint32_t *amaxes)
{
    collective_read_amaxes(collective, amaxes);
    if (collective->device && collective->run.round.kind == ROUND_GATHER) {
        collective_device_reduced(collective);
        return;
    }
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
    collective_serve_rest(collective, true);
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
    submit(collective);
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
