/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client's shared memory as the daemon sees it: a sealed memfd, checked, mapped read-only and
 * counted. Called by session and registry on the loop; workers only read the mapping, which
 * stands as long as anyone holds a reference.
 */
#ifndef F8_DAEMON_REGION_H
#define F8_DAEMON_REGION_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "reason.h"

struct region {
    const uint8_t *data; /* owned mapping of size bytes */
    uint64_t size;
    uint32_t refs;
    dev_t device; /* of the memfd: which file it is, for people and for duplicates */
    ino_t inode;
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

struct region *region_ref(struct region *region);

/* Drops a reference, NULL allowed; the last one unmaps. */
void region_unref(struct region *region);

/* Whether [offset, offset + bytes) lies in the region; cannot overflow. */
bool region_contains(const struct region *region, uint64_t offset, uint64_t bytes);

#endif
