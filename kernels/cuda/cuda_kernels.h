/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arithmetic of kernels.h on CUDA devices, as plain-C launchers: amax, scale, cast to float8,
 * dequantise, over many tensors in one launch. Bit-equal to ref.c. No CUDA type appears here:
 * streams are void *, a cudaStream_t. Nothing allocates, maps or waits for a device.
 *
 * Holds for all: the calling thread's current device is the stream's; tables and all that they
 * name lie in that device's memory and stay unchanged until the stream has run the launch; what
 * the launchers return is F8_OK, F8_EINVAL (a table that this header forbids), or F8_EIO with the
 * runtime's words in f8cu_error(). A launch of nothing does nothing.
 */
#ifndef F8_CUDA_KERNELS_H
#define F8_CUDA_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Elements that one thread block works on; entries of a table are cut into parts of this many. */
#define F8CU_PART (1u << 15)

enum f8cu_op {
    F8CU_AMAX,    /* raises *amax to the amax of src */
    F8CU_CAST,    /* src * *scale to float8 in dst; adds to *counts; raises *amax, unless NULL */
    F8CU_COPY,    /* count bytes, unchanged */
    F8CU_TO_BF16, /* fp32 src to bf16 dst */
    F8CU_FILL,    /* count bytes of dst = byte */
};

/*
 * One operation on one shard. A table is an array of these in device memory. All pointers are
 * borrowed and of device memory. Fields that an operation does not name are not looked at; an entry
 * of another operation than its launcher takes does nothing.
 */
struct f8cu_task {
    const void *src;           /* count elements of dtype, aligned to their size; not of a FILL */
    uint8_t *dst;              /* any alignment for float8 and bytes, that of bf16 for TO_BF16 */
    uint64_t count;            /* elements; bytes for COPY and FILL; may be 0; below 2^46 */
    const float *scale;        /* of a CAST: read when the kernel runs */
    uint32_t *amax;            /* fp32 bits, by atomic unsigned max; tasks may share it */
    struct f8k_counts *counts; /* by atomic add; tasks may share them; NULL: not counted */
    uint32_t first_part;       /* sum of f8cu_parts() of the entries before it */
    uint8_t op, dtype, format; /* enum f8cu_op, f8k_dtype, f8k_format */
    uint8_t byte;              /* of a FILL */
};

/* How many parts an entry of this many elements takes; 0 for none. */
static inline uint32_t f8cu_parts(uint64_t count)
{
    return (uint32_t)((count + F8CU_PART - 1) / F8CU_PART);
}

/*
 * Runs all entries of a table, in any order, in one launch of num_parts blocks (the sum over all).
 * f8cu_amax takes AMAX entries only, f8cu_write all others. Where src and dst are both aligned to
 * 16 bytes all goes by vectors; a dst that is not so aligned where src is costs narrower stores.
 */
int f8cu_amax(const struct f8cu_task *table, uint32_t num_tasks, uint32_t num_parts, void *stream);
int f8cu_write(const struct f8cu_task *table, uint32_t num_tasks, uint32_t num_parts, void *stream);

/*
 * out[i] = max over r < num_rows of rows[r * stride + i], i < count, as unsigned integers: the
 * amaxes of the ranks that share a device. num_rows is at least 1, and rows do not overlap: with
 * several, stride >= count. out may be row 0.
 */
int f8cu_max_rows(const uint32_t *rows, uint32_t num_rows, uint64_t stride, uint32_t *out,
    uint32_t count, void *stream);

/* One weight's scale: f8k_scale of *amax, or, where amax is NULL, `value` itself. */
struct f8cu_scale {
    const uint32_t *amax;
    float *scale; /* where it is kept; NULL: nowhere */
    float *copy;  /* where it is handed out too; NULL: nowhere */
    float value;
    uint8_t dtype, format, path; /* enum f8k_dtype, f8k_format, f8k_scale_path */
    uint8_t power_of_two;        /* 0 or 1 */
};

/* Sets the scales of a table in device memory, one entry a weight. */
int f8cu_set_scales(const struct f8cu_scale *table, uint32_t count, void *stream);

/*
 * dst[i] = dtype(fp32(src[i]) / *scale), i < count, as f8k_ops.dequantise. dst is aligned to an
 * element of dtype; scale is in device memory, read when the kernel runs.
 */
int f8cu_dequantise(enum f8k_format format, const uint8_t *src, enum f8k_dtype dtype, void *dst,
    uint64_t count, const float *scale, void *stream);

/* What the runtime said of the last launch that gave F8_EIO on this thread; a literal. */
const char *f8cu_error(void);

#ifdef __cplusplus
}
#endif

#endif
