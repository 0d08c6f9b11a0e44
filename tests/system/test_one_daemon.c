/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One daemon a socket: a second one gives way, whatever has become of the first one's files; a
 * dead one's are taken over; and of many that start at once one serves.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/patience.h"
#include "lib/proc.h"
#include "lib/ranks.h"
#include "lib/suite.h"
#include "lib/test_daemon.h"

#define STARTERS 6
#define CONTESTS 5

/* In a child: becomes a daemon at the socket. */
static int become(void *argument)
{
    const struct test_daemon *daemon = argument;
    int log = open(daemon->log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    (void)dup2(log, STDERR_FILENO);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)execl(test_daemon_program(), "f8gatherd", "--socket", daemon->socket, (char *)NULL);
    return 127;
}

static void lock_path(const struct test_daemon *daemon, char path[128])
{
    (void)snprintf(path, 128, "%s.lock", daemon->socket);
}

static void second_gives_way(const struct test_daemon *daemon)
{
    char words[256];
    ck_assert_int_eq(test_wait(test_fork(become, (void *)daemon)), 1);
    (void)snprintf(words, sizeof(words), "another daemon serves %s: pid %d holds %s.lock",
        daemon->socket, (int)daemon->pid, daemon->socket);
    test_daemon_await_log(daemon, words);
}

START_TEST(second_gives_way_to_the_first)
{
    struct test_daemon daemon;
    struct stat before, after;
    test_daemon_start(&daemon, NULL);
    ck_assert_int_eq(lstat(daemon.socket, &before), 0);
    second_gives_way(&daemon);
    ck_assert_int_eq(lstat(daemon.socket, &after), 0);
    ck_assert_uint_eq(before.st_ino, after.st_ino);
    test_daemon_stop(&daemon); /* which looks that the lock is gone too */
}
END_TEST

/* The first lives, though nobody can reach it: what it has is not taken from it. */
START_TEST(socket_was_removed)
{
    struct test_daemon daemon;
    test_daemon_start(&daemon, NULL);
    ck_assert_int_eq(unlink(daemon.socket), 0);
    second_gives_way(&daemon);
    ck_assert_int_lt(access(daemon.socket, F_OK), 0);
    test_daemon_stop(&daemon);
}
END_TEST

/* One that is stopped answers nobody, and lives. */
START_TEST(first_is_stopped)
{
    struct test_daemon daemon;
    int status;
    test_daemon_start(&daemon, NULL);
    ck_assert_int_eq(kill(daemon.pid, SIGSTOP), 0);
    ck_assert_int_eq(waitpid(daemon.pid, &status, WUNTRACED), daemon.pid);
    second_gives_way(&daemon);
    ck_assert_int_eq(kill(daemon.pid, SIGCONT), 0);
    test_daemon_stop(&daemon);
}
END_TEST

/* What a helper is between its fork and its exec: it has the lock until a new daemon waits for it.
 */
struct left_over {
    char path[128];
    int ready; /* is written to when the lock is held */
};

static bool take_lock(const struct left_over *left)
{
    int fd = open(left->path, O_RDONLY | O_CLOEXEC);
    return fd >= 0 && flock(fd, LOCK_EX) == 0 && write(left->ready, "", 1) == 1;
}

/* Whether a daemon has come that waits for it. */
static bool await_waiting(const struct left_over *left)
{
    struct stat file;
    if (stat(left->path, &file) < 0)
        return false;
    for (int ms = 0; proc_count_holders(left->path, file.st_ino) < 2; ms += 5) {
        if (ms >= PATIENCE_MS)
            return false;
        (void)poll(NULL, 0, 5);
    }
    return true;
}

/* Kills a daemon, whose lock a process has by now. */
static pid_t leave_lock(
    struct test_daemon *daemon, struct left_over *left, int (*body)(void *argument))
{
    int ends[2];
    char byte;
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    left->ready = ends[1];
    test_daemon_start(daemon, NULL);
    test_daemon_kill(daemon);
    lock_path(daemon, left->path);
    pid_t helper = test_fork(body, left);
    ck_assert_int_eq(read(ends[0], &byte, 1), 1);
    (void)close(ends[0]);
    (void)close(ends[1]);
    return helper;
}

static int hold_lock(void *argument)
{
    return take_lock(argument) && await_waiting(argument) ? 0 : 1;
}

static int hold_lock_on(void *argument)
{
    if (take_lock(argument))
        (void)pause();
    return 1;
}

START_TEST(lock_that_a_dead_one_left_to_a_helper_is_waited_for)
{
    struct test_daemon daemon;
    struct left_over left;
    pid_t helper = leave_lock(&daemon, &left, hold_lock);
    test_daemon_restart(&daemon, NULL);
    ck_assert_int_eq(test_wait(helper), 0);
    second_gives_way(&daemon);
    test_daemon_stop(&daemon);
}
END_TEST

/* What it has opened by then is no more than the lock, and all of that is closed. */
START_TEST(signal_in_a_start_that_fails_is_no_crash)
{
    struct test_daemon daemon;
    struct left_over left;
    pid_t helper = leave_lock(&daemon, &left, hold_lock_on);
    pid_t waiting = test_fork(become, &daemon);
    ck_assert(await_waiting(&left));
    ck_assert_int_eq(kill(waiting, SIGTERM), 0);
    ck_assert_int_eq(test_wait(waiting), 1);
    test_daemon_await_log(&daemon, "another daemon serves ");
    ck_assert_int_eq(kill(helper, SIGKILL), 0);
    ck_assert_int_eq(test_wait(helper), -SIGKILL);
    test_daemon_restart(&daemon, NULL);
    test_daemon_stop(&daemon);
}
END_TEST

START_TEST(files_of_a_dead_one_are_taken_over)
{
    struct test_daemon daemon;
    char path[128], text[32] = "";
    test_daemon_start(&daemon, NULL);
    test_daemon_kill(&daemon);
    lock_path(&daemon, path);
    ck_assert_int_eq(access(path, F_OK), 0);
    ck_assert_int_eq(access(daemon.socket, F_OK), 0);
    test_daemon_restart(&daemon, NULL);
    test_daemon_await_log(&daemon, "was left by a daemon that is gone: replaced");
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ck_assert_int_gt(read(fd, text, sizeof(text) - 1), 0);
    (void)close(fd);
    ck_assert_int_eq(strtol(text, NULL, 10), daemon.pid);
    second_gives_way(&daemon);
    test_daemon_stop(&daemon);
}
END_TEST

START_TEST(lock_that_cannot_be_is_named)
{
    struct test_daemon daemon;
    char path[128], words[256];
    test_daemon_start(&daemon, NULL);
    test_daemon_end(&daemon);
    lock_path(&daemon, path);
    ck_assert_int_eq(symlink(daemon.log, path), 0); /* nobody's file is written to through it */
    ck_assert_int_eq(test_wait(test_fork(become, &daemon)), 1);
    (void)snprintf(words, sizeof(words), "cannot open the lock %s: %s", path, strerror(ELOOP));
    test_daemon_await_log(&daemon, words);
    ck_assert_int_eq(unlink(path), 0);
    test_daemon_restart(&daemon, NULL);
    test_daemon_stop(&daemon);
}
END_TEST

/* Waits until all but one have ended; each of them with 1. */
static pid_t await_winner(pid_t *pids)
{
    struct pollfd ends[STARTERS];
    int left = STARTERS;
    for (int i = 0; i < STARTERS; i++)
        ends[i] = (struct pollfd){(int)syscall(SYS_pidfd_open, pids[i], 0), POLLIN, 0};
    while (left > 1) {
        ck_assert_int_gt(poll(ends, STARTERS, PATIENCE_MS), 0);
        for (int i = 0; i < STARTERS; i++) {
            if (ends[i].fd < 0 || !ends[i].revents)
                continue;
            (void)close(ends[i].fd);
            ends[i].fd = -1;
            ck_assert_int_eq(test_wait(pids[i]), 1);
            left--;
        }
    }
    pid_t winner = -1;
    for (int i = 0; i < STARTERS; i++) {
        if (ends[i].fd < 0)
            continue;
        winner = pids[i];
        (void)close(ends[i].fd);
    }
    return winner;
}

/* Over what a dead one left, where each may think that it is the one to clear it away. */
START_TEST(many_start_at_once)
{
    struct test_daemon daemon;
    struct rank rank;
    pid_t pids[STARTERS];
    test_daemon_start(&daemon, NULL);
    for (int contest = 0; contest < CONTESTS; contest++) {
        test_daemon_kill(&daemon);
        for (int i = 0; i < STARTERS; i++)
            pids[i] = test_fork(become, &daemon);
        daemon.pid = await_winner(pids);
        int fd = -1;
        while ((fd = test_daemon_connect(&daemon)) < 0)
            ck_assert_int_eq(waitpid(daemon.pid, NULL, WNOHANG), 0);
        (void)close(fd);
        rank_connect(&rank, daemon.socket);
        rank_close(&rank);
        second_gives_way(&daemon);
    }
    test_daemon_stop(&daemon);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("one_daemon");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, second_gives_way_to_the_first);
    tcase_add_test(tcase, socket_was_removed);
    tcase_add_test(tcase, first_is_stopped);
    tcase_add_test(tcase, files_of_a_dead_one_are_taken_over);
    tcase_add_test(tcase, lock_that_a_dead_one_left_to_a_helper_is_waited_for);
    tcase_add_test(tcase, signal_in_a_start_that_fails_is_no_crash);
    tcase_add_test(tcase, lock_that_cannot_be_is_named);
    tcase_add_test(tcase, many_start_at_once);
    return run_suite("one_daemon", tcase);
}
