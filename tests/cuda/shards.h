/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random shards in device memory, and what the reference kernels make of them: the oracle of the
 * tests of works.
 */
#ifndef F8_TESTS_CUDA_SHARDS_H
#define F8_TESTS_CUDA_SHARDS_H

#include "daemon/backend_device.h"
#include "tests/kernel_support.h"

struct shard {
    enum f8k_dtype dtype;
    uint64_t count;  /* elements */
    void *host;      /* owned */
    const void *src; /* device memory */
    uint32_t amax;   /* its amax, by the reference */
};

/* Without NaN and Inf unless `specials`. */
struct shard shard_new(
    struct rng *rng, int32_t device, enum f8k_dtype dtype, uint64_t count, bool specials);
void shard_done(struct shard *shard);

/* A task on it, on its device; its scale, format, dst are the caller's to set. */
struct backend_task shard_task(
    const struct shard *shard, enum backend_op op, int32_t device, uint32_t row, uint32_t slot);

/* What a cast of it must give: bytes, and counts added. */
void shard_cast(const struct shard *shard, enum f8k_format format, float scale, uint8_t *ret_bytes,
    struct f8k_counts *counts);

#endif
