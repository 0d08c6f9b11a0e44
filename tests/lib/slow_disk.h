/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A disk for a daemon's snapshots that a test can hold up, break, and cut the power of: the test's
 * side of system/shim_disk.c. Functions fail the test if something is not as it must be.
 */
#ifndef F8_TESTS_SLOW_DISK_H
#define F8_TESTS_SLOW_DISK_H

#include <stdbool.h>

struct slow_disk {
    char path[64]; /* what the shim looks at */
    int hold;      /* owned: the lock for which syncs wait */
    int asked;     /* owned: syncs that have begun */
};

/* Daemons that are started between these two have such a disk. */
void slow_disk_open(struct slow_disk *disk, const char *shim);
void slow_disk_unload(void);

void slow_disk_close(struct slow_disk *disk);

/* From now on syncs of the directory wait; until now. */
void slow_disk_hold(struct slow_disk *disk);
void slow_disk_let_go(struct slow_disk *disk);

/* Waits, bounded, until a sync has begun since it was held up. */
void slow_disk_await_sync(const struct slow_disk *disk);

/* Syncs fail with EIO; or do no more. */
void slow_disk_break(const struct slow_disk *disk, bool broken);

/* What was removed from the directory and had not reached the disk is back there. The daemon is
 * dead. */
void slow_disk_cut_power(const struct slow_disk *disk, const char *directory);

#endif
