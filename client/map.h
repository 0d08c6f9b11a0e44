/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes memfds, and maps shared memory where huge pages can back it. Called by region.c, seal.c and
 * state.c; any thread.
 */
#ifndef F8_CLIENT_MAP_H
#define F8_CLIENT_MAP_H

#include <stdint.h>

/*
 * A memfd of `size` bytes, to be sealed by the caller, whose memory is really there, so that no
 * later write can fail. `what` it is for is its name. F8_ELIMIT, F8_ENOMEM.
 */
int map_create(const char *what, uint64_t size, int *ret_memfd);

/*
 * Maps `size` bytes (> 0) of `fd`, shared, with `protection`, at a multiple of 2 MiB.
 * F8_ENOMEM, F8_EIO. map_release ends it; NULL is allowed.
 */
int map_shared(int fd, uint64_t size, int protection, void **ret_address);
void map_release(void *address, uint64_t size);

/* Asks for huge pages behind a mapping; without effect where the kernel has no such request. */
void map_collapse(void *address, uint64_t size);

#endif
