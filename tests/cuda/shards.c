/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shards of tests. All by the reference kernels, never by what is tested.
 */
#include "shards.h"

#include <check.h>
#include <stdlib.h>

#include "module_fixture.h"

static uint32_t element(struct rng *rng, enum f8k_dtype dtype, bool specials)
{
    uint32_t exponent = dtype == F8K_F32 ? 0x7f800000 : dtype == F8K_BF16 ? 0x7f80 : 0x7c00;
    uint32_t bits;
    do
        bits = random_element(rng, dtype);
    while (!specials && (bits & exponent) == exponent);
    return bits;
}

struct shard shard_new(
    struct rng *rng, int32_t device, enum f8k_dtype dtype, uint64_t count, bool specials)
{
    struct shard shard = {.dtype = dtype, .count = count};
    uint64_t size = count * f8k_dtype_size(dtype);
    shard.host = malloc(size + 1);
    ck_assert_ptr_nonnull(shard.host);
    for (uint64_t i = 0; i < count; i++)
        set_element(dtype, shard.host, i, element(rng, dtype, specials));
    shard.src = module_shard(device, shard.host, size);
    shard.amax = f8k_variant(0)->amax(dtype, shard.host, count);
    return shard;
}

void shard_done(struct shard *shard)
{
    free(shard->host);
    shard->host = NULL;
}

struct backend_task shard_task(
    const struct shard *shard, enum backend_op op, int32_t device, uint32_t row, uint32_t slot)
{
    return (struct backend_task){.src = shard->src,
        .count = shard->count,
        .op = op,
        .dtype = shard->dtype,
        .device = device,
        .row = row,
        .slot = slot};
}

void shard_cast(const struct shard *shard, enum f8k_format format, float scale, uint8_t *ret_bytes,
    struct f8k_counts *counts)
{
    f8k_variant(0)->cast(&(struct f8k_cast){.src = shard->host,
                             .dst = ret_bytes,
                             .count = shard->count,
                             .scale = scale,
                             .dtype = shard->dtype,
                             .format = format},
        counts);
}
