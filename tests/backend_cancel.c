/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of the backends' contract that is about cancels: chunks stay undone, finished() still
 * comes once, and by then no worker touches the work's memory: it is unmapped there and then.
 */
#include "backend_contract.h"

#include <sys/mman.h>

#include "proto/status.h"

#define MIB ((size_t)1 << 20)

#define BIG (256 * MIB)

struct big {
    struct run run;
    struct backend_task task;
    uint8_t *data; /* owned mapping, until finished() */
    uint8_t last;
};

static void unmap_big(struct run *run)
{
    struct big *big = (struct big *)run;
    big->last = big->data[BIG - 1];
    ck_assert_int_eq(munmap(big->data, BIG), 0);
}

static void submit_big(struct big *big, uint32_t job)
{
    big->data = map_zeros(BIG);
    big->task = fill_task(big->data, BIG, 1);
    big->run = run_of(&big->task, 1, job);
    big->run.then = unmap_big;
    run_submit(&big->run);
}

static void check_cancelled(struct big *big)
{
    run_wait(&big->run);
    ck_assert_int_eq(big->run.status, F8_ECANCELED);
    ck_assert_uint_eq(big->last, 0);
    run_out();
    ck_assert_uint_eq(big->run.finished, 1);
}

/* What comes after a cancel is not harmed by it, nor slots lost. */
static void check_backend_works(void)
{
    uint8_t *data = map_zeros(20 * MIB);
    struct backend_task task = fill_task(data, 20 * MIB, 9);
    struct run run = run_of(&task, 1, 3);
    run_submit(&run);
    run_wait(&run);
    ck_assert_int_eq(run.status, F8_OK);
    ck_assert(is_filled(data, 20 * MIB, 9));
    (void)munmap(data, 20 * MIB);
}

START_TEST(cancel_before_the_loop_turns)
{
    static struct big big;
    submit_big(&big, 1);
    run_cancel(&big.run);
    run_cancel(&big.run);
    ck_assert_uint_eq(big.run.finished, 0);
    check_cancelled(&big);
    run_cancel(&big.run);
    run_out();
    ck_assert_uint_eq(big.run.finished, 1);
    check_backend_works();
}
END_TEST

/* A round that failed may gather the same weights again. */
START_TEST(resubmission_after_cancel)
{
    static struct big big;
    uint8_t byte = 0;
    struct backend_task task = fill_task(&byte, 1, 1);
    submit_big(&big, 1);
    run_cancel(&big.run);
    check_cancelled(&big);

    big.run.work.tasks = &task;
    big.run.then = NULL;
    run_submit(&big.run);
    run_out();
    ck_assert_uint_eq(big.run.finished, 2);
    ck_assert_int_eq(big.run.status, F8_OK);
    ck_assert_uint_eq(byte, 1);
}
END_TEST

static struct big *to_cancel;

static void cancel_other(struct run *run)
{
    (void)run;
    ck_assert_uint_eq(to_cancel->run.finished, 0);
    run_cancel(&to_cancel->run);
}

/* From the finished() of another work, with chunks of this one running. */
START_TEST(cancel_while_running)
{
    static struct big big;
    uint8_t byte = 0;
    struct backend_task task = fill_task(&byte, 1, 1);
    struct run small = run_of(&task, 1, 2);
    small.then = cancel_other;
    to_cancel = &big;
    submit_big(&big, 1);
    run_submit(&small);
    check_cancelled(&big);
    ck_assert_int_eq(small.status, F8_OK);
    check_backend_works();
}
END_TEST

/* A work in the middle, the first and the last of a job's queue, and a job's only one. */
START_TEST(cancel_leaves_the_others)
{
    static struct big big[7];
    static const uint32_t jobs[7] = {1, 1, 2, 1, 1, 3, 2};
    static const int order[7] = {3, 0, 5, 4, 2, 6, 1};
    uint8_t bytes[7] = {0};
    struct backend_task tasks[7];
    struct run small[7];
    for (int i = 0; i < 7; i++) {
        submit_big(&big[i], jobs[i]);
        tasks[i] = fill_task(&bytes[i], 1, 1);
        small[i] = run_of(&tasks[i], 1, jobs[i]);
        run_submit(&small[i]);
    }
    for (int i = 0; i < 7; i++)
        run_cancel(&big[order[i]].run);
    run_out();
    for (int i = 0; i < 7; i++) {
        ck_assert_int_eq(big[i].run.status, F8_ECANCELED);
        ck_assert_uint_eq(big[i].run.finished, 1);
        ck_assert_int_eq(small[i].status, F8_OK);
        ck_assert_uint_eq(small[i].finished, 1);
        ck_assert_uint_eq(bytes[i], 1);
    }
}
END_TEST

/* Nothing was left undone, so nothing was cancelled. */
START_TEST(cancel_of_no_chunks)
{
    struct run run = run_of(NULL, 0, 1);
    run_submit(&run);
    run_cancel(&run);
    run_wait(&run);
    ck_assert_int_eq(run.status, F8_OK);
    run_out();
    ck_assert_uint_eq(run.finished, 1);
}
END_TEST

void backend_cancels(TCase *tcase)
{
    tcase_add_test(tcase, cancel_before_the_loop_turns);
    tcase_add_test(tcase, resubmission_after_cancel);
    tcase_add_test(tcase, cancel_while_running);
    tcase_add_test(tcase, cancel_leaves_the_others);
    tcase_add_test(tcase, cancel_of_no_chunks);
}
