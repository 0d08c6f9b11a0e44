/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What results*.c share: the records of landings, which the device thread, CUDA's threads that run
 * host functions and the loop see, all under one lock.
 */
#ifndef F8_DAEMON_CUDA_RESULTS_PRIVATE_H
#define F8_DAEMON_CUDA_RESULTS_PRIVATE_H

#include "daemon/cuda/results.h"

/* Ready events of a work that a sentence about its deadline looks through. */
#define LANDING_READY 32

/* A landing's part on one device: what its host function gets. */
struct landing_part {
    struct cuda_landing *record;            /* borrowed: it is a part of it */
    const struct cuda_arena_device *device; /* borrowed: of the arena */
};

struct cuda_landing {
    struct cuda_completion completion; /* must be first */
    struct cuda_landings *landings;    /* borrowed */
    struct cuda *cuda;                 /* borrowed */
    struct cuda_arena *arena;          /* borrowed */
    uint32_t slots;                    /* of the arena */
    struct backend_landing *landing;   /* borrowed: from the caller, until it has ended */
    struct cuda_command *command; /* owned: to be finished with it; NULL: that was done before */
    uint64_t begin_ms;            /* of cuda_now_ms; its deadline counts from here */
    bool has_grace;               /* it has got GRACE_MS more */
    struct backend_ready ready[LANDING_READY]; /* borrowed: clients stay attached until it ends */
    uint32_t num_ready;
    /* Under the lock. */
    struct cuda_landing *next;
    int status;
    bool has_ended;      /* the caller has been told, or will be */
    bool is_delivered;   /* the loop does not need it any more */
    uint32_t parts_left; /* host functions that have not run */
    uint32_t room;       /* in parts */
    struct landing_part parts[];
};

struct cuda_landings {
    pthread_mutex_t lock;
    struct cuda_landing *first; /* owned: all that somebody needs */
    struct cuda_landing *spare; /* owned */
    uint32_t undelivered;       /* completions on their way to the loop */
    bool is_ending;             /* the last of those frees all this */
    uint64_t next_look_ms;      /* the device thread's: when streams are looked at again */
};

/* With the lock: ends a landing with an error, unless it has ended. */
void cuda_landing_fail(struct cuda_landing *record, int status, const struct reason *reason);

#endif
