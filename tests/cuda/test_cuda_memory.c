/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients' device memory through the CUDA backend: legacy handles with an offset, opened once for
 * all regions of an allocation; chains of VMM descriptors; ranges and devices that do not fit. The
 * exporters are real processes, on two simulated devices.
 */
#include <check.h>
#include <cudasim.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fixture.h"
#include "proto/status.h"
#include "tests/lib/suite.h"

#define SIZE ((uint64_t)3 << 20)

static struct cuda_client client, other;

static void setup(void)
{
    cuda_fixture_open();
    cuda_client_start(&client, 0, 1);
}

static void teardown(void)
{
    cuda_backend->ops->device->detach(cuda_backend, client.attach.client);
    ck_assert_int_eq(cuda_fence(0), F8_OK);
    ck_assert_uint_eq(cuda_info().devices[0].mapped_bytes, 0);
    exporter_stop(&client.exporter);
    cuda_fixture_close();
}

static void map_well(struct backend_map *map)
{
    int status = cuda_map(map);
    ck_assert_msg(status == F8_OK, "%s", map->reason.text);
    ck_assert_ptr_nonnull(map->mapping);
}

static void unmap(const struct backend_map *map)
{
    cuda_backend->ops->device->unmap(cuda_backend, map->mapping);
}

static const char *refusal(struct backend_map *map, int expected)
{
    int status = cuda_map(map);
    ck_assert_msg(status == expected, "%d: %s", status, map->reason.text);
    ck_assert_ptr_null(map->mapping);
    return map->reason.text;
}

static uint8_t byte_at(const uint8_t *address)
{
    uint8_t byte;
    cuda_read(address, &byte, 1);
    return byte;
}

/* ---- legacy ---- */

START_TEST(a_region_begins_at_its_offset)
{
    struct backend_map map = cuda_legacy(&client, SIZE, 12345, 1000);
    cuda_fill(&client, 0, 0, SIZE, 1);
    cuda_fill(&client, 0, 12345, 1000, 2);
    map_well(&map);
    ck_assert_uint_eq(byte_at(map.data), 2);
    ck_assert_uint_eq(byte_at(map.data + 999), 2);
    ck_assert_uint_eq(byte_at(map.data + 1000), 1);
    ck_assert_uint_eq(byte_at(map.data - 1), 1);
    ck_assert_uint_eq(cuda_info().devices[0].mapped_bytes, SIZE);
    unmap(&map);
}
END_TEST

START_TEST(regions_of_an_allocation_share_a_mapping)
{
    uint64_t opens = cudasim_counted(CUDASIM_IPC_OPENS);
    uint64_t closes = cudasim_counted(CUDASIM_IPC_CLOSES);
    struct backend_map first = cuda_legacy(&client, SIZE, 0, 4096), second = first, third;
    second.offset = 4096;
    map_well(&first);
    map_well(&second);
    ck_assert_ptr_eq(second.data, first.data + 4096);
    ck_assert_uint_eq(cudasim_counted(CUDASIM_IPC_OPENS), opens + 1);
    unmap(&first);
    ck_assert_int_eq(cuda_fence(client.attach.pid), F8_OK);
    ck_assert_uint_eq(cudasim_counted(CUDASIM_IPC_CLOSES), closes);
    ck_assert_uint_eq(byte_at(second.data), byte_at(second.data));
    /* One that comes while the last one goes. */
    unmap(&second);
    third = first;
    map_well(&third);
    ck_assert_int_eq(cuda_fence(client.attach.pid), F8_OK);
    (void)byte_at(third.data);
    unmap(&third);
    ck_assert_int_eq(cuda_fence(client.attach.pid), F8_OK);
    ck_assert_uint_eq(cuda_info().devices[0].mapped_bytes, 0);
}
END_TEST

START_TEST(memory_may_be_freed_after_the_fence)
{
    for (uint32_t i = 0; i < 8; i++) {
        struct backend_map map = cuda_legacy(&client, SIZE, 0, SIZE);
        cuda_fill(&client, i, 0, SIZE, (uint8_t)i);
        map_well(&map);
        ck_assert_uint_eq(byte_at(map.data + SIZE - 1), i);
        unmap(&map);
        ck_assert_int_eq(cuda_fence(client.attach.pid), F8_OK);
        exporter_ask(
            &client.exporter, &(struct exporter_request){.op = EXPORTER_FREE, .index = i}, -1);
    }
}
END_TEST

START_TEST(ranges_outside_are_refused)
{
    static const struct {
        uint64_t offset, size;
    } wrong[] = {{0, SIZE + 1}, {SIZE, 1}, {SIZE + 1, 1}, {1, SIZE}, {0, 0}, {UINT64_MAX, 2},
        {2, UINT64_MAX}, {UINT64_MAX, UINT64_MAX}};
    struct backend_map map = cuda_legacy(&client, SIZE, 0, SIZE);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        map.offset = wrong[i].offset;
        map.size = wrong[i].size;
        const char *text = refusal(&map, F8_EREGION);
        ck_assert_msg(strstr(text, "3145728 bytes on device 0") != NULL, "%s", text);
    }
    ck_assert_uint_eq(cuda_info().devices[0].mapped_bytes, 0);
    map.offset = SIZE - 1;
    map.size = 1;
    map_well(&map);
    unmap(&map);
}
END_TEST

START_TEST(handles_that_are_none_are_refused)
{
    struct backend_map map = {.kind = BACKEND_MEMORY_LEGACY, .pid = 4711, .size = 1};
    memset(map.handle, 0x55, sizeof(map.handle));
    ck_assert_ptr_nonnull(strstr(refusal(&map, F8_EREGION), "pid 4711"));
    map.device = 2;
    ck_assert_ptr_nonnull(strstr(refusal(&map, F8_EREGION), "no device 2"));
    map.device = -1;
    ck_assert_ptr_nonnull(strstr(refusal(&map, F8_EREGION), "no device -1"));
    map.device = 0;
    map.kind = 7;
    ck_assert_ptr_nonnull(strstr(refusal(&map, F8_EREGION), "kind 7"));
}
END_TEST

START_TEST(memory_of_another_device_is_refused)
{
    cuda_client_start(&other, 1, 1);
    struct backend_map map = cuda_legacy(&other, SIZE, 0, SIZE);
    ck_assert_int_eq(map.device, 1);
    map.device = 0;
    (void)refusal(&map, F8_EREGION);
    map.device = 1;
    map_well(&map);
    unmap(&map);
    cuda_backend->ops->device->detach(cuda_backend, other.attach.client);
    ck_assert_int_eq(cuda_fence(0), F8_OK);
    exporter_stop(&other.exporter);
}
END_TEST

/* ---- descriptors ---- */

START_TEST(allocations_follow_one_another)
{
    static const uint64_t chunks[] = {CHUNK, 2 * CHUNK, CHUNK};
    struct backend_map map = cuda_chunks(&client, chunks, 3, CHUNK - 100, 2 * CHUNK + 200);
    cuda_fill(&client, 0, 0, CHUNK, 1);
    cuda_fill(&client, 0, CHUNK, 2 * CHUNK, 2);
    cuda_fill(&client, 0, 3 * CHUNK, CHUNK, 3);
    map_well(&map);
    ck_assert_uint_eq(byte_at(map.data), 1);
    ck_assert_uint_eq(byte_at(map.data + 99), 1);
    ck_assert_uint_eq(byte_at(map.data + 100), 2);
    ck_assert_uint_eq(byte_at(map.data + 2 * CHUNK + 99), 2);
    ck_assert_uint_eq(byte_at(map.data + 2 * CHUNK + 199), 3);
    ck_assert_uint_eq(cuda_info().devices[0].mapped_bytes, 4 * CHUNK);
    unmap(&map);
}
END_TEST

START_TEST(chained_memory_outlives_its_exporter)
{
    static const uint64_t chunks[] = {CHUNK, CHUNK};
    cuda_client_start(&other, 0, 1);
    struct backend_map map = cuda_chunks(&other, chunks, 2, 0, 2 * CHUNK);
    cuda_fill(&other, 0, 0, 2 * CHUNK, 9);
    map_well(&map);
    exporter_kill(&other.exporter);
    ck_assert_uint_eq(byte_at(map.data + 2 * CHUNK - 1), 9);
    unmap(&map);
    cuda_backend->ops->device->detach(cuda_backend, other.attach.client);
}
END_TEST

START_TEST(sizes_of_allocations_are_checked)
{
    static const uint64_t chunks[] = {CHUNK, CHUNK};
    static const uint64_t odd[] = {CHUNK, CHUNK + 4096}, none[] = {0, CHUNK},
                          large[] = {CHUNK, 2 * CHUNK},
                          huge[] = {CHUNK, UINT64_MAX / CHUNK * CHUNK};
    struct backend_map map = cuda_chunks(&client, chunks, 2, 0, 2 * CHUNK);
    map.chunks = odd;
    ck_assert_ptr_nonnull(strstr(refusal(&map, F8_EREGION), "allocation 1 of 2"));
    map.chunks = none;
    ck_assert_ptr_nonnull(strstr(refusal(&map, F8_EREGION), "allocation 0 of 2"));
    map.chunks = large; /* more than it has */
    ck_assert_ptr_nonnull(strstr(refusal(&map, F8_EREGION), "4194304 bytes"));
    map.chunks = huge;
    ck_assert_ptr_nonnull(strstr(refusal(&map, F8_EREGION), "allocation 1 of 2"));
    map.chunks = chunks;
    map.num_chunks = 0;
    ck_assert_ptr_nonnull(strstr(refusal(&map, F8_EREGION), "no allocations"));
    map.num_chunks = 2;
    map.size = 2 * CHUNK + 1;
    ck_assert_ptr_nonnull(strstr(refusal(&map, F8_EREGION), "4194304 bytes on device 0"));
    map.size = 2 * CHUNK;
    map_well(&map);
    unmap(&map);
}
END_TEST

START_TEST(descriptors_that_are_no_memory_are_refused)
{
    static const uint64_t chunks[] = {CHUNK, CHUNK};
    struct backend_map map = cuda_chunks(&client, chunks, 2, 0, CHUNK);
    int file = memfd_create("not-cuda", MFD_CLOEXEC);
    ck_assert_int_ge(file, 0);
    int fds[] = {client.exporter.fds[0], file};
    map.fds = fds;
    ck_assert_ptr_nonnull(strstr(refusal(&map, F8_EREGION), "descriptor 1 of 2"));
    fds[1] = -1;
    ck_assert_ptr_nonnull(strstr(refusal(&map, F8_EREGION), "descriptor 1 of 2"));
    (void)close(file);
    ck_assert_uint_eq(cudasim_counted(CUDASIM_MAPS), cudasim_counted(CUDASIM_UNMAPS));
}
END_TEST

START_TEST(allocations_of_another_device_are_refused)
{
    static const uint64_t chunks[] = {CHUNK};
    cuda_client_start(&other, 1, 1);
    struct backend_map map = cuda_chunks(&other, chunks, 1, 0, CHUNK);
    map.device = 0;
    ck_assert_ptr_nonnull(strstr(refusal(&map, F8_EREGION), "lies on device 1"));
    cuda_backend->ops->device->detach(cuda_backend, other.attach.client);
    ck_assert_int_eq(cuda_fence(0), F8_OK);
    exporter_stop(&other.exporter);
}
END_TEST

static TCase *add(Suite *suite, const char *name)
{
    TCase *tests = tcase_create(name);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 60);
    suite_add_tcase(suite, tests);
    return tests;
}

int main(void)
{
    Suite *suite = suite_create("cuda_memory");
    TCase *tests = add(suite, "legacy");
    tcase_add_test(tests, a_region_begins_at_its_offset);
    tcase_add_test(tests, regions_of_an_allocation_share_a_mapping);
    tcase_add_test(tests, memory_may_be_freed_after_the_fence);
    tcase_add_test(tests, ranges_outside_are_refused);
    tcase_add_test(tests, handles_that_are_none_are_refused);
    tcase_add_test(tests, memory_of_another_device_is_refused);
    tests = add(suite, "descriptors");
    tcase_add_test(tests, allocations_follow_one_another);
    tcase_add_test(tests, chained_memory_outlives_its_exporter);
    tcase_add_test(tests, sizes_of_allocations_are_checked);
    tcase_add_test(tests, descriptors_that_are_no_memory_are_refused);
    tcase_add_test(tests, allocations_of_another_device_are_refused);
    return run_cases(suite);
}
