/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The listening socket: bound to its path, which a live daemon keeps and a dead one's leftover
 * yields, and handing out accepted connections. Used by server on the loop.
 */
#ifndef F8_DAEMON_LISTENER_H
#define F8_DAEMON_LISTENER_H

#include <stdbool.h>
#include <sys/types.h>
#include <uv.h>

#include "daemon/log.h"
#include "daemon/reason.h"

struct listener {
    uv_poll_t poll;
    int fd;           /* owned; -1: closed */
    int spare;        /* owned: given up for a moment to refuse when descriptors run out */
    const char *path; /* borrowed: from config */
    bool passed;      /* by the service manager, whose path it is */
    dev_t device;     /* of the socket that we made there */
    ino_t inode;
    struct log_limit refusals;
    void (*accepted)(void *owner, int fd); /* takes over the descriptor */
    void *owner;                           /* borrowed */
};

/* Binds, listens and polls. F8_EEXIST if another daemon answers there, F8_EIO. */
int listener_open(
    struct listener *listener, uv_loop_t *loop, const char *path, struct reason *reason);

/* Polls a socket that listens at the path already; takes over the descriptor in any case. F8_EIO.
 */
int listener_adopt(
    struct listener *listener, uv_loop_t *loop, int fd, const char *path, struct reason *reason);

/* Stops, and removes the path if it is still ours; the poll handle closes on the loop. */
void listener_close(struct listener *listener);

#endif
