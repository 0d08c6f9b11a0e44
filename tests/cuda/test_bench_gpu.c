/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f8bench's device: what is copied to its memory, of either kind, comes back; and wrong devices are
 * told by number.
 */
#include <check.h>
#include <cuda.h>
#include <stdlib.h>
#include <string.h>

#include "client/bench/gpu.h"
#include "tests/lib/one_rank.h"
#include "tests/lib/suite.h"

/* More than a granule, and no multiple of one. */
#define SIZE ((uint64_t)(5 << 20) + 17)

static void check_memory(enum gpu_memory kind)
{
    struct gpu *gpu;
    void *address;
    char *from = malloc(SIZE), *to = calloc(1, SIZE);
    for (uint64_t i = 0; i < SIZE; i++)
        from[i] = (char)(i * 7 + i / 4096);
    ck_assert_int_eq(gpu_open(1, 0, &gpu), F8_OK);
    ck_assert_int_eq(gpu_ordinal(gpu), 1);
    ck_assert_ptr_nonnull(strstr(gpu_name(gpu), "simulated"));
    ck_assert_int_eq(gpu_allocate(gpu, kind, SIZE, &address), F8_OK);
    ck_assert_int_eq(gpu_upload(gpu, from, SIZE), F8_OK);
    ck_assert_int_eq(gpu_download(gpu, to, address, SIZE), F8_OK);
    ck_assert_int_eq(memcmp(from, to, SIZE), 0);
    unsigned legacy = 2;
    CUresult result = cuPointerGetAttribute(
        &legacy, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, (CUdeviceptr)(uintptr_t)address);
    ck_assert_int_eq(result, CUDA_SUCCESS);
    ck_assert_int_eq((legacy & 0xff) != 0, kind == GPU_LEGACY);
    ck_assert_int_eq(gpu_prepare_copy(gpu, 100), F8_OK);
    ck_assert_int_eq(gpu_copy(gpu), F8_OK);
    gpu_close(gpu);
    result = cuPointerGetAttribute(
        &legacy, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, (CUdeviceptr)(uintptr_t)address);
    ck_assert_int_ne(result, CUDA_SUCCESS); /* it was given back */
    free(from);
    free(to);
}

START_TEST(test_memory)
{
    check_memory(GPU_LEGACY);
    check_memory(GPU_VMM);
}
END_TEST

START_TEST(test_devices)
{
    struct gpu *gpu;
    for (uint32_t rank = 0; rank < 4; rank++) {
        ck_assert_int_eq(gpu_open(-1, rank, &gpu), F8_OK);
        ck_assert_int_eq(gpu_ordinal(gpu), (int)rank % 2);
        gpu_close(gpu);
    }
    assert_fails(gpu_open(2, 0, &gpu), F8_ENOENT, "no CUDA device 2: this process sees 2");
    gpu_close(NULL);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("the device of f8bench");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, test_memory);
    tcase_add_test(tcase, test_devices);
    return run_suite("bench_gpu", tcase);
}
