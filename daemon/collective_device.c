/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rounds on devices. A round's works are queued one after the other and it ends with the last
 * queued, long before the devices get there; scales that follow from amaxes are made there. What
 * the devices found lands later, and is told to the scaling state then. Where the host must know
 * an amax to go on (a delayed weight's first gather, an exchange with other groups), the work
 * waits for its landing; over hosts such a round takes its turn only after that, for its casts, as
 * others must be able to come to what it waits for. On the loop.
 */
#include "daemon/collective_device.h"

#include <stdlib.h>

#include "daemon/collective_hosts.h"

#include "status.h"

static enum landed_kind kind_of(const struct collective *collective, uint32_t weight)
{
    const struct run *run = &collective->run;
    const struct weight *w = &collective->group->list->weights[weight];
    if (run->round.kind == ROUND_PRECOMPUTE)
        return collective_reduces(collective, weight) ? LANDED_PRECOMPUTE : LANDED_NOTHING;
    if (w->flavour == F8_PROTO_DELAYED)
        return LANDED_CAST;
    bool reduces = !collective->device->waits && collective_reduces(collective, weight);
    return reduces ? LANDED_IN_GATHER : LANDED_NOTHING;
}

/* For results to land: over hosts, whose devices wait for one another, by the round's deadline. */
static uint64_t patience(const struct collective *collective)
{
    return collective->hosts ? engine_patience(collective->hosts)
                             : collective->context->config->deadline_ms;
}

/* The last work of a round: its done event, and a landing of all that it found. */
static int add_landing(struct collective *collective)
{
    struct device_run *device = collective->device;
    const struct run *run = &collective->run;
    struct landed *landed = collective_take_landed(collective, run->count);
    if (!landed)
        return reason_set(
            &collective->refusal, F8_ENOMEM, "out of memory in group %s", collective->group->name);
    landed->counts = run->round.kind == ROUND_GATHER;
    for (uint32_t i = 0; i < run->count; i++)
        landed->kinds[i] = kind_of(collective, run->first + i);
    struct backend_landing *landing = &landed->landing;
    landing->first = run->first;
    landing->count = run->count;
    landing->deadline_ms = patience(collective);
    device->steps.landing = landing;
    device->steps.wants_done = true;
    return F8_OK;
}

static void add_scale(struct collective *collective, const struct backend_scale *scale)
{
    struct device_run *device = collective->device;
    device->scales[device->steps.num_scales++] = *scale;
}

static struct backend_scale scale_of(const struct weight *weight, uint32_t slot)
{
    return (struct backend_scale){.slot = slot,
        .amax_slot = slot,
        .copy = UINT64_MAX,
        .dtype = weight->dtype,
        .format = weight->format,
        .power_of_two = weight->power_of_two};
}

/* The reduction of all that the phase has taken amaxes of, and the scales that follow. */
static void add_reduction(struct collective *collective)
{
    struct device_run *device = collective->device;
    const struct run *run = &collective->run;
    device->steps.reduce_first = run->first;
    device->steps.reduce_count = run->count;
    for (uint32_t w = run->first; w < run->first + run->count; w++) {
        if (run->round.kind != ROUND_PRECOMPUTE || !collective_reduces(collective, w))
            continue;
        struct backend_scale scale = scale_of(&collective->group->list->weights[w], w);
        scale.path = F8K_SCALE_PRECOMPUTE;
        add_scale(collective, &scale);
    }
}

/* A work that ends when its amaxes are here. */
static void add_wait(struct collective *collective)
{
    struct device_run *device = collective->device;
    device->landing.first = collective->run.first;
    device->landing.count = collective->run.count;
    device->landing.deadline_ms = patience(collective);
    device->steps.landing = &device->landing;
}

/* The scales of a gather, which its casts read and which it hands out. */
static void add_gather_scales(struct collective *collective)
{
    const struct run *run = &collective->run;
    const struct group *group = collective->group;
    const struct bucket_info *bucket = &group->list->buckets[run->round.bucket];
    uint64_t copy = collective_place_offset(group, run->round.place) + bucket->scales;
    for (uint32_t w = run->first; w < run->first + run->count; w++) {
        const struct scaling *scaling = &group->scalings[w];
        struct backend_scale scale = scale_of(&group->list->weights[w], w);
        bool here = !collective->device->waits && collective_reduces(collective, w);
        bool foreign = collective->entries && collective->entries[w] != AMAX_NONE;
        scale.copy = copy + (w - run->first) * sizeof(float);
        scale.known = !here && scaling->pending == 0;
        scale.value = scaling->scale;
        scale.path = here ? F8K_SCALE_DIRECT : F8K_SCALE_PRECOMPUTE;
        if (foreign && !scale.known)
            scale.amax_slot = collective->entries[w];
        scale.foreign = foreign;
        add_scale(collective, &scale);
    }
}

static void add_exchange(struct collective *collective)
{
    struct device_run *device = collective->device;
    const struct run *run = &collective->run;
    const struct group *group = collective->group;
    uint64_t place = collective_place_offset(group, run->round.place);
    for (uint32_t w = run->first; w < run->first + run->count; w++) {
        const struct weight *weight = &group->list->weights[w];
        uint64_t chunk =
            weight_chunk_count(weight, group->world_size) * f8_proto_wire_size(weight->wire);
        device->spans[device->steps.num_spans++] =
            (struct backend_span){.offset = place + weight->offset, .chunk = chunk};
    }
}

static void add_event(struct collective *collective, const struct member *member, uint32_t event)
{
    struct device_run *device = collective->device;
    if (event != BACKEND_NO_EVENT)
        device->ready[device->steps.num_ready++] =
            (struct backend_ready){.client = member->device->client, .event = event};
}

/* The events that the ranks' shards are final by, and their reads of the place over; once a round.
 */
static void add_ready(struct collective *collective)
{
    const struct run *run = &collective->run;
    for (uint32_t r = 0; r < collective->group->world_size; r++) {
        struct member *member = run->members[r];
        struct ready_events *events = &member->ready;
        if (member->far) {
            /* its own host waits */
        } else if (run->round.kind == ROUND_GATHER) {
            add_event(collective, member, ready_events_take(events, run->round.bucket));
            add_event(collective, member, ready_events_reuse(events, run->round.place));
        } else if (run->round.kind == ROUND_PRECOMPUTE) {
            add_event(collective, member, ready_events_pop(events));
        }
    }
}

/* Tables and shards are shared with linked groups, whose works are on streams of their own. */
static void add_after(struct collective *collective)
{
    struct device_run *device = collective->device;
    const struct group *group = collective->group;
    if (group->amax_group && group->amax_group->arena)
        device->after[device->steps.num_after++] = group->amax_group->arena;
    for (const struct group *s = group->sources; s; s = s->next_source)
        if (s->arena)
            device->after[device->steps.num_after++] = s->arena;
}

static void begin_steps(struct collective *collective)
{
    struct device_run *device = collective->device;
    const struct group *group = collective->group;
    bool linked = group->amax_group && group->amax_group->arena;
    device->steps = (struct backend_steps){.arena = group->arena,
        .amaxes = linked ? group->amax_group->arena : group->arena,
        .after = device->after,
        .ready = device->ready,
        .scales = device->scales,
        .spans = device->spans};
    collective->run.work.steps = &device->steps;
}

/* Whether the cursor has passed all pairs. */
static bool at_end(const struct run *run)
{
    return run->weight == run->first + run->count;
}

static int fill_amax(struct collective *collective)
{
    if (!collective_fill_batch(collective))
        return F8_OK;
    if (collective->device->waits) {
        add_wait(collective);
        return F8_OK;
    }
    add_reduction(collective);
    return collective->run.round.kind == ROUND_PRECOMPUTE ? add_landing(collective) : F8_OK;
}

static int fill_cast(struct collective *collective)
{
    struct device_run *device = collective->device;
    if (device->casts)
        add_gather_scales(collective);
    device->casts = false;
    if (!collective_fill_batch(collective))
        return F8_OK;
    add_exchange(collective);
    return add_landing(collective);
}

/* Queues the next work of the phase. F8_ENOMEM, with the refusal. */
static int submit(struct collective *collective)
{
    struct run *run = &collective->run;
    struct device_run *device = collective->device;
    int status = run->phase == RUN_AMAX ? fill_amax(collective) : fill_cast(collective);
    if (status < 0)
        return status;
    device->open += device->steps.landing && device->steps.landing->landed;
    backend_submit(collective->backend, &run->work);
    return F8_OK;
}

static void submit_or_fail(struct collective *collective)
{
    int status = submit(collective);
    if (status < 0)
        collective_fail(collective, status);
}

/* Whether the range has any weight whose amax is reduced; if so, whether the host must know it. */
static bool wants_amaxes(struct collective *collective)
{
    const struct run *run = &collective->run;
    const struct group *group = collective->group;
    bool any = false;
    collective->device->waits = false;
    for (uint32_t w = run->first; w < run->first + run->count; w++) {
        if (!collective_reduces(collective, w))
            continue;
        any = true;
        if (run->round.kind == ROUND_GATHER &&
            (group->list->weights[w].flavour == F8_PROTO_DELAYED ||
                (collective->entries && collective->entries[w] != AMAX_NONE)))
            collective->device->waits = true;
    }
    return any;
}

static void begin_cast(struct collective *collective)
{
    collective_begin_phase(collective, RUN_CAST);
    collective->device->casts = true;
}

/* Whether the round's first work has operations over hosts. */
static bool begins_with_hosts(struct collective *collective)
{
    bool amaxes = wants_amaxes(collective);
    return collective->hosts && !collective->device->waits &&
           (amaxes || collective->run.round.kind == ROUND_GATHER);
}

int collective_device_start(struct collective *collective)
{
    if (!begins_with_hosts(collective))
        return collective_device_begin(collective);
    comm_await_turn(collective->hosts);
    return F8_OK;
}

int collective_device_begin(struct collective *collective)
{
    struct run *run = &collective->run;
    begin_steps(collective);
    add_after(collective);
    if (run->phase == RUN_CAST) /* the amaxes that it waited for are here */
        return submit(collective);
    add_ready(collective);
    bool amaxes = wants_amaxes(collective);
    run->work.num_tasks = 0;
    if (!amaxes && run->round.kind != ROUND_GATHER) {
        run->weight = run->first + run->count; /* nothing to do, but later, as all else */
        backend_submit(collective->backend, &run->work);
        return F8_OK;
    }
    if (!amaxes)
        begin_cast(collective);
    return submit(collective);
}

static void note_precompute(struct collective *collective)
{
    const struct run *run = &collective->run;
    for (uint32_t w = run->first; w < run->first + run->count; w++)
        if (collective_reduces(collective, w)) {
            scaling_precompute_begun(&collective->group->scalings[w], run->weights[w].version);
            collective_push(collective, w);
        }
}

/* This host's amaxes are here: it goes on with them as it does without devices. */
static void take_amaxes(struct collective *collective)
{
    struct run *run = &collective->run;
    const struct backend_landing *landing = &collective->device->landing;
    for (uint32_t i = 0; i < landing->count; i++)
        run->weights[landing->first + i].amax = landing->amaxes[i];
    if (!collective->hosts || collective_count_amaxes(collective) == 0) {
        collective_device_reduced(collective);
        return;
    }
    run->phase = RUN_REDUCE;
    engine_reduce(collective->hosts);
    collective_settle(collective);
}

void collective_device_reduced(struct collective *collective)
{
    struct collective_context *context = collective->context;
    collective_set_scales(collective);
    if (collective_must_exchange(collective)) {
        collective->run.phase = RUN_EXCHANGE;
        collective_exchange(collective);
    } else {
        collective_device_go_on(collective);
    }
    collective_serve_events(context);
}

static void amaxes_queued(struct collective *collective)
{
    if (collective->run.round.kind == ROUND_PRECOMPUTE) {
        note_precompute(collective);
        collective_end_run(collective);
    } else if (collective->device->waits) {
        take_amaxes(collective);
    } else {
        collective_device_go_on(collective);
    }
}

void collective_device_go_on(struct collective *collective)
{
    begin_cast(collective);
    if (collective->hosts && collective->device->waits) {
        comm_await_turn(collective->hosts);
        collective_wake(collective); /* others may be ready already, or be gone */
        return;
    }
    begin_steps(collective);
    add_after(collective);
    submit_or_fail(collective);
}

static void failed(struct collective *collective, int status)
{
    struct device_run *device = collective->device;
    struct backend_landing *landing = device->steps.landing;
    if (landing && landing->landed) {
        device->open--;
        collective_spare_landed(landing->owner);
    }
    collective->refusal = device->steps.reason;
    if (collective->refusal.text[0] == '\0' && landing)
        collective->refusal = landing->reason;
    collective_arena_failed(collective);
    collective_fail(collective, status);
}

/* A sync or an invalidate: a delayed weight's amax is one over all hosts. */
static void end_move(struct collective *collective)
{
    if (!collective->hosts || collective_count_amaxes(collective) == 0) {
        collective_end_run(collective);
        return;
    }
    collective->run.phase = RUN_REDUCE;
    engine_reduce(collective->hosts);
    collective_settle(collective);
}

void collective_device_finished(struct collective *collective, int status)
{
    struct run *run = &collective->run;
    bool moves = run->round.kind == ROUND_SYNC || run->round.kind == ROUND_INVALIDATE;
    if (status < 0) {
        failed(collective, status);
    } else if (moves) {
        end_move(collective);
    } else if (!at_end(run)) {
        begin_steps(collective);
        submit_or_fail(collective);
    } else if (run->phase == RUN_AMAX) {
        amaxes_queued(collective);
    } else {
        collective_end_run(collective);
    }
}

uint32_t collective_done_event(const struct group *group)
{
    const struct device_run *device = group->collective->device;
    return device && device->steps.wants_done ? device->steps.done + 1 : 0;
}

/* ---- setting up ---- */

static int allocate(struct collective *collective, struct device_run *device)
{
    const struct group *group = collective->group;
    uint32_t weights = group->list->num_weights, links = 1;
    for (const struct group *s = group->sources; s; s = s->next_source)
        links++;
    device->scales = calloc(weights, sizeof(*device->scales));
    device->spans = calloc(weights, sizeof(*device->spans));
    device->ready = calloc((size_t)group->world_size * 2, sizeof(*device->ready));
    device->after = calloc(links, sizeof(*device->after));
    device->landing.amaxes = calloc(weights, sizeof(*device->landing.amaxes));
    device->landing.counts = calloc(weights, sizeof(*device->landing.counts));
    bool complete = device->scales && device->spans && device->ready && device->after &&
                    device->landing.amaxes && device->landing.counts;
    return complete ? F8_OK : F8_ENOMEM;
}

int collective_prepare_device(struct collective *collective)
{
    struct group *group = collective->group;
    collective_drop_device(collective);
    if (!backend_is_device(collective->backend))
        return F8_OK;
    struct device_run *device = collective->device = calloc(1, sizeof(*device));
    if (!device || allocate(collective, device) < 0)
        return F8_ENOMEM;
    if (!group->arena_counts) /* they go with the arena: its tables count on */
        group->arena_counts = calloc(group->list->num_weights, sizeof(*group->arena_counts));
    if (!group->arena_counts)
        return F8_ENOMEM;
    uint32_t depth = collective->context->config->max_rounds;
    uint32_t buckets = group->list->num_buckets;
    int status = F8_OK;
    for (uint32_t r = 0; r < group->world_size && status == F8_OK; r++) {
        struct member *member = group_member_of(group, r);
        if (!member->far)
            status = ready_events_reset(&member->ready, buckets, group->slots + buckets, depth);
    }
    return status;
}

void collective_drop_device(struct collective *collective)
{
    struct device_run *device = collective->device;
    collective->device = NULL;
    if (!device)
        return;
    collective_free_landed(device);
    free(device->scales);
    free(device->spans);
    free(device->ready);
    free(device->after);
    free(device->landing.amaxes);
    free(device->landing.counts);
    free(device);
}
