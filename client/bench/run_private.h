/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of the parent process, shared by run.c (the course of a run) and run_watch.c (what may
 * happen meanwhile). Private to them.
 */
#ifndef F8BENCH_RUN_PRIVATE_H
#define F8BENCH_RUN_PRIVATE_H

#include <signal.h>
#include <sys/types.h>

#include "client/bench/daemon.h"
#include "client/bench/meeting.h"
#include "client/bench/rank.h"
#include "client/bench/run.h"

/* A job of the run. */
struct job {
    struct run run; /* what its ranks see */
    struct source source;
};

/* Where a daemon listens. */
struct socket_path {
    char path[OPTIONS_MAX_SOCKET];
};

struct runner {
    const struct options *options; /* borrowed: from main */
    const struct model *model;     /* borrowed: from main */
    struct outcome *outcome;       /* borrowed: from main */
    struct shared *shared;         /* borrowed: from outcome */
    struct job *jobs;              /* owned */
    struct meeting *meeting;       /* owned; NULL: this machine is the only one */
    struct failure failure;        /* how near the outcome's error is to its cause */
    uint32_t num_hosts;            /* on this machine: 1 without any */
    struct network *network;       /* owned; NULL: hosts are no namespaces */
    struct daemon *daemons;        /* owned: by host, */
    uint32_t num_daemons;          /* those that were started; 0 of given sockets */
    struct socket_path *sockets;   /* owned: by host of this machine */
    int signal_fd;                 /* owned: SIGINT and SIGTERM arrive here */
    sigset_t old_signals;
    uint32_t num_ranks;   /* of all jobs; */
    uint32_t first, crew; /* of a job's, those that are of this machine */
    pid_t *pids;          /* owned: of the ranks; 0: not started here, or waited for */
    int *pidfds;          /* owned: -1 where pids is 0 */
    uint32_t running;     /* ranks */
    bool looked;          /* they are through, and their daemons were probed */
    bool gone_ahead;      /* the ranks were told to leave */
};

/* Watches until all ranks have ended well (0), or something failed (-1, outcome->error). */
int run_watch(struct runner *runner);

/* Makes the hosts, if any, and starts a daemon on each, or takes those that there are. */
int run_start_hosts(struct runner *runner);

/* Ends them all. -1 with the reason if a daemon did not end well. */
int run_stop_hosts(struct runner *runner, struct bench_error *error);

/* Runs f8ctl on each job's weights, and keeps what it prints in the outcome. */
int run_ctl(struct runner *runner);

#endif
