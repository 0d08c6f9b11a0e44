/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is between the daemon and a service manager that speaks systemd's protocols: a socket that
 * it passes, and what it is told. Where there is none, telling does nothing. Used by server on the
 * loop's thread.
 */
#ifndef F8_DAEMON_SERVICE_H
#define F8_DAEMON_SERVICE_H

#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "daemon/reason.h"

/*
 * The listening socket that was passed (LISTEN_FDS), the caller's from then on, and its path, of at
 * most `size` bytes with its end; -1: none was. F8_EINVAL: what was passed is not one AF_UNIX
 * SOCK_SEQPACKET socket that listens at a path.
 */
int service_take_socket(int *ret_fd, char *path, size_t size, struct reason *reason);

/* Feeds the watchdog, if there is one, from the loop at half its time. The loop may end meanwhile.
 */
void service_watch(uv_timer_t *timer, uv_loop_t *loop);

/* Each with a line for people. Ready also ends reloading. */
void service_ready(const char *status);
void service_reloading(void);
/* The end may wait for `wait_ms`, and then save snapshots: the manager is asked for that time. */
void service_stopping(const char *status, uint64_t wait_ms);
/* Neither: only the line. */
void service_status(const char *status);

#endif
