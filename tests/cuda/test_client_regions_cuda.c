/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f8_region_share_pointer: each kind of memory goes as it can be shared, and what cannot is refused
 * by name, before the daemon hears of it.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "f8gather.pb-c.h"
#include "proto/protocol.h"
#include "tests/cuda/gpu_rank.h"
#include "tests/lib/one_rank.h"
#include "tests/lib/suite.h"

#define GRANULE ((uint64_t)2 << 20)

/* VMM memory: granules one after the other. */
struct segment {
    CUdeviceptr base;
    uint32_t count;
};

static void segment_open(struct segment *segment, uint32_t count, unsigned last_handle_types)
{
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    segment->count = count;
    CU(cuMemAddressReserve(&segment->base, (count + 1) * GRANULE, 0, 0, 0));
    for (uint32_t i = 0; i < count; i++) {
        CUmemGenericAllocationHandle memory;
        if (i + 1 == count)
            properties.requestedHandleTypes = (CUmemAllocationHandleType)last_handle_types;
        CU(cuMemCreate(&memory, GRANULE, &properties, 0));
        CU(cuMemMap(segment->base + i * GRANULE, GRANULE, 0, memory, 0));
        CU(cuMemRelease(memory));
    }
    CU(cuMemSetAccess(segment->base, count * GRANULE, &access, 1));
}

static void segment_close(struct segment *segment)
{
    for (uint32_t i = 0; i < segment->count; i++)
        CU(cuMemUnmap(segment->base + i * GRANULE, GRANULE));
    CU(cuMemAddressFree(segment->base, (segment->count + 1) * GRANULE));
}

static int share(struct gpu_rank *rank, CUdeviceptr pointer, uint64_t size)
{
    return f8_region_share_pointer(
        rank->client, (const void *)(uintptr_t)pointer, size, &rank->region);
}

/* Gathers the last of the `region_size` bytes of the shared region, which must be `value`. */
static void check_gather(struct gpu_rank *rank, uint64_t region_size, int value)
{
    uint64_t size = region_size < 4 * GRANULE ? region_size : 4 * GRANULE;
    const struct f8_weight_desc weight = {.name = "w",
        .ndim = 1,
        .shape = {size / sizeof(float)},
        .dtype = F8_F32,
        .flavour = F8_RAW,
        .region = rank->region,
        .offset = region_size - size};
    const struct f8_bucket_desc bucket = {.name = "w", .first = 0, .count = 1};
    must(f8_group_join(rank->client, "dp", 0, 1, &rank->group));
    must(f8_register(rank->group, &weight, 1, &bucket, 1));
    must(f8_seal(rank->group, NULL));
    struct f8_view view = gpu_rank_gather(rank, 0, rank->stream);
    void *copy = gpu_rank_read(view.data, view.size, rank->stream);
    gpu_rank_check(copy, view.size, value, rank->stream);
    must(f8_release(rank->group, 0, rank->stream));
}

/* What cudaMalloc gave, from somewhere inside; the device is set on the way. */
START_TEST(test_legacy)
{
    struct gpu_rank rank;
    CUdeviceptr memory;
    gpu_rank_begin(&rank);
    gpu_rank_connect(&rank);
    CU(cuMemAlloc(&memory, 3 * GRANULE));
    CU(cuMemsetD8Async(memory, 1, 3 * GRANULE, rank.stream));
    CU(cuMemsetD8Async(memory + 4096, 9, GRANULE, rank.stream));
    must(share(&rank, memory + 4096, GRANULE));
    ck_assert_uint_eq(rank.gpu.shared->num_ready, F8_PROTO_MAX_READY);
    ck_assert_uint_eq(rank.gpu.shared->region_size, GRANULE);
    ck_assert_uint_eq(rank.gpu.shared->fds, 0);
    check_gather(&rank, GRANULE, 9);
    f8_close(rank.client);
    rank.client = NULL;
    CU(cuMemFree(memory)); /* a fault if the daemon still had it */
    gpu_rank_end(&rank);
}
END_TEST

START_TEST(test_freed_region)
{
    struct gpu_rank rank;
    CUdeviceptr memory;
    struct segment segment;
    gpu_rank_begin(&rank);
    gpu_rank_connect(&rank);
    for (int i = 0; i < 3; i++) {
        CU(cuMemAlloc(&memory, GRANULE));
        must(share(&rank, memory, GRANULE));
        must(f8_region_free(rank.region));
        CU(cuMemFree(memory));
        segment_open(&segment, 2, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
        must(share(&rank, segment.base, 2 * GRANULE));
        must(f8_region_free(rank.region));
        segment_close(&segment);
    }
    ck_assert_uint_eq(rank.gpu.shared->drops, 6);
    gpu_rank_end(&rank);
}
END_TEST

/* A tensor over several allocations, which do not all go into one packet. */
static void check_segment(uint32_t count, uint64_t offset, uint64_t size, uint32_t packets)
{
    struct gpu_rank rank;
    struct segment segment;
    gpu_rank_begin(&rank);
    gpu_rank_connect(&rank);
    segment_open(&segment, count, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    CU(cuMemsetD8Async(segment.base + offset, 5, size, rank.stream));
    must(share(&rank, segment.base + offset, size));
    ck_assert_uint_eq(rank.gpu.shared->packets, packets);
    ck_assert_uint_eq(
        rank.gpu.shared->fds, (offset + size + GRANULE - 1) / GRANULE - offset / GRANULE);
    ck_assert_uint_eq(rank.gpu.shared->region_size, size);
    check_gather(&rank, size, 5);
    f8_close(rank.client);
    rank.client = NULL;
    segment_close(&segment);
    gpu_rank_end(&rank);
}

START_TEST(test_vmm)
{
    check_segment(1, 0, GRANULE, 1);
    check_segment(3, GRANULE - 4096, GRANULE + 8192, 1);
    check_segment(3, GRANULE + 4096, 4096, 1);
}
END_TEST

START_TEST(test_vmm_in_several_packets)
{
    check_segment(F8_PROTO_MAX_FDS, 0, F8_PROTO_MAX_FDS * GRANULE, 1);
    check_segment(2 * F8_PROTO_MAX_FDS + 3, 4096, (2 * F8_PROTO_MAX_FDS + 2) * GRANULE, 3);
}
END_TEST

START_TEST(test_refused)
{
    struct gpu_rank rank;
    CUdeviceptr memory;
    void *host = malloc(4096), *pinned;
    struct f8_region *region = NULL;
    gpu_rank_begin(&rank);
    gpu_rank_connect(&rank);
    assert_fails(f8_region_share_pointer(NULL, host, 1, &region), F8_EINVAL, "NULL");
    assert_fails(share(&rank, 0, 4096), F8_EINVAL, "no such memory");
    assert_fails(share(&rank, (uintptr_t)host, 0), F8_EINVAL, "0 bytes");
    assert_fails(share(&rank, (uintptr_t)host, SIZE_MAX), F8_EINVAL, "no such memory");
    assert_fails(share(&rank, (uintptr_t)host, 4096), F8_EREGION, "is host memory");
    CU(cuMemHostAlloc(&pinned, 4096, 0));
    assert_fails(share(&rank, (uintptr_t)pinned, 4096), F8_EREGION, "is host memory");
    CU(cuMemFreeHost(pinned));
    CU(cuMemAllocManaged(&memory, 4096, CU_MEM_ATTACH_GLOBAL));
    assert_fails(share(&rank, memory, 4096), F8_EREGION, "cudaMallocManaged");
    CU(cuMemFree(memory));
    CU(cuMemAllocAsync(&memory, 4096, rank.stream));
    assert_fails(share(&rank, memory, 4096), F8_EREGION, "cudaMallocAsync");
    CU(cuMemFreeAsync(memory, rank.stream));
    ck_assert_ptr_null(region);
    ck_assert_uint_eq(rank.gpu.shared->packets, 0);
    ck_assert_uint_eq(rank.gpu.shared->num_ready, 0); /* nothing of that has set the device */
    CU(cuStreamSynchronize(rank.stream));
    free(host);
    gpu_rank_end(&rank);
}
END_TEST

START_TEST(test_too_long)
{
    struct gpu_rank rank;
    CUdeviceptr memory;
    struct segment segment;
    gpu_rank_begin(&rank);
    gpu_rank_connect(&rank);
    CU(cuMemAlloc(&memory, GRANULE));
    assert_fails(share(&rank, memory, GRANULE + 1), F8_EREGION, "end beyond their allocation");
    assert_fails(share(&rank, memory + 64, GRANULE), F8_EREGION, "end beyond their allocation");
    must(share(&rank, memory + 64, GRANULE - 64));
    segment_open(&segment, 2, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    assert_fails(
        share(&rank, segment.base + GRANULE, GRANULE + 1), F8_EREGION, "more than was allocated");
    must(share(&rank, segment.base + GRANULE, GRANULE));
    f8_close(rank.client);
    rank.client = NULL;
    segment_close(&segment);
    CU(cuMemFree(memory));
    gpu_rank_end(&rank);
}
END_TEST

START_TEST(test_not_shareable)
{
    struct gpu_rank rank;
    struct segment segment;
    gpu_rank_begin(&rank);
    gpu_rank_connect(&rank);
    segment_open(&segment, 1, CU_MEM_HANDLE_TYPE_NONE);
    assert_fails(share(&rank, segment.base, GRANULE), F8_EREGION, "not made shareable");
    assert_text("expandable_segments");
    segment_close(&segment);
    ck_assert_uint_eq(rank.gpu.shared->packets, 0);
    /* It turns out late, when the daemon has a part of it. */
    segment_open(&segment, F8_PROTO_MAX_FDS + 2, CU_MEM_HANDLE_TYPE_NONE);
    assert_fails(
        share(&rank, segment.base, segment.count * GRANULE), F8_EREGION, "not made shareable");
    ck_assert_uint_eq(rank.gpu.shared->packets, 2);
    must(share(&rank, segment.base + GRANULE, GRANULE));
    f8_close(rank.client);
    rank.client = NULL;
    segment_close(&segment);
    gpu_rank_end(&rank);
}
END_TEST

START_TEST(test_other_device)
{
    struct gpu_rank rank;
    CUdevice device;
    CUcontext context, current;
    CUdeviceptr memory;
    gpu_rank_begin(&rank);
    gpu_rank_connect(&rank);
    must(f8_set_device(rank.client, 0));
    CU(cuDeviceGet(&device, 1));
    CU(cuDevicePrimaryCtxRetain(&context, device));
    CU(cuCtxPushCurrent(context));
    CU(cuMemAlloc(&memory, GRANULE));
    assert_fails(share(&rank, memory, GRANULE), F8_EBUSY, "works on device 0");
    CU(cuCtxGetCurrent(&current));
    ck_assert_ptr_eq(current, context);
    CU(cuMemFree(memory));
    CU(cuCtxPopCurrent(&context));
    gpu_rank_end(&rank);
}
END_TEST

START_TEST(test_daemon_refuses)
{
    struct gpu_rank rank;
    CUdeviceptr memory;
    gpu_rank_begin(&rank);
    gpu_rank_connect(&rank);
    CU(cuMemAlloc(&memory, GRANULE));
    rank.gpu.shared->fail_status = F8_ELIMIT;
    rank.gpu.shared->fail_body = F8__REQUEST__BODY_REGION_ADD;
    assert_fails(share(&rank, memory, GRANULE), F8_ELIMIT, "refused by the test");
    rank.gpu.shared->fail_body = 0;
    must(share(&rank, memory, GRANULE));
    rank.gpu.shared->fail_status = F8_EBUSY;
    rank.gpu.shared->fail_body = F8__REQUEST__BODY_REGION_DROP;
    assert_fails(f8_region_free(rank.region), F8_EBUSY, "refused by the test");
    rank.gpu.shared->fail_body = 0;
    must(f8_region_free(rank.region));
    CU(cuMemFree(memory));
    gpu_rank_end(&rank);
}
END_TEST

int main(int argc, char **argv)
{
    fake_gpu_main(argc, argv);
    TCase *tcase = tcase_create("regions of a CUDA device");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, test_legacy);
    tcase_add_test(tcase, test_freed_region);
    tcase_add_test(tcase, test_vmm);
    tcase_add_test(tcase, test_vmm_in_several_packets);
    tcase_add_test(tcase, test_refused);
    tcase_add_test(tcase, test_too_long);
    tcase_add_test(tcase, test_not_shareable);
    tcase_add_test(tcase, test_other_device);
    tcase_add_test(tcase, test_daemon_refuses);
    return run_suite("client_regions_cuda", tcase);
}
