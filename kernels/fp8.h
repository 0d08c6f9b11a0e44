/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The number formats, one value at a time: the scalar truth that ref.c applies to arrays and that
 * every vector kernel must equal. Private to kernels/ and its tests; pure functions, any thread.
 * Integer arithmetic throughout, so no compiler flag or rounding mode changes a result. Every NaN
 * that is written is the positive quiet one (fp8: 0x7f), because the sign of a NaN that a multiply
 * makes differs between processors.
 */
#ifndef F8_KERNELS_FP8_H
#define F8_KERNELS_FP8_H

#include "kernels/kernels.h"

#include <string.h>

#define F8K_F32_INF  UINT32_C(0x7f800000)
#define F8K_F32_NAN  UINT32_C(0x7fc00000)
#define F8K_BF16_NAN UINT16_C(0x7fc0)
#define F8K_F16_INF  UINT16_C(0x7c00)
#define F8K_F16_NAN  UINT16_C(0x7e00)
#define F8K_FP8_NAN  UINT8_C(0x7f)

/* What tells a float8 format from the other: sign, exponent and mantissa follow from these. */
struct f8k_spec {
    unsigned mantissa_bits;
    unsigned bias;     /* of the exponent */
    uint32_t max_bits; /* the largest finite value, as fp32 bits */
};

static inline struct f8k_spec f8k_spec_of(enum f8k_format format)
{
    struct f8k_spec e4m3fn = {.mantissa_bits = 3, .bias = 7, .max_bits = 0x43e00000};
    struct f8k_spec e5m2 = {.mantissa_bits = 2, .bias = 15, .max_bits = 0x47600000};
    return format == F8K_E4M3FN ? e4m3fn : e5m2;
}

static inline uint32_t f8k_bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static inline float f8k_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* The fp32 pattern without its sign: the order of these integers is the order of |x|, NaN last. */
static inline uint32_t f8k_magnitude(uint32_t bits)
{
    return bits & UINT32_C(0x7fffffff);
}

/* One step of amax. */
static inline void f8k_raise(uint32_t *amax, uint32_t magnitude)
{
    if (magnitude > *amax)
        *amax = magnitude;
}

static inline bool f8k_is_nan(uint32_t bits)
{
    return f8k_magnitude(bits) > F8K_F32_INF;
}

/* value / 2^shift, round to nearest, ties to even. value < 2^31. */
static inline uint32_t f8k_shift_rne(uint32_t value, unsigned shift)
{
    if (shift > 31)
        return 0;
    if (shift == 0)
        return value;
    uint32_t odd = (value >> shift) & 1;
    return (uint32_t)(((uint64_t)value + ((UINT64_C(1) << (shift - 1)) - 1) + odd) >> shift);
}

/*
 * Rounds a finite fp32 magnitude to a narrower IEEE-like format and returns its pattern. A value
 * that rounds past the largest finite one runs on into the next exponent; the caller clamps
 * before (fp8) or takes that as infinity (fp16).
 */
static inline uint32_t f8k_narrow(uint32_t magnitude, unsigned mantissa_bits, unsigned bias)
{
    unsigned exponent = magnitude >> 23;
    if (exponent > 127 - bias)
        return f8k_shift_rne(magnitude, 23 - mantissa_bits) - ((127 - bias) << mantissa_bits);
    /* Subnormal result: count units of 2^(1 - bias - mantissa_bits). */
    uint32_t significand = magnitude & 0x7fffff;
    if (exponent == 0)
        exponent = 1;
    else
        significand |= 0x800000;
    return f8k_shift_rne(significand, 151 - bias - mantissa_bits - exponent);
}

/* The inverse for finite patterns (sign stripped): always exact in fp32. */
static inline float f8k_widen(uint32_t pattern, unsigned mantissa_bits, unsigned bias)
{
    uint32_t exponent = pattern >> mantissa_bits;
    uint32_t mantissa = pattern & ((1u << mantissa_bits) - 1);
    if (exponent != 0)
        return f8k_from_bits(((exponent + 127 - bias) << 23) | (mantissa << (23 - mantissa_bits)));
    float unit = f8k_from_bits((128 - bias - mantissa_bits) << 23);
    return (float)mantissa * unit;
}

/* Clamps to the largest finite value, then rounds to nearest even; 0x7f for a NaN. */
static inline uint8_t f8k_encode(float value, enum f8k_format format)
{
    struct f8k_spec spec = f8k_spec_of(format);
    uint32_t bits = f8k_bits_of(value);
    uint32_t magnitude = f8k_magnitude(bits);
    if (f8k_is_nan(bits))
        return F8K_FP8_NAN;
    if (magnitude > spec.max_bits)
        magnitude = spec.max_bits;
    return (uint8_t)((bits >> 31 << 7) | f8k_narrow(magnitude, spec.mantissa_bits, spec.bias));
}

static inline float f8k_decode(uint8_t code, enum f8k_format format)
{
    struct f8k_spec spec = f8k_spec_of(format);
    uint32_t sign = (uint32_t)(code >> 7) << 31;
    uint32_t pattern = code & 0x7f;
    uint32_t largest = format == F8K_E4M3FN ? 0x7e : 0x7b;
    if (pattern <= largest)
        return f8k_from_bits(sign | f8k_bits_of(f8k_widen(pattern, spec.mantissa_bits, spec.bias)));
    bool infinite = format == F8K_E5M2 && pattern == 0x7c;
    return f8k_from_bits(infinite ? sign | F8K_F32_INF : F8K_F32_NAN);
}

/* fp32 bits of a bf16: every bf16 is one. */
static inline uint32_t f8k_bf16_bits(uint16_t bf16)
{
    return (uint32_t)bf16 << 16;
}

static inline uint16_t f8k_to_bf16(float value)
{
    uint32_t bits = f8k_bits_of(value);
    if (f8k_is_nan(bits))
        return F8K_BF16_NAN;
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

/* fp32 bits of an fp16, exact; a NaN keeps its sign and payload, and is as quiet as it was (F16C
 * makes it quiet). */
static inline uint32_t f8k_f16_bits(uint16_t f16)
{
    uint32_t sign = (uint32_t)(f16 >> 15) << 31;
    uint32_t pattern = f16 & 0x7fff;
    if (pattern > F8K_F16_INF)
        return sign | F8K_F32_INF | (pattern & 0x3ff) << 13;
    if (pattern == F8K_F16_INF)
        return sign | F8K_F32_INF;
    return sign | f8k_bits_of(f8k_widen(pattern, 10, 15));
}

static inline uint16_t f8k_to_f16(float value)
{
    uint32_t bits = f8k_bits_of(value);
    uint32_t magnitude = f8k_magnitude(bits);
    uint32_t sign = bits >> 31 << 15;
    if (f8k_is_nan(bits))
        return F8K_F16_NAN;
    if (magnitude >= UINT32_C(0x47800000)) /* 65536: rounds to infinity whatever follows */
        return (uint16_t)(sign | F8K_F16_INF);
    return (uint16_t)(sign | f8k_narrow(magnitude, 10, 15));
}

/* fp32 bits of element i of an array of dtype; the bytes are copied, so any alignment will do. */
static inline uint32_t f8k_load_bits(enum f8k_dtype dtype, const void *src, size_t i)
{
    if (dtype == F8K_F32) {
        uint32_t bits;
        memcpy(&bits, (const char *)src + i * sizeof(bits), sizeof(bits));
        return bits;
    }
    uint16_t half;
    memcpy(&half, (const char *)src + i * sizeof(half), sizeof(half));
    return dtype == F8K_BF16 ? f8k_bf16_bits(half) : f8k_f16_bits(half);
}

/* 2^floor(log2 scale), exactly, for a scale >= 0; 0, Inf and NaN are kept. */
static inline float f8k_floor_power_of_two(float scale)
{
    uint32_t bits = f8k_bits_of(scale);
    if (bits == 0 || f8k_magnitude(bits) >= F8K_F32_INF)
        return scale;
    if (bits >> 23 != 0)
        return f8k_from_bits(bits & F8K_F32_INF);
    while ((bits & (bits - 1)) != 0) /* subnormal: the highest bit is the power */
        bits &= bits - 1;
    return f8k_from_bits(bits);
}

#endif
