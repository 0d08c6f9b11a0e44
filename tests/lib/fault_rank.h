/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank of a group over several hosts, as a process that a test tells what to do: to enter the
 * group, to train until something goes wrong, to enter it again. What it gathers is a function of
 * the number of syncs that the group has seen, so every step can be checked, whatever happened
 * before. A test has a crew of them: ranks of one group. Used by one thread.
 */
#ifndef F8_TESTS_FAULT_RANK_H
#define F8_TESTS_FAULT_RANK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "f8client.h"

#define FAULT_RANKS 8 /* at most, of a crew */

enum fault_task {
    FAULT_JOIN,         /* anew, as a client of its own */
    FAULT_REJOIN,       /* with the hosts that it was on */
    FAULT_REJOIN_HOSTS, /* with a new unique id */
    FAULT_RUN,          /* seals, if need be, and trains */
    FAULT_LEAVE,        /* ends the client and the process */
};

struct fault_order {
    enum fault_task task;
    uint64_t steps; /* FAULT_RUN: how many; UINT64_MAX: until the crew is told to stop */
    bool fresh;     /* FAULT_RUN: the state of the first seal; the others continue */
    bool eager;     /* FAULT_RUN: after a failure it rejoins at once and runs for `then` steps */
    uint64_t then;
    int64_t deadline_ms; /* FAULT_RUN: of its requests; 0: the daemon's */
    uint8_t id[F8_UNIQUE_ID_SIZE];
};

/* How an order has ended. */
struct fault_report {
    enum fault_task task;
    int status;
    const char *call;  /* which call it was: a literal, the same in all processes of the crew */
    uint64_t at_ms;    /* CLOCK_MONOTONIC */
    uint64_t asked_ms; /* when the rank asked for its last collective */
    uint64_t syncs;    /* that the group has seen, as this rank knows */
    char text[1536];
};

/* What the processes of a crew share with the test. */
struct fault_board {
    _Atomic bool stop;      /* rank 0 is to choose the last step */
    _Atomic uint64_t last;  /* the first that is not begun */
    _Atomic uint64_t steps; /* of rank 0, all checked */
};

struct fault_crew {
    const char *job; /* borrowed: a literal */
    uint32_t ranks;
    struct fault_place {
        const char *socket; /* borrowed: of its daemon */
        uint32_t local_ranks;
    } places[FAULT_RANKS];
    bool one_host;             /* its ranks join without an id */
    struct fault_board *board; /* owned: mapped */
    pid_t pids[FAULT_RANKS];   /* 0: there is none */
    int sockets[FAULT_RANKS];  /* owned: for orders and reports */
};

/* Maps the board; places are set. */
void fault_crew_init(struct fault_crew *crew);
/* Starts the process of a rank, which has none. */
void fault_crew_spawn(struct fault_crew *crew, uint32_t rank);
/* The process has been killed: awaits its end. */
void fault_crew_bury(struct fault_crew *crew, uint32_t rank);
void fault_crew_order(struct fault_crew *crew, uint32_t rank, const struct fault_order *order);
/* The next report of a rank; the test fails if it does not come. */
struct fault_report fault_crew_report(struct fault_crew *crew, uint32_t rank);
/* Whether a report is there. */
bool fault_crew_has_report(const struct fault_crew *crew, uint32_t rank);
/* Orders all and takes their reports, which must be of success. Their number of syncs. */
uint64_t fault_crew_all(struct fault_crew *crew, const struct fault_order *order);
/* All leave and end. */
void fault_crew_end(struct fault_crew *crew);

uint64_t fault_now_ms(void);

#endif
