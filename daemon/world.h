/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups over several hosts: how their daemons find one another and talk. A daemon that was asked
 * for a unique id listens as the root; the others report to it which ranks they have; when all are
 * there each gets the table, and from then on the connections, a star on the root, carry what the
 * hosts tell one another, and heartbeats. Knows nothing of rounds. Called by collective, session
 * and server on the loop; answers on the loop, never from inside the call.
 */
#ifndef F8_DAEMON_WORLD_H
#define F8_DAEMON_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <uv.h>

#include "daemon/config.h"
#include "daemon/reason.h"
#include "protocol.h"

/* All worlds of this daemon. */
struct worlds;

/* One world, as one of its hosts sees it. */
struct world;

/* A rank of this host, as it is reported. */
struct world_rank {
    uint32_t rank, pid;
};

/* A host of a world. Hosts are in the order of their lowest ranks. */
struct world_host {
    char name[65];                  /* as the host calls itself: UTF-8, no control characters */
    char address[64];               /* "10.0.0.1:4711", "[fe80::1%eth0]:4711": of its connection */
    const struct world_rank *ranks; /* borrowed: from the world; ascending */
    uint32_t num_ranks;
    uint64_t heard_ms; /* loop time of its last sign of life; this host: now */
    bool lost;
};

/* Upward calls. */
struct world_listener {
    /* Every rank is there: world_hosts gives the table. Once, unless ended comes first. */
    void (*formed)(struct world *world);
    /* What another host has sent, in the order in which it sent it. */
    void (*received)(struct world *world, uint32_t host, const uint8_t *data, size_t size);
    /*
     * Another host takes no further part: it left in order, or it (or the way to it) is lost. What
     * it had sent before has been received, as far as it came through.
     */
    void (*lost)(struct world *world, uint32_t host, bool in_order, const struct reason *reason);
    /*
     * It did not form, or the root is lost and with it the way to all. Nothing else comes after
     * it; the world is still to be left. F8_EDEADLINE names the ranks and hosts that did not come;
     * F8_EPERM, F8_EEXIST (a rank is claimed twice), F8_EMISMATCH (another world size or group),
     * F8_EVERSION, F8_ECONN: what the root refused, or why it cannot be reached.
     */
    void (*ended)(struct world *world, int status, const struct reason *reason);
};

/* What a host gives to take part. */
struct world_part {
    const uint8_t *id; /* borrowed for the call: F8_PROTO_UNIQUE_ID_SIZE bytes */
    const char *group; /* borrowed for the call: "job/group", must be the same on all hosts */
    uint32_t world_size;
    const struct world_rank *ranks; /* borrowed for the call: this host's, ascending */
    uint32_t num_ranks;
    uint64_t deadline_ms; /* from now on, for the world to form */
    const struct world_listener *listener;
    void *owner; /* borrowed: the caller's own */
};

/* `config` outlives it. F8_ENOMEM. */
int worlds_new(uv_loop_t *loop, const struct config *config, struct worlds **ret_worlds);

/*
 * Ends roots that nobody has joined here, and their ports; those of worlds that are left later end
 * then. Before the loop runs out. NULL allowed.
 */
void worlds_close(struct worlds *worlds);

/* When the loop has run out; every world was left. NULL allowed. */
void worlds_free(struct worlds *worlds);

/*
 * Makes the unique id of a world to come, whose root this daemon is: it listens, on a port that the
 * kernel chooses of the interface that the configuration names, until the world has formed or the
 * configured time to form is over. F8_EINVAL names an interface that is not there; F8_ELIMIT: too
 * many roots; F8_EIO.
 */
int world_unique_id(
    struct worlds *worlds, uint8_t ret_id[F8_PROTO_UNIQUE_ID_SIZE], struct reason *reason);

/* Where the hosts of worlds reach this one. */
struct world_place {
    char interface[16]; /* "eth0" */
    char address[64];   /* "10.0.0.1", "fe80::1%eth0" */
};

/*
 * Where a unique id that was made now would say: of this configuration, and of the interfaces that
 * the host has now. F8_EINVAL names an interface that is not there; F8_EIO.
 */
int world_place(const struct config *config, struct world_place *ret, struct reason *reason);

/* Whether these bytes are a unique id, whatever has become of its root, and where that listens:
 * "10.0.0.1:4711". F8_EINVAL. */
#define WORLD_ROOT_SIZE 64
int world_check_id(const uint8_t id[F8_PROTO_UNIQUE_ID_SIZE], char ret_root[WORLD_ROOT_SIZE],
    struct reason *reason);

/*
 * Takes part, also where this daemon is the root. F8_EINVAL: these bytes are no unique id;
 * F8_EIO, F8_ENOMEM. What goes wrong later comes through `ended`.
 */
int world_join(struct worlds *worlds, const struct world_part *part, struct world **ret_world,
    struct reason *reason);

/* Of hosts that have not met, as far as this one knows. */
struct world_meeting {
    struct reason waits_for;    /* "2 of 6 ranks are missing: ranks 4, 5", "other hosts ..." */
    uint64_t began_ms, ends_ms; /* loop time */
    uint32_t missing;           /* ranks; 0: only the root knows */
};

/* False: they have met, or never will. */
bool world_meeting(const struct world *world, struct world_meeting *ret_meeting);

/* A host that has come to a root of this daemon, or this one, whose root is elsewhere. */
struct world_guest {
    const char *group; /* borrowed, as the rest: "job/group" */
    const char *name;
    const char *address;   /* "": not known yet */
    const uint32_t *ranks; /* ascending */
    uint32_t num_ranks;
    uint64_t came_ms, ends_ms; /* loop time; until when the others may come */
    uint64_t silent_ms;        /* since its last sign of life */
    bool here, root;           /* it is this one; it is the root's */
};

/* Each such host, of all worlds here that have not formed. */
void worlds_guests(const struct worlds *worlds,
    void (*tell)(void *context, const struct world_guest *guest), void *context);

void *world_owner(const struct world *world);

/* The hosts, once it has formed; which of them this one is; the root's number: that of hosts, if
 * the root's daemon has no rank. */
const struct world_host *world_hosts(const struct world *world, uint32_t *ret_num_hosts);
static inline const struct world_host *world_host(const struct world *world, uint32_t host)
{
    uint32_t num_hosts;
    return &world_hosts(world, &num_hosts)[host];
}
uint32_t world_here(const struct world *world);
uint32_t world_root(const struct world *world);

/* Whether the rank is one of those that this host takes part with; also before it has formed. */
bool world_has_here(const struct world *world, uint32_t rank);

/* Of the control connections of this host, in bytes. */
void world_traffic(const struct world *world, uint64_t *ret_sent, uint64_t *ret_received);

/* This host's address on the interface that the configuration chooses for the world, without a
 * port, and that interface's name: where engines listen too. Once it has formed. */
const char *world_interface(const struct world *world, const char **ret_address);

/*
 * Sends to all other hosts, in order. Copied; at most WORLD_MAX_MESSAGE bytes. It is no error if
 * the world has ended or nobody else is left.
 */
#define WORLD_MAX_MESSAGE ((size_t)16 << 20)
void world_send(struct world *world, const uint8_t *data, size_t size);

/*
 * Takes no further part: tells the others so, after all that was sent, and frees the world when
 * that has gone out or cannot. No listener is called any more. NULL allowed.
 */
void world_leave(struct world *world);

#endif
