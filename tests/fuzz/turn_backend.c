/* SPDX-License-Identifier: Apache-2.0 */
/* A backend that works when it is told to: see turn_backend.h. */
#include "tests/fuzz/turn_backend.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "status.h"

#define MAX_ITEMS 1024

/* One of the two is set. */
struct item {
    struct backend_work *work;       /* borrowed: from its caller */
    struct backend_reserve *reserve; /* borrowed: from its caller */
};

struct turn_backend {
    struct backend base;
    struct item items[MAX_ITEMS]; /* a ring */
    unsigned head, tail;
};

static void push(struct backend *backend, struct item item)
{
    struct turn_backend *turns = (struct turn_backend *)backend;
    assert(turns->tail - turns->head < MAX_ITEMS);
    turns->items[turns->tail++ % MAX_ITEMS] = item;
}

static void submit(struct backend *backend, struct backend_work *work)
{
    assert(!work->submitted);
    for (uint32_t t = 0; t < work->num_tasks; t++) {
        work->tasks[t].amax = 0;
        work->tasks[t].counts = (struct f8k_counts){0};
    }
    work->submitted = true;
    work->cancelled = false;
    push(backend, (struct item){.work = work});
}

static void cancel(struct backend *backend, struct backend_work *work)
{
    (void)backend;
    work->cancelled = work->submitted;
}

static void reserve(struct backend *backend, struct backend_reserve *asked)
{
    asked->arena = NULL;
    push(backend, (struct item){.reserve = asked});
}

static void free_turns(struct backend *backend)
{
    struct turn_backend *turns = (struct turn_backend *)backend;
    assert(turns->head == turns->tail);
    free(turns);
}

static void compute(struct backend_task *task)
{
    const struct f8k_ops *ops = f8k_ops();
    switch (task->op) {
    case BACKEND_AMAX:
        task->amax = ops->amax(task->dtype, task->src, task->count);
        break;
    case BACKEND_CAST:
        ops->cast(&(struct f8k_cast){.src = task->src,
                      .dst = task->dst,
                      .count = task->count,
                      .scale = task->scale,
                      .dtype = task->dtype,
                      .format = task->format},
            &task->counts);
        break;
    case BACKEND_COPY:
        if (task->count > 0)
            memcpy(task->dst, task->src, task->count * f8k_dtype_size(task->dtype));
        break;
    case BACKEND_TO_BF16:
        ops->to_bf16(task->src, (void *)task->dst, task->count);
        break;
    case BACKEND_FILL:
        if (task->count > 0)
            memset(task->dst, task->byte, task->count);
        break;
    }
}

bool turn_backend_turn(struct backend *backend)
{
    struct turn_backend *turns = (struct turn_backend *)backend;
    if (turns->head == turns->tail)
        return false;
    struct item item = turns->items[turns->head++ % MAX_ITEMS];
    if (item.reserve) {
        struct backend_reserve *asked = item.reserve;
        asked->status = arena_create(asked->size, &asked->arena, &asked->reason);
        asked->finished(asked, asked->status);
        return true;
    }
    struct backend_work *work = item.work;
    for (uint32_t t = 0; t < work->num_tasks && !work->cancelled; t++)
        compute(&work->tasks[t]);
    work->submitted = false;
    work->finished(work, work->cancelled ? F8_ECANCELED : F8_OK);
    return true;
}

static const struct backend_ops turn_ops = {
    .name = "turn",
    .submit = submit,
    .cancel = cancel,
    .reserve = reserve,
    .free = free_turns,
};

struct backend *turn_backend_new(void)
{
    struct turn_backend *turns = calloc(1, sizeof(*turns));
    if (!turns)
        return NULL;
    turns->base.ops = &turn_ops;
    return &turns->base;
}
