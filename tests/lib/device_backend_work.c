/* SPDX-License-Identifier: Apache-2.0 */
/* Works of the backend without devices, from their submit to their landing: see device_backend.h.
 */
#include <stdlib.h>
#include <string.h>

#include "status.h"
#include "tests/lib/device_backend_private.h"

/* One may have been freed since the work was submitted: then it stays for as long as that. */
static struct fake_arena *arena_of(const struct device_backend *fake, const struct arena *wanted)
{
    struct fake_arena *arena = fake->arenas;
    while (arena && &arena->base != wanted)
        arena = arena->next;
    fake_check(arena != NULL, "a work names an arena that is not there");
    return arena;
}

static const struct fake_arena *live_arena_of(
    const struct device_backend *fake, const struct arena *wanted)
{
    const struct fake_arena *arena = arena_of(fake, wanted);
    fake_check(!arena->gone, "a work names an arena that is to be freed");
    return arena;
}

static uint32_t index_of(const struct fake_arena *arena, int32_t device)
{
    uint32_t d = 0;
    while (d < arena->device.num_devices && arena->devices[d].device != device)
        d++;
    fake_check(d < arena->device.num_devices, "a work names a device that its arena is not on");
    return d;
}

/* ---- what a work may name ---- */

static uint64_t src_bytes(const struct backend_task *task)
{
    return task->op == BACKEND_FILL ? 0 : task->count * f8k_dtype_size(task->dtype);
}

static uint64_t dst_bytes(const struct backend_task *task)
{
    switch (task->op) {
    case BACKEND_AMAX:
        return 0;
    case BACKEND_COPY:
        return task->count * f8k_dtype_size(task->dtype);
    case BACKEND_TO_BF16:
        return task->count * 2;
    case BACKEND_CAST:
    case BACKEND_FILL:
        break;
    }
    return task->count;
}

static void check_src(const struct device_backend *fake, const struct backend_task *task)
{
    uint64_t bytes = src_bytes(task);
    const uint8_t *src = task->src;
    const struct backend_mapping *mapping = fake->mappings;
    if (bytes == 0)
        return;
    while (mapping && (src < mapping->data || src >= mapping->data + mapping->size))
        mapping = mapping->next;
    fake_check(mapping != NULL, "a task reads what is not mapped");
    fake_check(!mapping->gone, "a task reads what is to be unmapped");
    fake_check(mapping->device == task->device, "a task reads another device's memory");
    fake_check(bytes <= (uint64_t)(mapping->data + mapping->size - src), "a task reads too far");
}

static void check_task(const struct device_backend *fake, const struct fake_arena *arena,
    const struct backend_task *task)
{
    uint64_t bytes = dst_bytes(task);
    const uint8_t *base = arena->devices[index_of(arena, task->device)].base;
    check_src(fake, task);
    if (task->op != BACKEND_FILL)
        fake_check(task->row < arena->ranks && task->slot < arena->slots, "a task has no cell");
    if (bytes > 0)
        fake_check(task->dst >= base && task->dst - base <= (int64_t)arena->base.size &&
                       bytes <= arena->base.size - (uint64_t)(task->dst - base),
            "a task writes outside of its arena");
}

static void check_steps(const struct device_backend *fake, const struct backend_steps *steps)
{
    const struct fake_arena *arena = live_arena_of(fake, steps->arena);
    for (uint32_t i = 0; i < steps->num_after; i++)
        (void)live_arena_of(fake, steps->after[i]);
    for (uint32_t i = 0; i < steps->num_ready; i++) {
        const struct backend_client *client = fake->clients;
        while (client && client != steps->ready[i].client)
            client = client->next;
        fake_check(client && !client->gone, "a work waits for events of no client");
        fake_check(steps->ready[i].event < client->num_ready, "a work waits for no event");
    }
    for (uint32_t i = 0; i < steps->num_scales; i++) {
        const struct backend_scale *scale = &steps->scales[i];
        const struct fake_arena *amaxes =
            scale->foreign ? live_arena_of(fake, steps->amaxes) : arena;
        fake_check(scale->slot < arena->slots, "a scale has no slot");
        fake_check(scale->known || scale->amax_slot < amaxes->slots, "a scale has no amax");
        fake_check(scale->copy == UINT64_MAX || scale->copy + 4 <= arena->base.size,
            "a scale is handed out nowhere");
    }
    for (uint32_t i = 0; i < steps->num_spans; i++)
        fake_check(
            steps->spans[i].offset + steps->spans[i].chunk * arena->ranks <= arena->base.size,
            "a span leaves its arena");
    fake_check(
        steps->reduce_first + steps->reduce_count <= arena->slots, "a reduction of no slots");
    if (steps->landing)
        fake_check(steps->landing->first + steps->landing->count <= arena->slots &&
                       steps->landing->amaxes && steps->landing->counts &&
                       steps->landing->deadline_ms > 0,
            "a landing of no slots, without memory, or without a deadline");
}

void fake_check_work(struct device_backend *fake, const struct backend_work *work)
{
    fake_check(work->steps != NULL, "a work without steps");
    check_steps(fake, work->steps);
    for (uint32_t t = 0; t < work->num_tasks; t++)
        check_task(fake, live_arena_of(fake, work->steps->arena), &work->tasks[t]);
}

/* ---- queueing ---- */

static void *copy_of(const void *array, uint32_t count, size_t size)
{
    void *copy = fake_allocate(count, size);
    if (count > 0)
        memcpy(copy, array, count * size);
    return copy;
}

static struct fake_work *work_of(struct device_backend *fake, const struct backend_work *work)
{
    const struct backend_steps *steps = work->steps;
    struct fake_work *copy = fake_allocate(1, sizeof(*copy));
    copy->steps = *steps;
    copy->arena = arena_of(fake, steps->arena);
    copy->amaxes = steps->amaxes ? arena_of(fake, steps->amaxes) : NULL;
    copy->num_tasks = work->num_tasks;
    copy->tasks = copy_of(work->tasks, work->num_tasks, sizeof(*copy->tasks));
    copy->ready = copy_of(steps->ready, steps->num_ready, sizeof(*copy->ready));
    copy->scales = copy_of(steps->scales, steps->num_scales, sizeof(*copy->scales));
    copy->spans = copy_of(steps->spans, steps->num_spans, sizeof(*copy->spans));
    copy->after = fake_allocate(steps->num_after, sizeof(*copy->after));
    for (uint32_t i = 0; i < steps->num_after; i++) {
        struct fake_arena *arena = arena_of(fake, steps->after[i]);
        copy->after[i] = (struct fake_after){.arena = arena, .queued = arena->queued};
    }
    copy->landing = steps->landing;
    uint32_t slots = copy->landing ? copy->landing->count : 0;
    copy->amax_results = fake_allocate(slots, sizeof(*copy->amax_results));
    copy->count_results = fake_allocate(slots, sizeof(*copy->count_results));
    return copy;
}

void fake_free_work(struct fake_work *work)
{
    free(work->tasks);
    free(work->ready);
    free(work->scales);
    free(work->spans);
    free(work->after);
    free(work->amax_results);
    free(work->count_results);
    free(work);
}

/* From the first failure on nothing of an arena is to be trusted. */
static void break_arena(struct fake_arena *arena, int status, const struct reason *reason)
{
    if (status == F8_OK || arena->broken < 0)
        return;
    arena->broken = status;
    arena->broken_reason = *reason;
}

static int may_queue(struct device_backend *fake, struct backend_steps *steps)
{
    struct fake_arena *arena = arena_of(fake, steps->arena);
    int status = fake_fails(fake, DEVICE_FAULT_WORK, &steps->reason);
    break_arena(arena, status, &steps->reason);
    if (arena->broken < 0)
        steps->reason = arena->broken_reason;
    return arena->broken;
}

void fake_queue(struct device_backend *fake, struct backend_work *work)
{
    int status = may_queue(fake, work->steps);
    if (status < 0) {
        work->submitted = false;
        work->finished(work, status);
        return;
    }
    struct fake_work *copy = work_of(fake, work);
    struct fake_work **link = &fake->works;
    while (*link)
        link = &(*link)->next;
    *link = copy;
    copy->arena->queued++;
    if (work->steps->wants_done)
        work->steps->done = copy->arena->next_done++ % BACKEND_NUM_DONE;
    if (copy->landing && !copy->landing->landed) {
        copy->ends = work;
        return;
    }
    work->submitted = false;
    work->finished(work, F8_OK);
}

/* ---- running ---- */

static bool is_first_of_stream(const struct device_backend *fake, const struct fake_work *work)
{
    const struct fake_work *before = fake->works;
    for (; before != work; before = before->next)
        if (before->arena == work->arena && !before->has_run)
            return false;
    return true;
}

static bool can_run(const struct device_backend *fake, const struct fake_work *work)
{
    if (work->has_run || !is_first_of_stream(fake, work))
        return false;
    for (uint32_t i = 0; i < work->steps.num_ready; i++)
        if (work->ready[i].client->unreached[work->ready[i].event])
            return false;
    for (uint32_t i = 0; i < work->steps.num_after; i++)
        if (work->after[i].arena->run < work->after[i].queued)
            return false;
    return true;
}

static void run_task(const struct fake_arena *arena, const struct backend_task *task)
{
    const struct f8k_ops *kernels = f8k_ops();
    const struct fake_tables *tables = &arena->tables[index_of(arena, task->device)];
    size_t cell = (size_t)task->row * arena->slots + task->slot;
    switch (task->op) {
    case BACKEND_AMAX:
        tables->amaxes[cell] = kernels->amax(task->dtype, task->src, task->count);
        break;
    case BACKEND_CAST:
        if (task->take_amax)
            tables->amaxes[cell] = 0;
        kernels->cast(&(struct f8k_cast){.src = task->src,
                          .dst = task->dst,
                          .count = task->count,
                          .scale = tables->scales[task->slot],
                          .dtype = task->dtype,
                          .format = task->format,
                          .amax = task->take_amax ? &tables->amaxes[cell] : NULL},
            &tables->counts[cell]);
        break;
    case BACKEND_COPY:
        if (task->count > 0)
            memcpy(task->dst, task->src, task->count * f8k_dtype_size(task->dtype));
        break;
    case BACKEND_TO_BF16:
        kernels->to_bf16(task->src, (void *)task->dst, task->count);
        break;
    case BACKEND_FILL:
        if (task->count > 0)
            memset(task->dst, task->byte, task->count);
        break;
    }
}

/* The largest of all rows, which each device has those of its own ranks of. */
static uint32_t largest(const struct fake_arena *arena, uint32_t slot)
{
    uint32_t amax = 0;
    for (uint32_t r = 0; r < arena->ranks; r++) {
        const struct fake_tables *tables = &arena->tables[index_of(arena, arena->rank_devices[r])];
        uint32_t other = tables->amaxes[(size_t)r * arena->slots + slot];
        amax = other > amax ? other : amax;
    }
    return amax;
}

static void reduce(struct fake_arena *arena, uint32_t first, uint32_t count)
{
    for (uint32_t slot = first; slot < first + count; slot++)
        for (uint32_t d = 0; d < arena->device.num_devices; d++)
            arena->tables[d].reduced[slot] = largest(arena, slot);
}

static void set_scale(const struct fake_work *work, const struct backend_scale *scale)
{
    struct fake_arena *arena = work->arena;
    const struct fake_arena *amaxes = scale->foreign ? work->amaxes : arena;
    for (uint32_t d = 0; d < arena->device.num_devices; d++) {
        float value = scale->value;
        if (!scale->known)
            value = f8k_scale(amaxes->tables[index_of(amaxes, arena->devices[d].device)]
                                  .reduced[scale->amax_slot],
                (enum f8k_dtype)scale->dtype, (enum f8k_format)scale->format,
                (enum f8k_scale_path)scale->path, scale->power_of_two);
        arena->tables[d].scales[scale->slot] = value;
        if (scale->copy != UINT64_MAX)
            memcpy(arena->devices[d].base + scale->copy, &value, sizeof(value));
    }
}

static void exchange(struct fake_arena *arena, const struct backend_span *span)
{
    for (uint32_t r = 0; r < arena->ranks; r++) {
        uint32_t from = index_of(arena, arena->rank_devices[r]);
        uint64_t at = span->offset + r * span->chunk;
        for (uint32_t d = 0; d < arena->device.num_devices; d++)
            if (d != from && span->chunk > 0)
                memcpy(arena->devices[d].base + at, arena->devices[from].base + at, span->chunk);
    }
}

static void keep_results(struct fake_work *work)
{
    const struct fake_arena *arena = work->arena;
    for (uint32_t i = 0; work->landing && i < work->landing->count; i++) {
        uint32_t slot = work->landing->first + i;
        work->amax_results[i] = largest(arena, slot);
        for (uint32_t d = 0; d < arena->device.num_devices; d++)
            for (uint32_t r = 0; r < arena->ranks; r++) {
                const struct f8k_counts *counts =
                    &arena->tables[d].counts[(size_t)r * arena->slots + slot];
                work->count_results[i].saturated += counts->saturated;
                work->count_results[i].nan += counts->nan;
            }
    }
}

static void drop_work(struct device_backend *fake, struct fake_work *work)
{
    struct fake_work **link = &fake->works;
    while (*link != work)
        link = &(*link)->next;
    *link = work->next;
    fake_free_work(work);
}

static void run(struct device_backend *fake, struct fake_work *work)
{
    struct fake_arena *arena = work->arena;
    for (uint32_t t = 0; t < work->num_tasks; t++)
        if (work->tasks[t].op == BACKEND_AMAX)
            run_task(arena, &work->tasks[t]);
    reduce(arena, work->steps.reduce_first, work->steps.reduce_count);
    for (uint32_t i = 0; i < work->steps.num_scales; i++)
        set_scale(work, &work->scales[i]);
    for (uint32_t t = 0; t < work->num_tasks; t++)
        if (work->tasks[t].op != BACKEND_AMAX)
            run_task(arena, &work->tasks[t]);
    for (uint32_t i = 0; i < work->steps.num_spans; i++)
        exchange(arena, &work->spans[i]);
    bool exchanges = work->steps.num_spans > 0 && arena->device.num_devices > 1;
    arena->device.exchanges += exchanges;
    arena->device.copy_engine_exchanges += exchanges && arena->device.window;
    keep_results(work);
    work->has_run = true;
    arena->run++;
    fake->works_run++;
    if (!work->landing)
        drop_work(fake, work);
}

bool fake_run_one(struct device_backend *fake)
{
    struct fake_work *last = NULL;
    for (struct fake_work *work = fake->works; work; work = work->next)
        if (can_run(fake, work)) {
            last = work; /* streams that came later overtake, if they can */
            if (!fake->seed)
                break;
        }
    if (last)
        run(fake, last);
    return last != NULL;
}

void device_backend_synchronise(struct backend *backend)
{
    while (fake_run_one(fake_of(backend)))
        ;
}

/* ---- landing ---- */

static void land(struct device_backend *fake, struct fake_work *work)
{
    struct backend_landing *landing = work->landing;
    struct backend_work *ends = work->ends;
    struct reason *reason = ends ? &ends->steps->reason : &landing->reason;
    int status = fake_fails(fake, DEVICE_FAULT_LANDING, reason);
    break_arena(work->arena, status, reason);
    memcpy(landing->amaxes, work->amax_results, landing->count * sizeof(*landing->amaxes));
    memcpy(landing->counts, work->count_results, landing->count * sizeof(*landing->counts));
    drop_work(fake, work);
    if (ends) {
        ends->submitted = false;
        ends->finished(ends, status);
    } else {
        landing->landed(landing, status);
    }
}

bool fake_land_one(struct device_backend *fake)
{
    struct fake_work *work = fake->works;
    while (work && !(work->has_run && work->landing))
        work = work->next;
    if (!work)
        return false;
    land(fake, work);
    return true;
}
