/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernel tests share: memory between guard pages, seeded random values biased to the
 * edges, and the sets of bit patterns and scales that the exhaustive tests walk.
 */
#ifndef F8_TESTS_KERNEL_SUPPORT_H
#define F8_TESTS_KERNEL_SUPPORT_H

#include "kernels/kernels.h"

#define PATTERNS 65536
#define SCALES   320

/* Bytes with an inaccessible page right below and right above. */
struct guarded {
    void *map; /* owned */
    size_t map_size;
    uint8_t *low; /* borrowed: from map; the first byte that may be touched */
    size_t size;
};

/* Exits with a message if the system gives no memory. */
struct guarded guarded_open(size_t min_size);
void guarded_close(struct guarded *guarded);

/* `bytes` that end `gap` bytes below the upper guard. */
void *guarded_at_end(const struct guarded *guarded, size_t bytes, size_t gap);

/* A small generator (splitmix64): the same numbers on every machine for a seed. */
struct rng {
    uint64_t state;
};

uint64_t rng_next(struct rng *rng);
size_t rng_below(struct rng *rng, size_t limit);

/* An element of dtype as its bits: weight-like, any pattern, or one of the specials. */
uint32_t random_element(struct rng *rng, enum f8k_dtype dtype);

/* Sets element i of an array of dtype from its bits. */
void set_element(enum f8k_dtype dtype, void *dst, size_t i, uint32_t bits);

/* The patterns that matter in dtype: zeros, subnormals, Inf, NaN, neighbours. NULL past the end. */
const uint32_t *special_element(enum f8k_dtype dtype, size_t i);

/*
 * PATTERNS elements: for bf16 and fp16 every pattern in order; for fp32 every exponent with both
 * signs and 128 mantissas: the rounding edges of both formats, their neighbours, and random ones.
 */
void fill_patterns(enum f8k_dtype dtype, void *dst);

/* The i-th of SCALES scales: powers of two over the whole range, random ones, specials. */
float pattern_scale(size_t i);

/* One of the specials or a random scale. */
float random_scale(struct rng *rng);

extern const enum f8k_dtype all_dtypes[3];
extern const enum f8k_format all_formats[2];

/* How many variants this CPU runs. */
int count_variants(void);

#endif
