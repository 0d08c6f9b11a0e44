/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hosts with their daemons, a crew that trains over all of them and one that trains beside it, for
 * tests of faults: what goes wrong where, what every rank is told of it and when, and how the crew
 * goes on. Needs root. Used by one thread.
 */
#ifndef F8_TESTS_FAULT_SCENE_H
#define F8_TESTS_FAULT_SCENE_H

#include "client/bench/network.h"
#include "lib/fault_rank.h"
#include "lib/proc.h"
#include "lib/test_daemon.h"

#define SCENE_HOSTS       3 /* at most */
#define SCENE_LOCAL_RANKS 2
#define SCENE_TIMEOUT_MS  "4000" /* after which a silent host is lost */

enum fault_kind {
    FAULT_RANK_KILL,
    FAULT_RANK_STOP,
    FAULT_HELPER_KILL,
    FAULT_HELPER_STOP,
    FAULT_RANK_AND_HELPER, /* killed at once, on different hosts */
    FAULT_DAEMON_KILL,
    FAULT_DAEMON_STOP,
    FAULT_DAEMON_TERM,
    FAULT_DAEMON_AND_RANK, /* killed at once, on different hosts */
    FAULT_PATH_CUT,        /* between two hosts; with three, the daemons' root is the third */
    FAULT_PATH_LATE,       /* the same, and the deadline comes first */
    FAULT_LINK_CUT,
    FAULT_LINK_BLINK, /* too short for an error */
    FAULT_KINDS,
};

struct scene {
    struct network *network; /* owned */
    uint32_t num_hosts;
    struct test_daemon daemons[SCENE_HOSTS];
    struct proc_holdings fresh[SCENE_HOSTS]; /* of each daemon, right after its start */
    struct fault_crew crew;                  /* over all hosts: rank r on host r / 2 */
    struct fault_crew beside;                /* a rank on each host but the last */
    pid_t beside_helpers[SCENE_HOSTS];       /* of its engine; 0: none */
    uint64_t seed;                           /* of what is chosen at random */
    uint64_t syncs;                          /* that the crew's state has seen at least */
    /* The fault that is being made. */
    enum fault_kind kind;
    uint32_t host, rank; /* the victims */
    uint32_t other;      /* of a path its other end */
    uint32_t root;       /* whose daemon made the crew's id */
    pid_t victim_pid;    /* of the rank, or the helper */
    uint64_t began_ms;
};

/* Daemons run, the crew has taken two steps, the one beside it trains. Gives the crew's id. */
void scene_start(struct scene *scene, uint32_t num_hosts, uint64_t seed, uint8_t *ret_id);
/* A number below `count`. */
uint32_t scene_choose(struct scene *scene, uint32_t count);
const char *scene_kind_name(enum fault_kind kind);
/* Whether it is one of an engine, or between them, which groups on devices have none of. */
bool scene_needs_helper(enum fault_kind kind);
/* Whether a host is lost by it, or may be. */
bool scene_loses_host(enum fault_kind kind);
/* Makes the fault, at a moment when the crew trains or seals. */
void scene_strike(struct scene *scene, enum fault_kind kind);
/* Whether the rank is one that must be told in time. */
bool scene_survives(const struct scene *scene, uint32_t rank);
/* Whether what the rank was told names what it should. */
bool scene_names_it(const struct scene *scene, uint32_t rank, const char *text);
/* What was stopped or cut goes on, what was killed is started again; ranks are not told yet. */
void scene_heal(struct scene *scene);
/* A unique id of some host's daemon, but not the last. */
void scene_unique_id(struct scene *scene, uint8_t *ret_id);
/* All leave; the daemons must hold no more than when they were fresh, and end in order. */
void scene_end(struct scene *scene);

#endif
