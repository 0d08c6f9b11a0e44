/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f8bench run starts a daemon and ranks: however it ends, they end too, and its folder goes. This
 * test adopts whatever outlives its parent, so it sees every process that is left.
 */
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/patience.h"
#include "lib/proc.h"
#include "lib/suite.h"
#include "lib/test_daemon.h"

#define RANKS 4

/* A run, and the processes that it has started. */
struct bench {
    char folder[64]; /* its TMPDIR */
    pid_t pid, daemon, ranks[RANKS];
};

static void become_bench(const struct bench *bench, const char *steps)
{
    int null = open("/dev/null", O_RDWR);
    (void)dup2(null, STDOUT_FILENO);
    (void)dup2(null, STDERR_FILENO);
    (void)setenv("TMPDIR", bench->folder, 1);
    (void)execl(F8_TEST_BENCH, F8_TEST_BENCH, "run", "--model", "tiny", "--ranks", "4", "--steps",
        steps, (char *)NULL);
    _exit(127);
}

static void bench_start(struct bench *bench, const char *steps)
{
    *bench = (struct bench){0};
    ck_assert_int_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    (void)strcpy(bench->folder, "/tmp/f8test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(bench->folder));
    bench->pid = fork();
    ck_assert_int_ge(bench->pid, 0);
    if (bench->pid == 0)
        become_bench(bench, steps);
}

/* Waits until all ranks have mapped the arena: they are in their steps. */
static void bench_await_steps(struct bench *bench)
{
    for (int i = 0; i < PATIENCE_MS; i++) {
        pid_t children[RANKS + 2];
        uint32_t count = proc_children(bench->pid, children, RANKS + 2), ranks = 0;
        for (uint32_t c = 0; c < count; c++) {
            if (proc_runs(children[c], F8_TEST_DAEMON))
                bench->daemon = children[c];
            else if (ranks < RANKS && proc_find_mapping(children[c], "f8gather-arena").inode != 0)
                bench->ranks[ranks++] = children[c];
        }
        if (bench->daemon > 0 && ranks == RANKS)
            return;
        (void)poll(NULL, 0, 1);
    }
    ck_abort_msg("f8bench does not come to its steps");
}

/* Waits until no process is left that the run began; orphans have become this test's children. */
static void await_no_children(void)
{
    for (int i = 0; i < PATIENCE_MS; i++) {
        pid_t ended = waitpid(-1, NULL, WNOHANG);
        if (ended < 0 && errno == ECHILD)
            return;
        if (ended == 0)
            (void)poll(NULL, 0, 1);
    }
    ck_abort_msg("processes of f8bench are left");
}

static uint32_t count_files(const char *folder)
{
    DIR *directory = opendir(folder);
    uint32_t count = 0;
    ck_assert_ptr_nonnull(directory);
    while (readdir(directory))
        count++;
    (void)closedir(directory);
    return count - 2; /* . and .. */
}

/* The run must end with `status`, and all else with it. */
static void bench_end(struct bench *bench, int status)
{
    ck_assert_int_eq(test_wait(bench->pid), status);
    await_no_children();
}

static void bench_check_folder(const struct bench *bench)
{
    ck_assert_uint_eq(count_files(bench->folder), 0);
    ck_assert_int_eq(rmdir(bench->folder), 0);
}

START_TEST(normal_end)
{
    struct bench bench;
    bench_start(&bench, "3");
    bench_end(&bench, 0);
    bench_check_folder(&bench);
}
END_TEST

START_TEST(interrupted)
{
    struct bench bench;
    bench_start(&bench, "1000000");
    bench_await_steps(&bench);
    ck_assert_int_eq(kill(bench.pid, SIGINT), 0);
    bench_end(&bench, 130);
    bench_check_folder(&bench);
}
END_TEST

START_TEST(rank_killed)
{
    struct bench bench;
    bench_start(&bench, "1000000");
    bench_await_steps(&bench);
    ck_assert_int_eq(kill(bench.ranks[RANKS / 2], SIGKILL), 0);
    bench_end(&bench, 1);
    bench_check_folder(&bench);
}
END_TEST

START_TEST(daemon_killed)
{
    struct bench bench;
    bench_start(&bench, "1000000");
    bench_await_steps(&bench);
    ck_assert_int_eq(kill(bench.daemon, SIGKILL), 0);
    bench_end(&bench, 1);
    bench_check_folder(&bench);
}
END_TEST

START_TEST(bench_killed)
{
    struct bench bench;
    bench_start(&bench, "1000000");
    bench_await_steps(&bench);
    ck_assert_int_eq(kill(bench.pid, SIGKILL), 0);
    bench_end(&bench, -SIGKILL);
    bench_check_folder(&bench);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("ends");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, normal_end);
    tcase_add_test(tcase, interrupted);
    tcase_add_test(tcase, rank_killed);
    tcase_add_test(tcase, daemon_killed);
    tcase_add_test(tcase, bench_killed);
    return run_suite("leftovers of f8bench", tcase);
}
