/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Landings: how the results of a work come from the devices' tables to the loop, and what becomes
 * of them when a device, NCCL or a deadline says otherwise. Device thread, unless a comment says
 * otherwise.
 */
#ifndef F8_DAEMON_CUDA_RESULTS_H
#define F8_DAEMON_CUDA_RESULTS_H

#include "daemon/cuda/cuda_private.h"

struct cuda_landing;

/*
 * Queues the landing of a work's results behind it on all devices of its arena, and finishes the
 * command: at once if there is a landed() that comes later, else with the landing. F8_ENOMEM,
 * F8_EIO: there is no landing, the command is the caller's to finish, and the arena must be broken.
 */
int cuda_results_land(struct cuda *cuda, struct cuda_arena *arena, struct cuda_command *command,
    struct reason *reason);

/*
 * The arena's works have failed: later ones are refused with this reason, outstanding landings get
 * it, and its communicators are aborted. The first call is the one that counts.
 */
void cuda_results_break(
    struct cuda *cuda, struct cuda_arena *arena, int status, const struct reason *reason);

/* No callback of the arena's landings runs any more: frees what late ones would have needed. */
void cuda_results_forget(struct cuda *cuda, const struct cuda_arena *arena);

#endif
