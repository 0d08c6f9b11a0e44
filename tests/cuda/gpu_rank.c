/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rank of the client's tests on a device, on the test's thread.
 */
#include "tests/cuda/gpu_rank.h"

#include <check.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "client/client_private.h"

void must(int status)
{
    ck_assert_msg(status == F8_OK, "%s: %s", f8_status_name(status), f8_error_text());
}

void gpu_rank_begin(struct gpu_rank *rank)
{
    CUdevice device;
    memset(rank, 0, sizeof(*rank));
    CU(cuInit(0));
    CU(cuDeviceGet(&device, 0));
    CU(cuDevicePrimaryCtxRetain(&rank->context, device));
    CU(cuCtxPushCurrent(rank->context));
    CU(cuStreamCreate(&rank->stream, CU_STREAM_NON_BLOCKING));
}

void gpu_rank_connect(struct gpu_rank *rank)
{
    fake_gpu_start(&rank->gpu);
    const struct f8_connect_options options = {
        .socket = rank->gpu.socket, .job = "test", .reconnect_ms = rank->reconnect_ms};
    must(f8_connect(&options, &rank->client));
}

static void register_weights(struct gpu_rank *rank, bool shared)
{
    static char names[FAKE_GPU_BUCKETS][16];
    struct f8_weight_desc weights[FAKE_GPU_BUCKETS] = {{0}};
    struct f8_bucket_desc buckets[FAKE_GPU_BUCKETS] = {{0}};
    for (uint32_t i = 0; i < rank->num_buckets; i++) {
        snprintf(names[i], sizeof(names[i]), "w%u", i);
        weights[i] = (struct f8_weight_desc){.name = names[i],
            .ndim = 1,
            .shape = {rank->size / sizeof(float)},
            .dtype = F8_F32,
            .flavour = F8_RAW,
            .region = rank->region,
            .offset = i * rank->size};
        buckets[i] =
            (struct f8_bucket_desc){.name = names[i], .first = i, .count = 1, .shared = shared};
    }
    must(f8_register(rank->group, weights, rank->num_buckets, buckets, rank->num_buckets));
}

void gpu_rank_register(struct gpu_rank *rank, const struct gpu_rank_options *options)
{
    gpu_rank_begin(rank);
    rank->reconnect_ms = options->reconnect_ms;
    gpu_rank_connect(rank);
    rank->num_buckets = options->num_buckets;
    rank->size = (options->words ? options->words : 16384) * sizeof(float);
    CU(cuMemAlloc(&rank->shards, rank->num_buckets * rank->size));
    must(f8_region_share_pointer(rank->client, (const void *)(uintptr_t)rank->shards,
        rank->num_buckets * rank->size, &rank->region));
    must(f8_group_join(
        rank->client, "dp", 0, options->world_size ? options->world_size : 1, &rank->group));
    register_weights(rank, options->shared);
}

void gpu_rank_seal(struct gpu_rank *rank, uint32_t slots)
{
    const struct f8_seal_options options = {.slots = slots};
    must(f8_seal(rank->group, &options));
}

void gpu_rank_end(struct gpu_rank *rank)
{
    f8_close(rank->client);
    fake_gpu_stop(&rank->gpu);
    if (rank->shards)
        CU(cuMemFree(rank->shards)); /* a fault if the daemon still had it */
    CU(cuStreamDestroy(rank->stream));
    CUcontext context;
    CU(cuCtxPopCurrent(&context));
    ck_assert_ptr_eq(context, rank->context);
}

void gpu_rank_fill(struct gpu_rank *rank, uint32_t bucket, int value, CUstream stream)
{
    CU(cuMemsetD8Async(
        rank->shards + bucket * rank->size, (unsigned char)value, rank->size, stream));
}

struct f8_view gpu_rank_gather(struct gpu_rank *rank, uint32_t bucket, CUstream stream)
{
    struct f8_view view;
    must(f8_gather(rank->group, bucket, F8_DEFAULT_DEADLINE, stream));
    must(f8_post_gather(rank->group, bucket, F8_FOREVER, &view, 1, stream));
    return view;
}

void *gpu_rank_read(const void *data, uint64_t size, CUstream stream)
{
    void *copy;
    CU(cuMemHostAlloc(&copy, size, 0));
    CU(cuMemcpyDtoHAsync(copy, (CUdeviceptr)(uintptr_t)data, size, stream));
    return copy;
}

void gpu_rank_check(void *copy, uint64_t size, int value, CUstream stream)
{
    CU(cuStreamSynchronize(stream));
    const unsigned char *bytes = copy;
    ck_assert_int_eq(bytes[0], value);
    ck_assert_msg(memcmp(bytes, bytes + 1, size - 1) == 0, "not all bytes are %d", value);
    CU(cuMemFreeHost(copy));
}

static void wait_at_gate(void *argument)
{
    struct gate *gate = argument;
    uint64_t one;
    ck_assert_int_eq(read(gate->fd, &one, sizeof(one)), sizeof(one));
}

void gate_put(struct gate *gate, CUstream stream)
{
    gate->fd = eventfd(0, EFD_CLOEXEC);
    ck_assert_int_ge(gate->fd, 0);
    CU(cuLaunchHostFunc(stream, wait_at_gate, gate));
}

void gate_open(struct gate *gate)
{
    const uint64_t one = 1;
    ck_assert_int_eq(write(gate->fd, &one, sizeof(one)), sizeof(one));
}

void gpu_rank_ping(struct gpu_rank *rank)
{
    F8__Ping ping = F8__PING__INIT;
    F8__Request request = F8__REQUEST__INIT;
    request.body_case = F8__REQUEST__BODY_PING;
    request.ping = &ping;
    must(channel_call(rank->client->channel, &request, -1, NULL));
}
