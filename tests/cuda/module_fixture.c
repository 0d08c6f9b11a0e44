/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The test's side of the module: an eventfd stands for the daemon's loop.
 */
#include "module_fixture.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "proto/status.h"

#define MAX_SHARDS  1024
#define MAX_LOG     65536
#define MAX_DEVICES 16

struct backend *module_backend;

static int wake_fd = -1;
static bool has_closed, is_outstanding;
static void *shards[MAX_SHARDS];
static unsigned num_shards;
static cudaStream_t streams[MAX_DEVICES]; /* for copies of the test's own */
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static char log_text[MAX_LOG];
static size_t log_used;

/* ---- the host of the module ---- */

static void on_wake(void *context)
{
    uint64_t one = 1;
    (void)context;
    if (write(wake_fd, &one, sizeof(one)) != sizeof(one))
        abort(); /* any thread: only the test's own may assert */
}

static void on_log(void *context, int level, const char *text)
{
    (void)context;
    (void)level;
    (void)pthread_mutex_lock(&log_lock);
    int length = snprintf(log_text + log_used, MAX_LOG - log_used, "%s\n", text);
    if (length > 0 && (size_t)length < MAX_LOG - log_used)
        log_used += (size_t)length;
    (void)pthread_mutex_unlock(&log_lock);
}

static void on_hold(void *context, bool outstanding)
{
    (void)context;
    ck_assert(is_outstanding != outstanding);
    is_outstanding = outstanding;
}

static void on_closed(void *context)
{
    (void)context;
    has_closed = true;
}

bool module_has_logged(const char *words)
{
    (void)pthread_mutex_lock(&log_lock);
    bool has = strstr(log_text, words) != NULL;
    (void)pthread_mutex_unlock(&log_lock);
    return has;
}

void module_open(uint64_t linger_ms)
{
    struct reason reason = {""};
    struct backend_module_host host = {.wake = on_wake,
        .log = on_log,
        .hold = on_hold,
        .closed = on_closed,
        .linger_ms = linger_ms};
    is_outstanding = false;
    log_used = 0;
    log_text[0] = '\0';
    has_closed = false;
    wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ck_assert_int_ge(wake_fd, 0);
    void *library = dlopen(CUDA_MODULE_PATH, RTLD_NOW | RTLD_LOCAL);
    ck_assert_msg(library != NULL, "%s", dlerror());
    const struct backend_module *module = dlsym(library, BACKEND_MODULE_SYMBOL);
    ck_assert_ptr_nonnull(module);
    ck_assert_uint_eq(module->abi, BACKEND_MODULE_ABI);
    int r = module->open(&host, &module_backend, &reason);
    ck_assert_msg(r == F8_OK, "cannot open the module: %s", reason.text);
}

void module_close(void)
{
    ck_assert(!is_outstanding);
    backend_free(module_backend);
    for (unsigned waited = 0; !has_closed && waited < MODULE_PATIENCE_MS; waited += 10)
        (void)poll(NULL, 0, 10);
    ck_assert(has_closed);
    while (num_shards > 0)
        ck_assert_int_eq(cudaFree(shards[--num_shards]), cudaSuccess);
    for (int device = 0; device < MAX_DEVICES; device++)
        if (streams[device]) {
            ck_assert_int_eq(cudaStreamDestroy(streams[device]), cudaSuccess);
            streams[device] = NULL;
        }
    (void)close(wake_fd);
}

/* ---- waiting ---- */

static uint64_t now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void collect(uint64_t for_ms)
{
    struct pollfd poll_fd = {.fd = wake_fd, .events = POLLIN};
    uint64_t count;
    if (poll(&poll_fd, 1, (int)for_ms) == 1)
        ck_assert_int_eq(read(wake_fd, &count, sizeof(count)), sizeof(count));
    module_backend->ops->device->collect(module_backend);
}

void module_wait(const bool *flag)
{
    uint64_t end = now_ms() + MODULE_PATIENCE_MS;
    while (!*flag) {
        ck_assert_msg(now_ms() < end, "nothing has come of it in %d s", MODULE_PATIENCE_MS / 1000);
        collect(100);
    }
}

void module_pause(unsigned milliseconds)
{
    uint64_t end = now_ms() + milliseconds;
    for (uint64_t now = now_ms(); now < end; now = now_ms())
        collect(end - now);
}

/* ---- arenas ---- */

/* Once a device, as none may be created while collectives are queued. */
static void open_stream(int32_t device)
{
    ck_assert_int_lt(device, MAX_DEVICES);
    if (streams[device])
        return;
    ck_assert_int_eq(cudaSetDevice(device), cudaSuccess);
    ck_assert_int_eq(
        cudaStreamCreateWithFlags(&streams[device], cudaStreamNonBlocking), cudaSuccess);
}

static void on_reserved(struct backend_reserve *reserve, int status)
{
    reserve->status = status;
    *(bool *)reserve->owner = true;
}

int module_reserve(const char *name, const int32_t *devices, uint32_t ranks, uint32_t slots,
    uint64_t size, struct backend_reserve *ret_reserve)
{
    bool done = false;
    *ret_reserve = (struct backend_reserve){.name = name,
        .devices = devices,
        .ranks = ranks,
        .slots = slots,
        .size = size,
        .deadline_ms = MODULE_PATIENCE_MS,
        .finished = on_reserved,
        .owner = &done};
    backend_reserve(module_backend, ret_reserve);
    module_wait(&done);
    for (uint32_t rank = 0; rank < ranks && ret_reserve->status == F8_OK; rank++)
        open_stream(devices[rank]);
    return ret_reserve->status;
}

struct arena *module_arena(
    const char *name, const int32_t *devices, uint32_t ranks, uint32_t slots, uint64_t size)
{
    struct backend_reserve reserve;
    int r = module_reserve(name, devices, ranks, slots, size, &reserve);
    ck_assert_msg(r == F8_OK, "no arena: %d: %s", r, reserve.reason.text);
    return reserve.arena;
}

static void on_fenced(struct backend_fence *fence, int status)
{
    ck_assert_int_eq(status, F8_OK);
    *(bool *)fence->owner = true;
}

static void wait_for_fence(void)
{
    bool done = false;
    struct backend_fence fence = {.finished = on_fenced, .owner = &done};
    module_backend->ops->device->fence(module_backend, &fence);
    module_wait(&done);
}

void module_free_arena(struct arena *arena)
{
    module_backend->ops->device->free_arena(module_backend, arena->device);
    wait_for_fence();
}

/* ---- clients ---- */

static void on_attached(struct backend_attach *attach, int status)
{
    ck_assert_msg(status == F8_OK, "cannot attach: %s", attach->reason.text);
    *(bool *)attach->owner = true;
}

static void on_mapped(struct backend_map *map, int status)
{
    ck_assert_msg(status == F8_OK, "cannot map: %s", map->reason.text);
    *(bool *)map->owner = true;
}

struct module_client module_attach(const struct trainer *trainer, uint64_t shard_size)
{
    bool is_attached = false, is_mapped = false;
    struct backend_attach attach = {.ready = trainer->ready,
        .num_ready = TRAINER_EVENTS,
        .pid = (uint32_t)trainer->pid,
        .finished = on_attached,
        .owner = &is_attached};
    memcpy(attach.uuid, trainer->uuid, sizeof(attach.uuid));
    module_backend->ops->device->attach(module_backend, &attach);
    module_wait(&is_attached);
    struct backend_map map = {.kind = BACKEND_MEMORY_LEGACY,
        .device = attach.device,
        .pid = (uint32_t)trainer->pid,
        .size = shard_size,
        .finished = on_mapped,
        .owner = &is_mapped};
    memcpy(map.handle, trainer->memory, sizeof(map.handle));
    module_backend->ops->device->map(module_backend, &map);
    module_wait(&is_mapped);
    return (struct module_client){.client = attach.client,
        .mapping = map.mapping,
        .device = attach.device,
        .shard = map.data};
}

void module_detach(struct module_client *client)
{
    module_backend->ops->device->unmap(module_backend, client->mapping);
    module_backend->ops->device->detach(module_backend, client->client);
    wait_for_fence();
}

/* ---- works ---- */

static void on_finished(struct backend_work *work, int status)
{
    struct module_run *run = work->owner;
    ck_assert(!run->has_finished);
    run->status = status;
    run->has_finished = true;
    if (status != F8_OK)
        run->has_landed = true; /* nothing comes any more */
}

static void on_landed(struct backend_landing *landing, int status)
{
    struct module_run *run = landing->owner;
    ck_assert(run->has_finished && !run->has_landed);
    run->landed_status = status;
    run->has_landed = true;
}

struct module_run module_run_of(struct arena *arena, struct backend_task *tasks, uint32_t num_tasks)
{
    struct module_run run = {
        .work = {.tasks = tasks, .num_tasks = num_tasks, .job = 1, .finished = on_finished},
        .steps = {.arena = arena},
        .has_landed = true};
    return run;
}

void module_add_landing(struct module_run *run, uint32_t first, uint32_t count)
{
    run->amaxes = malloc(count * sizeof(*run->amaxes));
    run->counts = malloc(count * sizeof(*run->counts));
    ck_assert(count == 0 || (run->amaxes && run->counts));
    run->landing = (struct backend_landing){.first = first,
        .count = count,
        .amaxes = run->amaxes,
        .counts = run->counts,
        .deadline_ms = MODULE_PATIENCE_MS,
        .landed = on_landed};
    run->has_landed = false;
}

void module_submit(struct module_run *run)
{
    run->work.owner = run;
    run->work.steps = &run->steps;
    run->landing.owner = run;
    run->has_finished = false;
    if (run->amaxes) {
        run->steps.landing = &run->landing;
        run->has_landed = !run->landing.landed;
    }
    backend_submit(module_backend, &run->work);
    ck_assert(!run->has_finished);
}

void module_do(struct module_run *run)
{
    module_submit(run);
    module_wait(&run->has_finished);
    ck_assert_msg(run->status == F8_OK, "%d: %s", run->status, run->landing.reason.text);
    module_wait(&run->has_landed);
    ck_assert_msg(run->landed_status == F8_OK, "%s", run->landing.reason.text);
}

void module_run_done(struct module_run *run)
{
    free(run->amaxes);
    free(run->counts);
    run->amaxes = NULL;
    run->counts = NULL;
}

/* ---- device memory ---- */

void *module_shard(int32_t device, const void *bytes, uint64_t size)
{
    void *shard = NULL;
    ck_assert_uint_lt(num_shards, MAX_SHARDS);
    ck_assert_int_eq(cudaSetDevice(device), cudaSuccess);
    ck_assert_int_eq(cudaMalloc(&shard, size > 0 ? size : 1), cudaSuccess);
    open_stream(device);
    if (size > 0)
        ck_assert_int_eq(
            cudaMemcpyAsync(shard, bytes, size, cudaMemcpyHostToDevice, streams[device]),
            cudaSuccess);
    ck_assert_int_eq(cudaStreamSynchronize(streams[device]), cudaSuccess);
    shards[num_shards++] = shard;
    return shard;
}

void module_download(
    const struct arena *arena, int32_t device, uint64_t offset, void *ret_bytes, uint64_t size)
{
    const struct arena_device *there = arena_on(arena, device);
    struct module_run last = module_run_of((struct arena *)arena, NULL, 0);
    ck_assert_ptr_nonnull(there);
    module_add_landing(&last, 0, 0);
    module_do(&last); /* on each device, behind all that was queued before */
    module_run_done(&last);
    ck_assert_int_eq(cudaSetDevice(device), cudaSuccess);
    ck_assert_int_eq(cudaMemcpyAsync(ret_bytes, there->base + offset, size, cudaMemcpyDeviceToHost,
                         streams[device]),
        cudaSuccess);
    ck_assert_int_eq(cudaStreamSynchronize(streams[device]), cudaSuccess);
}
