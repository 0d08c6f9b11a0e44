/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables of a work: what each task and each scale is as an entry for the kernels, with the
 * addresses of the arena's own tables on the device. A pass over the tasks for each device and
 * each of the two halves of a work. Device thread.
 */
#include "daemon/cuda/work.h"

#include <assert.h>

#include "proto/status.h"

/* ---- checks ---- */

static bool has_cell(const struct backend_task *task)
{
    return task->op == BACKEND_AMAX || task->op == BACKEND_CAST;
}

static int check_task(struct work_plan *plan, const struct backend_task *task)
{
    const struct cuda_arena *arena = plan->arena;
    if (!has_cell(task))
        return cuda_arena_on(arena, task->device)
                   ? F8_OK
                   : reason_set(&plan->reason, F8_EINVAL,
                         "a task is on device %d, where its arena is not", task->device);
    if (task->row >= arena->ranks || task->slot >= arena->slots)
        return reason_set(&plan->reason, F8_EINVAL,
            "a task is of rank %u and slot %u; its arena has %u ranks and %u slots", task->row,
            task->slot, arena->ranks, arena->slots);
    if (arena->device_of_rank[task->row] == CUDA_FAR)
        return reason_set(
            &plan->reason, F8_EINVAL, "a task is of rank %u, which is on another host", task->row);
    int32_t device = arena->devices[arena->device_of_rank[task->row]].device;
    if (task->device != device)
        return reason_set(&plan->reason, F8_EINVAL,
            "a task of rank %u is on device %d; the rank is on device %d", task->row, task->device,
            device);
    return F8_OK;
}

static bool has_range(uint32_t slots, uint32_t first, uint32_t count)
{
    return first <= slots && count <= slots - first;
}

/* Those of the reduction and of the landing. */
static int check_ranges(struct work_plan *plan)
{
    const struct backend_steps *steps = plan->steps;
    const struct backend_landing *landing = steps->landing;
    uint32_t slots = plan->arena->slots;
    if (!has_range(slots, steps->reduce_first, steps->reduce_count))
        return reason_set(&plan->reason, F8_EINVAL,
            "a reduction of %u slots from %u on; the arena has %u", steps->reduce_count,
            steps->reduce_first, slots);
    if (landing && !has_range(slots, landing->first, landing->count))
        return reason_set(&plan->reason, F8_EINVAL,
            "a landing of %u slots from %u on; the arena has %u", landing->count, landing->first,
            slots);
    return F8_OK;
}

/* A group whose weights name another one may have weights of its own amaxes beside them. */
static const struct cuda_arena *amaxes_of(
    const struct work_plan *plan, const struct backend_scale *scale)
{
    return scale->foreign ? plan->amaxes : plan->arena;
}

static int check_scale(struct work_plan *plan, const struct backend_scale *scale)
{
    const struct cuda_arena *arena = plan->arena, *amaxes = amaxes_of(plan, scale);
    if (scale->slot >= arena->slots || (!scale->known && scale->amax_slot >= amaxes->slots))
        return reason_set(&plan->reason, F8_EINVAL,
            "a scale of slot %u from the amax of slot %u; there are %u and %u slots", scale->slot,
            scale->amax_slot, arena->slots, amaxes->slots);
    if (scale->copy != UINT64_MAX &&
        (arena->size < sizeof(float) || scale->copy > arena->size - sizeof(float) ||
            scale->copy % sizeof(float) != 0))
        return reason_set(&plan->reason, F8_EINVAL,
            "a scale is to be at byte %llu of an arena of %llu bytes",
            (unsigned long long)scale->copy, (unsigned long long)arena->size);
    return F8_OK;
}

static int check_spans(struct work_plan *plan)
{
    const struct cuda_arena *arena = plan->arena;
    for (uint32_t i = 0; i < plan->steps->num_spans; i++) {
        const struct backend_span *span = &plan->steps->spans[i];
        if (span->offset > arena->size || span->chunk > (arena->size - span->offset) / arena->ranks)
            return reason_set(&plan->reason, F8_EINVAL,
                "%u chunks of %llu bytes from byte %llu on leave an arena of %llu bytes",
                arena->ranks, (unsigned long long)span->chunk, (unsigned long long)span->offset,
                (unsigned long long)arena->size);
    }
    return F8_OK;
}

static bool has_unknown_scale(const struct backend_steps *steps)
{
    for (uint32_t i = 0; i < steps->num_scales; i++)
        if (!steps->scales[i].known)
            return true;
    return false;
}

static int check_amaxes(struct work_plan *plan)
{
    if (plan->amaxes == plan->arena || !has_unknown_scale(plan->steps))
        return F8_OK;
    for (uint32_t d = 0; d < plan->arena->base.num_devices; d++)
        if (!cuda_arena_on(plan->amaxes, plan->arena->devices[d].device))
            return reason_set(&plan->reason, F8_EINVAL,
                "scales on device %d come from amaxes of group %s, which is not on that device",
                plan->arena->devices[d].device, plan->amaxes->name);
    return F8_OK;
}

int work_plan_check(struct work_plan *plan)
{
    const struct backend_work *work = plan->work;
    int r = check_ranges(plan);
    if (r == F8_OK)
        r = check_spans(plan);
    if (r == F8_OK)
        r = check_amaxes(plan);
    for (uint32_t i = 0; i < plan->steps->num_scales && r == F8_OK; i++)
        r = check_scale(plan, &plan->steps->scales[i]);
    for (uint32_t i = 0; i < work->num_tasks && r == F8_OK; i++)
        r = check_task(plan, &work->tasks[i]);
    return r;
}

/* ---- tables ---- */

static struct cuda_batch batch_on(struct work_plan *plan, uint32_t d, uint64_t expected)
{
    const struct cuda_arena_device *device = &plan->arena->devices[d];
    return (struct cuda_batch){.cuda = plan->cuda,
        .ring = device->ring,
        .reason = &plan->reason,
        .stream = device->stream,
        .deadline_ms = plan->deadline_ms,
        .expected = expected};
}

static bool takes_amax(const struct backend_task *task)
{
    return task->op == BACKEND_AMAX || (task->op == BACKEND_CAST && task->take_amax);
}

/* Whether a task is run in the first half of a work, or begins something there. */
static uint64_t count_tasks(const struct work_plan *plan, int32_t device, bool amaxes)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < plan->work->num_tasks; i++) {
        const struct backend_task *task = &plan->work->tasks[i];
        if (task->device != device)
            continue;
        bool is_amax = task->op == BACKEND_AMAX;
        count += amaxes ? (uint64_t)is_amax + takes_amax(task) : !is_amax;
    }
    return count;
}

static int zero_amaxes(struct work_plan *plan, uint32_t d, struct cuda_batch *batch)
{
    const struct cuda_arena_device *device = &plan->arena->devices[d];
    int r = F8_OK;
    for (uint32_t i = 0; i < plan->work->num_tasks && r == F8_OK; i++) {
        const struct backend_task *task = &plan->work->tasks[i];
        if (task->device == device->device && takes_amax(task))
            r = cuda_batch_zero(batch, &device->amax[cuda_cell(plan->arena, task->row, task->slot)],
                sizeof(device->amax[0]));
    }
    return r == F8_OK ? cuda_batch_end_zeros(batch) : r;
}

int work_plan_amaxes(struct work_plan *plan, uint32_t d)
{
    const struct cuda_arena_device *device = &plan->arena->devices[d];
    uint64_t count = count_tasks(plan, device->device, true);
    if (count == 0)
        return F8_OK;
    struct cuda_batch batch = batch_on(plan, d, cuda_batch_size(count, 0));
    int r = zero_amaxes(plan, d, &batch);
    for (uint32_t i = 0; i < plan->work->num_tasks && r == F8_OK; i++) {
        const struct backend_task *task = &plan->work->tasks[i];
        if (task->device != device->device || task->op != BACKEND_AMAX)
            continue;
        const struct f8cu_task entry = {.op = F8CU_AMAX,
            .src = task->src,
            .count = task->count,
            .dtype = (uint8_t)task->dtype,
            .amax = &device->amax[cuda_cell(plan->arena, task->row, task->slot)]};
        r = cuda_batch_task(&batch, CUDA_TABLE_AMAX, &entry);
    }
    return r == F8_OK ? cuda_batch_flush(&batch) : r;
}

static int add_scale(
    struct work_plan *plan, uint32_t d, const struct backend_scale *scale, struct cuda_batch *batch)
{
    const struct cuda_arena_device *device = &plan->arena->devices[d];
    uint8_t *base = plan->arena->base.devices[d].base;
    struct f8cu_scale entry = {.scale = &device->scale[scale->slot],
        .value = scale->value,
        .dtype = scale->dtype,
        .format = scale->format,
        .path = scale->path,
        .power_of_two = scale->power_of_two};
    if (!scale->known)
        entry.amax =
            &cuda_arena_on(amaxes_of(plan, scale), device->device)->reduced[scale->amax_slot];
    if (scale->copy != UINT64_MAX)
        entry.copy = (float *)(void *)(base + scale->copy);
    return cuda_batch_scale(batch, &entry);
}

static struct f8cu_task entry_of(
    const struct work_plan *plan, uint32_t d, const struct backend_task *task)
{
    const struct cuda_arena_device *device = &plan->arena->devices[d];
    struct f8cu_task entry = {
        .src = task->src, .dst = task->dst, .count = task->count, .dtype = (uint8_t)task->dtype};
    switch (task->op) {
    case BACKEND_CAST: {
        uint64_t cell = cuda_cell(plan->arena, task->row, task->slot);
        entry.op = F8CU_CAST;
        entry.format = (uint8_t)task->format;
        entry.scale = &device->scale[task->slot];
        entry.counts = &device->counts[cell];
        entry.amax = task->take_amax ? &device->amax[cell] : NULL;
        break;
    }
    case BACKEND_COPY:
        entry.op = F8CU_COPY;
        entry.count = task->count * f8k_dtype_size(task->dtype);
        break;
    case BACKEND_TO_BF16:
        entry.op = F8CU_TO_BF16;
        break;
    case BACKEND_FILL:
        entry.op = F8CU_FILL;
        entry.byte = task->byte;
        break;
    case BACKEND_AMAX:
        assert(false); /* the first half of the work */
        break;
    }
    return entry;
}

int work_plan_writes(struct work_plan *plan, uint32_t d)
{
    const struct backend_steps *steps = plan->steps;
    int32_t device = plan->arena->devices[d].device;
    uint64_t count = count_tasks(plan, device, false);
    if (count == 0 && steps->num_scales == 0)
        return F8_OK;
    struct cuda_batch batch = batch_on(plan, d, cuda_batch_size(count, steps->num_scales));
    int r = F8_OK;
    for (uint32_t i = 0; i < steps->num_scales && r == F8_OK; i++)
        r = add_scale(plan, d, &steps->scales[i], &batch);
    for (uint32_t i = 0; i < plan->work->num_tasks && r == F8_OK; i++) {
        const struct backend_task *task = &plan->work->tasks[i];
        if (task->device != device || task->op == BACKEND_AMAX)
            continue;
        const struct f8cu_task entry = entry_of(plan, d, task);
        r = cuda_batch_task(&batch, CUDA_TABLE_WRITE, &entry);
    }
    return r == F8_OK ? cuda_batch_flush(&batch) : r;
}
