/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Worlds and fabrics without sockets or processes, under the names of daemon/world.h and
 * daemon/fabric.h, for several hosts in one process: what a host sends lies in queues, a star on
 * the root as between daemons, and what a fabric was asked waits, until the test lets it come. Then
 * works of a backend, likewise. One thread.
 */
#ifndef F8_TESTS_FAKE_HOSTS_H
#define F8_TESTS_FAKE_HOSTS_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/backend.h"

#define FAKE_HOSTS  3
#define FAKE_EVENTS 256

enum fake_kind {
    FAKE_UP,     /* the root takes the next message of a host */
    FAKE_DOWN,   /* a host takes the next of what the root has for it */
    FAKE_DONE,   /* a fabric has done its command */
    FAKE_FAILED, /* a fabric's connection to a peer is gone */
    FAKE_WORK,   /* a work has ended */
    FAKE_RESERVATION,
};

struct fake_event {
    enum fake_kind kind;
    uint32_t what; /* number of the world, fabric, work or reservation */
};

/* Nothing has happened yet; whatever was there is freed. */
void fake_begin(void);

/* The id of a world whose root is host `root` of the process; which are not partitioned. */
void fake_unique_id(uint32_t number, uint32_t root, uint8_t *ret_id);
/* Whether a host of the world was lost or has left. */
bool fake_is_over(uint32_t number);
/* Whether its hosts have met, and none was lost or has left since. */
bool fake_is_met(uint32_t number);
/* A host has no rank any more, and so will leave. */
void fake_leave(uint32_t number);

/* All that may happen next. */
uint32_t fake_events(struct fake_event events[FAKE_EVENTS]);
void fake_apply(const struct fake_event *event);

/* Kills the helper of some fabric of the host; false: there is none. */
bool fake_kill_helper(uint32_t host);
/* Nothing passes between a host and the others any more, in the worlds that there are now: some of
 * what was under way, chosen by `random`, is lost. */
void fake_partition(uint32_t host, uint32_t (*random)(uint32_t count));

/* What fabrics were asked that was not alike, or NULL. */
const char *fake_violation(void);

/* Borrowed: static. Its works and reservations end by FAKE_WORK and FAKE_RESERVATION. */
struct backend *fake_backend(void);

/* Which host of the process calls from now on. */
void fake_enter(uint32_t host);

#endif
