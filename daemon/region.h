/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client's shared memory as the daemon sees it: a sealed memfd, checked, mapped read-only and
 * counted; or memory of a CUDA device, which a backend has mapped. Called by session and registry
 * on the loop; workers only read the mapping, which stands as long as anyone holds a reference.
 */
#ifndef F8_DAEMON_REGION_H
#define F8_DAEMON_REGION_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "backend_device.h"
#include "reason.h"

struct region {
    const uint8_t *data; /* owned mapping of size bytes */
    uint64_t size;
    uint32_t refs;
    dev_t device; /* of the memfd: which file it is, for people and for duplicates */
    ino_t inode;
    struct backend *backend; /* borrowed: of device memory, outlives it; NULL: on the host */
    struct backend_mapping *mapping; /* owned: of device memory; `data` is a device address */
    int32_t number;                  /* of the device */
};

/*
 * Checks that fd is memory the daemon can trust, and its size, before anything is charged or
 * mapped: a regular tmpfs file, not hugetlbfs, sealed against shrinking, not empty, readable. The
 * reason names the first thing that is wrong. F8_EREGION.
 */
int region_check(int fd, uint64_t *ret_size, struct reason *reason);

/*
 * Checks and maps it with one reference; the descriptor stays the caller's. F8_EREGION,
 * F8_ENOMEM.
 */
int region_map(int fd, struct region **ret_region, struct reason *reason);

/*
 * Device memory that `backend` has mapped (a finished map), with one reference; the mapping is
 * taken over. F8_ENOMEM: it is not.
 */
int region_of_device(
    struct backend *backend, const struct backend_map *map, struct region **ret_region);

struct region *region_ref(struct region *region);

/* Drops a reference, NULL allowed; the last one unmaps. */
void region_unref(struct region *region);

/* Whether [offset, offset + bytes) lies in the region; cannot overflow. */
bool region_contains(const struct region *region, uint64_t offset, uint64_t bytes);

#endif
