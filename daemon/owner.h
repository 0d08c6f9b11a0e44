/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether the file of a Unix socket belongs to a process that lives. Used before a socket that
 * nobody answers at is removed, by listener and metrics: one that is bound and does not listen yet
 * refuses connections as a dead one's does. No state; any thread.
 */
#ifndef F8_DAEMON_OWNER_H
#define F8_DAEMON_OWNER_H

#include <stdbool.h>

/*
 * Whether a socket is bound to the file at `path`, in this network namespace. False too where the
 * kernel does not tell (no unix_diag, no AF_NETLINK): that nobody answers must do there.
 */
bool owner_lives(const char *path);

#endif
