/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The number formats on a CUDA device, one value at a time: what kernels/fp8.h is on the host, with
 * the same bits. Included by the kernels only; pure, any thread of any block. Arithmetic that must
 * not be contracted or reordered is written with the _rn intrinsics; the order of |x| is that of
 * the patterns without their sign, because fmaxf would lose a NaN.
 */
#ifndef F8_KERNELS_CUDA_NUMBERS_CUH
#define F8_KERNELS_CUDA_NUMBERS_CUH

#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "kernels/kernels.h"

/*
 * cvt.rn.satfinite exists from sm_89; before it integers do the rounding. Compiled for a CPU, both
 * ways are there to be tested: F8CU_SOFTWARE_FP8 takes the second.
 */
#ifdef __CUDA_ARCH__
#define F8CU_HARDWARE_FP8 (__CUDA_ARCH__ >= 890)
#elif defined(F8CU_SOFTWARE_FP8)
#define F8CU_HARDWARE_FP8 0
#else
#define F8CU_HARDWARE_FP8 1
#endif

constexpr uint32_t F32_INF = 0x7f800000;
constexpr uint32_t F32_NAN = 0x7fc00000;
constexpr uint32_t F16_INF = 0x7c00;
constexpr uint16_t F16_NAN = 0x7e00;
constexpr uint16_t BF16_NAN = 0x7fc0;
constexpr uint32_t FP8_NAN = 0x7f;

template <enum f8k_format format> struct fp8_spec;

template <> struct fp8_spec<F8K_E4M3FN> {
    static constexpr unsigned mantissa_bits = 3;
    static constexpr unsigned bias = 7;
    static constexpr uint32_t max_bits = 0x43e00000; /* 448, the largest finite value */
    static constexpr uint32_t largest = 0x7e;        /* its code */
    static constexpr bool has_infinity = false;
    static constexpr __nv_fp8_interpretation_t nvidia = __NV_E4M3;
};

template <> struct fp8_spec<F8K_E5M2> {
    static constexpr unsigned mantissa_bits = 2;
    static constexpr unsigned bias = 15;
    static constexpr uint32_t max_bits = 0x47600000; /* 57344 */
    static constexpr uint32_t largest = 0x7b;
    static constexpr bool has_infinity = true;
    static constexpr __nv_fp8_interpretation_t nvidia = __NV_E5M2;
};

static __device__ __forceinline__ uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static __device__ __forceinline__ uint32_t magnitude_of(uint32_t bits)
{
    return bits & 0x7fffffff;
}

static __device__ __forceinline__ bool is_nan(uint32_t bits)
{
    return magnitude_of(bits) > F32_INF;
}

/* 2^exponent, a normal number. */
static __device__ __forceinline__ float power_of_two(int exponent)
{
    return __uint_as_float((uint32_t)(exponent + 127) << 23);
}

/* fp32 bits of an fp16 pattern without its sign; a NaN keeps its payload. */
static __device__ __forceinline__ uint32_t widen_f16(uint32_t pattern)
{
    if (pattern >= F16_INF)
        return F32_INF | (pattern & 0x3ff) << 13;
    /* The fields in fp32's places are the value times 2^(15 - 127), subnormals too. */
    return __float_as_uint(__fmul_rn(__uint_as_float(pattern << 13), power_of_two(127 - 15)));
}

/* fp32 bits of the largest |x| from that of the patterns, which fp16 and bf16 keep in 16 bits. */
template <enum f8k_dtype dtype> static __device__ __forceinline__ uint32_t widen(uint32_t pattern)
{
    if (dtype == F8K_F32)
        return pattern;
    return dtype == F8K_BF16 ? pattern << 16 : widen_f16(pattern);
}

static __device__ __forceinline__ uint16_t bf16_of(uint32_t bits)
{
    if (is_nan(bits))
        return BF16_NAN;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static __device__ __forceinline__ uint16_t f16_of(float value)
{
    if (is_nan(__float_as_uint(value)))
        return F16_NAN;
    return __half_as_ushort(__float2half_rn(value));
}

/* The code of a value within the finite range of the format, rounded to nearest even. */
template <enum f8k_format format>
static __device__ __forceinline__ uint32_t fp8_by_integers(float value)
{
    using spec = fp8_spec<format>;
    constexpr unsigned shift = 23 - spec::mantissa_bits;
    uint32_t bits = __float_as_uint(value);
    uint32_t magnitude = magnitude_of(bits), code;
    if (magnitude < (128 - spec::bias) << 23) {
        /* Subnormal: the adder rounds to the unit of this float, which is that of the format. */
        constexpr uint32_t anchor = (151 - spec::bias - spec::mantissa_bits) << 23;
        float sum = __fadd_rn(__uint_as_float(magnitude), __uint_as_float(anchor));
        code = __float_as_uint(sum) - anchor;
    } else {
        uint32_t odd = magnitude >> shift & 1;
        code = (magnitude + (1u << (shift - 1)) - 1 + odd) >> shift;
        code -= (127 - spec::bias) << spec::mantissa_bits;
    }
    return bits >> 31 << 7 | code;
}

/* Two such codes, that of `low` in the low byte. */
template <enum f8k_format format>
static __device__ __forceinline__ uint32_t fp8_pair(float low, float high)
{
#if F8CU_HARDWARE_FP8
    return __nv_cvt_float2_to_fp8x2(
        make_float2(low, high), __NV_SATFINITE, fp8_spec<format>::nvidia);
#else
    return fp8_by_integers<format>(high) << 8 | fp8_by_integers<format>(low);
#endif
}

/* The value of a code; always exact. */
template <enum f8k_format format> static __device__ __forceinline__ float fp8_value(uint32_t code)
{
    using spec = fp8_spec<format>;
    uint32_t pattern = code & 0x7f, sign = code >> 7 << 31;
    if (pattern > spec::largest) {
        bool infinite = spec::has_infinity && pattern == spec::largest + 1;
        return __uint_as_float(infinite ? sign | F32_INF : F32_NAN);
    }
    float scaled = __uint_as_float(sign | pattern << (23 - spec::mantissa_bits));
    return __fmul_rn(scaled, power_of_two(127 - (int)spec::bias));
}

#endif
