/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The listening socket of metrics_http.c: at a path or an address, with what is to be removed when
 * it ends. On the loop.
 */
#ifndef F8_DAEMON_METRICS_SOCKET_H
#define F8_DAEMON_METRICS_SOCKET_H

#include <stdbool.h>
#include <sys/types.h>

#include "daemon/config.h"

struct metrics_socket {
    int fd;           /* listening; the caller closes it */
    const char *path; /* borrowed: the configuration's; NULL: an address */
    dev_t device;     /* of the path's file */
    ino_t inode;
    char host[64];   /* "127.0.0.1", "[::1]": the address, if it is of loopback; "" */
    char where[160]; /* "http://127.0.0.1:9464/metrics", for operators */
};

/* F8_EEXIST: somebody serves at the path; F8_EIO. */
int metrics_socket_open(
    const struct config *config, struct metrics_socket *ret_socket, struct reason *reason);

/*
 * Whether a request with this Host header may be answered; NULL: it has none. Browsers reach
 * loopback too: a page of any site can have its name resolved to 127.0.0.1 and then read the
 * answer as its own, but it cannot change the name that the browser sends. So on loopback only its
 * own names and the configured address are taken, with any port; elsewhere any.
 */
bool metrics_socket_takes_host(const struct metrics_socket *socket, const char *host);

/* Removes the path, if it is still this socket's. */
void metrics_socket_remove(const struct metrics_socket *socket);

#endif
