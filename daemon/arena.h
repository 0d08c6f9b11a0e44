/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of a group's gathered buckets on the host: one memfd, reserved in full, on huge pages
 * where the kernel allows, written only through the daemon's own mapping and, in a group over
 * hosts, that of its fabric's helper. The seals keep every other process from writing it in any
 * way, and these from ever mapping it writable again. Created on a worker (it faults in every
 * page), used and freed on the loop.
 */
#ifndef F8_DAEMON_ARENA_H
#define F8_DAEMON_ARENA_H

#include <stdint.h>

#include "reason.h"

struct device_arena;

struct arena {
    uint8_t *data; /* owned mapping, writable, zeroed, 2 MiB-aligned; NULL on devices */
    uint64_t size; /* > 0, a multiple of 4096; on devices maybe 0 */
    int fd;        /* owned; what clients map read-only; -1 on devices */
    struct device_arena *device;              /* owned: NULL on the host; see backend_device.h */
    void (*free_device)(struct arena *arena); /* of such a one: frees it, this struct too */
};

/*
 * Reserves `size` bytes: map, fallocate, collapse. Blocks for as long as the pages take. It is for
 * nobody else's eyes until it is sealed; who is to write it too maps it before. F8_ENOMEM;
 * F8_ELIMIT: no descriptor left.
 */
int arena_reserve(uint64_t size, struct arena **ret_arena, struct reason *reason);

/*
 * Seals SHRINK|GROW|FUTURE_WRITE|SEAL: what is mapped writable stays so, nobody can map it so any
 * more. Once. F8_EINTERNAL: the kernel lacks the seals.
 */
int arena_seal(const struct arena *arena, struct reason *reason);

/* Both: for the daemon alone to write. */
int arena_create(uint64_t size, struct arena **ret_arena, struct reason *reason);

/* NULL allowed. Clients keep what they have mapped. */
void arena_free(struct arena *arena);

#endif
