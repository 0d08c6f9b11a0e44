/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program of this build as a user runs it: started with arguments, awaited, its exit status and
 * what it printed looked at. For whole-process tests; failures fail the test.
 */
#ifndef F8_TEST_PROGRAM_H
#define F8_TEST_PROGRAM_H

#include <jansson.h>
#include <stdint.h>
#include <sys/types.h>

struct program {
    pid_t pid;
    int out_fd, err_fd; /* owned: what it prints */
    int status;         /* after program_wait: its exit status, or -signal */
    char *out, *err;    /* owned: what it printed, after program_wait */
};

/*
 * Starts `path` with the arguments of a format string that are separated by spaces, and with
 * TMPDIR set to `directory` unless that is NULL. Its standard streams are no terminals.
 */
void program_start(struct program *program, const char *path, const char *directory,
    const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Waits for its end, at most as long as test_wait. */
void program_wait(struct program *program);

/* The same, and fails the test with what it printed if it does not end with this status. */
void program_expect(struct program *program, int status);

void program_done(struct program *program);

/* Its standard output as the one JSON object that it must be. Owned by the caller. */
json_t *program_json(const struct program *program);

/* Flags of f8bench that put its ranks where F8_TEST_DEVICE says, with the daemon that the tests
 * use; none on the host. A static string. */
const char *program_bench_device(void);

/* How many copies of what it gathers a group of f8bench's ranks then has: one a device. */
uint64_t program_bench_copies(unsigned ranks);

/*
 * Asks f8ctl of this build: the value of `key` in the JSON that a command (with its flags) prints,
 * owned by the caller. NULL if f8ctl does not exit with 0: there is no daemon yet, or no more.
 */
json_t *program_ask_ctl(const char *socket, const char *command, const char *key);

/*
 * Waits, bounded, until the daemon has a group with this many ranks that has gathered something:
 * then a run is in its midst. Fills the pids of the ranks, and gives that of the daemon.
 */
pid_t program_await_gathers(const char *socket, size_t ranks, pid_t *ret_pids);

#endif
