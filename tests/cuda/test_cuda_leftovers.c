/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Of trainers on devices that have gone, in order or by SIGKILL at a random moment, nothing is left
 * in the daemon: memory, mappings and opened handles are as many after many as after few, by the
 * simulator's counters. test_leftovers looks at the daemon's descriptors and threads.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "lib/crew.h"
#include "lib/device_memory.h"
#include "lib/proc.h"
#include "lib/test_daemon.h"
#include "lib/toy_rank.h"
#include "tests/cuda/stats.h"
#include "tests/lib/suite.h"

#define RANKS       3
#define WARM_CYCLES 4
#define CYCLES      20

/* What the daemon holds of each kind. */
struct held {
    int64_t memory, mappings, handles, streams, events;
};

static struct test_daemon daemon_;

static struct held held_now(void)
{
    struct cudasim_stats stats;
    proc_await_sleep(daemon_.pid);
    stats_read(daemon_.pid, &stats);
    const uint64_t *c = stats.counters;
    return (struct held){
        .memory = (int64_t)(c[CUDASIM_ALLOCATIONS] - c[CUDASIM_FREES]),
        .mappings = (int64_t)(c[CUDASIM_MAPS] - c[CUDASIM_UNMAPS]),
        .handles = (int64_t)(c[CUDASIM_IPC_OPENS] - c[CUDASIM_IPC_CLOSES]),
        .streams = (int64_t)(c[CUDASIM_STREAM_CREATIONS] - c[CUDASIM_STREAM_DESTRUCTIONS]),
        .events = (int64_t)(c[CUDASIM_EVENT_CREATIONS] - c[CUDASIM_EVENT_DESTRUCTIONS]),
    };
}

static int rank(struct crew_member *member, const void *argument)
{
    struct toy_rank toy;
    int status = toy_rank_join(&toy, argument, member->index);
    if (status == F8_OK)
        status = toy_rank_seal(&toy);
    if (status == F8_OK)
        crew_mark(member);
    while (status == F8_OK)
        status = toy_rank_step(&toy);
    toy_rank_close(&toy);
    return status == F8_ERANKDEAD || status == F8_EBROKEN ? 0 : 1;
}

static void run_cycle(unsigned *seed)
{
    const struct toy_job job = {.socket = daemon_.socket,
        .name = "leftovers",
        .ranks = RANKS,
        .buckets = 2,
        .weights = 2,
        .rows = 37,
        .cols = 16,
        .flavour = F8_DYNAMIC,
        .precompute = true,
        .quiet = true};
    struct crew crew;
    crew_start(&crew, RANKS, rank, &job);
    crew_await(&crew);
    crew_go(&crew);
    (void)nanosleep(&(struct timespec){.tv_nsec = rand_r(seed) % 10000000}, NULL);
    crew_kill(&crew, (uint32_t)rand_r(seed) % RANKS);
    crew_end(&crew, 0);
}

START_TEST(nothing_is_left)
{
    static const char *const arguments[] = {"--linger", "0", NULL};
    unsigned seed = 3;
    stats_begin();
    test_daemon_start(&daemon_, arguments);
    for (int i = 0; i < WARM_CYCLES; i++)
        run_cycle(&seed);
    struct held warm = held_now();
    for (int i = 0; i < CYCLES; i++)
        run_cycle(&seed);
    struct held end = held_now();
    ck_assert_int_eq(end.memory, warm.memory);
    ck_assert_int_eq(end.mappings, warm.mappings);
    ck_assert_int_eq(end.handles, warm.handles);
    ck_assert_int_eq(end.streams, warm.streams);
    ck_assert_int_eq(end.events, warm.events);
    ck_assert_int_eq(end.handles, 0);
    test_daemon_stop(&daemon_);
    stats_end();
}
END_TEST

int main(void)
{
    if (!device_memory_used()) {
        printf("skipped: F8_TEST_DEVICE names no device\n");
        return 77;
    }
    TCase *tcase = tcase_create("daemon");
    tcase_set_timeout(tcase, 240);
    tcase_add_test(tcase, nothing_is_left);
    return run_suite("leftovers", tcase);
}
