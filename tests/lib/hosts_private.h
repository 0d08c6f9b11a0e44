/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between the files of the hosts' model: hosts_model.c has what may happen and the faults,
 * hosts_ranks.c what ranks do and how they are answered. One thread.
 */
#ifndef F8_TESTS_HOSTS_PRIVATE_H
#define F8_TESTS_HOSTS_PRIVATE_H

#include <stdbool.h>

#include "daemon/registry.h"
#include "tests/lib/fake_hosts.h"
#include "tests/lib/hosts_model.h"
#include "tests/lib/rooms.h"

#define MAX_RANKS   6
#define BUCKETS     2
#define OPEN        3 /* requests of a rank */
#define STEPS       7 /* of a program; the first is the seal */
#define MAX_IDS     48
#define MAX_ERAS    16
#define SHARD_BYTES 4096

enum rank_state { OUT, ENTERING, IN, DONE };

struct open_request {
    uint64_t id;
    uint32_t step, world, era; /* that it was asked in */
};

struct rank {
    struct client client;
    int fd; /* of its region; -1: none */
    uint32_t number, host;
    enum rank_state state;
    bool alive, sealed, failed;
    uint32_t step; /* to ask next */
    uint32_t world;
    uint64_t entering; /* its request */
    struct open_request open[OPEN];
    uint32_t num_open;
    bool uses[BUCKETS], holds[BUCKETS];
};

/* How a collective ended. */
enum outcome { OUTCOME_NONE, OUTCOME_WELL, OUTCOME_FAILED };

struct hosts_model {
    struct hosts_model_shape shape;
    uint64_t seed, random;
    struct rooms rooms[FAKE_HOSTS];
    struct rank ranks[MAX_RANKS];
    uint32_t num_ranks, faults_left, num_events;
    uint32_t world_now; /* number of the id that trainers give out */
    uint8_t outcomes[MAX_IDS][MAX_ERAS][STEPS];
    bool excused[MAX_IDS];  /* worlds in which outcomes may differ */
    const char *last_event; /* borrowed: a literal */
};
extern struct hosts_model model;

/* hosts_model.c */
void model_require(bool holds, const char *what);
/* What happens, to stderr, if MODEL_TRACE is set. */
void model_trace(const char *format, ...) __attribute__((format(printf, 1, 2)));
struct group *model_group(uint32_t host);

/* hosts_ranks.c */
bool rank_can_ask(const struct rank *rank);
/* The next step of its program, or `another`, which no other rank asks for. */
void rank_ask(struct rank *rank, bool another);
void rank_release(struct rank *rank, uint32_t bucket);
/* With the id that trainers give out; `stray`: with one that no other rank has. */
void rank_enter(struct rank *rank, bool stray);
void rank_end(struct rank *rank, bool died);
/* Of all ranks: what they were answered, and what they do then. */
void ranks_hear(void);

#endif
