/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a training step costs on devices once it is steady: neither the daemon nor a rank allocates,
 * maps, creates events or waits for a device on the host. The simulator counts it in each process;
 * real daemon, real ranks, steps 10 to 110.
 */
#include <check.h>
#include <stdio.h>

#include "lib/crew.h"
#include "lib/device_memory.h"
#include "lib/proc.h"
#include "lib/test_daemon.h"
#include "lib/toy_rank.h"
#include "tests/cuda/stats.h"
#include "tests/lib/suite.h"

#define WARM_STEPS 10
#define STEPS      100
#define MOST_RANKS 4

/* What a steady step does nothing of. */
static const struct {
    enum cudasim_counter counter;
    const char *name;
} none[] = {
    {CUDASIM_ALLOCATIONS, "allocations"},
    {CUDASIM_FREES, "frees"},
    {CUDASIM_MAPS, "maps"},
    {CUDASIM_UNMAPS, "unmaps"},
    {CUDASIM_IPC_OPENS, "openings of handles"},
    {CUDASIM_IPC_CLOSES, "closings of handles"},
    {CUDASIM_HOST_SYNCS, "waits of the host"},
    {CUDASIM_STREAM_CREATIONS, "new streams"},
    {CUDASIM_EVENT_CREATIONS, "new events"},
    {CUDASIM_COMM_INITS, "new communicators"},
    {CUDASIM_MODULE_LOADS, "loads of modules"},
};
#define NUM_NONE (sizeof(none) / sizeof(none[0]))

/* Of the daemon, and of each rank. */
struct counts {
    struct cudasim_stats of[1 + MOST_RANKS];
};

static int rank(struct crew_member *member, const void *argument)
{
    struct toy_rank toy;
    int status = toy_rank_join(&toy, argument, member->index);
    if (status == 0)
        status = toy_rank_seal(&toy);
    for (int i = 0; status == 0 && i < WARM_STEPS + STEPS; i++) {
        status = toy_rank_step(&toy);
        if (status == 0 && (i + 1 == WARM_STEPS || i + 1 == WARM_STEPS + STEPS)) {
            status = toy_rank_settle(&toy);
            crew_mark(member);
        }
    }
    if (status == 0)
        status = toy_rank_hold(&toy, 0); /* it was no work of zeros */
    toy_rank_close(&toy);
    return status != 0;
}

static void read_all(
    const struct test_daemon *daemon, const struct crew *crew, struct counts *ret_counts)
{
    proc_await_sleep(daemon->pid);
    stats_read(daemon->pid, &ret_counts->of[0]);
    for (uint32_t r = 0; r < crew->size; r++)
        stats_read(crew->pids[r], &ret_counts->of[1 + r]);
}

static void check_steady(const struct counts *early, const struct counts *late, uint32_t ranks)
{
    for (uint32_t p = 0; p < 1 + ranks; p++) {
        ck_assert_uint_gt(early->of[p].counters[CUDASIM_ALLOCATIONS], 0); /* they are counted */
        for (size_t i = 0; i < NUM_NONE; i++) {
            uint64_t some =
                late->of[p].counters[none[i].counter] - early->of[p].counters[none[i].counter];
            ck_assert_msg(some == 0, "%s %u: %llu %s in %d steps", p ? "rank" : "daemon",
                p ? p - 1 : 0, (unsigned long long)some, none[i].name, STEPS);
        }
    }
    ck_assert_uint_ge(
        late->of[0].counters[CUDASIM_LAUNCHES] - early->of[0].counters[CUDASIM_LAUNCHES], STEPS);
    for (uint32_t p = 1; p < 1 + ranks; p++)
        ck_assert_uint_ge(
            late->of[p].counters[CUDASIM_EVENT_WAITS] - early->of[p].counters[CUDASIM_EVENT_WAITS],
            STEPS);
}

static void check_job(struct toy_job job)
{
    struct test_daemon daemon;
    struct crew crew;
    struct counts early, late;
    stats_begin();
    test_daemon_start(&daemon, NULL);
    job.socket = daemon.socket;
    job.name = "steady";
    crew_start(&crew, job.ranks, rank, &job);
    crew_await(&crew);
    read_all(&daemon, &crew, &early);
    crew_go(&crew);
    crew_await(&crew);
    read_all(&daemon, &crew, &late);
    check_steady(&early, &late, job.ranks);
    crew_go(&crew);
    crew_end(&crew, 0);
    test_daemon_drop_states(&daemon);
    test_daemon_stop(&daemon);
    stats_end();
}

static const struct toy_job toy = {
    .ranks = 2, .buckets = 3, .weights = 4, .rows = 61, .cols = 8, .flavour = F8_DYNAMIC};

START_TEST(precomputed_scales)
{
    struct toy_job job = toy;
    job.precompute = true;
    check_job(job);
}
END_TEST

START_TEST(scales_in_the_gather)
{
    check_job(toy);
}
END_TEST

START_TEST(delayed_scales)
{
    struct toy_job job = toy;
    job.flavour = F8_DELAYED;
    job.sync = true;
    check_job(job);
}
END_TEST

START_TEST(static_scales)
{
    struct toy_job job = toy;
    job.flavour = F8_STATIC;
    check_job(job);
}
END_TEST

START_TEST(four_ranks_with_slots)
{
    struct toy_job job = toy;
    job.ranks = 4;
    job.slots = 2;
    job.precompute = true;
    job.pre_gather = true;
    check_job(job);
}
END_TEST

int main(void)
{
    if (!device_memory_used()) {
        printf("skipped: F8_TEST_DEVICE names no device\n");
        return 77;
    }
    TCase *tcase = tcase_create("counters");
    tcase_set_timeout(tcase, 240);
    tcase_add_test(tcase, precomputed_scales);
    tcase_add_test(tcase, scales_in_the_gather);
    tcase_add_test(tcase, delayed_scales);
    tcase_add_test(tcase, static_scales);
    tcase_add_test(tcase, four_ranks_with_slots);
    return run_suite("steady step", tcase);
}
