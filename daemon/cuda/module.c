/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one symbol of f8gatherd-cuda.so, and the operations of its backend as the loop sees them:
 * each puts a command into the queue, and brings its end back.
 */
#include "daemon/cuda/cuda_private.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>

#include "proto/status.h"

/* ---- what is outstanding, on the loop ---- */

void cuda_hold(struct cuda *cuda)
{
    if (cuda->num_held++ == 0)
        cuda->host.hold(cuda->host.context, true);
}

void cuda_release(struct cuda *cuda)
{
    assert(cuda->num_held > 0);
    if (--cuda->num_held == 0)
        cuda->host.hold(cuda->host.context, false);
}

static bool has_own_landing(const struct backend_work *work)
{
    return work->steps && work->steps->landing && work->steps->landing->landed;
}

/* ---- ends of commands, on the loop ---- */

static void deliver_work(
    struct cuda *cuda, struct backend_work *work, const struct cuda_command *command)
{
    work->submitted = false;
    if (command->status < 0 && has_own_landing(work))
        cuda_release(cuda); /* landed() does not come */
    if (work->steps && command->status == F8_OK) {
        struct device_arena *arena = work->steps->arena->device;
        arena->exchanges += command->exchanges;
        arena->copy_engine_exchanges += command->copy_engine_exchanges;
    }
    work->finished(work, command->status);
}

/* Whether there is a finished(). */
static bool is_awaited(enum cuda_command_kind kind)
{
    return kind != CUDA_DETACH && kind != CUDA_UNMAP && kind != CUDA_FREE_ARENA &&
           kind != CUDA_LOOK;
}

static void deliver(struct cuda *cuda, struct cuda_completion *completion)
{
    struct cuda_command *record =
        (struct cuda_command *)((char *)completion - offsetof(struct cuda_command, completion));
    struct cuda_command command = *record;
    cuda_command_free(cuda, record); /* first: finished() may be the next to ask for one */
    if (is_awaited(command.kind))
        cuda_release(cuda);
    switch (command.kind) {
    case CUDA_ATTACH:
        command.attach->finished(command.attach, command.status);
        break;
    case CUDA_MAP:
        command.map->finished(command.map, command.status);
        break;
    case CUDA_RESERVE:
        command.reserve->finished(command.reserve, command.status);
        break;
    case CUDA_UNIQUE:
        command.unique->finished(command.unique, command.status);
        break;
    case CUDA_FENCE:
        command.fence->finished(command.fence, command.status);
        break;
    case CUDA_WORK:
        deliver_work(cuda, command.work, &command);
        break;
    default: /* the device thread has freed what it was about */
        break;
    }
}

/* Never fails: without memory for a record of a hundred bytes there is no way to say anything. */
static void push(struct backend *backend, const struct cuda_command *what)
{
    struct cuda *cuda = to_cuda(backend);
    struct cuda_command *command = cuda_command_new(cuda, what);
    if (!command) {
        cuda_log(cuda, LOG_LEVEL_ERROR, "out of memory for a command of the device thread");
        abort();
    }
    command->completion.deliver = deliver;
    if (is_awaited(what->kind))
        cuda_hold(cuda);
    cuda_queue_push(cuda, command);
}

/* ---- operations ---- */

static void module_submit(struct backend *backend, struct backend_work *work)
{
    assert(!work->submitted);
    for (uint32_t i = 0; i < work->num_tasks; i++) {
        work->tasks[i].amax = 0;
        work->tasks[i].counts = (struct f8k_counts){0};
    }
    work->submitted = true;
    work->cancelled = false;
    if (has_own_landing(work))
        cuda_hold(to_cuda(backend));
    push(backend, &(struct cuda_command){.kind = CUDA_WORK, .work = work});
}

static void module_cancel(struct backend *backend, struct backend_work *work)
{
    if (work->submitted)
        cuda_queue_cancel(to_cuda(backend), work);
}

static void module_reserve(struct backend *backend, struct backend_reserve *reserve)
{
    reserve->arena = NULL;
    reserve->reason.text[0] = '\0';
    push(backend, &(struct cuda_command){.kind = CUDA_RESERVE, .reserve = reserve});
}

static void module_attach(struct backend *backend, struct backend_attach *attach)
{
    attach->client = NULL;
    attach->reason.text[0] = '\0';
    push(backend, &(struct cuda_command){.kind = CUDA_ATTACH, .attach = attach});
}

static void module_detach(struct backend *backend, struct backend_client *client)
{
    push(backend, &(struct cuda_command){.kind = CUDA_DETACH, .client = client});
}

static void module_map(struct backend *backend, struct backend_map *map)
{
    map->mapping = NULL;
    map->reason.text[0] = '\0';
    push(backend, &(struct cuda_command){.kind = CUDA_MAP, .map = map});
}

static void module_unmap(struct backend *backend, struct backend_mapping *mapping)
{
    push(backend, &(struct cuda_command){.kind = CUDA_UNMAP, .mapping = mapping});
}

static void module_free_arena(struct backend *backend, struct device_arena *arena)
{
    cuda_comm_leave(to_cuda(backend), (struct cuda_arena *)arena);
    push(backend,
        &(struct cuda_command){.kind = CUDA_FREE_ARENA, .arena = (struct cuda_arena *)arena});
}

static uint32_t module_drop_kept(struct backend *backend, const char *prefix)
{
    uint32_t count = cuda_comm_drop_kept(to_cuda(backend), prefix);
    if (count > 0)
        push(backend, &(struct cuda_command){.kind = CUDA_LOOK});
    return count;
}

static void module_unique(struct backend *backend, struct backend_unique *unique)
{
    unique->reason.text[0] = '\0';
    push(backend, &(struct cuda_command){.kind = CUDA_UNIQUE, .unique = unique});
}

static void module_break_arena(
    struct backend *backend, struct device_arena *base, int status, const char *why)
{
    struct cuda_arena *arena = (struct cuda_arena *)base;
    if (atomic_load(&arena->is_abandoned))
        return;
    arena->abandoned = reason_set(&arena->abandoned_reason, status, "%s", why);
    atomic_store(&arena->is_abandoned, true);
    push(backend, &(struct cuda_command){.kind = CUDA_LOOK});
}

static void module_fence(struct backend *backend, struct backend_fence *fence)
{
    push(backend, &(struct cuda_command){.kind = CUDA_FENCE, .fence = fence, .pid = fence->pid});
}

static void module_collect(struct backend *backend)
{
    cuda_queue_collect(to_cuda(backend));
}

static void module_info(struct backend *backend, struct backend_info *ret_info)
{
    struct cuda *cuda = to_cuda(backend);
    (void)pthread_mutex_lock(&cuda->info_lock);
    for (uint32_t i = 0; i < cuda->num_devices; i++)
        cuda->shown[i] = cuda->devices[i].info;
    *ret_info = (struct backend_info){
        .devices = cuda->shown,
        .num_devices = cuda->num_devices,
        .driver_version = (uint32_t)cuda->driver_version,
        .runtime_version = (uint32_t)cuda->runtime_version,
        .nccl_version = cuda->nccl_version,
        .communicators = cuda->communicators,
        .warm_communicators = cuda->warm_communicators,
        .simulated = cuda->is_simulated,
    };
    memcpy(ret_info->nccl_reason, cuda->nccl_reason, sizeof(ret_info->nccl_reason));
    (void)pthread_mutex_unlock(&cuda->info_lock);
}

static uint64_t module_busy_ms(struct backend *backend, const char **ret_call)
{
    struct cuda_queue *queue = &to_cuda(backend)->queue;
    uint64_t since = atomic_load_explicit(&queue->busy_since_ms, memory_order_acquire);
    uint64_t now = cuda_now_ms();
    *ret_call = atomic_load_explicit(&queue->busy_with, memory_order_relaxed);
    return since && now > since && *ret_call ? now - since : 0;
}

static void free_cuda(struct cuda *cuda)
{
    (void)pthread_mutex_destroy(&cuda->info_lock);
    free(cuda->devices);
    free(cuda->shown);
    free(cuda);
}

static void module_free(struct backend *backend)
{
    struct cuda *cuda = to_cuda(backend);
    struct backend_module_host host = cuda->host;
    if (!cuda_queue_stop(cuda)) {
        cuda_log(cuda, LOG_LEVEL_ERROR, "the device thread does not end: it is in %s",
            atomic_load(&cuda->queue.busy_with));
        return;
    }
    free_cuda(cuda);
    host.closed(host.context);
}

static const struct backend_device_ops device_ops = {
    .attach = module_attach,
    .detach = module_detach,
    .map = module_map,
    .unmap = module_unmap,
    .free_arena = module_free_arena,
    .drop_kept = module_drop_kept,
    .unique = module_unique,
    .break_arena = module_break_arena,
    .fence = module_fence,
    .collect = module_collect,
    .info = module_info,
    .busy_ms = module_busy_ms,
};

static const struct backend_ops ops = {
    .name = "cuda",
    .submit = module_submit,
    .cancel = module_cancel,
    .reserve = module_reserve,
    .free = module_free,
    .device = &device_ops,
};

/* ---- the module ---- */

/* Before the first call of CUDA, which reads these; no other thread is there yet. */
static int set_environment(struct reason *reason)
{
    const char *blocking = getenv("CUDA_LAUNCH_BLOCKING");
    if (blocking && strcmp(blocking, "") != 0 && strcmp(blocking, "0") != 0)
        return reason_set(reason, F8_ENOENT,
            "CUDA_LAUNCH_BLOCKING=%s is set: each launch would block the daemon, and collectives "
            "of several devices would wait for each other for ever; unset it",
            blocking);
    /* A kernel that is loaded at its first launch allocates: not while a collective runs. */
    if (setenv("CUDA_MODULE_LOADING", "EAGER", 1) < 0 ||
        /* Several communicators on a device: in the order of their launches, on all devices. */
        setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 1) < 0)
        return reason_set(reason, F8_ENOMEM, "no memory for the environment of CUDA");
    return F8_OK;
}

static void set_limits(struct backend_module_host *host)
{
    if (host->quiet_limit_ms == 0)
        host->quiet_limit_ms = CUDA_QUIET_LIMIT_MS;
    if (host->drain_limit_ms == 0)
        host->drain_limit_ms = CUDA_DRAIN_LIMIT_MS;
    if (host->end_limit_ms == 0)
        host->end_limit_ms = CUDA_END_LIMIT_MS;
}

static int module_open(
    const struct backend_module_host *host, struct backend **ret_backend, struct reason *reason)
{
    int status = set_environment(reason);
    if (status < 0)
        return status;
    struct cuda *cuda = calloc(1, sizeof(*cuda));
    if (!cuda || pthread_mutex_init(&cuda->info_lock, NULL) != 0) {
        free(cuda);
        return reason_set(reason, F8_ENOMEM, "no memory for the CUDA backend");
    }
    cuda->backend.ops = &ops;
    cuda->host = *host;
    set_limits(&cuda->host);
    status = cuda_queue_start(cuda, reason);
    if (status < 0) {
        if (status != F8_EDEADLINE) /* else the thread still uses it */
            free_cuda(cuda);
        return status;
    }
    *ret_backend = &cuda->backend;
    return F8_OK;
}

__attribute__((visibility("default"))) const struct backend_module f8_backend_module = {
    .abi = BACKEND_MODULE_ABI,
    .version = F8_VERSION,
    .open = module_open,
};
