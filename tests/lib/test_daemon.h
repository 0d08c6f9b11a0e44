/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A real f8gatherd for one test: its own directory, socket and log, gone without a trace when the
 * test ends. Whole-process tests are made of this and of ranks that they fork.
 */
#ifndef F8_TEST_DAEMON_H
#define F8_TEST_DAEMON_H

#include <sys/types.h>

struct test_daemon {
    pid_t pid;
    char directory[64]; /* holds nothing but the two below */
    char socket[96];
    char log[96]; /* what it wrote to stderr */
};

/* The daemon of this build, or $F8_TEST_DAEMON: a path. */
const char *test_daemon_program(void);

/*
 * Starts it with --socket and these further arguments (NULL-terminated, or
 * NULL), and returns once it serves connections. Fails the test otherwise, with its log.
 */
void test_daemon_start(struct test_daemon *daemon, const char *const *arguments);

/* The same in the same directory, for a daemon that was killed or ended. */
void test_daemon_restart(struct test_daemon *daemon, const char *const *arguments);

/* SIGTERM; it must end with status 0. The directory stays. */
void test_daemon_end(const struct test_daemon *daemon);

/* The same, and removes the directory, which must hold only the log. */
void test_daemon_stop(struct test_daemon *daemon);

/* Removes a directory, if it is there, and its files; hidden ones stay, and it with them. */
void test_remove_directory(const char *path);

/* Removes the states that outlive their groups, which test_daemon_stop would find left. */
void test_daemon_drop_states(const struct test_daemon *daemon);

/* SIGKILL, and waits for its end; the directory stays. */
void test_daemon_kill(struct test_daemon *daemon);

/* Waits, bounded, until the log has the text; fails the test if it never comes. */
void test_daemon_await_log(const struct test_daemon *daemon, const char *text);

/* Sends it a signal, and waits for the text in its log, making connections meanwhile. */
void test_daemon_signal(const struct test_daemon *daemon, int number, const char *text);

/* A connected SEQPACKET socket to it, CLOEXEC, for tests that speak raw packets. */
int test_daemon_connect(const struct test_daemon *daemon);

/* Forks; the child runs `body` and exits with what it returns, without Check's handlers. */
pid_t test_fork(int (*body)(void *argument), void *argument);

/* Waits for a child: its exit status, or -signal. Fails the test if patience ends. */
int test_wait(pid_t pid);

#endif
