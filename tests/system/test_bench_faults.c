/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f8bench when something dies or the user has enough, in the midst of a run: it names who, ends
 * with the documented status, and leaves no process and no file; also against a daemon that it
 * did not start.
 */
#include <check.h>
#include <errno.h>
#include <glob.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/program.h"
#include "lib/suite.h"
#include "lib/test_daemon.h"

#define RANKS 3

/* So many steps that no machine is through with them before the fault; and, as the daemon stores
   the state of delayed weights, the most that can be left behind. */
#define RUN "run --json --model tiny --flavour delayed --steps 100000 --ranks 3"

/* A run in its midst, with a folder of its own for what it makes. */
struct scene {
    char directory[64];
    struct program bench;
    pid_t ranks[RANKS], daemon;
};

/* Waits, bounded, for the socket of f8bench's private daemon. */
static void await_socket(const struct scene *scene, char *socket, size_t size)
{
    char pattern[96];
    glob_t found;
    (void)snprintf(pattern, sizeof(pattern), "%s/f8bench-*.sock", scene->directory);
    for (int i = 0; glob(pattern, 0, NULL, &found) != 0; i++) {
        ck_assert_msg(i < 6000, "no socket %s", pattern);
        (void)usleep(10000);
    }
    (void)snprintf(socket, size, "%s", found.gl_pathv[0]);
    globfree(&found);
}

static void begin_with(struct scene *scene, const char *arguments)
{
    char socket[128];
    *scene = (struct scene){.directory = "/tmp/f8test-XXXXXX"};
    ck_assert_ptr_nonnull(mkdtemp(scene->directory));
    program_start(&scene->bench, F8_TEST_BENCH, scene->directory, "%s", arguments);
    await_socket(scene, socket, sizeof(socket));
    scene->daemon = program_await_gathers(socket, RANKS, scene->ranks);
}

static void begin(struct scene *scene)
{
    begin_with(scene, RUN);
}

static void assert_gone(pid_t pid)
{
    ck_assert_msg(kill(pid, 0) < 0 && errno == ESRCH, "process %d is left", (int)pid);
}

/* The run must end with this status and say that, and nothing may be left of it. */
static void end(struct scene *scene, int status, const char *error)
{
    program_expect(&scene->bench, status);
    json_t *report = program_json(&scene->bench);
    const char *told = json_string_value(json_object_get(report, "error"));
    ck_assert(json_is_false(json_object_get(report, "ok")));
    ck_assert_msg(told && strstr(told, error), "%s, want %s", told, error);
    json_decref(report);
    program_done(&scene->bench);
    for (int r = 0; r < RANKS; r++)
        assert_gone(scene->ranks[r]);
    assert_gone(scene->daemon);
    ck_assert_msg(rmdir(scene->directory) == 0, "%s: %s", scene->directory, strerror(errno));
}

START_TEST(test_rank_dies)
{
    struct scene scene;
    char error[96];
    begin(&scene);
    (void)snprintf(
        error, sizeof(error), "rank %d (pid %d) was ended by signal 9", _i, (int)scene.ranks[_i]);
    ck_assert_int_eq(kill(scene.ranks[_i], SIGKILL), 0);
    end(&scene, 1, error);
}
END_TEST

/* Where a death breaks more than one group, or there are others that it does not touch. */
static const char *const arrangements[] = {
    "run --json --model tiny --steps 100000 --mesh dp=3,tp=2",
    "run --json --model tiny --steps 100000 --flavour delayed --mesh dp=3,tp=2",
    "run --json --model tiny --steps 100000 --flavour delayed --ranks 6 --hsdp 2",
    RUN " --jobs 2",
};

START_TEST(test_rank_among_groups_dies)
{
    struct scene scene;
    char error[96];
    bool jobs = strstr(arrangements[_i], "--jobs") != NULL;
    begin_with(&scene, arrangements[_i]);
    (void)snprintf(error, sizeof(error), "%s (pid %d) was ended by signal 9",
        jobs ? ": rank 1" : "", (int)scene.ranks[1]);
    ck_assert_int_eq(kill(scene.ranks[1], SIGKILL), 0);
    end(&scene, 1, error);
}
END_TEST

START_TEST(test_daemon_dies)
{
    struct scene scene;
    char error[96];
    begin(&scene);
    (void)snprintf(
        error, sizeof(error), "the daemon (pid %d) was ended by signal 9", (int)scene.daemon);
    ck_assert_int_eq(kill(scene.daemon, SIGKILL), 0);
    end(&scene, 1, error);
}
END_TEST

START_TEST(test_interrupted)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    struct scene scene;
    begin(&scene);
    ck_assert_int_eq(kill(scene.bench.pid, signals[_i]), 0);
    end(&scene, 130, "interrupted");
}
END_TEST

/* kill -9 of f8bench itself: its ranks and its daemon go with it. */
START_TEST(test_bench_dies)
{
    struct scene scene;
    begin(&scene);
    ck_assert_int_eq(kill(scene.bench.pid, SIGKILL), 0);
    program_expect(&scene.bench, -SIGKILL);
    program_done(&scene.bench);
    pid_t pids[RANKS + 1] = {scene.ranks[0], scene.ranks[1], scene.ranks[2], scene.daemon};
    for (int i = 0; i < RANKS + 1; i++)
        for (int tries = 0; kill(pids[i], 0) == 0; tries++) {
            ck_assert_msg(tries < 6000, "process %d is left", (int)pids[i]);
            (void)usleep(10000);
        }
    ck_assert_msg(rmdir(scene.directory) == 0, "%s: %s", scene.directory, strerror(errno));
}
END_TEST

/* A run against a daemon that is there already: its end is not the daemon's, and a dead rank of
 * one run is no hindrance to the next. */
START_TEST(test_socket)
{
    struct test_daemon daemon;
    struct program bench;
    pid_t ranks[RANKS];
    char error[96];
    test_daemon_start(&daemon, NULL);
    program_start(&bench, F8_TEST_BENCH, NULL, RUN " --socket %s", daemon.socket);
    ck_assert_int_eq(program_await_gathers(daemon.socket, RANKS, ranks), daemon.pid);
    ck_assert_int_eq(kill(ranks[2], SIGKILL), 0);
    program_expect(&bench, 1);
    (void)snprintf(error, sizeof(error), "rank 2 (pid %d) was ended by signal 9", (int)ranks[2]);
    ck_assert_msg(strstr(bench.out, error), "%s", bench.out);
    program_done(&bench);
    program_start(&bench, F8_TEST_BENCH, NULL, "run --model tiny --ranks 3 --steps 2 --socket %s",
        daemon.socket);
    program_expect(&bench, 0);
    program_done(&bench);
    test_daemon_drop_states(&daemon); /* which are not f8bench's to take away */
    test_daemon_stop(&daemon);
}
END_TEST

/* Its death is told, though it is not f8bench's to look at. */
START_TEST(test_daemon_of_others_dies)
{
    struct test_daemon daemon;
    struct program bench;
    pid_t ranks[RANKS];
    test_daemon_start(&daemon, NULL);
    program_start(&bench, F8_TEST_BENCH, NULL, RUN " --socket %s", daemon.socket);
    (void)program_await_gathers(daemon.socket, RANKS, ranks);
    test_daemon_kill(&daemon);
    program_expect(&bench, 1);
    ck_assert_msg(strstr(bench.out, daemon.socket), "%s", bench.out);
    program_done(&bench);
    for (int r = 0; r < RANKS; r++)
        assert_gone(ranks[r]);
    test_daemon_restart(&daemon, NULL);
    test_daemon_drop_states(&daemon); /* which are not f8bench's to take away */
    test_daemon_stop(&daemon);
}
END_TEST

/* Where no daemon is or can be. */
static const struct {
    const char *flags, *error;
} nowhere[] = {
    {"--socket /nonexistent/s", "no daemon answers; tried /nonexistent/s"},
    {"--daemon /nonexistent/d", "no daemon to start: /nonexistent/d: No such file or directory"},
    {"--daemon /bin/false", " ended with status 1; the end of its log:"},
};

START_TEST(test_no_daemon)
{
    struct program bench;
    program_start(
        &bench, F8_TEST_BENCH, NULL, "run --json --model tiny --ranks 2 %s", nowhere[_i].flags);
    program_expect(&bench, 1);
    json_t *report = program_json(&bench);
    const char *error = json_string_value(json_object_get(report, "error"));
    ck_assert_msg(error && strstr(error, nowhere[_i].error), "%s", bench.out);
    json_decref(report);
    program_done(&bench);
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("faults");
    tcase_set_timeout(cases, 120);
    tcase_add_loop_test(cases, test_rank_dies, 0, RANKS);
    tcase_add_loop_test(cases, test_rank_among_groups_dies, 0,
        (int)(sizeof(arrangements) / sizeof(arrangements[0])));
    tcase_add_test(cases, test_daemon_dies);
    tcase_add_loop_test(cases, test_interrupted, 0, 3);
    tcase_add_test(cases, test_bench_dies);
    tcase_add_test(cases, test_socket);
    tcase_add_test(cases, test_daemon_of_others_dies);
    tcase_add_loop_test(cases, test_no_daemon, 0, (int)(sizeof(nowhere) / sizeof(nowhere[0])));
    return run_suite("bench_faults", cases);
}
