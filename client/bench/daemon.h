/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The private f8gatherd of a run. Its log is a memory file and its socket the only name that it
 * has in the file system, which it takes away itself when its parent is killed: so nothing is left
 * of a run however it ends. Called by the parent, run.c, and by the conformance program.
 */
#ifndef F8BENCH_DAEMON_H
#define F8BENCH_DAEMON_H

#include <sys/types.h>

#include "client/bench/error.h"
#include "client/bench/network.h"

#define DAEMON_NONE                                                                                \
    {                                                                                              \
        .pidfd = -1, .log_fd = -1                                                                  \
    }

struct daemon {
    pid_t pid;  /* 0: none was started */
    int pidfd;  /* owned */
    int log_fd; /* owned: what it prints */
    char socket[96];
};

/* What is started, and where. All borrowed for the call. */
struct daemon_options {
    const char *program;           /* NULL: f8gatherd beside this program */
    const char *interface;         /* by which it reaches other hosts; NULL: it is the only one */
    uint32_t deadline_s;           /* how long it waits for other hosts; 0: as it is made */
    const struct network *network; /* NULL: where this process is */
    uint32_t host;                 /* of the network, and in its name: "host0" */
};

/*
 * Starts it and waits until its socket takes connections, it ends, or signal_fd is readable. On
 * failure nothing of it stays.
 */
int daemon_start(const struct daemon_options *options, int signal_fd, struct daemon *ret_daemon,
    struct bench_error *error);

/*
 * Ends it, gently if it lets us, and removes its socket; nothing if none was started. -1 with the
 * reason if it did not end well: it had to be killed, or its exit status is not 0.
 */
int daemon_stop(struct daemon *daemon, struct bench_error *error);

/* How it ended, and the end of its log, for the message of a run that it failed. It is dead. */
int daemon_explain(struct daemon *daemon, struct bench_error *error);

/* The path of a program that lies beside this one. 0, or -1 if it is too long. */
int daemon_beside(const char *name, char *path, size_t size);

#endif
