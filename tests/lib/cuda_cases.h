/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cases for the CUDA kernels, run many at a time as one table. All that a table touches (sources,
 * destinations, amaxes, counts, scales and the table) lies in one image, with canaries between; the
 * reference runs on a copy of it, the device on another, and then the two must not differ in a
 * byte. One thread; needs an open device (cuda_device.h).
 */
#ifndef F8_TESTS_CUDA_CASES_H
#define F8_TESTS_CUDA_CASES_H

#include "kernels/cuda/cuda_kernels.h"
#include "tests/kernel_support.h"

/* An operation besides those of enum f8cu_op: f8cu_dequantise, which knows no tables. */
#define CASE_DEQUANTISE 100

#define NO_SLOT UINT32_MAX

/* One operation; zeros are good defaults. */
struct cuda_case {
    unsigned op; /* enum f8cu_op or CASE_DEQUANTISE */
    enum f8k_dtype dtype;
    enum f8k_format format;
    size_t count;
    size_t src_offset; /* bytes past a multiple of 64 */
    size_t dst_offset;
    float scale;
    uint8_t byte;         /* of a FILL */
    uint32_t amax_slot;   /* where the amax goes; cases may share a slot; NO_SLOT: nowhere */
    uint32_t counts_slot; /* and the counts */
    size_t src, dst;      /* set by cases_add: where they lie in the image */
    size_t scale_at;
};

struct cuda_cases {
    uint8_t *image; /* owned: before the run; grows */
    size_t size, capacity;
    struct cuda_case *list; /* owned */
    size_t count, list_capacity;
    size_t slots_at;
    uint32_t num_slots;
};

/* What cases may share: at 8-byte boundaries of the image. */
struct cuda_slot {
    struct f8k_counts counts;
    uint32_t amax;
    uint32_t canary;
};

/* An empty set with slots whose amax is `amax` and whose counts are not 0. */
void cases_init(struct cuda_cases *cases, uint32_t num_slots, uint32_t amax);
void cases_done(struct cuda_cases *cases);

/*
 * Adds a case and returns where its source's bytes are to be written (valid until the next call;
 * NULL for a FILL).
 */
void *cases_add(struct cuda_cases *cases, const struct cuda_case *added);

/* Adds a case whose source is random elements. */
void cases_add_random(struct cuda_cases *cases, const struct cuda_case *added, struct rng *rng);

/*
 * Runs all on the device and in the reference, and fails the test with the first byte that differs.
 * The set is empty afterwards, its slots as they were first.
 */
void cases_run(struct cuda_cases *cases);

#endif
