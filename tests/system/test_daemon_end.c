/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's own ends and stops: killed at any moment of a run, told to end with clients
 * connected, started twice at one socket; and a rank that is stopped instead of dead. Nobody
 * hangs, and everybody is told what happened.
 */
#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/ranks.h"
#include "lib/raw_client.h"
#include "lib/suite.h"
#include "lib/test_daemon.h"

#define WORLD 2

/* ---- ranks that train until something happens ---- */

/* A rank that is a process of its own. */
struct trainee {
    const struct test_daemon *daemon; /* borrowed: from the test */
    uint32_t number;
    int steps[2]; /* pipe: a byte for each step done */
    int go[2];    /* pipe: a byte lets it go on */
    pid_t pid;
};

static int start_rank(struct rank *rank, const struct trainee *trainee)
{
    rank_connect(rank, trainee->daemon->socket);
    rank_join(rank, trainee->number, WORLD);
    rank_register(rank);
    return rank_seal(rank);
}

/* Whether the lost connection is told with the daemon's pid and socket. */
static bool names_the_daemon(const struct outcome *outcome, const struct test_daemon *daemon)
{
    char text[160];
    (void)snprintf(text, sizeof(text), "the connection to f8gatherd (pid %d) at %s is lost",
        (int)daemon->pid, daemon->socket);
    return outcome->status == F8_ECONN && strstr(outcome->text, text);
}

/* Trains until the connection is lost. */
static int run_until_lost(void *argument)
{
    struct trainee *trainee = argument;
    struct rank rank;
    int status = start_rank(&rank, trainee);
    while (status == F8_OK) {
        status = rank_step(&rank);
        if (status == F8_OK && write(trainee->steps[1], "", 1) != 1)
            return EXIT_FAILURE;
    }
    struct outcome outcome = outcome_of(status);
    (void)f8_release(rank.group, LAYER_0, rank.stream); /* legal after the end, held or not */
    rank_close(&rank);
    if (names_the_daemon(&outcome, trainee->daemon))
        return EXIT_SUCCESS;
    (void)fprintf(stderr, "rank %u: %d: %s\n", trainee->number, outcome.status, outcome.text);
    return EXIT_FAILURE;
}

static void start_trainee(struct trainee *trainee, const struct test_daemon *daemon,
    uint32_t number, int (*run)(void *argument))
{
    *trainee = (struct trainee){.daemon = daemon, .number = number};
    ck_assert_int_eq(pipe(trainee->steps), 0);
    ck_assert_int_eq(pipe(trainee->go), 0);
    trainee->pid = test_fork(run, trainee);
    (void)close(trainee->steps[1]);
}

static void await_step(const struct trainee *trainee)
{
    char byte;
    ck_assert_msg(
        read(trainee->steps[0], &byte, 1) == 1, "rank %u ended before its time", trainee->number);
}

static void end_trainee(const struct trainee *trainee)
{
    ck_assert_int_eq(test_wait(trainee->pid), EXIT_SUCCESS);
    (void)close(trainee->steps[0]);
    (void)close(trainee->go[0]);
    (void)close(trainee->go[1]);
}

/* Starts two ranks, and returns after some steps, somewhere in the next one. */
static void start_run(struct trainee *trainees, const struct test_daemon *daemon, int steps)
{
    for (uint32_t r = 0; r < WORLD; r++)
        start_trainee(&trainees[r], daemon, r, run_until_lost);
    for (int i = 0; i < steps; i++)
        await_step(&trainees[i % WORLD]);
}

START_TEST(daemon_is_killed)
{
    struct test_daemon daemon;
    struct trainee trainees[WORLD];
    test_daemon_start(&daemon, NULL);
    for (int steps = 1; steps <= 3; steps++) {
        start_run(trainees, &daemon, 3 * steps);
        test_daemon_kill(&daemon);
        for (uint32_t r = 0; r < WORLD; r++)
            end_trainee(&trainees[r]);
        test_daemon_restart(&daemon, NULL); /* over the stale socket */
        test_daemon_await_log(&daemon, "was left by a daemon that is gone: replaced");
    }
    struct rank ranks[WORLD];
    ranks_start(ranks, WORLD, daemon.socket);
    ranks_must(ranks, WORLD, rank_step);
    rank_close(&ranks[0]);
    rank_close(&ranks[1]);
    test_daemon_stop(&daemon);
}
END_TEST

/* All that a client does after its daemon is gone is an error at once, and names it. */
START_TEST(calls_after_the_daemon)
{
    struct test_daemon daemon;
    struct rank ranks[WORLD];
    struct f8_region *region;
    struct f8_client *client;
    void *memory;
    test_daemon_start(&daemon, NULL);
    ranks_start(ranks, WORLD, daemon.socket);
    test_daemon_kill(&daemon);
    for (uint32_t r = 0; r < WORLD; r++) {
        struct f8_group *group = ranks[r].group;
        const struct outcome outcomes[] = {
            outcome_of(rank_gather(&ranks[r], LAYER_0, 0)),
            outcome_of(f8_changed(group, 0, 1)),
            outcome_of(f8_quiesce(group, F8_FOREVER)),
            outcome_of(f8_region_alloc(ranks[r].client, 1, &region, &memory)),
            outcome_of(f8_group_rejoin(group)),
        };
        for (size_t i = 0; i < sizeof(outcomes) / sizeof(outcomes[0]); i++)
            ck_assert_msg(names_the_daemon(&outcomes[i], &daemon), "call %zu: %d: %s", i,
                outcomes[i].status, outcomes[i].text);
        rank_close(&ranks[r]);
    }
    struct outcome refused = outcome_of(
        f8_connect(&(struct f8_connect_options){.socket = daemon.socket, .job = "run"}, &client));
    ck_assert_int_eq(refused.status, F8_ENODAEMON);
    ck_assert_ptr_nonnull(strstr(refused.text, daemon.socket));
    ck_assert_ptr_nonnull(strstr(refused.text, "nobody listens; f8gatherd has ended"));
    test_daemon_restart(&daemon, NULL);
    test_daemon_stop(&daemon);
}
END_TEST

START_TEST(daemon_is_told_to_end)
{
    struct test_daemon daemon;
    struct trainee trainees[WORLD];
    test_daemon_start(&daemon, NULL);
    start_run(trainees, &daemon, 4);
    test_daemon_stop(&daemon); /* in order, though clients are in the middle of a step */
    for (uint32_t r = 0; r < WORLD; r++)
        end_trainee(&trainees[r]);
}
END_TEST

/* A rank reads why, and not that the others left, which they did only as the daemon did. */
START_TEST(daemon_says_why_it_ends)
{
    struct test_daemon daemon;
    struct rank ranks[WORLD];
    test_daemon_start(&daemon, NULL);
    ranks_start(ranks, WORLD, daemon.socket);
    test_daemon_stop(&daemon);
    for (uint32_t r = 0; r < WORLD; r++) {
        struct outcome outcome = outcome_of(rank_gather(&ranks[r], LAYER_0, 0));
        ck_assert_msg(names_the_daemon(&outcome, &daemon), "%s", outcome.text);
        ck_assert_msg(strstr(outcome.text, "f8gatherd was told to end"), "%s", outcome.text);
        rank_close(&ranks[r]);
    }
}
END_TEST

/* In a child: becomes a daemon whose log is a pipe that nobody reads any more. */
static int run_unread(void *argument)
{
    const struct test_daemon *daemon = argument;
    int ends[2];
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (pipe(ends) < 0 || dup2(ends[1], STDERR_FILENO) < 0)
        return EXIT_FAILURE;
    (void)close(ends[0]);
    (void)close(ends[1]);
    (void)execl(test_daemon_program(), "f8gatherd", "--socket", daemon->socket, (char *)NULL);
    return 127;
}

START_TEST(log_that_nobody_reads)
{
    struct test_daemon daemon;
    struct raw_client raw;
    int fd;
    test_daemon_start(&daemon, NULL);
    test_daemon_kill(&daemon); /* its socket stays: the next one logs that before it listens */
    daemon.pid = test_fork(run_unread, &daemon);
    while ((fd = test_daemon_connect(&daemon)) < 0)
        ck_assert_msg(waitpid(daemon.pid, NULL, WNOHANG) == 0, "the daemon ended at its start");
    (void)close(fd);
    raw_greet(&raw, &daemon, "run");
    (void)raw_send_bytes(&raw, "\xff", 1, NULL, 0); /* a line that names the culprit */
    ck_assert_ptr_null(raw_receive(&raw, NULL));
    raw_close(&raw);
    raw_greet(&raw, &daemon, "run");
    raw_close(&raw);
    test_daemon_stop(&daemon);
}
END_TEST

/* ---- two daemons ---- */

/* In a child: becomes a second daemon at the same socket. */
static int run_second(void *argument)
{
    const struct test_daemon *daemon = argument;
    int log = open(daemon->log, O_WRONLY | O_APPEND);
    (void)dup2(log, STDERR_FILENO);
    (void)execl(test_daemon_program(), "f8gatherd", "--socket", daemon->socket, (char *)NULL);
    return 127;
}

START_TEST(second_daemon_gives_way)
{
    struct test_daemon daemon;
    struct rank ranks[WORLD];
    char text[160];
    test_daemon_start(&daemon, NULL);
    ranks_start(ranks, WORLD, daemon.socket);
    ck_assert_int_eq(test_wait(test_fork(run_second, &daemon)), 1);
    (void)snprintf(
        text, sizeof(text), "another daemon serves %s: pid %d", daemon.socket, (int)daemon.pid);
    test_daemon_await_log(&daemon, text);
    ranks_must(ranks, WORLD, rank_step); /* the first has not noticed */
    rank_close(&ranks[0]);
    rank_close(&ranks[1]);
    test_daemon_stop(&daemon);
}
END_TEST

/* ---- a rank that is stopped ---- */

/* Seals, waits to be let go on, gathers, and must be told that it was too late, by its pid. */
static int run_late(void *argument)
{
    struct trainee *trainee = argument;
    struct rank rank;
    char byte, text[64];
    if (start_rank(&rank, trainee) != F8_OK || write(trainee->steps[1], "", 1) != 1 ||
        read(trainee->go[0], &byte, 1) != 1)
        return EXIT_FAILURE;
    struct outcome outcome = outcome_of(rank_gather(&rank, LAYER_0, 0));
    (void)snprintf(text, sizeof(text), "rank 1 (pid %d) did not ask for it", (int)getpid());
    rank_close(&rank);
    return outcome.status == F8_EBROKEN && strstr(outcome.text, text) ? EXIT_SUCCESS : EXIT_FAILURE;
}

START_TEST(rank_is_stopped)
{
    struct test_daemon daemon;
    struct trainee trainee;
    struct rank rank;
    char text[64];
    int status;
    test_daemon_start(&daemon, NULL);
    start_trainee(&trainee, &daemon, 1, run_late);
    ck_assert_int_eq(start_rank(&rank, &(struct trainee){.daemon = &daemon, .number = 0}), F8_OK);
    await_step(&trainee);
    ck_assert_int_eq(kill(trainee.pid, SIGSTOP), 0);
    ck_assert_int_eq(waitpid(trainee.pid, &status, WUNTRACED), trainee.pid);
    ck_assert(WIFSTOPPED(status));
    ck_assert_int_eq(write(trainee.go[1], "", 1), 1);
    struct outcome outcome = outcome_of(rank_gather(&rank, LAYER_0, 100));
    ck_assert_int_eq(outcome.status, F8_EDEADLINE);
    (void)snprintf(text, sizeof(text), "rank 1 (pid %d) did not ask for it", (int)trainee.pid);
    ck_assert_msg(strstr(outcome.text, text), "%s", outcome.text);
    ck_assert_int_eq(kill(trainee.pid, SIGCONT), 0);
    end_trainee(&trainee);
    rank_close(&rank);
    test_daemon_stop(&daemon);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("daemon");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, daemon_is_killed);
    tcase_add_test(tcase, calls_after_the_daemon);
    tcase_add_test(tcase, daemon_is_told_to_end);
    tcase_add_test(tcase, daemon_says_why_it_ends);
    tcase_add_test(tcase, log_that_nobody_reads);
    tcase_add_test(tcase, second_daemon_gives_way);
    tcase_add_test(tcase, rank_is_stopped);
    return run_suite("daemon_end", tcase);
}
