/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels with AVX2, F16C and FMA (x86-64-v3: Haswell, Zen and later), but for the cast, which
 * is in avx2_cast.c. Called through the table of cpu.c, on any thread. Whole vectors are done here,
 * heads and tails by ref.c, so nothing outside the arrays is read or written.
 */
#include "kernels/fp8.h"
#include "kernels/variants.h"

#if F8K_X86

#include <immintrin.h>

#define AVX2        __attribute__((target("avx2,f16c,fma")))
#define AVX2_INLINE static inline __attribute__((always_inline, target("avx2,f16c,fma")))

#define VECTOR 32 /* bytes */

/* ---- amax: an unsigned maximum of patterns without their sign; NaN sorts above Inf ---- */

/* One step: 32-bit lanes for fp32, 16-bit lanes for the halves. */
AVX2_INLINE __m256i max_magnitude(bool wide, __m256i amax, const void *src)
{
    __m256i x = _mm256_loadu_si256(src);
    if (wide)
        return _mm256_max_epi32(amax, _mm256_and_si256(x, _mm256_set1_epi32(0x7fffffff)));
    return _mm256_max_epi16(amax, _mm256_and_si256(x, _mm256_set1_epi16(0x7fff)));
}

AVX2_INLINE __m256i max_lanes(bool wide, __m256i a, __m256i b)
{
    return wide ? _mm256_max_epi32(a, b) : _mm256_max_epi16(a, b);
}

/* The lanes' maximum over `vectors` whole vectors. Four chains hide the latency of max. */
AVX2_INLINE __m256i amax_vectors(bool wide, const char *src, size_t vectors)
{
    __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
    size_t i = 0;
    for (; i + 4 <= vectors; i += 4, src += 4 * VECTOR) {
        a = max_magnitude(wide, a, src);
        b = max_magnitude(wide, b, src + VECTOR);
        c = max_magnitude(wide, c, src + 2 * VECTOR);
        d = max_magnitude(wide, d, src + 3 * VECTOR);
    }
    for (; i < vectors; i++, src += VECTOR)
        a = max_magnitude(wide, a, src);
    return max_lanes(wide, max_lanes(wide, a, b), max_lanes(wide, c, d));
}

AVX2 static uint32_t amax_avx2(enum f8k_dtype dtype, const void *src, size_t count)
{
    if (count == 0) /* src may be NULL */
        return 0;
    size_t per_vector = VECTOR / f8k_dtype_size(dtype);
    size_t done = count / per_vector * per_vector;
    const char *bytes = src;
    /* Lanes are elements of the source type again: the reference finishes them and the tail. */
    uint8_t lanes[VECTOR];
    __m256i amax = dtype == F8K_F32 ? amax_vectors(true, bytes, count / per_vector)
                                    : amax_vectors(false, bytes, count / per_vector);
    _mm256_storeu_si256((void *)lanes, amax);
    uint32_t whole = f8k_ref_amax(dtype, lanes, per_vector);
    uint32_t tail = f8k_ref_amax(dtype, bytes + done * f8k_dtype_size(dtype), count - done);
    return whole > tail ? whole : tail;
}

/* ---- dequantise and to_bf16: eight elements a step ---- */

/* Eight codes to fp32, by way of fp16: e5m2 is its upper byte, e4m3fn has the exponent off by 8. */
AVX2_INLINE __m256 decode(enum f8k_format format, const uint8_t *src)
{
    __m128i codes = _mm_cvtepu8_epi16(_mm_loadl_epi64((const void *)src));
    if (format == F8K_E5M2)
        return _mm256_cvtph_ps(_mm_slli_epi16(codes, 8));
    __m128i magnitude = _mm_and_si128(codes, _mm_set1_epi16(0x7f));
    __m128i sign = _mm_slli_epi16(_mm_xor_si128(codes, magnitude), 8);
    __m128i half = _mm_or_si128(_mm_slli_epi16(magnitude, 7), sign);
    __m128i nan = _mm_cmpeq_epi16(magnitude, _mm_set1_epi16(0x7f));
    half = _mm_or_si128(half, _mm_and_si128(nan, _mm_set1_epi16((short)F8K_F16_NAN)));
    return _mm256_mul_ps(_mm256_cvtph_ps(half), _mm256_set1_ps(256.0f));
}

/* fp32 to bf16 in the low half of each dword. */
AVX2_INLINE __m256i round_to_bf16(__m256 value)
{
    __m256i bits = _mm256_castps_si256(value);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    bits = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
    bits = _mm256_blendv_epi8(bits, _mm256_set1_epi32((int)F8K_F32_NAN), nan);
    return _mm256_srli_epi32(bits, 16);
}

AVX2_INLINE void store_bf16(void *dst, __m256 value)
{
    __m256i words = round_to_bf16(value);
    _mm_storeu_si128(
        dst, _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
}

AVX2_INLINE void store_eight(enum f8k_dtype dtype, char *dst, __m256 value)
{
    if (dtype == F8K_BF16) {
        store_bf16(dst, value);
        return;
    }
    __m256 nan = _mm256_cmp_ps(value, value, _CMP_UNORD_Q);
    value = _mm256_blendv_ps(value, _mm256_set1_ps(f8k_from_bits(F8K_F32_NAN)), nan);
    if (dtype == F8K_F32)
        _mm256_storeu_ps((void *)dst, value);
    else
        _mm_storeu_si128((void *)dst, _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
}

/* Returns how many elements it did. */
AVX2_INLINE size_t dequantise_vectors(enum f8k_format format, const uint8_t *src,
    enum f8k_dtype dtype, char *dst, size_t count, float scale)
{
    size_t size = dtype == F8K_F32 ? 4 : 2, i = 0;
    for (; i + 8 <= count; i += 8) {
        __m256 value = _mm256_div_ps(decode(format, src + i), _mm256_set1_ps(scale));
        store_eight(dtype, dst + i * size, value);
    }
    return i;
}

AVX2 static void dequantise_avx2(enum f8k_format format, const uint8_t *src, enum f8k_dtype dtype,
    void *dst, size_t count, float scale)
{
    if (count == 0)
        return;
    size_t done = 0;
    bool e4m3fn = format == F8K_E4M3FN;
    switch (dtype) {
    case F8K_F32:
        done = e4m3fn ? dequantise_vectors(F8K_E4M3FN, src, F8K_F32, dst, count, scale)
                      : dequantise_vectors(F8K_E5M2, src, F8K_F32, dst, count, scale);
        break;
    case F8K_BF16:
        done = e4m3fn ? dequantise_vectors(F8K_E4M3FN, src, F8K_BF16, dst, count, scale)
                      : dequantise_vectors(F8K_E5M2, src, F8K_BF16, dst, count, scale);
        break;
    case F8K_F16:
        done = e4m3fn ? dequantise_vectors(F8K_E4M3FN, src, F8K_F16, dst, count, scale)
                      : dequantise_vectors(F8K_E5M2, src, F8K_F16, dst, count, scale);
        break;
    }
    char *tail = (char *)dst + done * f8k_dtype_size(dtype);
    f8k_ref_dequantise(format, src + done, dtype, tail, count - done, scale);
}

AVX2 static void to_bf16_avx2(const float *src, uint16_t *dst, size_t count)
{
    if (count == 0)
        return;
    size_t i = 0;
    for (; i + 8 <= count; i += 8)
        store_bf16(dst + i, _mm256_loadu_ps(src + i));
    f8k_ref_to_bf16(src + i, dst + i, count - i);
}

void f8k_avx2_init(struct f8k_ops *ops)
{
    ops->name = "avx2";
    ops->amax = amax_avx2;
    ops->cast = f8k_avx2_cast;
    ops->dequantise = dequantise_avx2;
    ops->to_bf16 = to_bf16_avx2;
}

#endif
