/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels with AVX2, F16C and FMA (x86-64-v3: Haswell, Zen and later). Called through the
 * table of cpu.c, on any thread. Whole vectors are done here, heads and tails by ref.c, so nothing
 * outside the arrays is read or written.
 *
 * The cast works on blocks of 32 elements, as four vectors of fp32. fp32 to float8 rounds by an
 * addition: with p the power of two at or below y and m mantissa bits, the sum y + p * 2^(23 - m)
 * has its last bit worth p * 2^-m, so the processor's own rounding leaves the m + 1 wanted bits at
 * the bottom. Holding p at the smallest normal or above makes subnormals come out by the same step.
 */
#include "kernels/fp8.h"
#include "kernels/variants.h"

#if F8K_X86

#include <immintrin.h>

#define AVX2        __attribute__((target("avx2,f16c,fma")))
#define AVX2_INLINE static inline __attribute__((always_inline, target("avx2,f16c,fma")))

/* Before a loop over the vectors of a block: at -O2 gcc would leave it a loop through memory,
 * four times slower. */
#define UNROLLED _Pragma("GCC unroll 4")

enum {
    VECTOR = 32, /* bytes */
    BLOCK = 32,  /* elements of one step of a cast: 32 bytes of float8 */
    PREFETCH_AHEAD = 512,
};

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

/* ---- cast ---- */

/* A scale and a format, made ready for vectors. */
struct scaler {
    __m256 scale;      /* |scale| */
    __m256i max;       /* FMAX */
    __m256 min_normal; /* smallest normal of the format */
    __m256 up;         /* 2^(23 - mantissa bits) */
    __m256i bias;      /* what encode() leaves too much in each byte; with a negative scale its
                          top bit is flipped, which flips the sign of the results */
};

AVX2_INLINE struct scaler make_scaler(float scale, enum f8k_format format)
{
    struct f8k_spec spec = f8k_spec_of(format);
    unsigned up = 23 - spec.mantissa_bits;
    uint32_t bits = f8k_bits_of(scale);
    /* Of exponent e, encode() makes (e + up + 127) << m plus 2^m where (e + bias) << m is right. */
    uint32_t bias = ((up + 127 - spec.bias) << spec.mantissa_bits) + (1u << spec.mantissa_bits);
    return (struct scaler){
        .scale = _mm256_set1_ps(f8k_from_bits(f8k_magnitude(bits))),
        .max = _mm256_set1_epi32((int)spec.max_bits),
        .min_normal = _mm256_set1_ps(f8k_from_bits((128 - spec.bias) << 23)),
        .up = _mm256_set1_ps((float)(1u << up)),
        .bias = _mm256_set1_epi8((char)(bias ^ (bits >> 31 << 7))),
    };
}

/* Four vectors of fp32: one block, in the order in which unpacking left the elements. */
struct block {
    __m256 v[4];
};

AVX2_INLINE struct block load_block(enum f8k_dtype dtype, const char *src)
{
    struct block x;
    if (dtype == F8K_BF16) {
        /* Even and odd elements apart: cheaper than widening, and finish_order() knows. */
        __m256i odd = _mm256_set1_epi32((int)0xffff0000);
        UNROLLED
        for (int i = 0; i < 2; i++) {
            __m256i pair = _mm256_loadu_si256((const void *)(src + VECTOR * i));
            x.v[2 * i] = _mm256_castsi256_ps(_mm256_slli_epi32(pair, 16));
            x.v[2 * i + 1] = _mm256_castsi256_ps(_mm256_and_si256(pair, odd));
        }
        return x;
    }
    UNROLLED
    for (int i = 0; i < 4; i++) {
        if (dtype == F8K_F32)
            x.v[i] = _mm256_loadu_ps((const void *)(src + VECTOR * i));
        else
            x.v[i] = _mm256_cvtph_ps(_mm_loadu_si128((const void *)(src + VECTOR / 2 * i)));
    }
    return x;
}

/* Packs the dwords of four vectors to bytes with signed saturation: keeps the sign in bit 7. */
AVX2_INLINE __m256i pack_signs(const struct block *x)
{
    __m256i ab = _mm256_packs_epi32(_mm256_castps_si256(x->v[0]), _mm256_castps_si256(x->v[1]));
    __m256i cd = _mm256_packs_epi32(_mm256_castps_si256(x->v[2]), _mm256_castps_si256(x->v[3]));
    return _mm256_packs_epi16(ab, cd);
}

/* Packs the low bytes of the dwords of four vectors, in the order of pack_signs(). */
AVX2_INLINE __m256i pack_low_bytes(const __m256i v[4])
{
    __m256i low = _mm256_set1_epi32(0xff);
    __m256i ab = _mm256_packus_epi32(_mm256_and_si256(v[0], low), _mm256_and_si256(v[1], low));
    __m256i cd = _mm256_packus_epi32(_mm256_and_si256(v[2], low), _mm256_and_si256(v[3], low));
    return _mm256_packus_epi16(ab, cd);
}

/* From the order that load_block() and the packs left to the order of memory. */
AVX2_INLINE __m256i finish_order(enum f8k_dtype dtype, __m256i bytes)
{
    if (dtype != F8K_BF16)
        return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    /* Each half has four even, four odd, four even, four odd elements. */
    __m256i zip = _mm256_setr_epi8(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15, 0, 4, 1, 5,
        2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
    return _mm256_permute4x64_epi64(_mm256_shuffle_epi8(bytes, zip), _MM_SHUFFLE(3, 1, 2, 0));
}

/* The float8 code of a magnitude <= FMAX, in the low byte of each dword and scaler.bias too large.
 */
AVX2_INLINE __m256i encode(__m256 y, const struct scaler *scaler, enum f8k_format format)
{
    __m256 exponent = _mm256_castsi256_ps(_mm256_set1_epi32((int)F8K_F32_INF));
    __m256 power = _mm256_and_ps(_mm256_max_ps(y, scaler->min_normal), exponent);
    __m256i sum = _mm256_castps_si256(_mm256_fmadd_ps(power, scaler->up, y)); /* exact product */
    /* The low bits of the sum count from 2^m at `power`; its exponent gives the rest. */
    int up = format == F8K_E4M3FN ? 20 : 21;
    return _mm256_add_epi32(sum, _mm256_srli_epi32(sum, up));
}

/* Whether a lane is above the limit or NaN. The lanes are |y|, but a NaN may have its sign set. */
AVX2_INLINE bool any_above(const struct block *y, __m256i limit)
{
    __m256i ab = _mm256_max_epu32(_mm256_castps_si256(y->v[0]), _mm256_castps_si256(y->v[1]));
    __m256i cd = _mm256_max_epu32(_mm256_castps_si256(y->v[2]), _mm256_castps_si256(y->v[3]));
    __m256i most = _mm256_max_epu32(_mm256_max_epu32(ab, cd), limit);
    return _mm256_movemask_epi8(_mm256_cmpeq_epi32(most, limit)) != -1;
}

/* Clamps, counts, and returns where the NaNs are, as bytes in the order of the packs. */
AVX2_INLINE __m256i clamp_and_count(struct block *y, __m256i limit, struct f8k_counts *counts)
{
    struct block nan;
    UNROLLED
    for (int i = 0; i < 4; i++) {
        __m256 max = _mm256_castsi256_ps(limit);
        nan.v[i] = _mm256_cmp_ps(y->v[i], y->v[i], _CMP_UNORD_Q);
        __m256 above = _mm256_cmp_ps(y->v[i], max, _CMP_GT_OQ);
        counts->nan += (unsigned)__builtin_popcount((unsigned)_mm256_movemask_ps(nan.v[i]));
        counts->saturated += (unsigned)__builtin_popcount((unsigned)_mm256_movemask_ps(above));
        y->v[i] = _mm256_castsi256_ps(_mm256_min_epu32(_mm256_castps_si256(y->v[i]), limit));
    }
    return pack_signs(&nan);
}

/* 32 elements to 32 bytes. */
AVX2_INLINE __m256i cast_block(const char *src, const struct scaler *scaler, enum f8k_dtype dtype,
    enum f8k_format format, struct f8k_counts *counts)
{
    struct block x = load_block(dtype, src), y;
    __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    UNROLLED
    for (int i = 0; i < 4; i++)
        y.v[i] = _mm256_mul_ps(_mm256_and_ps(x.v[i], magnitude), scaler->scale);
    __m256i nan = _mm256_setzero_si256();
    bool above = any_above(&y, scaler->max);
    if (__builtin_expect(above, false))
        nan = clamp_and_count(&y, scaler->max, counts);
    __m256i code[4];
    UNROLLED
    for (int i = 0; i < 4; i++)
        code[i] = encode(y.v[i], scaler, format);
    __m256i sign = _mm256_and_si256(pack_signs(&x), _mm256_set1_epi8((char)0x80));
    __m256i bytes = _mm256_sub_epi8(pack_low_bytes(code), scaler->bias);
    bytes = _mm256_xor_si256(bytes, sign);
    if (__builtin_expect(above, false))
        bytes = _mm256_blendv_epi8(bytes, _mm256_set1_epi8(F8K_FP8_NAN), nan);
    return finish_order(dtype, bytes);
}

/* Asks for memory ahead of the read; past the array's end a prefetch is harmless. */
AVX2_INLINE void prefetch_ahead(const char *src, size_t bytes)
{
    for (size_t line = 0; line < bytes; line += 64)
        _mm_prefetch((const char *)((uintptr_t)src + PREFETCH_AHEAD + line), _MM_HINT_NTA);
}

/* Whole blocks; with `stream` past the cache, and dst is aligned to a vector then. */
AVX2_INLINE void cast_blocks(const struct f8k_cast *cast, size_t blocks, enum f8k_dtype dtype,
    enum f8k_format format, bool stream, struct f8k_counts *counts)
{
    const struct scaler scaler = make_scaler(cast->scale, format);
    size_t step = BLOCK * (dtype == F8K_F32 ? 4 : 2);
    const char *src = cast->src;
    uint8_t *dst = cast->dst;
    struct f8k_counts met = {0};
    for (size_t i = 0; i < blocks; i++, src += step, dst += BLOCK) {
        if (stream)
            prefetch_ahead(src, step);
        __m256i bytes = cast_block(src, &scaler, dtype, format, &met);
        if (stream)
            _mm256_stream_si256((void *)dst, bytes);
        else
            _mm256_storeu_si256((void *)dst, bytes);
    }
    counts->saturated += met.saturated;
    counts->nan += met.nan;
}

/* One loop for each type and format: the constants fold into it. */
AVX2_INLINE void cast_dtype(
    const struct f8k_cast *cast, size_t blocks, enum f8k_dtype dtype, struct f8k_counts *counts)
{
    if (cast->format == F8K_E4M3FN && cast->stream)
        cast_blocks(cast, blocks, dtype, F8K_E4M3FN, true, counts);
    else if (cast->format == F8K_E4M3FN)
        cast_blocks(cast, blocks, dtype, F8K_E4M3FN, false, counts);
    else if (cast->stream)
        cast_blocks(cast, blocks, dtype, F8K_E5M2, true, counts);
    else
        cast_blocks(cast, blocks, dtype, F8K_E5M2, false, counts);
}

/* The part of a cast from element `first` on. */
static struct f8k_cast cast_part(const struct f8k_cast *cast, size_t first, size_t count)
{
    struct f8k_cast part = *cast;
    part.src = (const char *)cast->src + first * f8k_dtype_size(cast->dtype);
    part.dst = cast->dst + first;
    part.count = count;
    return part;
}

AVX2 static void cast_avx2(const struct f8k_cast *cast, struct f8k_counts *counts)
{
    if (cast->count == 0) /* the pointers may be NULL */
        return;
    /* Streaming stores need alignment; a whole line to begin with fills write buffers best. */
    size_t head = cast->stream ? -(uintptr_t)cast->dst % 64 : 0;
    if (head > cast->count)
        head = cast->count;
    size_t blocks = (cast->count - head) / BLOCK;
    size_t tail = head + blocks * BLOCK;
    struct f8k_cast part = cast_part(cast, 0, head);
    f8k_ref_cast(&part, counts);
    part = cast_part(cast, head, blocks * BLOCK);
    switch (cast->dtype) {
    case F8K_F32:
        cast_dtype(&part, blocks, F8K_F32, counts);
        break;
    case F8K_BF16:
        cast_dtype(&part, blocks, F8K_BF16, counts);
        break;
    case F8K_F16:
        cast_dtype(&part, blocks, F8K_F16, counts);
        break;
    }
    part = cast_part(cast, tail, cast->count - tail);
    f8k_ref_cast(&part, counts);
    if (cast->stream)
        _mm_sfence(); /* streaming stores are visible only after a fence */
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
    ops->cast = cast_avx2;
    ops->dequantise = dequantise_avx2;
    ops->to_bf16 = to_bf16_avx2;
}

#endif
