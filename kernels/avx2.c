/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels with AVX2, F16C and FMA (x86-64-v3: Haswell, Zen and later), but for the cast, which
 * is in avx2_cast.c. Called through the table of cpu.c, on any thread. Whole vectors are done here,
 * heads and tails by ref.c, so nothing outside the arrays is read or written.
 */
#include "kernels/fp8.h"
#include "kernels/variants.h"

#if F8K_X86

#include "kernels/avx2.h"

enum {
    TABLE_WORTH = 1024, /* elements from which making a table pays */
};

/* ---- amax ---- */

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
    __m256i amax = dtype == F8K_F32 ? amax_vectors(true, bytes, count / per_vector)
                                    : amax_vectors(false, bytes, count / per_vector);
    uint32_t whole = amax_of_lanes(dtype, amax);
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

/*
 * The results of one scale >= 0 for the 128 magnitudes of a format, to 2 bytes each: results of
 * 16h to 16h + 15 in row h, low and high bytes apart, as shuffles want them. NaN alone has its top
 * bit set, which tells that it takes no sign. A code has few values and a division costs more than
 * many shuffles.
 */
struct half_table {
    uint8_t low[8][16];
    uint8_t high[8][16];
};

AVX2_INLINE void make_half_table(
    struct half_table *table, enum f8k_format format, enum f8k_dtype dtype, float scale)
{
    uint16_t nan = dtype == F8K_BF16 ? F8K_BF16_NAN : F8K_F16_NAN;
    uint8_t codes[128];
    uint16_t results[128];
    for (unsigned i = 0; i < 128; i++)
        codes[i] = (uint8_t)i;
    dequantise_vectors(format, codes, dtype, (char *)results, 128, scale);
    for (unsigned i = 0; i < 128; i++) {
        unsigned mark = results[i] == nan ? 0x80 : 0;
        table->low[i / 16][i % 16] = (uint8_t)results[i];
        table->high[i / 16][i % 16] = (uint8_t)(results[i] >> 8 | mark);
    }
}

/* Bytes of the rows by codes: bits 0 to 3 choose in a row, bits 4 to 6 choose the row. */
AVX2_INLINE __m256i look_up(const uint8_t rows[8][16], __m256i codes)
{
    __m256i column = _mm256_and_si256(codes, _mm256_set1_epi8(15)), t[8];
    UNROLLED
    for (int i = 0; i < 8; i++) {
        __m256i row = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)rows[i]));
        t[i] = _mm256_shuffle_epi8(row, column);
    }
    /* A blend looks at bit 7 only. */
    UNROLLED
    for (int i = 0; i < 4; i++)
        t[i] = _mm256_blendv_epi8(t[2 * i], t[2 * i + 1], _mm256_slli_epi16(codes, 3));
    UNROLLED
    for (int i = 0; i < 2; i++)
        t[i] = _mm256_blendv_epi8(t[2 * i], t[2 * i + 1], _mm256_slli_epi16(codes, 2));
    return _mm256_blendv_epi8(t[0], t[1], _mm256_slli_epi16(codes, 1));
}

/* 32 codes to halves. `flip` has the top bit of each byte set if the scale is negative. */
AVX2_INLINE void dequantise_block(
    const struct half_table *table, __m256i flip, const uint8_t *src, char *dst)
{
    __m256i codes = _mm256_loadu_si256((const void *)src);
    codes = _mm256_permute4x64_epi64(codes, _MM_SHUFFLE(3, 1, 2, 0)); /* unpacking undoes it */
    __m256i low = look_up(table->low, codes), high = look_up(table->high, codes);
    /* The sign goes to what has none; of a NaN the mark is taken off. */
    __m256i sign = _mm256_or_si256(_mm256_xor_si256(codes, flip), high);
    high = _mm256_xor_si256(high, _mm256_and_si256(sign, _mm256_set1_epi8((char)0x80)));
    _mm256_storeu_si256((void *)dst, _mm256_unpacklo_epi8(low, high));
    _mm256_storeu_si256((void *)(dst + VECTOR), _mm256_unpackhi_epi8(low, high));
}

/* As dequantise_vectors, to halves, for long arrays. */
AVX2_INLINE size_t dequantise_by_table(enum f8k_format format, const uint8_t *src,
    enum f8k_dtype dtype, char *dst, size_t count, float scale)
{
    struct half_table table;
    uint32_t bits = f8k_bits_of(scale);
    __m256i flip = _mm256_set1_epi8((char)(bits >> 31 << 7));
    size_t i = 0;
    if (count < TABLE_WORTH)
        return dequantise_vectors(format, src, dtype, dst, count, scale);
    make_half_table(&table, format, dtype, f8k_from_bits(f8k_magnitude(bits)));
    for (; i + VECTOR <= count; i += VECTOR)
        dequantise_block(&table, flip, src + i, dst + 2 * i);
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
        done = e4m3fn ? dequantise_by_table(F8K_E4M3FN, src, F8K_BF16, dst, count, scale)
                      : dequantise_by_table(F8K_E5M2, src, F8K_BF16, dst, count, scale);
        break;
    case F8K_F16:
        done = e4m3fn ? dequantise_by_table(F8K_E4M3FN, src, F8K_F16, dst, count, scale)
                      : dequantise_by_table(F8K_E5M2, src, F8K_F16, dst, count, scale);
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
