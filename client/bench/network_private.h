/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What network.c, which makes hosts, and network_shape.c, which shapes their cables, share. Private
 * to them.
 */
#ifndef F8BENCH_NETWORK_PRIVATE_H
#define F8BENCH_NETWORK_PRIVATE_H

#include "client/bench/network.h"

#define MAX_SCRIPT 1024

/* Runs `ip` or `tc` in a namespace with a script, a command a line. */
int network_run(int ns_fd, const char *program, const char *script, struct bench_error *error);

/* Ends the process that delays, if there is one. */
void network_stop_delay(struct network *network, uint32_t host);

#endif
