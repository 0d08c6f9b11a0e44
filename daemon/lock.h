/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lock of a socket's path: <socket>.lock, held by the daemon that serves there, from before it
 * binds until all that is beside the socket is at rest. The kernel lets go of it with the process,
 * however that ends. Used by server, before and after the loop.
 */
#ifndef F8_DAEMON_LOCK_H
#define F8_DAEMON_LOCK_H

#include "daemon/reason.h"

#define LOCK_SUFFIX ".lock"

struct lock {
    int fd; /* owned; -1: not held */
    char path[128];
};

/*
 * F8_EEXIST names the daemon that has it; F8_EIO. The lock is not held then. Waits some seconds at
 * most, and only for what a daemon that was killed has left.
 */
int lock_take(struct lock *lock, const char *socket, struct reason *reason);

/* Also of one that is not held. */
void lock_release(struct lock *lock);

#endif
