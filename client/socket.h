/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the daemon's socket and connects to it. Called by channel.c once a connection.
 */
#ifndef F8_CLIENT_SOCKET_H
#define F8_CLIENT_SOCKET_H

#include <stddef.h>

/* How long a daemon may take to accept and to answer the first message, in milliseconds, unless
 * whoever connects has another limit. */
#define SOCKET_PATIENCE_MS 10000

/*
 * Connects to `path`, or if that is NULL to $F8GATHERD_SOCKET, or if that is unset or empty to the
 * first that exists of /run/f8gatherd/f8gatherd.sock and $XDG_RUNTIME_DIR/f8gatherd.sock. A daemon
 * that is busy may take patience_ms (more than 0) to accept. Gives the non-blocking, close-on-exec
 * descriptor in *ret_fd, and its path in ret_path (room for `size` bytes).
 * F8_ENODAEMON names every path tried and what was wrong with it.
 */
int socket_connect(const char *path, int patience_ms, int *ret_fd, char *ret_path, size_t size);

/* Which of these paths socket_connect would use: the first that exists, or else the first of all.
 */
void socket_choose(const char *path, char *ret_path, size_t size);

#endif
