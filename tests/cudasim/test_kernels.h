/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small kernels for the simulator's own tests, right ones and wrong ones. Each launcher queues one
 * launch on a stream and returns a cudaError_t. Pointers are device memory.
 */
#ifndef CUDASIM_TEST_KERNELS_H
#define CUDASIM_TEST_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { KERNEL_THREADS = 256 };

/* dst[i] = value, i < count */
int kernel_fill(uint32_t *dst, size_t count, uint32_t value, void *stream);

/* dst[i] = src[i] + 1, i < count */
int kernel_add_one(uint32_t *dst, const uint32_t *src, size_t count, void *stream);

/* *out = sum of KERNEL_THREADS elements, through shared memory, with or without its barrier */
int kernel_sum(uint32_t *out, const uint32_t *src, int has_barrier, void *stream);

/* The same by shuffles, in the blocks' order of warps; adds it to *out for each of two blocks. */
int kernel_warp_sum(uint32_t *out, const uint32_t *src, void *stream);

/* out[0..7]: ballot, any, all, shuffles up and down, a count over the block, lanes of a short warp
 */
int kernel_votes(uint32_t *out, void *stream);

/* Where a block's threads do not meet. */
enum kernel_divergence { DIVERGENT_END, DIVERGENT_PLACE, DIVERGENT_LANE, DIVERGENT_MASK };
int kernel_divergent(enum kernel_divergence how, void *stream);

/* Writes 16 bytes to dst, at once. */
int kernel_store16(void *dst, void *stream);

/* A block of this many threads, which does nothing. */
int kernel_shape(unsigned num_blocks, unsigned num_threads, void *stream);

#ifdef __cplusplus
}
#endif

#endif
