/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hosts for whole-process tests: network namespaces, each with a real f8gatherd of its own. Ranks
 * need not be in them, they only speak to their daemon's socket. Functions fail the test, with the
 * daemon's log, if something is not as it must be.
 */
#ifndef F8_TEST_HOSTS_H
#define F8_TEST_HOSTS_H

#include <stdbool.h>
#include <stdint.h>

#include "client/bench/network.h"
#include "lib/test_daemon.h"

#define TEST_HOSTS_MAX 3

/* What a program ends with where no network namespaces can be made. */
#define TEST_HOSTS_SKIP 77

struct test_hosts {
    struct network *network; /* owned */
    uint32_t count;
    struct test_daemon daemons[TEST_HOSTS_MAX];
    const char *const *arguments; /* borrowed: from the test */
};

/* Whether they can be made; otherwise says why on stdout. From main, before anything else. */
bool test_hosts_possible(void);

/* host0, host1 ... ; `arguments` are for each of the daemons, NULL-terminated, or NULL. */
void test_hosts_start(struct test_hosts *hosts, uint32_t count, const char *const *arguments);

/* A daemon that was killed or ended, anew in its directory. */
void test_hosts_restart(struct test_hosts *hosts, uint32_t host);

/* Ends the daemons in order; nothing may be left of them. */
void test_hosts_stop(struct test_hosts *hosts);

/* What a host's engine for a group has done, as operators see it. */
struct test_engine {
    uint32_t hosts;          /* that the group spans */
    char name[16];           /* "gloo", "nccl" */
    pid_t pid;               /* of the helper; 0: there is none */
    bool untold;             /* `sent` and `received` are not known */
    uint64_t sent, received; /* bytes */
    uint64_t told;           /* bytes that the other hosts' daemons have sent */
};
struct test_engine test_hosts_engine(
    const struct test_hosts *hosts, uint32_t host, const char *group);

/* Whether a host's daemon shows a round in this state. */
bool test_hosts_round_is(const struct test_hosts *hosts, uint32_t host, const char *state);

#endif
