/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host backend through the contract of all backends, and what is its own: with the pool's
 * threads held still, chunks that wait in uv's queue can be looked at and taken back.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "backend_contract.h"
#include "proto/status.h"
#include "tests/lib/suite.h"

#define THREADS     2
#define NUM_THREADS "2"
#define MIB         ((size_t)1 << 20)

static int make_host(uv_loop_t *loop, struct backend **ret_backend)
{
    return backend_host_new(loop, THREADS, ret_backend);
}

static void setup(void)
{
    backend_fixture_open(make_host);
}

/* ---- A pool that stands still ---- */

static uv_work_t blockers[THREADS];
static uv_sem_t blocked, go;

static void block(uv_work_t *request)
{
    (void)request;
    uv_sem_post(&blocked);
    uv_sem_wait(&go);
}

static void after_block(uv_work_t *request, int status)
{
    (void)request;
    ck_assert_int_eq(status, 0);
}

static void hold_pool(void)
{
    ck_assert_int_eq(uv_sem_init(&blocked, 0), 0);
    ck_assert_int_eq(uv_sem_init(&go, 0), 0);
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(uv_queue_work(test_loop, &blockers[i], block, after_block), 0);
    for (int i = 0; i < THREADS; i++)
        uv_sem_wait(&blocked);
}

static void let_pool_go(void)
{
    for (int i = 0; i < THREADS; i++)
        uv_sem_post(&go);
}

static void drop_pool(void)
{
    uv_sem_destroy(&blocked);
    uv_sem_destroy(&go);
}

/* A work that is in uv's queue as a whole can still be cancelled as a whole. */
START_TEST(cancel_takes_back_queued_chunks)
{
    uint8_t byte = 0;
    struct backend_task task = fill_task(&byte, 1, 1);
    struct run run = run_of(&task, 1, 1);
    hold_pool();
    run_submit(&run);
    ck_assert_uint_eq(run.work.chunks_in_flight, 1);
    run_cancel(&run);
    ck_assert_uint_eq(run.finished, 0);
    run_wait(&run);
    ck_assert_int_eq(run.status, F8_ECANCELED);
    ck_assert_uint_eq(byte, 0);
    let_pool_go();
    ck_assert_int_eq(uv_run(test_loop, UV_RUN_DEFAULT), 0);
    drop_pool();
}
END_TEST

/* A work that never got a slot ends although no worker does anything. */
START_TEST(cancel_without_slots)
{
    static uint8_t bytes[9 * MIB];
    struct backend_task tasks[2] = {
        fill_task(bytes, 8 * MIB, 1), fill_task(bytes + 8 * MIB, MIB, 2)};
    struct run first = run_of(&tasks[0], 1, 1), second = run_of(&tasks[1], 1, 1);
    hold_pool();
    run_submit(&first);
    run_submit(&second);
    ck_assert_uint_eq(first.work.chunks_in_flight, 2 * THREADS);
    ck_assert_uint_eq(second.work.chunks_in_flight, 0);
    run_cancel(&second);
    ck_assert_uint_eq(second.finished, 0);
    run_wait(&second);
    ck_assert_int_eq(second.status, F8_ECANCELED);
    let_pool_go();
    run_wait(&first);
    ck_assert_int_eq(first.status, F8_OK);
    ck_assert_uint_eq(bytes[8 * MIB - 1], 1);
    ck_assert_uint_eq(bytes[8 * MIB], 0);
    ck_assert_int_eq(uv_run(test_loop, UV_RUN_DEFAULT), 0);
    drop_pool();
}
END_TEST

/* The bound that keeps a newcomer's wait short, whatever is queued before it. */
START_TEST(at_most_two_chunks_a_thread)
{
    static uint8_t bytes[12 * MIB];
    struct backend_task tasks[3];
    struct run runs[3];
    unsigned in_flight = 0;
    hold_pool();
    for (uint32_t i = 0; i < 3; i++) {
        tasks[i] = fill_task(bytes + i * 4 * MIB, 4 * MIB, 1);
        runs[i] = run_of(&tasks[i], 1, i);
        run_submit(&runs[i]);
    }
    for (int i = 0; i < 3; i++)
        in_flight += runs[i].work.chunks_in_flight;
    ck_assert_uint_eq(in_flight, 2 * THREADS);
    let_pool_go();
    ck_assert_int_eq(uv_run(test_loop, UV_RUN_DEFAULT), 0);
    for (int i = 0; i < 3; i++)
        ck_assert_uint_eq(runs[i].finished, 1);
    drop_pool();
}
END_TEST

/* Ranks without a share of a weight cost no trip to a worker. */
START_TEST(empty_tasks_take_no_slot)
{
    static uint8_t bytes[2 * MIB];
    struct backend_task tasks[5] = {fill_task(NULL, 0, 1), fill_task(bytes, MIB, 1),
        fill_task(NULL, 0, 1), fill_task(bytes + MIB, MIB, 1), fill_task(NULL, 0, 1)};
    struct run run = run_of(tasks, 5, 1);
    hold_pool();
    run_submit(&run);
    ck_assert_uint_eq(run.work.chunks_in_flight, 2);
    let_pool_go();
    run_wait(&run);
    ck_assert_uint_eq(bytes[0] + bytes[2 * MIB - 1], 2);
    ck_assert_int_eq(uv_run(test_loop, UV_RUN_DEFAULT), 0);
    drop_pool();
}
END_TEST

/* A bucket of a hundred norms must not cost a hundred trips to a worker. */
START_TEST(small_tasks_share_a_slot)
{
    uint8_t bytes[64] = {0};
    struct backend_task tasks[64];
    for (uint32_t i = 0; i < 64; i++)
        tasks[i] = fill_task(&bytes[i], i % 5 != 0, (uint8_t)(i + 1));
    struct run run = run_of(tasks, 64, 1);
    hold_pool();
    run_submit(&run);
    ck_assert_uint_eq(run.work.chunks_in_flight, 2);
    let_pool_go();
    run_wait(&run);
    ck_assert_int_eq(run.status, F8_OK);
    for (uint32_t i = 0; i < 64; i++)
        ck_assert_uint_eq(bytes[i], i % 5 != 0 ? i + 1 : 0);
    ck_assert_int_eq(uv_run(test_loop, UV_RUN_DEFAULT), 0);
    drop_pool();
}
END_TEST

/* But two that are worth a trip each go to two threads. */
START_TEST(larger_tasks_take_a_slot_each)
{
    static uint8_t bytes[MIB];
    struct backend_task tasks[3] = {fill_task(bytes, 1, 1), fill_task(bytes + 1, 100 << 10, 1),
        fill_task(bytes + MIB / 2, 100 << 10, 1)};
    struct run run = run_of(tasks, 3, 1);
    hold_pool();
    run_submit(&run);
    ck_assert_uint_eq(run.work.chunks_in_flight, 2);
    let_pool_go();
    run_wait(&run);
    ck_assert_uint_eq(bytes[0] + bytes[100 << 10] + bytes[MIB / 2 + (100 << 10) - 1], 3);
    ck_assert_int_eq(uv_run(test_loop, UV_RUN_DEFAULT), 0);
    drop_pool();
}
END_TEST

static TCase *host_cases(void)
{
    TCase *tcase = tcase_create("host");
    tcase_add_checked_fixture(tcase, setup, backend_fixture_close);
    tcase_add_test(tcase, cancel_takes_back_queued_chunks);
    tcase_add_test(tcase, cancel_without_slots);
    tcase_add_test(tcase, at_most_two_chunks_a_thread);
    tcase_add_test(tcase, empty_tasks_take_no_slot);
    tcase_add_test(tcase, small_tasks_share_a_slot);
    tcase_add_test(tcase, larger_tasks_take_a_slot_each);
    return tcase;
}

int main(void)
{
    /* Before uv starts its pool. */
    if (setenv("UV_THREADPOOL_SIZE", NUM_THREADS, 1) < 0)
        return EXIT_FAILURE;
    Suite *suite = suite_create("backend host");
    suite_add_tcase(suite, backend_contract(setup));
    suite_add_tcase(suite, host_cases());
    return run_cases(suite);
}
