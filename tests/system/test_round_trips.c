/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One round trip a bucket in the steady state, whatever its number of weights, and no tensor byte
 * in any message: a preloaded shim counts what ranks and daemon send and receive from step 10 to
 * step 110. The test runs itself again under the shim.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "lib/crew.h"
#include "lib/device_memory.h"
#include "lib/proc.h"
#include "lib/shim.h"
#include "lib/suite.h"
#include "lib/test_daemon.h"
#include "lib/toy_rank.h"

#define RANKS      4
#define BUCKETS    5
#define WARM_STEPS 10
#ifdef F8_SANITIZED /* an order of magnitude slower */
#define STEPS 20
#define COLS  8
#else
#define STEPS 100
#define COLS  64
#endif

/* Simulated devices are slow as a sanitizer. */
static uint32_t steps(void)
{
    return device_memory_used() ? 20 : STEPS;
}

/* Largest message of the steady state; a gather's reply with all its fields at most is less. */
#define MAX_MESSAGE 100

/* The counters of one process. */
struct counts {
    struct shim_count sent, received;
    uint64_t others;
};

static struct counts counts_since(const struct shim_entry *entry, const struct counts *before)
{
    return (struct counts){
        .sent = shim_count_since(&entry->sent, before->sent),
        .received = shim_count_since(&entry->received, before->received),
        .others = atomic_load(&entry->others) - before->others,
    };
}

/* Steps to the first mark, steps to the second. Only gathers, or whole steps. */
static int rank(struct crew_member *member, const void *argument)
{
    const struct toy_job *job = argument;
    struct toy_rank toy;
    int (*step)(struct toy_rank *) = job->precompute ? toy_rank_step : toy_rank_gathers;
    int status = toy_rank_join(&toy, job, member->index);
    if (status == 0)
        status = toy_rank_seal(&toy);
    for (int i = 0; status == 0 && i < WARM_STEPS; i++)
        status = step(&toy);
    if (status == 0)
        status = toy_rank_settle(&toy);
    if (status == 0)
        crew_mark(member);
    for (uint32_t i = 0; status == 0 && i < steps(); i++)
        status = step(&toy);
    if (status == 0)
        status = toy_rank_settle(&toy);
    if (status == 0)
        crew_mark(member);
    toy_rank_close(&toy);
    return status != 0;
}

static void show(const char *who, const struct counts *counts, const struct shim_entry *entry)
{
    printf("  %s: sent %llu (%llu B, largest %llu), received %llu (%llu B, largest %llu), empty "
           "receives and sends since the start %llu and %llu\n",
        who, (unsigned long long)counts->sent.calls, (unsigned long long)counts->sent.bytes,
        (unsigned long long)atomic_load(&entry->sent.largest),
        (unsigned long long)counts->received.calls, (unsigned long long)counts->received.bytes,
        (unsigned long long)atomic_load(&entry->received.largest),
        (unsigned long long)atomic_load(&entry->received.empty),
        (unsigned long long)atomic_load(&entry->sent.empty));
}

/* What a process has done between the marks: exact numbers of messages, and small ones. */
static void check_process(const struct shim_entry *entry, const struct counts *before,
    uint64_t sent, uint64_t received, const char *who)
{
    struct counts counts = counts_since(entry, before);
    show(who, &counts, entry);
    ck_assert_uint_eq(counts.sent.calls, sent);
    ck_assert_uint_eq(counts.received.calls, received);
    ck_assert_uint_eq(counts.others, 0);
    ck_assert_uint_le(atomic_load(&entry->sent.largest), MAX_MESSAGE);
    ck_assert_uint_le(atomic_load(&entry->received.largest), MAX_MESSAGE);
}

static struct counts begin_counting(struct shim_entry *entry)
{
    const struct counts zero = {0};
    atomic_store(&entry->sent.largest, 0);
    atomic_store(&entry->received.largest, 0);
    return counts_since(entry, &zero);
}

/* requests: that a rank sends per step besides one gather, and one release, a bucket. */
static void check_job(struct toy_job job, uint64_t requests)
{
    struct test_daemon daemon;
    test_daemon_start(&daemon, NULL);
    job.socket = daemon.socket;
    job.name = "round-trips";
    if (device_memory_used()) {
        job.cols = 8;
        job.weights = job.weights > 40 ? 40 : job.weights;
    }
    struct crew crew;
    struct shim_entry *ranks[RANKS], *server = shim_entry_of(daemon.pid);
    struct counts before[RANKS], server_before;
    crew_start(&crew, RANKS, rank, &job);
    crew_await(&crew);
    proc_await_sleep(daemon.pid); /* a message is counted after it was sent */
    server_before = begin_counting(server);
    for (uint32_t i = 0; i < RANKS; i++) {
        ranks[i] = shim_entry_of(crew.pids[i]);
        before[i] = begin_counting(ranks[i]);
    }
    crew_go(&crew);
    crew_await(&crew);
    proc_await_sleep(daemon.pid);

    /* A quiesce ends the counted part. */
    uint64_t sent = steps() * (job.buckets * 2 + requests) + 1;
    uint64_t answered = steps() * (job.buckets + requests) + 1;
    printf("%u weights a bucket, %u buckets, %u steps, arena of %llu KiB\n", job.weights,
        job.buckets, steps(), (unsigned long long)(toy_arena_bytes(&job) / 1024));
    check_process(ranks[0], &before[0], sent, answered, "rank 0");
    for (uint32_t i = 1; i < RANKS; i++)
        check_process(ranks[i], &before[i], sent, answered, "another rank");
    check_process(server, &server_before, RANKS * answered, RANKS * sent, "daemon");
    crew_go(&crew);
    crew_end(&crew, 0);
    test_daemon_stop(&daemon);
}

/* Both of MiB; the weights a bucket differ two hundredfold. */
static const struct toy_job one_weight = {.ranks = RANKS,
    .buckets = BUCKETS,
    .weights = 1,
    .rows = 4096,
    .cols = COLS,
    .flavour = F8_STATIC};
static const struct toy_job many_weights = {.ranks = RANKS,
    .buckets = BUCKETS,
    .weights = 200,
    .rows = 64,
    .cols = COLS,
    .flavour = F8_STATIC};

START_TEST(one_weight_a_bucket)
{
    check_job(one_weight, 0);
}
END_TEST

START_TEST(two_hundred_weights_a_bucket)
{
    check_job(many_weights, 0);
}
END_TEST

/* Dynamic scales found inside the gather take no message more. */
START_TEST(scales_in_the_gather)
{
    struct toy_job job = many_weights;
    job.flavour = F8_DYNAMIC;
    check_job(job, 0);
}
END_TEST

START_TEST(shared_slots)
{
    struct toy_job job = many_weights;
    job.slots = 2;
    check_job(job, 0);
}
END_TEST

/* A whole step: one changed and one precompute for all weights, and the gathers. */
START_TEST(whole_steps)
{
    struct toy_job job = many_weights;
    job.flavour = F8_DYNAMIC;
    job.precompute = true;
    check_job(job, 2);
}
END_TEST

int main(int argc, char **argv)
{
    (void)argc;
    if (shim_enter(argv, F8_SHIM_CALLS) != 0)
        return EXIT_FAILURE;
    TCase *tcase = tcase_create("steady state");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, one_weight_a_bucket);
    tcase_add_test(tcase, two_hundred_weights_a_bucket);
    tcase_add_test(tcase, scales_in_the_gather);
    tcase_add_test(tcase, shared_slots);
    tcase_add_test(tcase, whole_steps);
    return run_suite("round trips", tcase);
}
