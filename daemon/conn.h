/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection: packets in and out of its socket, descriptors, the peer's credentials, and the
 * peer's death, which a pidfd tells even while a forked child holds the socket open. What a
 * packet means is session's matter. On the loop.
 */
#ifndef F8_DAEMON_CONN_H
#define F8_DAEMON_CONN_H

#include <uv.h>

#include "daemon/log.h"
#include "daemon/session.h"
#include "daemon/unpack.h"

struct conn;

/* What all connections share; outlives them. */
struct conn_context {
    uv_loop_t *loop;                   /* borrowed */
    const struct config *config;       /* borrowed */
    struct session_context *session;   /* borrowed; its link is conn_session_link */
    struct conn *first;                /* borrowed: all that are open */
    struct log_limit refusals, strays; /* connections, packets */
    struct unpack unpack;
    uint8_t *packet; /* owned: F8_PROTO_MAX_PACKET bytes, for one packet in or out at a time */
};

extern const struct session_link conn_session_link;

/* F8_ENOMEM. */
int conn_context_init(struct conn_context *context, uv_loop_t *loop, const struct config *config,
    struct session_context *session);

/* Only when no connection is open. */
void conn_context_done(struct conn_context *context);

/* Takes over an accepted socket; it is closed if the connection cannot be made. */
void conn_open(struct conn_context *context, int fd);

/* The daemon ends: tells every client so, and ends all connections; their ranks have left then. */
void conn_close_all(struct conn_context *context);

#endif
