/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between arena.c and arena_memory.c: what an arena has on one device. Device thread. Each of the
 * functions makes one device's part, whose `device` and rows are set, and leaves what it has made
 * to cuda_arena_memory_free, which takes a part in any state.
 */
#ifndef F8_DAEMON_CUDA_ARENA_H
#define F8_DAEMON_CUDA_ARENA_H

#include "daemon/cuda/cuda_private.h"

/* What the ranks of the device map: zeroed when the part's stream has run. F8_ENOMEM, F8_EIO. */
int cuda_arena_memory_create(struct cuda *cuda, const struct cuda_arena *arena,
    struct cuda_arena_device *part, struct reason *reason);

/* Tables and their mirror in pinned memory. Likewise. */
int cuda_arena_tables_create(
    const struct cuda_arena *arena, struct cuda_arena_device *part, struct reason *reason);

/* Takes both away, and closes the descriptor. */
void cuda_arena_memory_free(struct cuda *cuda, struct cuda_arena_device *part);

#endif
