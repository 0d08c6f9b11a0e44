/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs kernels: block after block, the threads of a block in an order of chance, each straight on
 * until it has to wait for others. Shared memory holds garbage when a block begins, so a missing
 * __syncthreads reads it. Barriers that not all threads reach are faults. On the stream's worker.
 */
#include "core.h"

#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_THREADS 1024
#define WARP_SIZE   32

enum gpu_state { GPU_READY, GPU_AT_BARRIER, GPU_IN_WARP, GPU_ENDED };

struct gpu_thread {
    enum gpu_state state;
    struct fiber *fiber; /* NULL before it starts and after it has ended */
    const char *where;   /* of the call that it waits in */
    int predicate;       /* of a barrier; the count of them when it goes on */
    uint32_t mask;       /* of a warp's exchange */
    uint64_t value;
    uint64_t *ret_values; /* borrowed: of the caller in cudasim_warp */
};

/* What runs one kernel; kept for the next. */
struct engine {
    struct gpu_thread threads[MAX_THREADS];
    uint16_t order[MAX_THREADS];
    struct fiber *idle[MAX_THREADS];
    unsigned num_idle;
    unsigned num_threads, current;
    const struct cudasim_kernel *kernel;
    struct engine *next;
};

/* A launch, and the thread-local storage that is its shared memory. */
struct grid {
    struct cudasim_kernel kernel;
    size_t tls_module, tls_size;
    uint64_t number;
};

CUDASIM_PLACE struct cudasim_index cudasim_thread_index, cudasim_block_index, cudasim_block_size,
    cudasim_grid_size;
static CUDASIM_PLACE struct engine *engine;

static struct engine *idle_engines; /* owned */
static pthread_mutex_t idle_lock = PTHREAD_MUTEX_INITIALIZER;

static struct engine *engine_get(void)
{
    pthread_mutex_lock(&idle_lock);
    struct engine *got = idle_engines;
    if (got)
        idle_engines = got->next;
    pthread_mutex_unlock(&idle_lock);
    if (!got)
        got = calloc(1, sizeof *got);
    if (!got)
        cudasim_fault("out of host memory");
    return got;
}

static void engine_put(struct engine *used)
{
    pthread_mutex_lock(&idle_lock);
    used->next = idle_engines;
    idle_engines = used;
    pthread_mutex_unlock(&idle_lock);
}

/* ---- what a GPU thread waits for ---- */

uint32_t cudasim_lane(void)
{
    return engine->current % WARP_SIZE;
}

int cudasim_barrier(const char *where, int predicate)
{
    struct gpu_thread *thread = &engine->threads[engine->current];
    thread->state = GPU_AT_BARRIER;
    thread->where = where;
    thread->predicate = predicate != 0;
    fiber_yield();
    return thread->predicate;
}

/* The mask without the lanes that a short last warp does not have. */
static uint32_t existing_lanes(unsigned first, uint32_t mask)
{
    unsigned count = engine->num_threads - first;
    return count < WARP_SIZE ? mask & ((1u << count) - 1) : mask;
}

/* Places are texts of the source: mostly the same one, in templates not always. */
static bool is_same_place(const char *one, const char *other)
{
    return one == other || strcmp(one, other) == 0;
}

/* Lets a warp's lanes go on if all of the mask are in the same exchange. */
static void warp_try(unsigned first, uint32_t mask, const char *where)
{
    struct gpu_thread *lanes = &engine->threads[first];
    mask = existing_lanes(first, mask);
    for (unsigned lane = 0; lane < WARP_SIZE; lane++)
        if (mask >> lane & 1 &&
            (lanes[lane].state != GPU_IN_WARP || !is_same_place(lanes[lane].where, where) ||
                existing_lanes(first, lanes[lane].mask) != mask))
            return;
    uint64_t values[WARP_SIZE] = {0};
    for (unsigned lane = 0; lane < WARP_SIZE; lane++)
        if (mask >> lane & 1)
            values[lane] = lanes[lane].value;
    for (unsigned lane = 0; lane < WARP_SIZE; lane++)
        if (mask >> lane & 1) {
            memcpy(lanes[lane].ret_values, values, sizeof values);
            lanes[lane].state = GPU_READY;
        }
}

void cudasim_warp(const char *where, uint32_t mask, uint64_t value, uint64_t ret_values[32])
{
    struct gpu_thread *thread = &engine->threads[engine->current];
    if (!(mask >> cudasim_lane() & 1))
        cudasim_fault("kernel: lane %u calls at %s with the mask %08x, which it is not in",
            cudasim_lane(), where, mask);
    thread->state = GPU_IN_WARP;
    thread->where = where;
    thread->mask = mask;
    thread->value = value;
    thread->ret_values = ret_values;
    warp_try(engine->current - cudasim_lane(), mask, where);
    if (thread->state == GPU_IN_WARP)
        fiber_yield();
}

/* ---- a block ---- */

static void describe(unsigned index, char *ret_text, size_t size)
{
    const struct gpu_thread *thread = &engine->threads[index];
    if (thread->state == GPU_ENDED)
        snprintf(ret_text, size, "thread %u has ended", index);
    else
        snprintf(ret_text, size, "thread %u waits for %s at %s", index,
            thread->state == GPU_AT_BARRIER ? "the block" : "its warp", thread->where);
}

static void accuse(unsigned one, unsigned other)
{
    char text[2][256];
    describe(one, text[0], sizeof text[0]);
    describe(other, text[1], sizeof text[1]);
    cudasim_fault("divergent barrier: block %u of \"%s\": %s, but %s", cudasim_block_index.x,
        engine->kernel->name, text[0], text[1]);
}

/* A lane is in an exchange that another one of its mask is not in. */
static void accuse_lane(unsigned index)
{
    const struct gpu_thread *thread = &engine->threads[index];
    unsigned first = index - index % WARP_SIZE;
    uint32_t mask = existing_lanes(first, thread->mask);
    for (unsigned other = first; mask >> (other - first); other++) {
        const struct gpu_thread *lane = &engine->threads[other];
        if (mask >> (other - first) & 1 &&
            (lane->state != GPU_IN_WARP || !is_same_place(lane->where, thread->where) ||
                lane->mask != thread->mask))
            accuse(index, other);
        if (other - first == WARP_SIZE - 1)
            break;
    }
}

/* Nobody can run: all must be at the same barrier. */
static void release_barrier(void)
{
    struct gpu_thread *threads = engine->threads;
    int count = 0;
    for (unsigned i = 0; i < engine->num_threads; i++) {
        if (threads[i].state == GPU_IN_WARP)
            accuse_lane(i);
        if (threads[i].state != threads[0].state ||
            !is_same_place(threads[i].where, threads[0].where))
            accuse(0, i);
        count += threads[i].predicate;
    }
    for (unsigned i = 0; i < engine->num_threads; i++) {
        threads[i].predicate = count;
        threads[i].state = GPU_READY;
    }
}

static void run_gpu_thread(void *argument)
{
    (void)argument;
    engine->kernel->thread(engine->kernel->arguments);
    engine->threads[engine->current].state = GPU_ENDED;
}

static void resume(unsigned index)
{
    struct gpu_thread *thread = &engine->threads[index];
    struct cudasim_index size = cudasim_block_size;
    engine->current = index;
    cudasim_thread_index =
        (struct cudasim_index){index % size.x, index / size.x % size.y, index / size.x / size.y};
    if (!thread->fiber) {
        thread->fiber = engine->num_idle ? engine->idle[--engine->num_idle] : fiber_new();
        fiber_prepare(thread->fiber, run_gpu_thread, NULL);
    }
    fiber_run(thread->fiber);
    if (thread->state == GPU_ENDED) {
        engine->idle[engine->num_idle++] = thread->fiber;
        thread->fiber = NULL;
    }
}

static void shuffle_order(uint64_t who)
{
    for (unsigned i = 0; i < engine->num_threads; i++)
        engine->order[i] = (uint16_t)i;
    for (unsigned i = engine->num_threads - 1; i > 0; i--) {
        unsigned j = (unsigned)(cudasim_random(who, i) % (i + 1));
        uint16_t swapped = engine->order[i];
        engine->order[i] = engine->order[j];
        engine->order[j] = swapped;
    }
}

/* Once through all threads; how many of them have ended so far. */
static unsigned run_ready(bool *ret_has_run)
{
    unsigned num_ended = 0;
    *ret_has_run = false;
    for (unsigned i = 0; i < engine->num_threads; i++) {
        struct gpu_thread *thread = &engine->threads[engine->order[i]];
        if (thread->state == GPU_READY) {
            resume(engine->order[i]);
            *ret_has_run = true;
        }
        num_ended += thread->state == GPU_ENDED;
    }
    return num_ended;
}

static void run_block(uint64_t who)
{
    memset(engine->threads, 0, engine->num_threads * sizeof engine->threads[0]);
    for (unsigned i = 0; i < engine->num_threads; i++)
        engine->threads[i].where = "";
    shuffle_order(who);
    bool has_run;
    while (run_ready(&has_run) < engine->num_threads)
        if (!has_run)
            release_barrier();
}

/* ---- a grid ---- */

struct tls_index {
    unsigned long module, offset;
};
extern void *__tls_get_addr(struct tls_index *index);

static void fill_shared(const struct grid *grid)
{
    if (!grid->tls_size)
        return;
    struct tls_index index = {grid->tls_module, 0};
    memset(__tls_get_addr(&index), 0xcb, grid->tls_size);
}

static void run_grid(void *argument)
{
    struct grid *grid = argument;
    struct cudasim_index size = grid->kernel.grid_size;
    engine = engine_get();
    engine->kernel = &grid->kernel;
    cudasim_grid_size = size;
    cudasim_block_size = grid->kernel.block_size;
    engine->num_threads = cudasim_block_size.x * cudasim_block_size.y * cudasim_block_size.z;
    for (uint64_t block = 0; block < (uint64_t)size.x * size.y * size.z; block++) {
        cudasim_block_index = (struct cudasim_index){(uint32_t)(block % size.x),
            (uint32_t)(block / size.x % size.y), (uint32_t)(block / size.x / size.y)};
        fill_shared(grid);
        run_block(grid->number << 32 ^ block);
    }
    engine_put(engine);
    engine = NULL;
    grid->kernel.done(grid->kernel.arguments);
    free(grid);
}

/* ---- launching ---- */

static bool contains(const struct dl_phdr_info *info, uintptr_t address)
{
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        uintptr_t base = info->dlpi_addr + header->p_vaddr;
        if (header->p_type == PT_LOAD && address >= base && address < base + header->p_memsz)
            return true;
    }
    return false;
}

static int find_shared(struct dl_phdr_info *info, size_t size, void *data)
{
    struct grid *grid = data;
    (void)size;
    if (!contains(info, (uintptr_t)grid->kernel.function))
        return 0;
    if (!*info->dlpi_name)
        cudasim_fault("\"%s\" is linked into the program: put kernels into a shared library",
            grid->kernel.name);
    grid->tls_module = info->dlpi_tls_modid;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_TLS)
            grid->tls_size = info->dlpi_phdr[i].p_memsz;
    return 1;
}

static bool is_shape(const struct cudasim_kernel *kernel)
{
    struct cudasim_index block = kernel->block_size, grid = kernel->grid_size;
    uint64_t threads = (uint64_t)block.x * block.y * block.z;
    return threads > 0 && block.x <= MAX_THREADS && block.y <= MAX_THREADS && block.z <= 64 &&
           threads <= MAX_THREADS && grid.x > 0 && grid.y > 0 && grid.z > 0 &&
           grid.x <= INT32_MAX && grid.y <= 65535 && grid.z <= 65535;
}

static CUresult launch(CUstream stream, const struct cudasim_kernel *kernel)
{
    static uint64_t last_number;
    CUresult result = cudasim_enter("cudaLaunchKernelEx");
    if (result)
        return result;
    if (!is_shape(kernel))
        return CUDA_ERROR_INVALID_VALUE;
    if (cudasim_stream_device(stream) != cudasim_current_device())
        return CUDA_ERROR_INVALID_HANDLE;
    struct grid *grid = calloc(1, sizeof *grid);
    if (!grid)
        return CUDA_ERROR_OUT_OF_MEMORY;
    grid->kernel = *kernel;
    grid->number = __atomic_add_fetch(&last_number, 1, __ATOMIC_RELAXED);
    if (!dl_iterate_phdr(find_shared, grid))
        cudasim_fault("\"%s\": %p is in no library", kernel->name, kernel->function);
    cudasim_count(CUDASIM_LAUNCHES, 1);
    return stream_push(stream, kernel->name, OPERATION_KERNEL, run_grid, grid);
}

CUresult cudasim_launch(CUstream stream, const struct cudasim_kernel *kernel)
{
    CUresult result = launch(stream, kernel);
    if (result)
        kernel->done(kernel->arguments);
    return cudasim_remember(result);
}
