/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch.distributed as a yardstick: beside each rank a python3 that all-gathers as many bytes over
 * Gloo, when it is told to. Called by a rank in its only thread; the process dies with it.
 */
#ifndef F8BENCH_TORCH_H
#define F8BENCH_TORCH_H

#include <stdint.h>
#include <sys/socket.h>

#include "client/bench/error.h"

struct torch;

struct torch_place {
    uint32_t rank, world_size;
    const char *interface;                 /* borrowed for the call, as below */
    const struct sockaddr_storage *master; /* where rank 0 can listen: address and free port */
    uint64_t bytes;                        /* of each rank's part */
};

/* Starts it, and waits until all ranks have met. -1: there is no python3 or torch, or they did not
 * meet. */
int torch_open(
    const struct torch_place *place, struct torch **ret_torch, struct bench_error *error);

/* One all-gather, to its end. All ranks must call it. */
int torch_gather(struct torch *torch, struct bench_error *error);

/* NULL is fine. */
void torch_close(struct torch *torch);

/* A free port at this address, put into it. -1: errno says why. */
int torch_choose_port(struct sockaddr_storage *address);

#endif
