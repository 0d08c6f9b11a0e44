/* SPDX-License-Identifier: Apache-2.0 */
/* The fixture of the CUDA backend's tests: see fixture.h. */
#include "fixture.h"

#include <check.h>
#include <cuda_runtime_api.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/backend_cuda.h"
#include "proto/status.h"
#include "tests/lib/loop_turn.h"

uv_loop_t cuda_loop;
struct backend *cuda_backend;

struct answer {
    bool done;
    int status;
};

static const struct config config = {.cuda_limit_ms = 60000, .linger_ms = 60000};

/* For a module with limits of its own: the one below goes before it. */
static const struct backend_module *module;
static uint64_t limit;

static int open_limited(
    const struct backend_module_host *host, struct backend **ret_backend, struct reason *reason)
{
    struct backend_module_host limited = *host;
    limited.quiet_limit_ms = limited.drain_limit_ms = limited.end_limit_ms = limit;
    return module->open(&limited, ret_backend, reason);
}

void cuda_fixture_limits(uint64_t limit_ms)
{
    limit = limit_ms;
}

static int open_module(struct reason *reason)
{
    char path[PATH_MAX];
    if (limit == 0)
        return backend_cuda_open(&cuda_loop, &config, &cuda_backend, reason);
    exporter_path("../lib/f8gather/f8gatherd-cuda.so", path, sizeof(path));
    int status = backend_cuda_load(path, &module, reason);
    if (status < 0)
        return status;
    struct backend_module with_limits = *module;
    with_limits.open = open_limited;
    return backend_cuda_start(&cuda_loop, &config, &with_limits, &cuda_backend, reason);
}

void cuda_fixture_open(void)
{
    struct reason reason = {""};
    ck_assert_int_eq(uv_loop_init(&cuda_loop), 0);
    int status = open_module(&reason);
    ck_assert_msg(status == F8_OK, "%s", reason.text);
    limit = 0;
}

void cuda_fixture_close(void)
{
    backend_free(cuda_backend);
    ck_assert_int_eq(uv_run(&cuda_loop, UV_RUN_DEFAULT), 0);
    ck_assert_int_eq(uv_loop_close(&cuda_loop), 0);
}

struct backend_info cuda_info(void)
{
    struct backend_info info;
    cuda_backend->ops->device->info(cuda_backend, &info);
    return info;
}

void cuda_turn_until(const bool *done)
{
    while (!*done)
        ck_assert_msg(loop_turn(&cuda_loop) || *done, "nothing is outstanding");
}

static void on_time(uv_timer_t *timer)
{
    uv_close((uv_handle_t *)timer, NULL);
}

void cuda_pause(uint64_t ms)
{
    uv_timer_t timer;
    ck_assert_int_eq(uv_timer_init(&cuda_loop, &timer), 0);
    ck_assert_int_eq(uv_timer_start(&timer, on_time, ms, 0), 0);
    while (!uv_is_closing((uv_handle_t *)&timer))
        (void)loop_turn(&cuda_loop);
    (void)uv_run(&cuda_loop, UV_RUN_NOWAIT); /* the end of the handle, which is on this stack */
}

static int await(const struct answer *answer)
{
    cuda_turn_until(&answer->done);
    return answer->status;
}

static void on_attached(struct backend_attach *attach, int status)
{
    *(struct answer *)attach->owner = (struct answer){true, status};
}

int cuda_attach(struct backend_attach *attach)
{
    struct answer answer = {0};
    attach->finished = on_attached;
    attach->owner = &answer;
    cuda_backend->ops->device->attach(cuda_backend, attach);
    ck_assert(!answer.done);
    return await(&answer);
}

static void on_mapped(struct backend_map *map, int status)
{
    *(struct answer *)map->owner = (struct answer){true, status};
}

int cuda_map(struct backend_map *map)
{
    struct answer answer = {0};
    map->finished = on_mapped;
    map->owner = &answer;
    cuda_backend->ops->device->map(cuda_backend, map);
    ck_assert(!answer.done);
    return await(&answer);
}

static void on_reserved(struct backend_reserve *reserve, int status)
{
    *(struct answer *)reserve->owner = (struct answer){true, status};
}

int cuda_reserve(struct backend_reserve *reserve)
{
    struct answer answer = {0};
    reserve->finished = on_reserved;
    reserve->owner = &answer;
    backend_reserve(cuda_backend, reserve);
    ck_assert(!answer.done);
    return await(&answer);
}

static void on_fence(struct backend_fence *fence, int status)
{
    *(struct answer *)fence->owner = (struct answer){true, status};
}

int cuda_fence(uint32_t pid)
{
    struct answer answer = {0};
    struct backend_fence fence = {.pid = pid, .finished = on_fence, .owner = &answer};
    cuda_backend->ops->device->fence(cuda_backend, &fence);
    ck_assert(!answer.done);
    return await(&answer);
}

static void on_fence_flag(struct backend_fence *fence, int status)
{
    ck_assert_int_eq(status, F8_OK);
    *(bool *)fence->owner = true;
}

void cuda_fence_later(struct backend_fence *fence, uint32_t pid, bool *ret_done)
{
    *ret_done = false;
    *fence = (struct backend_fence){.pid = pid, .finished = on_fence_flag, .owner = ret_done};
    cuda_backend->ops->device->fence(cuda_backend, fence);
}

/* ---- clients ---- */

void cuda_client_start(struct cuda_client *client, int ordinal, uint32_t num_events)
{
    struct exporter *exporter = &client->exporter;
    exporter_start(exporter, ordinal);
    exporter_ask(exporter, &(struct exporter_request){.op = EXPORTER_UUID}, -1);
    client->attach = (struct backend_attach){
        .ready = (const uint8_t(*)[BACKEND_HANDLE_SIZE])exporter->reply.handles,
        .num_ready = num_events,
        .pid = (uint32_t)exporter->pid,
    };
    memcpy(client->attach.uuid, exporter->reply.uuid, BACKEND_UUID_SIZE);
    exporter_ask(
        exporter, &(struct exporter_request){.op = EXPORTER_EVENTS, .count = num_events}, -1);
    int status = cuda_attach(&client->attach);
    ck_assert_msg(status == F8_OK, "%s", client->attach.reason.text);
}

struct backend_map cuda_legacy(
    struct cuda_client *client, uint64_t memory, uint64_t offset, uint64_t size)
{
    struct backend_map map = {.kind = BACKEND_MEMORY_LEGACY,
        .device = client->attach.device,
        .pid = client->attach.pid,
        .offset = offset,
        .size = size};
    exporter_ask(
        &client->exporter, &(struct exporter_request){.op = EXPORTER_ALLOCATE, .size = memory}, -1);
    memcpy(map.handle, client->exporter.reply.handles[0], sizeof(map.handle));
    return map;
}

struct backend_map cuda_chunks(struct cuda_client *client, const uint64_t *chunks, uint32_t count,
    uint64_t offset, uint64_t size)
{
    struct exporter_request request = {.op = EXPORTER_CHUNKS, .count = count};
    memcpy(request.sizes, chunks, count * sizeof(*chunks));
    exporter_ask(&client->exporter, &request, -1);
    return (struct backend_map){.kind = BACKEND_MEMORY_VMM,
        .device = client->attach.device,
        .pid = client->attach.pid,
        .fds = client->exporter.fds,
        .chunks = chunks,
        .num_chunks = count,
        .offset = offset,
        .size = size};
}

void cuda_fill(
    struct cuda_client *client, uint32_t index, uint64_t offset, uint64_t size, uint8_t byte)
{
    exporter_ask(&client->exporter,
        &(struct exporter_request){
            .op = EXPORTER_FILL, .index = index, .offset = offset, .size = size, .byte = byte},
        -1);
    exporter_ask(&client->exporter, &(struct exporter_request){.op = EXPORTER_SYNC}, -1);
}

void cuda_free_arena(struct arena *arena)
{
    cuda_backend->ops->device->free_arena(cuda_backend, arena->device);
}

void cuda_read(const void *device_address, void *ret_bytes, size_t size)
{
    ck_assert_int_eq(
        cudaMemcpy(ret_bytes, device_address, size, cudaMemcpyDeviceToHost), cudaSuccess);
}
