/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The world of link_world.h, and under the names of libuv, region, arena and log what the daemon's
 * rooms in it call: no threads, no descriptors, no time.
 */
#include "tests/lib/link_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/log.h"
#include "status.h"

#define HEAP_SIZE  (1u << 20)
#define ARENA_SIZE (1u << 18)
#define HEADER     16   /* before each block: its size */
#define FREED      0xdd /* a pointer made of it faults */

struct link_world world;

static struct link_hooks hooks;
static _Alignas(16) uint8_t heap[HEAP_SIZE];
static uint8_t arena_data[ARENA_SIZE]; /* nobody reads it */
static const uint8_t shards[LINK_RANKS][LINK_GROUPS][LINK_BUCKETS][LINK_SHARD];
static struct region regions[LINK_RANKS];
static uint8_t sessions[LINK_RANKS][LINK_SESSIONS];
static struct backend backend;

static void give_up(const char *what)
{
    (void)fprintf(stderr, "link_world: %s\n", what);
    abort();
}

/* ---- the heap: nothing is given out twice, so that what is read after its end shows ---- */

void *link_heap_calloc(size_t count, size_t size);
void *link_heap_realloc(void *memory, size_t size);
char *link_heap_strdup(const char *text);
void link_heap_free(void *memory);

void *link_heap_calloc(size_t count, size_t size)
{
    size_t bytes = (count * size + HEADER + 15) & ~(size_t)15;
    if (bytes > HEAP_SIZE - world.heap_used)
        give_up("the heap is full: make HEAP_SIZE larger");
    uint8_t *block = heap + world.heap_used;
    world.heap_used += bytes;
    memset(block, 0, bytes);
    size_t usable = bytes - HEADER;
    memcpy(block, &usable, sizeof(usable));
    return block + HEADER;
}

static size_t usable_of(const void *memory)
{
    size_t usable;
    memcpy(&usable, (const uint8_t *)memory - HEADER, sizeof(usable));
    return usable;
}

void link_heap_free(void *memory)
{
    if (memory)
        memset(memory, FREED, usable_of(memory));
}

void *link_heap_realloc(void *memory, size_t size)
{
    void *larger = link_heap_calloc(1, size);
    if (memory) {
        size_t old = usable_of(memory);
        memcpy(larger, memory, old < size ? old : size);
        link_heap_free(memory);
    }
    return larger;
}

char *link_heap_strdup(const char *text)
{
    size_t size = strlen(text) + 1;
    return memcpy(link_heap_calloc(1, size), text, size);
}

size_t world_size(void)
{
    return sizeof(world) + world.heap_used;
}

void world_save(uint8_t *to)
{
    memcpy(to, &world, sizeof(world));
    memcpy(to + sizeof(world), heap, world.heap_used);
}

void world_restore(const uint8_t *from)
{
    memcpy(&world, from, sizeof(world));
    memcpy(heap, from + sizeof(world), world.heap_used);
}

/* ---- libuv ---- */

int uv_timer_init(uv_loop_t *loop, uv_timer_t *handle)
{
    (void)loop;
    for (uint32_t t = 0; t < LINK_TIMERS; t++)
        if (!world.timers[t].handle) {
            world.timers[t] = (struct link_timer){.handle = handle};
            return 0;
        }
    give_up("more timers than LINK_TIMERS");
    return 0;
}

static struct link_timer *timer_of(const uv_timer_t *handle)
{
    for (uint32_t t = 0; t < LINK_TIMERS; t++)
        if (world.timers[t].handle == handle)
            return &world.timers[t];
    give_up("a timer that was not begun, or is closed");
    return NULL;
}

int uv_timer_start(uv_timer_t *handle, uv_timer_cb expired, uint64_t timeout, uint64_t repeat)
{
    (void)repeat;
    *timer_of(handle) = (struct link_timer){
        .handle = handle, .expired = expired, .due = world.now + timeout, .active = true};
    return 0;
}

int uv_timer_stop(uv_timer_t *handle)
{
    struct link_timer *timer = timer_of(handle);
    timer->active = false;
    timer->due = 0;
    return 0;
}

void uv_close(uv_handle_t *handle, uv_close_cb closed)
{
    *timer_of((uv_timer_t *)handle) = (struct link_timer){0};
    closed(handle);
}

uint64_t uv_now(const uv_loop_t *loop)
{
    (void)loop;
    return world.now;
}

struct link_timer *world_timer(const struct group *group)
{
    struct link_timer *timer = group ? timer_of(&group->collective->timer) : NULL;
    return timer && timer->active ? timer : NULL;
}

void world_expire(struct link_timer *timer)
{
    if (world.now < timer->due)
        world.now = timer->due;
    timer->active = false;
    timer->expired(timer->handle);
}

/* ---- the rooms below ---- */

struct region *region_ref(struct region *region)
{
    return region;
}

void region_unref(struct region *region)
{
    (void)region; /* static */
}

void arena_free(struct arena *arena)
{
    link_heap_free(arena);
}

void log_of(const struct log_fields *fields, enum log_level level, const char *format, ...)
{
    (void)fields;
    (void)level;
    (void)format; /* millions of lines */
}

/* ---- the backend ---- */

static void submit(struct backend *self, struct backend_work *work)
{
    (void)self;
    if (world.num_works == LINK_WORKS)
        give_up("more work in flight than LINK_WORKS");
    for (uint32_t t = 0; t < work->num_tasks; t++) {
        work->tasks[t].amax = 0;
        work->tasks[t].counts = (struct f8k_counts){0};
    }
    work->cancelled = false;
    work->submitted = true;
    world.works[world.num_works++] = work;
    hooks.submitted(work);
}

static void cancel(struct backend *self, struct backend_work *work)
{
    (void)self;
    work->cancelled = work->submitted;
}

static void reserve(struct backend *self, struct backend_reserve *reserve)
{
    (void)self;
    if (world.num_reserves == LINK_GROUPS || reserve->size > ARENA_SIZE)
        give_up("more or larger reservations than there is room for");
    world.reserves[world.num_reserves++] = reserve;
}

static const struct backend_ops backend_ops = {
    .name = "world",
    .submit = submit,
    .cancel = cancel,
    .reserve = reserve,
};

static void compute(struct backend_task *task)
{
    uint32_t rank, group, bucket;
    if (task->op != BACKEND_AMAX && !task->take_amax)
        return;
    world_place_of(task->src, &rank, &group, &bucket);
    task->amax = hooks.amax(rank, group, bucket);
}

void world_end_work(uint32_t i)
{
    struct backend_work *work = world.works[i];
    for (uint32_t rest = i + 1; rest < world.num_works; rest++)
        world.works[rest - 1] = world.works[rest];
    world.works[--world.num_works] = NULL;
    work->submitted = false;
    for (uint32_t t = 0; t < work->num_tasks && !work->cancelled; t++)
        compute(&work->tasks[t]);
    work->finished(work, work->cancelled ? F8_ECANCELED : F8_OK);
}

void world_end_reserve(uint32_t i, int status)
{
    struct backend_reserve *reserved = world.reserves[i];
    for (uint32_t rest = i + 1; rest < world.num_reserves; rest++)
        world.reserves[rest - 1] = world.reserves[rest];
    world.reserves[--world.num_reserves] = NULL;
    if (status < 0) {
        (void)reason_set(&reserved->reason, status, "no memory");
    } else {
        reserved->arena = link_heap_calloc(1, sizeof(*reserved->arena));
        *reserved->arena = (struct arena){.data = arena_data, .size = reserved->size, .fd = -1};
    }
    reserved->finished(reserved, status);
}

/* ---- the world ---- */

void *world_session(uint32_t rank, uint32_t life)
{
    return &sessions[rank][life];
}

uint32_t world_rank_of(const void *session)
{
    return (uint32_t)(((const uint8_t *)session - &sessions[0][0]) / LINK_SESSIONS);
}

struct region *world_region(uint32_t rank)
{
    return &regions[rank];
}

uint64_t world_offset(uint32_t group, uint32_t bucket)
{
    return (uint64_t)(shards[0][group][bucket] - shards[0][0][0]);
}

void world_place_of(const void *src, uint32_t *ret_rank, uint32_t *ret_group, uint32_t *ret_bucket)
{
    size_t at = (size_t)((const uint8_t *)src - &shards[0][0][0][0]) / LINK_SHARD;
    if (at >= LINK_RANKS * LINK_GROUPS * LINK_BUCKETS)
        give_up("a task reads where no shard is");
    *ret_bucket = at % LINK_BUCKETS;
    *ret_group = (uint32_t)(at / LINK_BUCKETS % LINK_GROUPS);
    *ret_rank = (uint32_t)(at / LINK_BUCKETS / LINK_GROUPS);
}

void world_begin(const struct link_hooks *new_hooks)
{
    static const struct config config = {.max_jobs = 1,
        .max_weights = 16,
        .max_rounds = 4,
        .memory_per_uid = UINT64_MAX,
        .deadline_ms = 1000,
        .slow_ms = UINT32_MAX};
    struct reason reason;
    hooks = *new_hooks;
    backend.ops = &backend_ops;
    memset(&world, 0, sizeof(world));
    for (uint32_t r = 0; r < LINK_RANKS; r++)
        regions[r] = (struct region){.data = &shards[r][0][0][0], .size = sizeof(shards[r])};
    world.context = (struct collective_context){
        .backend = &backend, .config = &config, .listener = hooks.listener};
    world.registry = registry_new(&config);
    if (registry_enter_job(world.registry, 0, "run", NULL, 0, 0, &world.job, &reason) < 0)
        give_up(reason.text);
}
