/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Legacy memory that its client frees too early: the driver then gives the same addresses to the
 * next handle, or refuses that. The simulator never gives an address again, so memory.c is tested
 * here with a runtime of a few lines in which addresses are the test's to choose.
 */
#include <check.h>
#include <stdarg.h>
#include <stdlib.h>

#include "daemon/cuda/memory.h"
#include "proto/status.h"
#include "tests/lib/suite.h"

#define ADDRESS ((CUdeviceptr)0x10000000)
#define SIZE    ((uint64_t)1 << 20)

/* What the next opening gives. */
static CUdeviceptr next_address;
static cudaError_t next_error;
static unsigned opens, closes;
static CUdeviceptr closed_address;
static unsigned warnings;
static int64_t mapped_bytes;

/* ---- the runtime, and what memory.c needs of the module ---- */

cudaError_t cudaIpcOpenMemHandle(void **pointer, cudaIpcMemHandle_t handle, unsigned flags)
{
    (void)handle;
    ck_assert_uint_eq(flags, cudaIpcMemLazyEnablePeerAccess);
    if (next_error != cudaSuccess)
        return next_error;
    opens++;
    *pointer = (void *)next_address;
    return cudaSuccess;
}

cudaError_t cudaIpcCloseMemHandle(void *pointer)
{
    closes++;
    closed_address = (CUdeviceptr)pointer;
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *pointer)
{
    (void)pointer;
    *attributes = (struct cudaPointerAttributes){.device = 0};
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

const char *cudaGetErrorName(cudaError_t error)
{
    return error == cudaErrorAlreadyMapped ? "cudaErrorAlreadyMapped" : "another";
}

const char *cudaGetErrorString(cudaError_t error)
{
    (void)error;
    return "a text";
}

static CUresult address_range(CUdeviceptr *base, size_t *size, CUdeviceptr pointer)
{
    *base = pointer;
    *size = SIZE;
    return CUDA_SUCCESS;
}

void cuda_beat(struct cuda *cuda, const char *what)
{
    (void)cuda;
    (void)what;
}

void cuda_log(struct cuda *cuda, enum log_level level, const char *format, ...)
{
    (void)cuda;
    (void)format;
    warnings += level == LOG_LEVEL_WARNING;
}

int cuda_device_use(struct cuda *cuda, int32_t device, struct reason *reason)
{
    (void)cuda;
    (void)device;
    (void)reason;
    return F8_OK;
}

void cuda_device_switch(int32_t device)
{
    ck_assert_int_eq(device, 0);
}

void cuda_device_count(
    struct cuda *cuda, int32_t device, int32_t clients, int64_t arena_bytes, int64_t mapped)
{
    (void)cuda;
    (void)device;
    ck_assert(clients == 0 && arena_bytes == 0);
    mapped_bytes += mapped;
}

/* ---- the tests ---- */

static struct cuda cuda;

static void setup(void)
{
    cuda = (struct cuda){.num_devices = 1, .driver = {.p_cuMemGetAddressRange = address_range}};
    next_error = cudaSuccess;
    opens = closes = warnings = 0;
    mapped_bytes = 0;
}

static struct backend_map request(uint32_t pid, uint8_t handle)
{
    struct backend_map map = {.kind = BACKEND_MEMORY_LEGACY, .pid = pid, .size = SIZE};
    memset(map.handle, handle, sizeof(map.handle));
    return map;
}

static struct backend_mapping *map_at(uint32_t pid, uint8_t handle, CUdeviceptr address)
{
    struct backend_map map = request(pid, handle);
    next_address = address;
    ck_assert_int_eq(cuda_map_run(&cuda, &map), F8_OK);
    ck_assert_ptr_eq(map.data, (const void *)address);
    return map.mapping;
}

START_TEST(an_address_of_old_memory_belongs_to_the_new)
{
    struct backend_mapping *old = map_at(1, 1, ADDRESS);
    struct backend_mapping *other = map_at(1, 2, ADDRESS + SIZE);
    struct backend_mapping *fresh = map_at(1, 3, ADDRESS);
    ck_assert_uint_eq(warnings, 1);
    cuda_mapping_free(&cuda, old);
    ck_assert_uint_eq(closes, 0); /* it would close the new one */
    cuda_mapping_free(&cuda, fresh);
    ck_assert_uint_eq(closes, 1);
    ck_assert_uint_eq(closed_address, ADDRESS);
    cuda_mapping_free(&cuda, other);
    ck_assert_uint_eq(closes, 2);
    ck_assert_ptr_null(cuda.opened);
    ck_assert_int_eq(mapped_bytes, 0);
}
END_TEST

START_TEST(the_handle_of_old_memory_is_opened_again)
{
    struct backend_mapping *old = map_at(1, 1, ADDRESS);
    struct backend_mapping *fresh = map_at(1, 2, ADDRESS + SIZE / 2);
    struct backend_mapping *again = map_at(1, 1, ADDRESS + 4 * SIZE);
    ck_assert_uint_eq(opens, 3);
    cuda_mapping_free(&cuda, again);
    cuda_mapping_free(&cuda, fresh);
    cuda_mapping_free(&cuda, old);
    ck_assert_uint_eq(closes, 2);
}
END_TEST

/* Numbers of processes that no longer are, or are in another namespace, say nothing. */
START_TEST(a_handle_is_of_one_process)
{
    struct backend_mapping *first = map_at(1, 1, ADDRESS);
    struct backend_mapping *second = map_at(2, 1, ADDRESS + 8 * SIZE);
    struct backend_mapping *third = map_at(1, 1, ADDRESS);
    ck_assert_uint_eq(opens, 2);
    cuda_mapping_free(&cuda, first);
    ck_assert_uint_eq(closes, 0);
    cuda_mapping_free(&cuda, third);
    cuda_mapping_free(&cuda, second);
    ck_assert_uint_eq(closes, 2);
    ck_assert_uint_eq(warnings, 0);
}
END_TEST

START_TEST(what_the_driver_says_is_told)
{
    struct backend_map map = request(4711, 1);
    next_error = cudaErrorAlreadyMapped;
    ck_assert_int_eq(cuda_map_run(&cuda, &map), F8_EREGION);
    ck_assert_ptr_nonnull(strstr(map.reason.text, "pid 4711"));
    ck_assert_ptr_nonnull(strstr(map.reason.text, "cudaErrorAlreadyMapped"));
    ck_assert_ptr_nonnull(strstr(map.reason.text, "freed"));
    next_error = cudaErrorMemoryAllocation;
    ck_assert_int_eq(cuda_map_run(&cuda, &map), F8_ENOMEM);
    ck_assert_ptr_null(cuda.opened);
}
END_TEST

int main(void)
{
    TCase *tests = tcase_create("stale");
    tcase_add_checked_fixture(tests, setup, NULL);
    tcase_add_test(tests, an_address_of_old_memory_belongs_to_the_new);
    tcase_add_test(tests, the_handle_of_old_memory_is_opened_again);
    tcase_add_test(tests, a_handle_is_of_one_process);
    tcase_add_test(tests, what_the_driver_says_is_told);
    return run_suite("cuda_stale", tests);
}
