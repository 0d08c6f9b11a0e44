/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arithmetic of f8gather and all that other rooms see of it: amax, scale, cast to float8,
 * dequantise. No sockets, no allocation, no locks; every function here is pure or writes only
 * what it is given, so any thread may call any of them at any time. Every variant of every
 * kernel gives the same bits; ref.c is the specification.
 *
 * Holds for all: nothing outside the `count` elements given is read or written; with a count of 0
 * the pointers may be NULL. A NaN that is written is always the positive quiet one (float8: 0x7f).
 * The floating-point environment is the default one (round to nearest, subnormals kept).
 */
#ifndef F8_KERNELS_H
#define F8_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Element types of a weight shard. The values are those of the wire protocol. */
enum f8k_dtype {
    F8K_F32 = 1,
    F8K_BF16 = 2,
    F8K_F16 = 3,
};

/* Float8 formats, as OCP names them; e4m3fn has no infinities. */
enum f8k_format {
    F8K_E4M3FN = 1,
    F8K_E5M2 = 2,
};

/* What a cast met on its way. */
struct f8k_counts {
    uint64_t saturated; /* elements that the clamp changed: |x * scale| > FMAX, infinities too */
    uint64_t nan;       /* elements with x * scale NaN, such as Inf with the scale 0 */
};

/*
 * One cast: dst[i] = float8(clamp(fp32(src[i]) * scale)), i < count, round to nearest even.
 * src needs the alignment of its element type only, dst none. They may not overlap.
 * `stream` says that dst is larger than the caches and not read soon: variants may then write
 * past the cache; what they wrote is visible to every thread that synchronises with this one.
 * With `amax` the source's amax is taken in the same pass (delayed scaling: it is for later scales,
 * and has no part in this cast): *amax is raised to it by an unsigned max, so parts of a shard may
 * share one that starts at 0. It takes the bits that f8k_ops.amax gives for src.
 */
struct f8k_cast {
    const void *src; /* borrowed: count elements of dtype */
    uint8_t *dst;    /* borrowed: count bytes */
    size_t count;
    float scale;
    enum f8k_dtype dtype;
    enum f8k_format format;
    bool stream;
    uint32_t *amax; /* borrowed: apart from src and dst; NULL: not taken */
};

/* The kernels of one instruction set. Reach them through f8k_ops() or f8k_variant(). */
struct f8k_ops {
    const char *name; /* "ref", "avx2": a literal */

    /*
     * max |x| over count elements as the bits of an fp32: NaN if any element is NaN, else Inf if
     * any is infinite; +0 for count == 0. Bits compare as unsigned integers in the order of the
     * values, NaN above all, so amaxes are combined with an unsigned max. The sign bit is clear.
     * Of several NaNs the largest pattern wins.
     */
    uint32_t (*amax)(enum f8k_dtype dtype, const void *src, size_t count);

    /* Runs a cast, adds to *counts (not NULL) what it met and raises *cast->amax. */
    void (*cast)(const struct f8k_cast *cast, struct f8k_counts *counts);

    /* dst[i] = dtype(fp32(src[i]) / scale), i < count: float8 back to the source type. */
    void (*dequantise)(enum f8k_format format, const uint8_t *src, enum f8k_dtype dtype, void *dst,
        size_t count, float scale);

    /* dst[i] = bf16(src[i]), round to nearest even, NaN stays NaN: the wire form of raw fp32. */
    void (*to_bf16)(const float *src, uint16_t *dst, size_t count);
};

/* The best variant for this CPU; never NULL; the same for the life of the process. */
const struct f8k_ops *f8k_ops(void);

/*
 * The i-th variant that this CPU can run, slowest first (0 is always "ref"); NULL past the last.
 * For tests and benchmarks that go over all of them.
 */
const struct f8k_ops *f8k_variant(size_t i);

/* How a scale follows from an amax (NUMERICS: the two paths differ only below 1e-12). */
enum f8k_scale_path {
    F8K_SCALE_DIRECT,     /* 1e-12 as a double: in-gather and delayed scaling */
    F8K_SCALE_PRECOMPUTE, /* 1e-12 first rounded to the source dtype: the batched reduction */
};

/*
 * The scale for an amax given as fp32 bits, for weights of `dtype` cast to `format`: FMAX / amax
 * in double, rounded once to fp32. NaN gives NaN, Inf gives 0. With `power_of_two` it is rounded
 * down to a power of two (0, NaN and Inf are kept).
 */
float f8k_scale(uint32_t amax_bits, enum f8k_dtype dtype, enum f8k_format format,
    enum f8k_scale_path path, bool power_of_two);

/* Bytes of one element; 0 for a value that is no dtype. */
size_t f8k_dtype_size(enum f8k_dtype dtype);

/* The largest finite value of a format: 448 or 57344; 0 for a value that is no format. */
float f8k_format_max(enum f8k_format format);

/* "float32", "bfloat16", "float16"; "e4m3fn", "e5m2"; NULL for a value that is none. */
const char *f8k_dtype_name(enum f8k_dtype dtype);
const char *f8k_format_name(enum f8k_format format);

#endif
