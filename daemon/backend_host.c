/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host backend: cuts works into chunks, keeps a bounded number of them in uv's pool, and
 * merges what they return. All state belongs to the loop; a worker sees one chunk, by value.
 * Rounds call it on the loop.
 *
 * Works with chunks left stand in a ring of jobs, each job's works in order behind its first one,
 * so that a job takes as many turns with a hundred works as with one. A work leaves the ring when
 * its last chunk is handed out, and is finished when the last of them comes back.
 */
#include "backend.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "proto/status.h"

/* Below this a turn costs more than it is worth, above it a job waits too long for its turn. */
#define CHUNK_BYTES ((uint64_t)1 << 20)
/* Small tasks are joined up to this: a chunk costs about as much as computing so many bytes. */
#define JOINED_BYTES ((uint64_t)128 << 10)
#define JOINED_TASKS 32
/* Output above this does not stay in the caches, so casts write past them. */
#define STREAM_BYTES ((uint64_t)1 << 20)
/* One chunk runs on a thread while the next waits for it. */
#define CHUNKS_PER_THREAD 2

struct chunk {
    uv_work_t request;
    struct host *host;         /* borrowed: whose slot this is */
    struct backend_work *work; /* borrowed: from its caller; NULL while the slot is free */
    struct chunk *next_free;   /* borrowed: slot of the same host */
    uint32_t num_parts;
    struct part {
        struct backend_task *task; /* borrowed: from the work, takes the results; loop only */
        struct backend_task cut;   /* the task narrowed to this chunk; what the worker sees */
        bool stream;
    } parts[JOINED_TASKS]; /* one part of a large task, or several small tasks */
};

struct host {
    struct backend base;
    uv_loop_t *loop;           /* borrowed: from the caller of backend_host_new */
    uv_idle_t hop;             /* active only while `done` has works: no wake-ups when idle */
    struct backend_work *turn; /* borrowed: first work of the job whose turn it is; NULL: none */
    struct backend_work *done; /* borrowed: works that ended inside submit or cancel, in order */
    struct backend_work **done_end; /* borrowed: the NULL that ends them */
    struct chunk *free_chunks;      /* borrowed: from chunks */
    uint32_t works_in_flight;       /* so that free() can check */
    uint32_t num_chunks;
    struct chunk chunks[];
};

static struct host *to_host(struct backend *backend)
{
    return (struct host *)backend;
}

/* ---- Queue: the ring of jobs ---- */

static bool is_queued(const struct backend_work *work)
{
    return work->submitted && !work->cancelled && work->next_task < work->num_tasks;
}

/* Puts `work` into the ring just before `first`, so that its job's turn comes last. */
static void ring_insert(struct host *host, struct backend_work *work)
{
    struct backend_work *first = host->turn;
    work->next_job = first ? first : work;
    work->prev_job = first ? first->prev_job : work;
    work->next_job->prev_job = work;
    work->prev_job->next_job = work;
    if (!first)
        host->turn = work;
}

static struct backend_work *find_job(const struct host *host, uint32_t job)
{
    struct backend_work *first = host->turn;
    while (first && first->job != job) {
        first = first->next_job;
        if (first == host->turn)
            return NULL;
    }
    return first;
}

/* A job's works are a circle through its first one, which alone stands in the ring. */
static void queue_push(struct host *host, struct backend_work *work)
{
    struct backend_work *first = find_job(host, work->job);
    if (!first) {
        work->next = work->prev = work;
        ring_insert(host, work);
        return;
    }
    work->next = first;
    work->prev = first->prev;
    work->prev->next = work;
    first->prev = work;
    work->next_job = work->prev_job = NULL;
}

/* Gives the place in the ring of `work` to `heir`, or closes the gap if there is none. */
static void ring_replace(struct host *host, struct backend_work *work, struct backend_work *heir)
{
    if (heir) {
        bool alone = work->next_job == work;
        heir->next_job = alone ? heir : work->next_job;
        heir->prev_job = alone ? heir : work->prev_job;
        heir->next_job->prev_job = heir;
        heir->prev_job->next_job = heir;
    } else {
        work->next_job->prev_job = work->prev_job;
        work->prev_job->next_job = work->next_job;
        heir = work->next_job == work ? NULL : work->next_job;
    }
    if (host->turn == work)
        host->turn = heir;
}

static void queue_remove(struct host *host, struct backend_work *work)
{
    if (work->next_job)
        ring_replace(host, work, work->next == work ? NULL : work->next);
    work->next->prev = work->prev;
    work->prev->next = work->next;
    work->next = work->prev = work->next_job = work->prev_job = NULL;
}

/* ---- Chunks ---- */

static uint64_t source_size(const struct backend_task *task)
{
    return task->op == BACKEND_FILL ? 1 : f8k_dtype_size(task->dtype);
}

static uint64_t output_size(const struct backend_task *task)
{
    switch (task->op) {
    case BACKEND_AMAX:
        return 0;
    case BACKEND_COPY:
        return f8k_dtype_size(task->dtype);
    case BACKEND_TO_BF16:
        return sizeof(uint16_t);
    case BACKEND_CAST:
    case BACKEND_FILL:
        break;
    }
    return 1;
}

/* The part of `task` from element `first` on that makes one chunk. */
static struct backend_task cut(const struct backend_task *task, uint64_t first)
{
    struct backend_task part = *task;
    uint64_t most = CHUNK_BYTES / source_size(task);
    part.count = task->count - first < most ? task->count - first : most;
    if (task->src)
        part.src = (const uint8_t *)task->src + first * source_size(task);
    if (task->dst)
        part.dst = task->dst + first * output_size(task);
    return part;
}

static void skip_empty_tasks(struct backend_work *work)
{
    while (work->next_task < work->num_tasks && work->tasks[work->next_task].count == 0)
        work->next_task++;
}

/* Runs on a worker. */
static void run_part(struct backend_task *cut, bool stream)
{
    switch (cut->op) {
    case BACKEND_AMAX:
        cut->amax = f8k_ops()->amax(cut->dtype, cut->src, cut->count);
        break;
    case BACKEND_CAST:
        f8k_ops()->cast(&(struct f8k_cast){.src = cut->src,
                            .dst = cut->dst,
                            .count = cut->count,
                            .scale = cut->scale,
                            .dtype = cut->dtype,
                            .format = cut->format,
                            .stream = stream,
                            .amax = cut->take_amax ? &cut->amax : NULL},
            &cut->counts);
        break;
    case BACKEND_COPY:
        memcpy(cut->dst, cut->src, cut->count * f8k_dtype_size(cut->dtype));
        break;
    case BACKEND_TO_BF16:
        f8k_ops()->to_bf16(cut->src, (void *)cut->dst, cut->count);
        break;
    case BACKEND_FILL:
        memset(cut->dst, cut->byte, cut->count);
        break;
    }
}

/* Runs on a worker. */
static void run_chunk(uv_work_t *request)
{
    struct chunk *chunk = request->data;
    for (uint32_t i = 0; i < chunk->num_parts; i++)
        run_part(&chunk->parts[i].cut, chunk->parts[i].stream);
}

/* The work may be gone, or submitted again, once finished() has been called. */
static void finish(struct host *host, struct backend_work *work)
{
    assert(work->chunks_in_flight == 0);
    work->submitted = false;
    host->works_in_flight--;
    work->finished(work, work->cancelled ? F8_ECANCELED : F8_OK);
}

static void dispatch(struct host *host);

static void merge_results(const struct chunk *chunk)
{
    for (uint32_t i = 0; i < chunk->num_parts; i++) {
        struct backend_task *task = chunk->parts[i].task;
        const struct backend_task *cut = &chunk->parts[i].cut;
        if (cut->amax > task->amax)
            task->amax = cut->amax;
        task->counts.saturated += cut->counts.saturated;
        task->counts.nan += cut->counts.nan;
    }
}

static void after_chunk(uv_work_t *request, int status)
{
    struct chunk *chunk = request->data;
    struct host *host = chunk->host;
    struct backend_work *work = chunk->work;
    if (status == 0)
        merge_results(chunk);
    chunk->work = NULL;
    chunk->next_free = host->free_chunks;
    host->free_chunks = chunk;
    work->chunks_in_flight--;

    /* Workers first: finished() may take its time. */
    dispatch(host);
    if (work->chunks_in_flight == 0 && !is_queued(work))
        finish(host, work);
}

/* Moves the next part of a queued work into the chunk; gives its bytes of source. */
static uint64_t take_part(struct chunk *chunk, struct backend_work *work)
{
    struct backend_task *task = &work->tasks[work->next_task];
    struct part *part = &chunk->parts[chunk->num_parts++];
    *part = (struct part){.task = task,
        .cut = cut(task, work->next_element),
        .stream = task->count * output_size(task) > STREAM_BYTES};
    part->cut.amax = 0;
    part->cut.counts = (struct f8k_counts){0};
    work->next_element += part->cut.count;
    if (work->next_element == task->count) {
        work->next_element = 0;
        work->next_task++;
        skip_empty_tasks(work);
    }
    return part->cut.count * source_size(task);
}

/* Whether the next part is a whole task that is small enough to go with `bytes` of others. */
static bool joins(const struct chunk *chunk, const struct backend_work *work, uint64_t bytes)
{
    if (chunk->num_parts == JOINED_TASKS || work->next_task == work->num_tasks)
        return false;
    const struct backend_task *task = &work->tasks[work->next_task];
    return work->next_element == 0 && bytes < JOINED_BYTES &&
           task->count <= (JOINED_BYTES - bytes) / source_size(task);
}

/* Hands out the next chunk of a queued work. */
static void start_chunk(struct host *host, struct backend_work *work)
{
    struct chunk *chunk = host->free_chunks;
    host->free_chunks = chunk->next_free;
    chunk->work = work;
    chunk->num_parts = 0;
    work->chunks_in_flight++;
    uint64_t bytes = take_part(chunk, work);
    while (joins(chunk, work, bytes))
        bytes += take_part(chunk, work);
    int r = uv_queue_work(host->loop, &chunk->request, run_chunk, after_chunk);
    assert(r == 0); /* only a missing callback makes it fail */
    (void)r;
}

static void dispatch(struct host *host)
{
    while (host->free_chunks && host->turn) {
        struct backend_work *work = host->turn;
        host->turn = work->next_job;
        start_chunk(host, work);
        if (work->next_task == work->num_tasks)
            queue_remove(host, work);
    }
}

/* ---- Ends that nobody waits for ---- */

static void hop(uv_idle_t *handle)
{
    struct host *host = handle->data;
    struct backend_work *work = host->done;
    host->done = NULL;
    host->done_end = &host->done;
    (void)uv_idle_stop(handle);
    while (work) {
        struct backend_work *next = work->next;
        work->next = NULL;
        finish(host, work);
        work = next;
    }
}

/* Finishes `work` from the loop's next turn, so that no caller meets finished() inside its call. */
static void finish_soon(struct host *host, struct backend_work *work)
{
    work->next = NULL;
    *host->done_end = work;
    host->done_end = &work->next;
    (void)uv_idle_start(&host->hop, hop);
}

/* ---- The operations ---- */

static void host_submit(struct backend *backend, struct backend_work *work)
{
    struct host *host = to_host(backend);
    assert(!work->submitted);
    for (uint32_t i = 0; i < work->num_tasks; i++) {
        work->tasks[i].amax = 0;
        work->tasks[i].counts = (struct f8k_counts){0};
    }
    work->next_task = 0;
    work->next_element = 0;
    work->chunks_in_flight = 0;
    work->cancelled = false;
    work->submitted = true;
    host->works_in_flight++;

    skip_empty_tasks(work);
    if (!is_queued(work)) {
        finish_soon(host, work);
        return;
    }
    queue_push(host, work);
    dispatch(host);
}

/* Takes back the chunks of `work` that wait in uv's queue; after_chunk comes for each. */
static void cancel_chunks(struct host *host, struct backend_work *work)
{
    for (uint32_t i = 0; i < host->num_chunks; i++) {
        struct chunk *chunk = &host->chunks[i];
        if (chunk->work == work && uv_cancel((uv_req_t *)&chunk->request) == 0)
            work->cancelled = true;
    }
}

static void host_cancel(struct backend *backend, struct backend_work *work)
{
    struct host *host = to_host(backend);
    if (!work->submitted || work->cancelled)
        return;
    bool queued = is_queued(work);
    if (queued) {
        queue_remove(host, work);
        work->cancelled = true;
    }
    cancel_chunks(host, work);
    if (queued && work->chunks_in_flight == 0)
        finish_soon(host, work);
}

/* Runs on a worker. */
static void run_reserve(uv_work_t *request)
{
    struct backend_reserve *reserve = request->data;
    int (*make)(uint64_t size, struct arena * *ret_arena, struct reason * reason) =
        reserve->unsealed ? arena_reserve : arena_create;
    reserve->status = make(reserve->size, &reserve->arena, &reserve->reason);
}

static void after_reserve(uv_work_t *request, int status)
{
    struct backend_reserve *reserve = request->data;
    (void)status; /* never cancelled */
    reserve->finished(reserve, reserve->status);
}

static void host_reserve(struct backend *backend, struct backend_reserve *reserve)
{
    reserve->arena = NULL;
    reserve->reason.text[0] = '\0';
    reserve->request.data = reserve;
    int r = uv_queue_work(to_host(backend)->loop, &reserve->request, run_reserve, after_reserve);
    assert(r == 0); /* only a missing callback makes it fail */
    (void)r;
}

static void after_close(uv_handle_t *handle)
{
    free(handle->data);
}

static void host_free(struct backend *backend)
{
    struct host *host = to_host(backend);
    assert(host->works_in_flight == 0);
    uv_close((uv_handle_t *)&host->hop, after_close);
}

static const struct backend_ops host_ops = {
    .name = "host",
    .submit = host_submit,
    .cancel = host_cancel,
    .reserve = host_reserve,
    .free = host_free,
};

int backend_host_new(uv_loop_t *loop, uint32_t threads, struct backend **ret_backend)
{
    assert(threads > 0);
    uint32_t num_chunks = CHUNKS_PER_THREAD * threads;
    struct host *host = calloc(1, sizeof(*host) + num_chunks * sizeof(host->chunks[0]));
    if (!host)
        return F8_ENOMEM;
    host->base.ops = &host_ops;
    host->loop = loop;
    host->done_end = &host->done;
    host->num_chunks = num_chunks;
    for (uint32_t i = 0; i < num_chunks; i++) {
        host->chunks[i].request.data = &host->chunks[i];
        host->chunks[i].host = host;
        host->chunks[i].next_free = host->free_chunks;
        host->free_chunks = &host->chunks[i];
    }
    (void)uv_idle_init(loop, &host->hop); /* cannot fail */
    host->hop.data = host;
    *ret_backend = &host->base;
    return F8_OK;
}
