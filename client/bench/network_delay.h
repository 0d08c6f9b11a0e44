/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A slow stretch of a cable, where the kernel has no netem: a process that carries packets from one
 * interface to another after a while, and back at once. Called by network.c.
 */
#ifndef F8BENCH_NETWORK_DELAY_H
#define F8BENCH_NETWORK_DELAY_H

#include <stdint.h>
#include <sys/types.h>

#include "client/bench/error.h"

/*
 * Starts the process between two interfaces of a namespace, which nobody else listens to. It dies
 * with the calling thread; the caller kills it and waits for it. Its pid, or -1 with the reason.
 */
pid_t network_delay_start(int ns_fd, const char *slow_from, const char *fast_from,
    uint32_t delay_us, struct bench_error *error);

#endif
