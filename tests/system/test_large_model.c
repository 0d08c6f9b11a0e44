/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a large model costs, beside one of half its size: 8 ranks, 10,000 weights in 500 buckets,
 * each in a daemon of its own. The daemon's memory a weight is asserted, after the seal and after
 * a step in which every rank allows the early part of every gather; the seconds are printed for
 * people. Only those on processors, of the daemon and the ranks, are held to a limit, which a
 * machine with neighbours keeps too.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "lib/crew.h"
#include "lib/proc.h"
#include "lib/suite.h"
#include "lib/test_daemon.h"
#include "lib/toy_rank.h"

#define RANKS   8
#define WEIGHTS 20 /* a bucket */
#ifdef F8_SANITIZED
#define BUCKETS 50
#define ROUNDS  1
#else
#define BUCKETS 500
#define ROUNDS  3
#endif

#define MOST_SECONDS 5.0    /* on processors, for the seal */
#define MOST_BYTES   1024.0 /* of the daemon, a weight, besides its history */
/* A weight's ring for f8ctl history after its first sync: 16 values of 8 bytes, and malloc's own */
#define HISTORY_BYTES 144.0

struct cost {
    double seconds, processor_seconds;
    double sealed, stepped; /* bytes a weight */
};

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int sync_all(struct toy_rank *toy)
{
    f8_ticket ticket;
    int status = f8_sync(toy->group, F8_DEFAULT_DEADLINE, &ticket);
    if (status == F8_OK)
        status = f8_wait(toy->group, ticket, F8_FOREVER, toy->stream);
    if (status != F8_OK)
        (void)fprintf(stderr, "f8_sync: %s\n", f8_error_text());
    return status;
}

/*
 * Joins up to the first mark, seals up to the second, has an answer from after the seal's end at
 * the third (the daemon gives memory back once it has answered), steps and syncs up to the fourth.
 */
static int rank(struct crew_member *member, const void *argument)
{
    struct toy_rank toy;
    int status = toy_rank_join(&toy, argument, member->index);
    if (status == 0) {
        crew_mark(member);
        status = toy_rank_seal(&toy);
    }
    if (status == 0) {
        crew_mark(member);
        status = toy_rank_settle(&toy);
    }
    if (status == 0) {
        crew_mark(member);
        status = toy_rank_step(&toy);
    }
    if (status == 0 && toy.job.flavour == F8_DELAYED)
        status = sync_all(&toy);
    if (status == 0)
        status = toy_rank_settle(&toy);
    if (status == 0)
        crew_mark(member);
    toy_rank_close(&toy);
    return status != 0;
}

/* What the daemon and the ranks have had of the processors so far. */
static double processor_seconds(const struct test_daemon *daemon, const struct crew *crew)
{
    uint64_t ticks = proc_ticks(daemon->pid);
    for (uint32_t i = 0; i < crew->size; i++)
        ticks += proc_ticks(crew->pids[i]);
    return (double)ticks / (double)sysconf(_SC_CLK_TCK);
}

static double grown(const struct test_daemon *daemon, uint64_t from_kb, uint32_t num_weights)
{
    uint64_t anon_kb = proc_holdings(daemon->pid).anon_kb;
    return ((double)anon_kb - (double)from_kb) * 1024 / num_weights;
}

static struct cost measure(enum f8_flavour flavour, uint32_t buckets)
{
    struct test_daemon daemon;
    test_daemon_start(&daemon, NULL);
    const struct toy_job job = {.socket = daemon.socket,
        .name = "large-model",
        .ranks = RANKS,
        .buckets = buckets,
        .weights = WEIGHTS,
        .rows = 16,
        .cols = 32,
        .flavour = flavour,
        .precompute = true,
        .pre_gather = true};
    struct cost cost;
    struct crew crew;
    crew_start(&crew, RANKS, rank, &job);
    crew_await(&crew);
    uint64_t joined_kb = proc_holdings(daemon.pid).anon_kb;
    double begin = now(), used = processor_seconds(&daemon, &crew);
    crew_go(&crew);
    crew_await(&crew);
    cost.seconds = now() - begin;
    cost.processor_seconds = processor_seconds(&daemon, &crew) - used;
    crew_go(&crew);
    crew_await(&crew);
    cost.sealed = grown(&daemon, joined_kb, buckets * WEIGHTS);
    crew_go(&crew);
    crew_await(&crew);
    cost.stepped = grown(&daemon, joined_kb, buckets * WEIGHTS);
    crew_go(&crew);
    crew_end(&crew, 0);
    test_daemon_drop_states(&daemon);
    test_daemon_stop(&daemon);
    return cost;
}

static int by_seconds(const void *a, const void *b)
{
    const struct cost *x = a, *y = b;
    return (x->seconds > y->seconds) - (x->seconds < y->seconds);
}

static void check_cost(const struct cost *cost, enum f8_flavour flavour)
{
#ifdef F8_SANITIZED
    (void)flavour; /* a sanitizer's own memory and time */
    ck_assert(cost->seconds > 0);
#else
    double history = flavour == F8_DELAYED ? HISTORY_BYTES : 0.0;
    ck_assert_double_lt(cost->processor_seconds, MOST_SECONDS);
    ck_assert_double_lt(cost->sealed, MOST_BYTES);
    ck_assert_double_lt(cost->stepped - history, MOST_BYTES);
#endif
}

static void show(const char *title, uint32_t buckets, const struct cost *cost)
{
    printf("%s, %u weights in %u buckets on %d ranks: registered and sealed in %.3f s (%.2f s on "
           "processors); the daemon grew by %.0f B a weight at the seal, %.0f B after a step\n",
        title, buckets * WEIGHTS, buckets, RANKS, cost->seconds, cost->processor_seconds,
        cost->sealed, cost->stepped);
}

/* Both sizes take turns, so that neighbours on the machine move both. */
static void check_flavour(const char *title, enum f8_flavour flavour)
{
    struct cost half[ROUNDS], full[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        half[i] = measure(flavour, BUCKETS / 2);
        full[i] = measure(flavour, BUCKETS);
    }
    qsort(half, ROUNDS, sizeof(*half), by_seconds);
    qsort(full, ROUNDS, sizeof(*full), by_seconds);
    show(title, BUCKETS / 2, &half[ROUNDS / 2]);
    show(title, BUCKETS, &full[ROUNDS / 2]);
    printf("%s: twice the weights take %.2f times as long\n", title,
        full[ROUNDS / 2].seconds / half[ROUNDS / 2].seconds);
    (void)fflush(stdout); /* a failed check leaves here */
    for (int i = 0; i < ROUNDS; i++)
        check_cost(&full[i], flavour);
}

START_TEST(dynamic)
{
    check_flavour("dynamic", F8_DYNAMIC);
}
END_TEST

START_TEST(delayed)
{
    check_flavour("delayed", F8_DELAYED);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("costs");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, dynamic);
    tcase_add_test(tcase, delayed);
    return run_suite("large model", tcase);
}
