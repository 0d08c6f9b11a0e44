/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The private daemons of an index: one, or one on each of some hosts, which are network namespaces
 * of this machine. Also which host a rank of a run is on. Called by daemon_run.c in the parent, and
 * by the ranks that it forks.
 */
#ifndef F8_TESTS_CONFORMANCE_DAEMONS_H
#define F8_TESTS_CONFORMANCE_DAEMONS_H

#include "client/bench/daemon.h"
#include "client/f8client.h"

#define DAEMONS_MAX 8

struct daemons {
    struct daemon items[DAEMONS_MAX]; /* by host */
    uint32_t hosts;                   /* 0: there is one daemon, where this process is */
    struct network *network;          /* owned: of the hosts; NULL: there are none */
};

/* Whether there can be hosts here: it takes root, and the daemon's helper. */
int daemons_check(struct bench_error *error);

/* On failure nothing of them stays. */
int daemons_start(uint32_t hosts, struct daemons *ret_daemons, struct bench_error *error);

/* -1 with the first reason if one did not end well. */
int daemons_stop(struct daemons *daemons, struct bench_error *error);

/* How the ranks of a run lie over the hosts: as many as there are, one rank on each at least. */
struct placement {
    const struct daemons *daemons; /* borrowed: from daemon_run.c */
    uint32_t world;
    bool dealt;                    /* one by one in turn; otherwise each host has a row of ranks */
    uint8_t id[F8_UNIQUE_ID_SIZE]; /* of the group, if it has several hosts */
};

/* How many hosts the run's ranks are on; 0 and 1: one. */
uint32_t placement_hosts(const struct placement *placement);

/* Gets the id, for a run of that job. Outside of the ranks, before there are any. F8_... */
int placement_prepare(struct placement *placement, const char *job);

/* The socket of the rank's daemon. */
const char *placement_socket(const struct placement *placement, uint32_t rank);

/* The rank joins its group. F8_... */
int placement_join(const struct placement *placement, struct f8_client *client, uint32_t rank,
    struct f8_group **ret_group);

#endif
