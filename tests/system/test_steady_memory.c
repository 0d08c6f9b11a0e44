/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In the steady state the daemon allocates nothing: a preloaded interposer counts its calls of
 * malloc and its kin, which must be as many after step 10 as after step 110, with four ranks, in
 * every way to gather. The test runs itself again under the interposer.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "lib/crew.h"
#include "lib/proc.h"
#include "lib/shim.h"
#include "lib/suite.h"
#include "lib/test_daemon.h"
#include "lib/toy_rank.h"

#define RANKS      4
#define WARM_STEPS 10
#define STEPS      100

static int rank(struct crew_member *member, const void *argument)
{
    const struct toy_job *job = argument;
    struct toy_rank toy;
    int status = toy_rank_join(&toy, job, member->index);
    if (status == 0)
        status = toy_rank_seal(&toy);
    for (int i = 0; status == 0 && i < WARM_STEPS + STEPS; i++) {
        status = toy_rank_step(&toy);
        if (status == 0 && i + 1 == WARM_STEPS) {
            status = toy_rank_settle(&toy);
            crew_mark(member);
        }
    }
    if (status == 0)
        status = toy_rank_settle(&toy);
    if (status == 0)
        crew_mark(member);
    toy_rank_close(&toy);
    return status != 0;
}

static void check_job(const char *title, struct toy_job job)
{
    struct test_daemon daemon;
    test_daemon_start(&daemon, NULL);
    job.socket = daemon.socket;
    job.name = "steady-memory";
    struct crew crew;
    struct shim_entry *server = shim_entry_of(daemon.pid);
    crew_start(&crew, RANKS, rank, &job);
    crew_await(&crew);
    proc_await_sleep(daemon.pid); /* it frees what a reply was made of after it was sent */
    uint64_t early = atomic_load(&server->allocations), early_frees = atomic_load(&server->frees);
    crew_go(&crew);
    crew_await(&crew);
    proc_await_sleep(daemon.pid);
    uint64_t late = atomic_load(&server->allocations), late_frees = atomic_load(&server->frees);
    printf("%s: malloc calls of the daemon %llu after step %d, %llu after step %d; frees %llu and "
           "%llu\n",
        title, (unsigned long long)early, WARM_STEPS, (unsigned long long)late, WARM_STEPS + STEPS,
        (unsigned long long)early_frees, (unsigned long long)late_frees);
    ck_assert_uint_gt(early, 0);
    ck_assert_uint_eq(early, late);
    ck_assert_uint_eq(early_frees, late_frees);
    crew_go(&crew);
    crew_end(&crew, 0);
    test_daemon_stop(&daemon);
}

static const struct toy_job toy = {.ranks = RANKS,
    .buckets = 6,
    .weights = 12,
    .rows = 61,
    .cols = 64,
    .flavour = F8_DYNAMIC,
    .precompute = true};

START_TEST(own_places)
{
    check_job("own places", toy);
}
END_TEST

START_TEST(slots)
{
    struct toy_job job = toy;
    job.slots = 2;
    check_job("2 slots", job);
}
END_TEST

START_TEST(pre_gather)
{
    struct toy_job job = toy;
    job.pre_gather = true;
    check_job("pre-gather", job);
}
END_TEST

START_TEST(pre_gather_slots)
{
    struct toy_job job = toy;
    job.pre_gather = true;
    job.slots = 2;
    check_job("pre-gather, 2 slots", job);
}
END_TEST

START_TEST(no_precompute)
{
    struct toy_job job = toy;
    job.precompute = false;
    check_job("no precompute", job);
}
END_TEST

START_TEST(no_precompute_pre_gather)
{
    struct toy_job job = toy;
    job.precompute = false;
    job.pre_gather = true;
    check_job("no precompute, pre-gather", job);
}
END_TEST

START_TEST(static_scales)
{
    struct toy_job job = toy;
    job.flavour = F8_STATIC;
    job.precompute = false;
    check_job("static scales", job);
}
END_TEST

int main(int argc, char **argv)
{
    (void)argc;
#ifdef F8_SANITIZED
    printf("skipped: the %s sanitizer has an allocator of its own, which an interposer cannot "
           "stand before\n",
        F8_SANITIZED);
    return 77;
#endif
    if (shim_enter(argv, F8_SHIM_MALLOC) != 0)
        return EXIT_FAILURE;
    TCase *tcase = tcase_create("malloc of the daemon");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, own_places);
    tcase_add_test(tcase, slots);
    tcase_add_test(tcase, pre_gather);
    tcase_add_test(tcase, pre_gather_slots);
    tcase_add_test(tcase, no_precompute);
    tcase_add_test(tcase, no_precompute_pre_gather);
    tcase_add_test(tcase, static_scales);
    return run_suite("steady memory", tcase);
}
