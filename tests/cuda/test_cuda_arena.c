/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arenas on one device: memory that a client maps read-only from the descriptor and finds zeroed,
 * done events that it opens, figures, refusals, and that all of it is given back. Simulated.
 */
#include <check.h>
#include <cudasim.h>
#include <string.h>

#include "fixture.h"
#include "proto/status.h"
#include "tests/lib/suite.h"

static struct cuda_client client;
static const int32_t one_device[] = {0, 0, 0};

static struct backend_reserve request(uint64_t size, uint32_t slots)
{
    return (struct backend_reserve){.size = size,
        .devices = one_device,
        .ranks = 3,
        .slots = slots,
        .name = "0/job/dp",
        .deadline_ms = 10000};
}

static struct arena *reserve(struct backend_reserve *wanted)
{
    int status = cuda_reserve(wanted);
    ck_assert_msg(status == F8_OK, "%s", wanted->reason.text);
    return wanted->arena;
}

START_TEST(an_arena_is_described)
{
    struct backend_reserve wanted = request(100 * 4096, 7);
    struct arena *arena = reserve(&wanted);
    ck_assert_ptr_null(arena->data);
    ck_assert_int_eq(arena->fd, -1);
    ck_assert_uint_eq(arena->size, 100 * 4096);
    ck_assert_ptr_eq(arena->device->backend, cuda_backend);
    ck_assert_uint_eq(arena->device->num_devices, 1);
    ck_assert_int_eq(arena->device->path, BACKEND_PATH_NONE);
    const struct arena_device *device = arena_on(arena, 0);
    ck_assert_ptr_nonnull(device);
    ck_assert_ptr_null(arena_on(arena, 1));
    ck_assert_ptr_nonnull(device->base);
    ck_assert_int_ge(device->fd, 0);
    ck_assert_uint_eq(cuda_info().devices[0].arena_bytes, CHUNK);
    cuda_free_arena(arena);
    ck_assert_int_eq(cuda_fence(0), F8_OK);
    ck_assert_uint_eq(cuda_info().devices[0].arena_bytes, 0);
}
END_TEST

START_TEST(clients_map_it_and_find_zeros)
{
    static const uint8_t zeros[64];
    struct backend_reserve wanted = request(CHUNK + 4096, 1);
    struct arena *arena = reserve(&wanted);
    struct arena_device *device = &arena->device->devices[0];
    cuda_client_start(&client, 0, 1);
    exporter_ask(&client.exporter,
        &(struct exporter_request){.op = EXPORTER_IMPORT, .size = 2 * CHUNK}, device->fd);
    exporter_ask(&client.exporter,
        &(struct exporter_request){.op = EXPORTER_READ, .offset = CHUNK + 4032, .size = 64}, -1);
    ck_assert_mem_eq(client.exporter.reply.data, zeros, 64);
    for (uint32_t i = 0; i < BACKEND_NUM_DONE; i++) {
        struct exporter_request wait = {.op = EXPORTER_WAIT};
        memcpy(wait.handle, device->done[i], sizeof(wait.handle));
        exporter_ask(&client.exporter, &wait, -1);
    }
    cuda_free_arena(arena);
    cuda_backend->ops->device->detach(cuda_backend, client.attach.client);
    ck_assert_int_eq(cuda_fence(0), F8_OK);
    /* The client's mapping holds the memory. */
    exporter_ask(&client.exporter,
        &(struct exporter_request){.op = EXPORTER_READ, .offset = 0, .size = 64}, -1);
    ck_assert_mem_eq(client.exporter.reply.data, zeros, 64);
    exporter_stop(&client.exporter);
}
END_TEST

START_TEST(one_of_tables_only_has_no_memory)
{
    struct backend_reserve wanted = request(0, 100);
    struct arena *arena = reserve(&wanted);
    ck_assert_uint_eq(arena->size, 0);
    ck_assert_ptr_null(arena->device->devices[0].base);
    ck_assert_int_eq(arena->device->devices[0].fd, -1);
    ck_assert_uint_eq(cuda_info().devices[0].arena_bytes, 0);
    cuda_free_arena(arena);
}
END_TEST

START_TEST(more_than_there_is_is_refused)
{
    uint64_t memory = cuda_info().devices[0].memory;
    uint64_t allocations = cudasim_counted(CUDASIM_ALLOCATIONS);
    uint64_t frees = cudasim_counted(CUDASIM_FREES);
    struct backend_reserve wanted = request(memory + CHUNK, 1);
    ck_assert_int_eq(cuda_reserve(&wanted), F8_ENOMEM);
    ck_assert_ptr_null(wanted.arena);
    ck_assert_msg(
        strstr(wanted.reason.text, "on device 0 (simulated") != NULL, "%s", wanted.reason.text);
    wanted = request(UINT64_MAX / 4096 * 4096, 1);
    ck_assert_int_eq(cuda_reserve(&wanted), F8_ENOMEM);
    /* Tables that do not fit: what was there before them goes again. */
    wanted = request(CHUNK, (uint32_t)(memory / 64));
    ck_assert_int_eq(cuda_reserve(&wanted), F8_ENOMEM);
    ck_assert_msg(strstr(wanted.reason.text, "tables") != NULL, "%s", wanted.reason.text);
    ck_assert_uint_eq(
        cudasim_counted(CUDASIM_ALLOCATIONS) - allocations, cudasim_counted(CUDASIM_FREES) - frees);
    ck_assert_uint_eq(cuda_info().devices[0].arena_bytes, 0);
    ck_assert_uint_eq(cuda_info().devices[0].memory_free, memory);
}
END_TEST

START_TEST(ranks_and_devices_are_checked)
{
    static const int32_t wrong[] = {0, 2, 0};
    struct backend_reserve wanted = request(4096, 1);
    wanted.ranks = 0;
    ck_assert_int_eq(cuda_reserve(&wanted), F8_EINVAL);
    wanted.ranks = 3;
    wanted.devices = wrong;
    ck_assert_int_eq(cuda_reserve(&wanted), F8_EINVAL);
    ck_assert_msg(
        strstr(wanted.reason.text, "rank 1 is on device 2") != NULL, "%s", wanted.reason.text);
}
END_TEST

START_TEST(all_is_given_back)
{
    for (int i = 0; i < 3; i++) {
        struct arena *arenas[4];
        for (int a = 0; a < 4; a++) {
            struct backend_reserve wanted = request(5 * CHUNK, 10);
            arenas[a] = reserve(&wanted);
        }
        ck_assert_uint_eq(cuda_info().devices[0].arena_bytes, 4 * 5 * CHUNK);
        ck_assert_uint_lt(cuda_info().devices[0].memory_free, cuda_info().devices[0].memory);
        for (int a = 0; a < 4; a++)
            cuda_free_arena(arenas[(a + i) % 4]);
        ck_assert_int_eq(cuda_fence(0), F8_OK);
        ck_assert_uint_eq(cuda_info().devices[0].memory_free, cuda_info().devices[0].memory);
    }
    ck_assert_uint_eq(cudasim_counted(CUDASIM_MAPS), cudasim_counted(CUDASIM_UNMAPS));
}
END_TEST

/* The end of the backend has what is left to go. */
START_TEST(the_end_comes_right_after_the_last_request)
{
    struct backend_reserve wanted = request(CHUNK, 10);
    cuda_free_arena(reserve(&wanted));
}
END_TEST

int main(void)
{
    TCase *tests = tcase_create("arena");
    tcase_add_checked_fixture(tests, cuda_fixture_open, cuda_fixture_close);
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, an_arena_is_described);
    tcase_add_test(tests, clients_map_it_and_find_zeros);
    tcase_add_test(tests, one_of_tables_only_has_no_memory);
    tcase_add_test(tests, more_than_there_is_is_refused);
    tcase_add_test(tests, ranks_and_devices_are_checked);
    tcase_add_test(tests, all_is_given_back);
    tcase_add_test(tests, the_end_comes_right_after_the_last_request);
    return run_suite("cuda_arena", tests);
}
