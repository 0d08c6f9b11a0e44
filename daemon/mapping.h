/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared mappings at addresses that huge pages need. Region and arena share it; no state, any
 * thread.
 */
#ifndef F8_DAEMON_MAPPING_H
#define F8_DAEMON_MAPPING_H

#include <stdint.h>

/*
 * Maps `size` bytes of fd from its start, MAP_SHARED, at a 2 MiB-aligned address; undo it with
 * munmap(address, size). NULL with errno set where mmap fails.
 */
void *mapping_create(int fd, uint64_t size, int protection);

#endif
