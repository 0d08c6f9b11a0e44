/* SPDX-License-Identifier: Apache-2.0 */
/* An operator's connection that speaks raw packets, with a descriptor either way. */
#ifndef F8_ADMIN_LINK_H
#define F8_ADMIN_LINK_H

#include <stddef.h>

#include "f8gather.pb-c.h"
#include "lib/test_daemon.h"

/* A greeted connection as `role`; a trainer's is of `job`. Closed with close(). */
int admin_link_open(const struct test_daemon *daemon, F8__Role role, const char *job);

/*
 * Sends a request, with `fd` unless it is -1, and waits for its reply, to be freed with
 * f8__reply__free_unpacked. *ret_fd is the caller's, or -1.
 */
F8__Reply *admin_link_ask(int link, F8__Request *request, int fd, int *ret_fd);

/* A memfd of these bytes, sealed against shrinking. */
int admin_link_memfd(const void *bytes, size_t size);

#endif
