/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signals to a daemon at work: SIGHUP, after which its settings are the new ones or, if anything
 * is wrong with them, the old ones; and SIGTERM, which lets what is under way end, lets nobody in,
 * has a deadline, and is at once the second time.
 */
#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/ranks.h"
#include "lib/raw_client.h"
#include "lib/suite.h"
#include "lib/test_daemon.h"

#define WORLD 2

/* A drain that no test waits for. */
#define LONG "1000"

/* ---- SIGHUP ---- */

/* A daemon with a file of its own, which is not in the daemon's directory. */
struct configured {
    struct test_daemon daemon;
    char path[64];
};

static void write_file(const struct configured *configured, const char *text)
{
    FILE *file = fopen(configured->path, "we");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(text, file), 0);
    ck_assert_int_eq(fclose(file), 0);
}

static void start_configured(struct configured *configured, const char *text)
{
    const char *arguments[] = {"--config", configured->path, NULL};
    (void)strcpy(configured->path, "/tmp/f8test-conf-XXXXXX");
    int fd = mkstemp(configured->path);
    ck_assert_int_ge(fd, 0);
    (void)close(fd);
    write_file(configured, text);
    test_daemon_start(&configured->daemon, arguments);
}

static void stop_configured(struct configured *configured)
{
    (void)unlink(configured->path);
    test_daemon_stop(&configured->daemon);
}

/* A client of a job of that name; it must fail like this. */
static void second_job(const struct configured *configured, int status, const char *words)
{
    struct f8_client *client = NULL;
    const struct f8_connect_options options = {.socket = configured->daemon.socket, .job = "two"};
    struct outcome outcome = outcome_of(f8_connect(&options, &client));
    ck_assert_msg(outcome.status == status, "%d: %s", outcome.status, outcome.text);
    ck_assert_msg(strstr(outcome.text, words), "%s", outcome.text);
    f8_close(client);
}

START_TEST(reload_changes_a_limit)
{
    struct configured configured;
    struct rank rank;
    start_configured(&configured, "max-jobs = 1\nthreads = 1\n");
    rank_connect(&rank, configured.daemon.socket); /* its job is the one */
    second_job(&configured, F8_ELIMIT, "max-jobs");
    write_file(&configured, "max-jobs = 2\nthreads = 2\n");
    test_daemon_signal(&configured.daemon, SIGHUP, "SIGHUP: max-jobs is \"2\" now, it was \"1\" (");
    test_daemon_await_log(
        &configured.daemon, "SIGHUP: threads stays \"1\" until a restart, now it would be \"2\" (");
    second_job(&configured, F8_OK, "");
    write_file(&configured, ""); /* back to the default */
    test_daemon_signal(&configured.daemon, SIGHUP, "SIGHUP: max-jobs is \"256\" now");
    rank_close(&rank);
    stop_configured(&configured);
}
END_TEST

START_TEST(reload_of_what_is_wrong_changes_nothing)
{
    struct configured configured;
    struct rank rank;
    char words[160];
    start_configured(&configured, "max-jobs = 1\n");
    rank_connect(&rank, configured.daemon.socket);
    write_file(&configured, "max-jobs = 2\n\nslow = never\n");
    (void)snprintf(words, sizeof(words),
        "SIGHUP: no setting is changed: %s:3: slow: never is not a number", configured.path);
    test_daemon_signal(&configured.daemon, SIGHUP, words);
    second_job(&configured, F8_ELIMIT, "max-jobs");
    ck_assert_int_eq(unlink(configured.path), 0);
    (void)snprintf(words, sizeof(words), "cannot open the configuration %s", configured.path);
    test_daemon_signal(&configured.daemon, SIGHUP, words);
    second_job(&configured, F8_ELIMIT, "max-jobs");
    rank_close(&rank);
    stop_configured(&configured);
}
END_TEST

START_TEST(reload_changes_what_is_logged)
{
    struct configured configured;
    start_configured(&configured, "log-level = error\n");
    write_file(&configured, "log-level = info\n");
    /* Told at the old level, at which it is nothing: the second time it is. */
    ck_assert_int_eq(kill(configured.daemon.pid, SIGHUP), 0);
    second_job(&configured, F8_OK, "");
    test_daemon_signal(&configured.daemon, SIGHUP, "SIGHUP: reading the settings again");
    stop_configured(&configured);
}
END_TEST

/* Ranks train on while the settings are read again and again. */
START_TEST(reload_in_a_run)
{
    struct configured configured;
    struct rank ranks[WORLD];
    start_configured(&configured, "slow = 1\n");
    ranks_start(ranks, WORLD, configured.daemon.socket);
    for (int i = 0; i < 20; i++) {
        write_file(&configured, i % 2 ? "slow = 1\n" : "slow = 2\ndeadline = 100\n");
        ck_assert_int_eq(kill(configured.daemon.pid, SIGHUP), 0);
        ranks_must(ranks, WORLD, rank_step);
    }
    rank_close(&ranks[0]);
    rank_close(&ranks[1]);
    stop_configured(&configured);
}
END_TEST

/* ---- SIGTERM ---- */

static void start_draining(struct test_daemon *daemon, struct rank *ranks, const char *drain)
{
    const char *arguments[] = {"--drain", drain, NULL};
    test_daemon_start(daemon, arguments);
    ranks_start(ranks, WORLD, daemon->socket);
    /* Rank 1 has not asked for it, so it is under way. */
    ck_assert_int_eq(
        f8_gather(ranks[0].group, LAYER_0, F8_DEFAULT_DEADLINE, ranks[0].stream), F8_OK);
    rank_settle(&ranks[0]);
}

/* Its pid is a child that must end with this status; then the directory goes. */
static void daemon_ended(struct test_daemon *daemon, int status)
{
    ck_assert_int_eq(test_wait(daemon->pid), status);
    if (status != 0) { /* it left all as it was */
        test_daemon_restart(daemon, NULL);
        test_daemon_stop(daemon);
        return;
    }
    ck_assert_msg(access(daemon->socket, F_OK) < 0, "the socket was left behind");
    (void)unlink(daemon->log);
    ck_assert_int_eq(rmdir(daemon->directory), 0);
}

/* The wait of rank 0 for the bucket that start_draining asked for. */
static struct outcome await_gather(struct rank *rank)
{
    return outcome_of(f8_post_gather(
        rank->group, LAYER_0, F8_FOREVER, rank->views[LAYER_0], BUCKET_WEIGHTS, rank->stream));
}

static void assert_told_to_end(const struct outcome *outcome)
{
    ck_assert_int_eq(outcome->status, F8_ECONN);
    ck_assert_msg(strstr(outcome->text, "f8gatherd was told to end"), "%s", outcome->text);
}

START_TEST(what_is_under_way_ends_first)
{
    struct test_daemon daemon;
    struct rank ranks[WORLD];
    start_draining(&daemon, ranks, LONG);
    test_daemon_signal(&daemon, SIGTERM, "waits at most " LONG " s (--drain) for collectives of 1");
    test_daemon_await_log(&daemon, "of group dp of job run for one");
    ck_assert_int_eq(rank_gather(&ranks[1], LAYER_0, F8_DEFAULT_DEADLINE), F8_OK);
    ck_assert_int_eq(await_gather(&ranks[0]).status, F8_OK);
    for (uint32_t r = 0; r < WORLD; r++)
        ck_assert_int_eq(rank_check(&ranks[r], LAYER_0), F8_OK);
    daemon_ended(&daemon, 0);
    struct outcome outcome = outcome_of(rank_gather(&ranks[1], LAYER_1, F8_DEFAULT_DEADLINE));
    assert_told_to_end(&outcome);
    rank_close(&ranks[0]);
    rank_close(&ranks[1]);
}
END_TEST

START_TEST(nobody_joins_meanwhile)
{
    struct test_daemon daemon;
    struct rank ranks[WORLD], late;
    start_draining(&daemon, ranks, LONG);
    test_daemon_signal(&daemon, SIGTERM, "waits at most");
    rank_connect(&late, daemon.socket);
    struct outcome outcome = outcome_of(f8_group_join(late.client, "other", 0, 1, &late.group));
    assert_told_to_end(&outcome);
    ck_assert_ptr_nonnull(strstr(outcome.text, "group other"));
    rank_close(&late);
    ck_assert_int_eq(rank_gather(&ranks[1], LAYER_0, F8_DEFAULT_DEADLINE), F8_OK);
    daemon_ended(&daemon, 0);
    rank_close(&ranks[0]);
    rank_close(&ranks[1]);
}
END_TEST

START_TEST(drain_has_a_deadline)
{
    struct test_daemon daemon;
    struct rank ranks[WORLD];
    start_draining(&daemon, ranks, "1");
    test_daemon_signal(&daemon, SIGTERM, "collectives of 1 groups have not ended in 1 s (--drain)");
    struct outcome outcome = await_gather(&ranks[0]);
    assert_told_to_end(&outcome);
    daemon_ended(&daemon, 0);
    rank_close(&ranks[0]);
    rank_close(&ranks[1]);
}
END_TEST

START_TEST(drain_can_be_switched_off)
{
    struct test_daemon daemon;
    struct rank ranks[WORLD];
    start_draining(&daemon, ranks, "0");
    test_daemon_signal(&daemon, SIGTERM, "SIGTERM: ending");
    struct outcome outcome = await_gather(&ranks[0]);
    assert_told_to_end(&outcome);
    daemon_ended(&daemon, 0);
    rank_close(&ranks[0]);
    rank_close(&ranks[1]);
}
END_TEST

START_TEST(second_signal_is_at_once)
{
    struct test_daemon daemon;
    struct rank ranks[WORLD];
    start_draining(&daemon, ranks, LONG);
    test_daemon_signal(&daemon, SIGTERM, "waits at most");
    test_daemon_signal(&daemon, _i == 0 ? SIGTERM : SIGINT,
        _i == 0 ? "SIGTERM again: ending at once" : "SIGINT again: ending at once");
    daemon_ended(&daemon, 1);
    rank_close(&ranks[0]);
    rank_close(&ranks[1]);
}
END_TEST

/* The collective fails, and that is an end too. */
START_TEST(a_rank_that_leaves_ends_the_wait)
{
    struct test_daemon daemon;
    struct rank ranks[WORLD];
    start_draining(&daemon, ranks, LONG);
    test_daemon_signal(&daemon, SIGTERM, "waits at most");
    rank_close(&ranks[1]);
    struct outcome outcome = await_gather(&ranks[0]);
    ck_assert_int_ne(outcome.status, F8_OK);
    daemon_ended(&daemon, 0);
    rank_close(&ranks[0]);
}
END_TEST

/* Joins alone, and seals, which waits for a rank that will not come. */
static int seal_alone(void *argument)
{
    const struct test_daemon *daemon = argument;
    struct rank rank;
    rank_connect(&rank, daemon->socket);
    rank_join(&rank, 0, WORLD);
    rank_register(&rank);
    struct outcome outcome = outcome_of(rank_seal(&rank));
    rank_close(&rank);
    return strstr(outcome.text, "f8gatherd was told to end") ? EXIT_SUCCESS : EXIT_FAILURE;
}

START_TEST(what_cannot_begin_is_not_waited_for)
{
    const char *arguments[] = {"--drain", LONG, NULL};
    struct test_daemon daemon;
    test_daemon_start(&daemon, arguments);
    pid_t pid = test_fork(seal_alone, &daemon);
    daemon_await_missing(&daemon, "seal", 1U << 1);
    test_daemon_signal(&daemon, SIGTERM, "SIGTERM: ending");
    ck_assert_int_eq(test_wait(pid), EXIT_SUCCESS);
    daemon_ended(&daemon, 0);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("signals");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, reload_changes_a_limit);
    tcase_add_test(tcase, reload_of_what_is_wrong_changes_nothing);
    tcase_add_test(tcase, reload_changes_what_is_logged);
    tcase_add_test(tcase, reload_in_a_run);
    tcase_add_test(tcase, what_is_under_way_ends_first);
    tcase_add_test(tcase, nobody_joins_meanwhile);
    tcase_add_test(tcase, drain_has_a_deadline);
    tcase_add_test(tcase, drain_can_be_switched_off);
    tcase_add_loop_test(tcase, second_signal_is_at_once, 0, 2);
    tcase_add_test(tcase, a_rank_that_leaves_ends_the_wait);
    tcase_add_test(tcase, what_cannot_begin_is_not_waited_for);
    return run_suite("signals", tcase);
}
