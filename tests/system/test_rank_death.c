/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SIGKILL of a rank at each step of its life, while a forked child of it holds its socket and
 * mappings open: the others are told who died, or get the result that was under way; then the
 * survivors re-join, a new process takes the rank, and all of it works again.
 *
 * Rank 1 of 3 is the victim, a process of its own; ranks 0 and 2 live in the test's process.
 */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "lib/ranks.h"
#include "lib/raw_client.h"
#include "lib/suite.h"
#include "lib/test_daemon.h"

#define WORLD     3
#define SURVIVORS 2 /* ranks 0 and 2 */
#define VICTIM    1

/* ---- the victim ---- */

/* How far the victim goes. What it does in a step is done by the survivors too, but for: */
enum step {
    CONNECTS,
    JOINS,
    REGISTERS,
    ASKS_FOR_SEAL, /* rank 2 does not */
    SEALS,
    ASKS_FOR_PRECOMPUTE, /* rank 2 does not */
    PRE_GATHERS,         /* the others gather */
    ASKS_FOR_GATHER,     /* the others do not, until it is dead */
    LETS_OTHERS_ASK,     /* the victim does not */
    ASKS_WITH_ALL,       /* so the gather has its ranks and runs */
    HOLDS,
    RELEASES,
};

struct victim {
    const struct test_daemon *daemon; /* borrowed: from the test */
    enum step step;
    int ready[2]; /* pipe: the victim says that it has come so far */
    int hold[2];  /* pipe: its child lives until the test closes this */
    pid_t pid;
};

/* A worker as DataLoaders fork it: inherits all, does nothing, outlives its parent. */
static void fork_worker(const struct victim *victim)
{
    char byte;
    pid_t pid = fork();
    if (pid != 0)
        return;
    (void)close(victim->hold[1]);
    while (read(victim->hold[0], &byte, 1) < 0 && errno == EINTR)
        continue;
    _exit(0);
}

static void *seal_in_thread(void *rank)
{
    (void)rank_seal(rank);
    return NULL;
}

/* The seal waits: it is left to a thread, and the worker is forked before. */
static void ask_for_seal(struct rank *rank)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, seal_in_thread, rank) == 0)
        (void)pthread_detach(thread);
}

static int take_steps(struct rank *rank, enum step step)
{
    f8_ticket ticket;
    int status = rank_seal(rank);
    if (status == F8_OK && step == ASKS_FOR_PRECOMPUTE)
        status = f8_precompute(rank->group, 0, rank->stream, &ticket);
    if (status == F8_OK && step == PRE_GATHERS)
        status = f8_pre_gather(rank->group, LAYER_0, rank->stream);
    if (status == F8_OK && (step == ASKS_FOR_GATHER || step == ASKS_WITH_ALL))
        status = f8_gather(rank->group, LAYER_0, 0, rank->stream);
    if (status == F8_OK && (step == HOLDS || step == RELEASES))
        status = rank_gather(rank, LAYER_0, 0);
    if (status == F8_OK && step == RELEASES)
        status = f8_release(rank->group, LAYER_0, rank->stream);
    if (status == F8_OK)
        rank_settle(rank);
    return status;
}

static int run_victim(void *argument)
{
    struct victim *victim = argument;
    struct rank rank;
    rank_connect(&rank, victim->daemon->socket);
    if (victim->step >= JOINS)
        rank_join(&rank, VICTIM, WORLD);
    if (victim->step >= REGISTERS)
        rank_register(&rank);
    if (victim->step >= SEALS && take_steps(&rank, victim->step) != F8_OK)
        return EXIT_FAILURE;
    fork_worker(victim);
    if (victim->step == ASKS_FOR_SEAL)
        ask_for_seal(&rank);
    if (write(victim->ready[1], "", 1) != 1)
        return EXIT_FAILURE;
    for (;;)
        (void)pause();
}

static void start_victim(struct victim *victim, const struct test_daemon *daemon, enum step step)
{
    *victim = (struct victim){.daemon = daemon, .step = step};
    ck_assert_int_eq(pipe(victim->ready), 0);
    ck_assert_int_eq(pipe(victim->hold), 0);
    victim->pid = test_fork(run_victim, victim);
    (void)close(victim->ready[1]);
    (void)close(victim->hold[0]);
}

static void await_victim(const struct victim *victim)
{
    char byte;
    ck_assert_msg(read(victim->ready[0], &byte, 1) == 1, "the victim ended before its time");
}

static void kill_victim(const struct victim *victim)
{
    ck_assert_int_eq(kill(victim->pid, SIGKILL), 0);
    ck_assert_int_eq(test_wait(victim->pid), -SIGKILL);
}

static void end_victim(const struct victim *victim)
{
    (void)close(victim->ready[0]);
    (void)close(victim->hold[1]); /* now its worker ends */
}

/* ---- the survivors ---- */

static int gather_layer(struct rank *rank)
{
    return rank_gather(rank, LAYER_0, 0);
}

static int wait_layer(struct rank *rank)
{
    return f8_post_gather(
        rank->group, LAYER_0, F8_FOREVER, rank->views[LAYER_0], BUCKET_WEIGHTS, rank->stream);
}

static int ask_for_layer(struct rank *rank)
{
    int status = f8_gather(rank->group, LAYER_0, 0, rank->stream);
    if (status == F8_OK)
        rank_settle(rank);
    return status;
}

static int precompute(struct rank *rank)
{
    f8_ticket ticket;
    int status = f8_precompute(rank->group, 0, rank->stream, &ticket);
    return status == F8_OK ? f8_wait(rank->group, ticket, F8_FOREVER, rank->stream) : status;
}

/* A call of rank 0 on a thread of its own, which waits while the test kills. */
struct errand {
    struct rank *rank; /* borrowed: from the test */
    int (*call)(struct rank *rank);
    pthread_t thread;
};

static void *run_errand(void *argument)
{
    struct errand *errand = argument;
    errand->rank->outcome = outcome_of(errand->call(errand->rank));
    return NULL;
}

/* Must name who died, to those who waited and to those who came later. */
static void check_told(const struct rank *rank, pid_t pid)
{
    char text[64];
    (void)snprintf(text, sizeof(text), "rank %d (pid %d) died", VICTIM, (int)pid);
    ck_assert_msg(rank->outcome.status == F8_ERANKDEAD || rank->outcome.status == F8_EBROKEN,
        "rank %u: %s: %s", rank->number, f8_status_name(rank->outcome.status), rank->outcome.text);
    ck_assert_msg(strstr(rank->outcome.text, text), "rank %u: \"%s\" does not say \"%s\"",
        rank->number, rank->outcome.text, text);
}

/* Rank 0 calls and waits; when the daemon misses these ranks, the victim is killed; it is told. */
static void kill_in_a_wait(struct rank *rank, const struct victim *victim,
    int (*call)(struct rank *rank), const char *kind, uint32_t missing)
{
    struct errand errand = {.rank = rank, .call = call};
    ck_assert_int_eq(pthread_create(&errand.thread, NULL, run_errand, &errand), 0);
    daemon_await_missing(victim->daemon, kind, missing);
    kill_victim(victim);
    ck_assert_int_eq(pthread_join(errand.thread, NULL), 0);
    ck_assert_int_eq(rank->outcome.status, F8_ERANKDEAD);
    check_told(rank, victim->pid);
}

static void kill_among_gathers(struct rank *survivors, const struct victim *victim)
{
    ranks_must(survivors, SURVIVORS, ask_for_layer);
    await_victim(victim);
    kill_victim(victim);
    ranks_all(survivors, SURVIVORS, wait_layer);
}

/* Survivors up to where the victim is waited for, and what they are told when it dies. */
static void kill_at_step(struct rank *survivors, const struct victim *victim)
{
    enum step step = victim->step;
    if (step >= SEALS)
        ranks_must(survivors, SURVIVORS, rank_seal);
    if (step == LETS_OTHERS_ASK || step == ASKS_WITH_ALL || step == PRE_GATHERS) {
        kill_among_gathers(survivors, victim);
        return;
    }
    if (step == HOLDS || step == RELEASES)
        ranks_must(survivors, SURVIVORS, gather_layer);
    await_victim(victim);
    if (step == JOINS || step == REGISTERS)
        kill_in_a_wait(&survivors[0], victim, rank_seal, "seal", 1U << VICTIM | 1U << 2);
    else if (step == ASKS_FOR_SEAL)
        kill_in_a_wait(&survivors[0], victim, rank_seal, "seal", 1U << 2);
    else if (step == ASKS_FOR_PRECOMPUTE)
        kill_in_a_wait(&survivors[0], victim, precompute, "precompute", 1U << 2);
    else
        kill_victim(victim);
}

/* What each survivor is told after the kill, and what it still has. */
static void check_survivors(struct rank *survivors, const struct victim *victim)
{
    for (uint32_t s = 0; s < SURVIVORS; s++) {
        struct rank *rank = &survivors[s];
        if (victim->step == ASKS_WITH_ALL)
            ck_assert_msg(rank->outcome.status == F8_OK, "%s", rank->outcome.text);
        if (victim->step == PRE_GATHERS || victim->step == LETS_OTHERS_ASK)
            check_told(rank, victim->pid);
        if (victim->step == ASKS_WITH_ALL || victim->step == HOLDS || victim->step == RELEASES)
            ck_assert_int_eq(rank_check(rank, LAYER_0), F8_OK);
        if (victim->step < SEALS)
            rank->outcome = outcome_of(rank_seal(rank));
        else
            rank->outcome = outcome_of(rank_gather(rank, LAYER_1, 0));
        check_told(rank, victim->pid);
        if (victim->step == ASKS_WITH_ALL || victim->step == HOLDS)
            ck_assert_int_eq(f8_release(rank->group, LAYER_0, rank->stream), F8_OK);
    }
}

/* ---- afterwards ---- */

/* All ranks have asked for the last gather before any of them is done: then each may leave. */
static int seal_and_step(struct rank *rank)
{
    int status = rank_seal(rank);
    for (int i = 0; i < 2 && status == F8_OK; i++)
        status = rank_step(rank);
    return status;
}

/* Forked before this process has a device, which a child could not use then, it waits for its turn.
 */
struct replacement {
    const struct test_daemon *daemon; /* borrowed: from the test */
    int go[2];                        /* pipe: a byte when it is to begin */
    pid_t pid;
};

static int run_replacement(void *argument)
{
    const struct replacement *replacement = argument;
    struct rank rank;
    char byte;
    if (read(replacement->go[0], &byte, 1) != 1)
        return EXIT_FAILURE;
    rank_connect(&rank, replacement->daemon->socket);
    rank_join(&rank, VICTIM, WORLD);
    rank_register(&rank);
    int status = seal_and_step(&rank);
    rank_close(&rank);
    return status == F8_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int rejoin(struct rank *rank)
{
    return f8_group_rejoin(rank->group);
}

static void start_replacement(struct replacement *replacement, const struct test_daemon *daemon)
{
    *replacement = (struct replacement){.daemon = daemon};
    ck_assert_int_eq(pipe(replacement->go), 0);
    replacement->pid = test_fork(run_replacement, replacement);
}

static void recover(struct rank *survivors, const struct replacement *replacement, bool broken)
{
    if (broken)
        ranks_must(survivors, SURVIVORS, rejoin);
    ck_assert_int_eq(write(replacement->go[1], "", 1), 1);
    ranks_must(survivors, SURVIVORS, seal_and_step);
    ck_assert_int_eq(test_wait(replacement->pid), EXIT_SUCCESS);
    (void)close(replacement->go[0]);
    (void)close(replacement->go[1]);
}

START_TEST(rank_is_killed)
{
    struct test_daemon daemon;
    struct rank survivors[SURVIVORS];
    struct replacement replacement;
    struct victim victim;
    enum step step = (enum step)_i;
    test_daemon_start(&daemon, NULL);
    int before = daemon_descriptors(&daemon);
    start_replacement(&replacement, &daemon);
    start_victim(&victim, &daemon, step);
    for (uint32_t s = 0; s < SURVIVORS; s++) {
        rank_connect(&survivors[s], daemon.socket);
        rank_join(&survivors[s], 2 * s, WORLD);
        rank_register(&survivors[s]);
    }
    kill_at_step(survivors, &victim);
    if (step != CONNECTS) /* it was nobody's rank yet */
        check_survivors(survivors, &victim);
    recover(survivors, &replacement, step != CONNECTS);
    rank_close(&survivors[0]);
    rank_close(&survivors[1]);
    daemon_await_empty(&daemon, before); /* though the worker still has the socket */
    end_victim(&victim);
    test_daemon_stop(&daemon);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("of a rank");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, rank_is_killed, CONNECTS, RELEASES + 1);
    return run_suite("death", tcase);
}
