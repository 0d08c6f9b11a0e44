/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the AVX2 kernels share: the attributes of their functions, and the amax of whole vectors,
 * which is taken alone (avx2.c) or beside a cast (avx2_cast.c). Private to avx2*.c, which include
 * it on x86 only; pure, any thread.
 */
#ifndef F8_KERNELS_AVX2_H
#define F8_KERNELS_AVX2_H

#include "kernels/variants.h"

#include <immintrin.h>

#define AVX2        __attribute__((target("avx2,f16c,fma")))
#define AVX2_INLINE static inline __attribute__((always_inline, target("avx2,f16c,fma")))

/* Before a loop over a few vectors: at -O2 gcc would leave it a loop through memory, four times
 * slower. */
#define UNROLLED _Pragma("GCC unroll 8")

enum {
    VECTOR = 32, /* bytes */
};

/*
 * One step of amax: an unsigned maximum of patterns without their sign, so NaN sorts above Inf.
 * The lanes are elements of the source: 32 bits for fp32 (`wide`), 16 for the halves.
 */
AVX2_INLINE __m256i max_magnitude(bool wide, __m256i amax, const void *src)
{
    __m256i x = _mm256_loadu_si256(src);
    if (wide)
        return _mm256_max_epi32(amax, _mm256_and_si256(x, _mm256_set1_epi32(0x7fffffff)));
    return _mm256_max_epi16(amax, _mm256_and_si256(x, _mm256_set1_epi16(0x7fff)));
}

/* The lanes' maximum as an amax: lanes are elements, so the reference finishes them. */
AVX2_INLINE uint32_t amax_of_lanes(enum f8k_dtype dtype, __m256i amax)
{
    uint8_t lanes[VECTOR];
    _mm256_storeu_si256((void *)lanes, amax);
    return f8k_ref_amax(dtype, lanes, VECTOR / f8k_dtype_size(dtype));
}

#endif
