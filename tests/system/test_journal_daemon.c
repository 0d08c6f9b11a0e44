/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon whose lines reach journald: with the fields by which a death or a stale scale is found,
 * to its last line, and at no cost to anyone where journald takes nothing. The test is journald, in
 * a /run of its own.
 */
#include <check.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/journal.h"
#include "lib/patience.h"
#include "lib/private_run.h"
#include "lib/program.h"
#include "lib/ranks.h"
#include "lib/suite.h"
#include "lib/test_daemon.h"

/* Clients that come and go, with a line each: more than journald's socket and the queue take. */
#define CROWD 3000

/* How long nothing comes before another client has to. */
#define TURN_MS 100

/* ---- fields ---- */

/* In a child: becomes a daemon whose standard error is the pipe. */
static int run_daemon(void *argument)
{
    const struct test_daemon *daemon = argument;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    journal_take_stderr();
    (void)execl(test_daemon_program(), "f8gatherd", "--socket", daemon->socket, "--cuda", "off",
        "--log-level", "debug", (char *)NULL);
    return 127;
}

static void start_daemon(struct test_daemon *daemon)
{
    *daemon = (struct test_daemon){0};
    (void)strcpy(daemon->directory, "/tmp/f8test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(daemon->directory));
    (void)snprintf(daemon->socket, sizeof(daemon->socket), "%s/s", daemon->directory);
    (void)snprintf(daemon->log, sizeof(daemon->log), "%s/log", daemon->directory);
    daemon->pid = test_fork(run_daemon, daemon);
    journal_await(" listens at ");
}

/* Comes, and goes when the daemon has seen it. */
static void visit(const struct test_daemon *daemon)
{
    int fd = test_daemon_connect(daemon);
    struct pollfd end = {.fd = fd, .events = POLLIN};
    ck_assert_int_ge(fd, 0);
    (void)shutdown(fd, SHUT_WR);
    ck_assert_msg(poll(&end, 1, PATIENCE_MS) == 1, "the daemon does not serve");
    (void)close(fd);
}

/* A daemon whose lines wait, for journald takes nothing more. */
static void start_waiting(struct test_daemon *daemon)
{
    start_daemon(daemon);
    for (int i = 0; i < CROWD; i++)
        visit(daemon);
}

/*
 * The first entry from here on with these words, while clients come where nothing else does: the
 * daemon tells what is missing with its next line, and takes a signal, under ThreadSanitizer, with
 * its next call. It may have ended.
 */
static void await_with_clients(const struct test_daemon *daemon, const char *words)
{
    int turns = 0;
    do
        for (; !journal_try(TURN_MS); turns++) {
            ck_assert_msg(turns < PATIENCE_MS / TURN_MS, "never came to the journal: %s", words);
            int fd = test_daemon_connect(daemon);
            if (fd >= 0)
                (void)close(fd);
        }
    while (!strstr(journal_entry(), words));
}

/* Connects, joins, and is killed where the other has asked for the gather. */
static int be_killed(void *argument)
{
    struct rank rank;
    rank_connect(&rank, ((const struct test_daemon *)argument)->socket);
    rank_join(&rank, 1, 2);
    rank_register(&rank);
    (void)rank_seal(&rank);
    (void)raise(SIGKILL);
    return EXIT_SUCCESS;
}

START_TEST(death_of_a_rank_is_found_by_its_fields)
{
    struct test_daemon daemon;
    struct rank rank;
    char field[64];
    start_daemon(&daemon);
    pid_t pid = test_fork(be_killed, &daemon);
    rank_connect(&rank, daemon.socket);
    rank_join(&rank, 0, 2);
    rank_register(&rank);
    ck_assert_int_eq(rank_seal(&rank), F8_OK);
    ck_assert_int_eq(test_wait(pid), -SIGKILL);
    journal_await(" died; group dp is broken");
    (void)snprintf(field, sizeof(field), "PID=%d", (int)pid);
    journal_expect(field);
    journal_expect("JOB=run");
    journal_expect("GROUP=dp");
    journal_expect("RANK=1");
    journal_expect("PRIORITY=4");
    rank_close(&rank);
    journal_await(" of job run disconnected");
    journal_expect("PRIORITY=7");
    test_daemon_stop(&daemon);
}
END_TEST

static int gather_stale(struct rank *rank)
{
    int status = f8_changed(rank->group, 0, RANK_WEIGHTS);
    return status == F8_OK ? rank_gather(rank, LAYER_0, F8_DEFAULT_DEADLINE) : status;
}

static int ask_other(struct rank *rank)
{
    return rank_gather(rank, rank->number == 0 ? LAYER_1 : LAYER_2, F8_DEFAULT_DEADLINE);
}

START_TEST(weights_and_buckets_are_fields)
{
    struct test_daemon daemon;
    struct rank ranks[2];
    struct f8_weight_desc weights[RANK_WEIGHTS];
    char field[64];
    start_daemon(&daemon);
    ranks_start(ranks, 2, daemon.socket);
    ranks_must(ranks, 2, rank_step);
    ranks_must(ranks, 2, gather_stale);
    journal_await("was gathered with a scale from before its values changed");
    rank_weights(&ranks[0], weights);
    (void)snprintf(field, sizeof(field), "WEIGHT=%s", weights[LAYER_0 * BUCKET_WEIGHTS].name);
    journal_expect(field);
    journal_expect("JOB=run");
    ranks_all(ranks, 2, ask_other);
    journal_await(" asked for gather of ");
    ck_assert(journal_has("RANK=0") || journal_has("RANK=1"));
    ck_assert_ptr_nonnull(strstr(journal_entry(), "\nBUCKET="));
    rank_close(&ranks[0]);
    rank_close(&ranks[1]);
    test_daemon_stop(&daemon);
}
END_TEST

/* ---- journald takes nothing ---- */

START_TEST(stopped_journald_stops_no_gather)
{
    struct test_daemon daemon;
    struct rank ranks[2];
    struct program ctl;
    start_waiting(&daemon);
    ranks_start(ranks, 2, daemon.socket);
    ranks_must(ranks, 2, rank_step);
    program_start(&ctl, F8_TEST_CTL, NULL, "ping --socket %s", daemon.socket);
    program_expect(&ctl, EXIT_SUCCESS);
    program_done(&ctl);
    rank_close(&ranks[0]);
    rank_close(&ranks[1]);
    await_with_clients(&daemon, " lines are missing here: they came faster than they were taken");
    journal_expect("PRIORITY=4");
    visit(&daemon);
    journal_await(" disconnected");
    test_daemon_stop(&daemon);
    ck_assert_str_eq(journal_stderr(), "");
}
END_TEST

START_TEST(stopped_journald_stops_no_end)
{
    struct test_daemon daemon;
    start_waiting(&daemon);
    test_daemon_stop(&daemon);
    journal_await(" disconnected");
}
END_TEST

/* What journald's socket has taken is there, and whole. */
START_TEST(kill_loses_only_lines_that_wait)
{
    struct test_daemon daemon;
    start_waiting(&daemon);
    test_daemon_kill(&daemon);
    ck_assert(journal_try(0));
    do {
        ck_assert_ptr_nonnull(strstr(journal_entry(), " disconnected\nPRIORITY=7\n"));
        journal_expect("SYSLOG_IDENTIFIER=f8gatherd");
    } while (journal_try(0));
    daemon.pid = test_fork(run_daemon, &daemon);
    journal_await(" listens at ");
    test_daemon_stop(&daemon);
}
END_TEST

/* ---- last lines ---- */

START_TEST(an_end_is_told_to_its_last_line)
{
    struct test_daemon daemon;
    start_daemon(&daemon);
    test_daemon_stop(&daemon);
    journal_await("MESSAGE=SIGTERM: ending\n");
}
END_TEST

START_TEST(an_end_at_once_is_told)
{
    struct test_daemon daemon;
    struct rank ranks[2];
    start_daemon(&daemon);
    ranks_start(ranks, 2, daemon.socket);
    ck_assert_int_eq(
        f8_gather(ranks[0].group, LAYER_0, F8_DEFAULT_DEADLINE, ranks[0].stream), F8_OK);
    rank_settle(&ranks[0]);
    ck_assert_int_eq(kill(daemon.pid, SIGTERM), 0);
    await_with_clients(&daemon, "SIGTERM: waits at most");
    ck_assert_int_eq(kill(daemon.pid, SIGTERM), 0);
    await_with_clients(&daemon, "SIGTERM again: ending at once");
    ck_assert_int_eq(test_wait(daemon.pid), EXIT_FAILURE);
    rank_close(&ranks[0]);
    rank_close(&ranks[1]);
    daemon.pid = test_fork(run_daemon, &daemon);
    journal_await(" listens at ");
    test_daemon_stop(&daemon);
}
END_TEST

static const struct {
    const char *flag, *value;
    int status;
    const char *words;
} wrong[] = {
    {"--threads", "many", 2, "many"},
    {"--socket", "/nonexistent/s", EXIT_FAILURE, "/nonexistent"},
};

static int run_wrong(void *argument)
{
    int i = *(const int *)argument;
    journal_take_stderr();
    (void)execl(test_daemon_program(), "f8gatherd", wrong[i].flag, wrong[i].value, (char *)NULL);
    return 127;
}

START_TEST(an_error_at_the_start_is_told)
{
    ck_assert_int_eq(test_wait(test_fork(run_wrong, &_i)), wrong[_i].status);
    ck_assert(journal_try(0));
    while (!journal_has("PRIORITY=3"))
        ck_assert_msg(journal_try(0), "no error is told of");
    ck_assert_ptr_nonnull(strstr(journal_entry(), wrong[_i].words));
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("journal_daemon");
#ifndef F8_HAVE_SYSTEMD
    (void)printf("skipped: built without libsystemd\n");
    return 77;
#endif
    if (!private_run_enter()) {
        (void)printf("skipped: this user may not mount a /run of its own (root may)\n");
        return 77;
    }
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, journal_begin, journal_end);
    tcase_add_test(tcase, death_of_a_rank_is_found_by_its_fields);
    tcase_add_test(tcase, weights_and_buckets_are_fields);
    tcase_add_test(tcase, stopped_journald_stops_no_gather);
    tcase_add_test(tcase, stopped_journald_stops_no_end);
    tcase_add_test(tcase, kill_loses_only_lines_that_wait);
    tcase_add_test(tcase, an_end_is_told_to_its_last_line);
    tcase_add_test(tcase, an_end_at_once_is_told);
    tcase_add_loop_test(tcase, an_error_at_the_start_is_told, 0, sizeof(wrong) / sizeof(wrong[0]));
    return run_suite("journal_daemon", tcase);
}
