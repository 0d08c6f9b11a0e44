/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Issues works: all that a work does is queued on the arena's streams, device after device and step
 * after step, and nothing of it is waited for. The steps before the reduction are queued on all
 * devices first, then the reduction, which is one group of NCCL, and so on, so that every device
 * has the same order of collectives. Device thread.
 */
#include <assert.h>
#include <stdlib.h>

#include "daemon/cuda/comm.h"
#include "daemon/cuda/results.h"
#include "daemon/cuda/work.h"
#include "proto/status.h"

/* The ring holds the largest work so many times, within these bounds. */
#define RING_WORKS    4
#define RING_MIN_SIZE ((uint64_t)128 << 10)
#define RING_MAX_SIZE ((uint64_t)8 << 20)

/* ---- what works need ---- */

static uint64_t ring_size(const struct cuda_arena *arena, const struct cuda_arena_device *device)
{
    /* For each shard: zero its amax, take it, cast; for each weight a scale. */
    uint64_t cells = (uint64_t)device->num_rows * arena->slots;
    uint64_t size = RING_WORKS * cuda_batch_size(3 * cells, arena->slots);
    if (size < RING_MIN_SIZE)
        return RING_MIN_SIZE;
    return size < RING_MAX_SIZE ? size : RING_MAX_SIZE;
}

int cuda_work_prepare(struct cuda *cuda, struct cuda_arena *arena, struct reason *reason)
{
    (void)cuda;
    for (uint32_t d = 0; d < arena->base.num_devices; d++) {
        struct cuda_arena_device *device = &arena->devices[d];
        device->ring = calloc(1, sizeof(*device->ring));
        if (!device->ring)
            return reason_set(reason, F8_ENOMEM, "no memory for the record of a ring of tables");
        cuda_device_switch(device->device);
        int r = cuda_ring_init(device->ring, ring_size(arena, device), reason);
        if (r < 0)
            return r;
    }
    return F8_OK;
}

void cuda_work_release(struct cuda *cuda, struct cuda_arena *arena)
{
    cuda_results_forget(cuda, arena);
    for (uint32_t d = 0; d < arena->base.num_devices; d++) {
        struct cuda_arena_device *device = &arena->devices[d];
        if (!device->ring)
            continue;
        cuda_device_switch(device->device);
        cuda_ring_done(device->ring);
        free(device->ring);
        device->ring = NULL;
    }
}

/* ---- waits ---- */

static int wait_event(cudaStream_t stream, cudaEvent_t event, int32_t device, const char *of_what,
    struct reason *reason)
{
    return cuda_failed(cudaStreamWaitEvent(stream, event, 0), reason,
        "device %d cannot wait for %s", device, of_what);
}

/* Works of another arena so far, on a device that both are on. */
static int wait_arena(
    const struct cuda_arena *other, cudaStream_t stream, int32_t device, struct reason *reason)
{
    const struct cuda_arena_device *there = cuda_arena_on(other, device);
    return there ? wait_event(stream, there->tail, device, "an earlier work", reason) : F8_OK;
}

static int wait_all(struct work_plan *plan, uint32_t d)
{
    const struct backend_steps *steps = plan->steps;
    const struct cuda_arena *arena = plan->arena;
    int32_t device = arena->devices[d].device;
    cudaStream_t gate = cuda_comm_gate(arena, d);
    int r = F8_OK;
    for (uint32_t i = 0; i < steps->num_ready && r == F8_OK; i++) {
        const struct backend_client *client = steps->ready[i].client;
        if (client->device == device)
            r = wait_event(gate, client->ready[steps->ready[i].event], device,
                "a client's ready event", &plan->reason);
    }
    for (uint32_t i = 0; i < steps->num_after && r == F8_OK; i++)
        r = wait_arena(cuda_arena_of(steps->after[i]), gate, device, &plan->reason);
    /* Reading another arena's reduced amaxes is coming after it. */
    if (r == F8_OK && plan->amaxes != arena)
        r = wait_arena(plan->amaxes, gate, device, &plan->reason);
    return r == F8_OK ? cuda_comm_open_gate(arena, d, &plan->reason) : r;
}

/* ---- steps ---- */

static int reduce(struct work_plan *plan)
{
    const struct backend_steps *steps = plan->steps;
    struct cuda_arena *arena = plan->arena;
    uint32_t first = steps->reduce_first, count = steps->reduce_count;
    if (count == 0)
        return F8_OK;
    for (uint32_t d = 0; d < arena->base.num_devices; d++) {
        const struct cuda_arena_device *device = &arena->devices[d];
        cuda_device_switch(device->device);
        int r = f8cu_max_rows(device->amax + first, device->num_rows, arena->slots,
            device->reduced + first, count, device->stream);
        if (r < 0)
            return reason_set(&plan->reason, r,
                "cannot launch the reduction of %u amaxes on device %d: %s", count, device->device,
                r == F8_EIO ? f8cu_error() : "its arguments are not valid");
    }
    return cuda_comm_reduce(plan->cuda, arena, first, count, &plan->reason);
}

/* Always, also behind a step that failed: what was queued before it must be seen to end. */
static int record_end(struct work_plan *plan)
{
    struct cuda_arena *arena = plan->arena;
    struct backend_steps *steps = plan->steps;
    struct reason ignored, *reason = plan->status == F8_OK ? &plan->reason : &ignored;
    int status = F8_OK;
    if (steps->wants_done)
        steps->done = arena->next_done++ % BACKEND_NUM_DONE;
    for (uint32_t d = 0; d < arena->base.num_devices; d++) {
        const struct cuda_arena_device *device = &arena->devices[d];
        cuda_device_switch(device->device);
        int r = F8_OK;
        if (steps->wants_done)
            r = cuda_failed(cudaEventRecord(device->done[steps->done], device->stream), reason,
                "cannot record the end of a gather on device %d", device->device);
        if (r == F8_OK)
            r = cuda_failed(cudaEventRecord(device->tail, device->stream), reason,
                "cannot record the end of a work on device %d", device->device);
        if (status == F8_OK)
            status = r;
    }
    return status;
}

typedef int device_step(struct work_plan *plan, uint32_t d);

static void on_devices(struct work_plan *plan, device_step *step)
{
    for (uint32_t d = 0; d < plan->arena->base.num_devices && plan->status == F8_OK; d++) {
        cuda_device_switch(plan->arena->devices[d].device);
        plan->status = step(plan, d);
    }
}

static void issue(struct work_plan *plan)
{
    const struct backend_steps *steps = plan->steps;
    on_devices(plan, wait_all);
    on_devices(plan, work_plan_amaxes);
    if (plan->status == F8_OK)
        plan->status = reduce(plan);
    on_devices(plan, work_plan_writes);
    if (plan->status == F8_OK)
        plan->status = cuda_comm_exchange(
            plan->cuda, plan->arena, steps->spans, steps->num_spans, plan->command, &plan->reason);
    int r = record_end(plan);
    if (plan->status == F8_OK)
        plan->status = r;
    if (plan->status == F8_OK && steps->landing)
        plan->status = cuda_results_land(plan->cuda, plan->arena, plan->command, &plan->reason);
}

/* ---- the command ---- */

/* What was refused before anything was queued leaves the arena as it was. */
static void refuse(struct work_plan *plan)
{
    struct backend_landing *landing = plan->steps->landing;
    plan->steps->reason = plan->reason;
    if (landing)
        landing->reason = plan->reason;
    cuda_finish(plan->cuda, plan->command, plan->status);
}

static void fail(struct work_plan *plan)
{
    const struct cuda_arena *arena = plan->arena;
    struct reason words = plan->reason;
    if (atomic_load(&plan->arena->is_abandoned)) {
        plan->status = arena->abandoned;
        plan->reason = arena->abandoned_reason;
    } else {
        plan->status =
            reason_set(&plan->reason, plan->status, "group %s: %s", arena->name, words.text);
    }
    cuda_results_break(plan->cuda, plan->arena, plan->status, &plan->reason);
    refuse(plan);
}

void cuda_work_run(struct cuda *cuda, struct cuda_command *command)
{
    struct backend_steps *steps = command->work->steps;
    assert(steps && steps->arena->device); /* works of a device backend have steps */
    struct cuda_arena *arena = cuda_arena_of(steps->arena);
    struct work_plan plan = {.cuda = cuda,
        .command = command,
        .work = command->work,
        .steps = steps,
        .arena = arena,
        .amaxes = steps->amaxes ? cuda_arena_of(steps->amaxes) : arena,
        .deadline_ms = cuda_now_ms() + CUDA_QUIET_LIMIT_MS};
    steps->done = BACKEND_NO_EVENT;
    if (arena->broken < 0) {
        plan.reason = arena->broken_reason;
        plan.status = arena->broken;
    } else {
        plan.status = work_plan_check(&plan);
    }
    if (plan.status < 0) {
        refuse(&plan);
        return;
    }
    bool has_landing = steps->landing != NULL; /* which may soon be the caller's again */
    issue(&plan);
    if (plan.status < 0)
        fail(&plan);
    else if (!has_landing)
        cuda_finish(cuda, command, F8_OK);
}
