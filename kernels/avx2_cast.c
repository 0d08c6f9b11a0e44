/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cast to float8 with AVX2, F16C and FMA. Called through the table of cpu.c, on any thread.
 * Whole blocks of 32 elements are done here, heads and tails by ref.c. The amax of a block, if it
 * is wanted, comes from the source's own bits and does not depend on the way the block is cast.
 *
 * A block is four vectors of fp32. fp32 to float8 rounds by an addition: with p the power of two
 * at or below y and m mantissa bits, the sum y + p * 2^(23 - m) has its last bit worth p * 2^-m, so
 * the processor's own rounding leaves the m + 1 wanted bits at the bottom. Holding p at the
 * smallest normal or above makes subnormals come out by the same step.
 *
 * bf16 has so few mantissas that for one scale a small table gives the same codes with half the
 * work (struct bf16_table); blocks with an element outside its range go the general way.
 */
#include "kernels/fp8.h"
#include "kernels/variants.h"

#if F8K_X86

#include "kernels/avx2.h"

enum {
    BLOCK = 32,           /* elements of one step: 32 bytes of float8 */
    PREFETCH_AHEAD = 512, /* bytes */
    TABLE_WORTH = 4096,   /* elements from which making a table pays */
};

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

/*
 * From bf16 magnitudes in [base, base + span] to codes, for one scale: all have normal results. In
 * such a range one octave is like another, so with z = magnitude - base and `shift` the surplus
 * mantissa bits, code = (z >> shift) + t(mantissa). Steps of the code are more than 8 mantissas
 * apart, so each eight mantissas have at most one, and t is given by 16 pairs of bytes.
 */
struct bf16_table {
    uint16_t base; /* a multiple of 128: mantissa 0 */
    uint16_t span;
    uint8_t first[16]; /* t of the first of each eight mantissas */
    uint8_t last[16];  /* the last mantissa with that t; t is one more above */
};

/* The smallest magnitude of a normal bf16 that times `scale` is `limit` or more; else 0x7f80. */
static uint16_t first_reaching(float scale, float limit)
{
    uint16_t low = 0x80, high = 0x7f80;
    while (low < high) {
        uint16_t middle = (uint16_t)((low + high) / 2);
        if (f8k_from_bits(f8k_bf16_bits(middle)) * scale >= limit)
            high = middle;
        else
            low = (uint16_t)(middle + 1);
    }
    return low;
}

/* False if this scale has no whole octave of normal results, or is no positive number. */
static bool make_bf16_table(struct bf16_table *table, float scale, enum f8k_format format)
{
    struct f8k_spec spec = f8k_spec_of(format);
    unsigned shift = 7 - spec.mantissa_bits;
    unsigned low = first_reaching(scale, f8k_from_bits((128 - spec.bias) << 23));
    unsigned high = first_reaching(scale, f8k_from_bits(spec.max_bits + 1)) - 1u;
    unsigned base = (low + 127) / 128 * 128;
    if (base + 127 > high)
        return false;
    table->base = (uint16_t)base;
    table->span = (uint16_t)(high - base);
    for (unsigned mantissa = 0; mantissa < 128; mantissa++) {
        unsigned eight = mantissa / 8;
        float value = f8k_from_bits(f8k_bf16_bits((uint16_t)(base + mantissa)));
        uint8_t t = (uint8_t)(f8k_encode(value * scale, format) - (mantissa >> shift));
        if (mantissa % 8 == 0)
            table->first[eight] = t;
        if (t == table->first[eight])
            table->last[eight] = (uint8_t)mantissa;
        else if (t != (uint8_t)(table->first[eight] + 1))
            return false;
    }
    return true;
}

/* A table, made ready for vectors. */
struct bf16_lookup {
    __m256i base, span, first, last;
};

AVX2_INLINE struct bf16_lookup load_table(const struct bf16_table *table)
{
    return (struct bf16_lookup){
        .base = _mm256_set1_epi16((short)table->base),
        .span = _mm256_set1_epi16((short)table->span),
        .first = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)table->first)),
        .last = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)table->last)),
    };
}

/* 32 elements by table. False if one is out of its range: nothing is done then. */
AVX2_INLINE bool lookup_block(const char *src, const struct bf16_lookup *table, __m256i flip,
    enum f8k_format format, __m256i *ret)
{
    __m256i magnitude = _mm256_set1_epi16(0x7fff), mantissa = _mm256_set1_epi16(0x7f);
    __m256i a = _mm256_loadu_si256((const void *)src);
    __m256i b = _mm256_loadu_si256((const void *)(src + VECTOR));
    __m256i za = _mm256_sub_epi16(_mm256_and_si256(a, magnitude), table->base);
    __m256i zb = _mm256_sub_epi16(_mm256_and_si256(b, magnitude), table->base);
    __m256i most = _mm256_max_epu16(_mm256_max_epu16(za, zb), table->span);
    if (__builtin_expect(_mm256_movemask_epi8(_mm256_cmpeq_epi16(most, table->span)) != -1, false))
        return false;
    int shift = format == F8K_E4M3FN ? 4 : 5;
    __m256i code = _mm256_packus_epi16(_mm256_srli_epi16(za, shift), _mm256_srli_epi16(zb, shift));
    __m256i m = _mm256_packus_epi16(_mm256_and_si256(za, mantissa), _mm256_and_si256(zb, mantissa));
    __m256i eight = _mm256_and_si256(_mm256_srli_epi16(m, 3), _mm256_set1_epi8(15));
    __m256i above = _mm256_cmpgt_epi8(m, _mm256_shuffle_epi8(table->last, eight));
    code = _mm256_add_epi8(code, _mm256_shuffle_epi8(table->first, eight));
    code = _mm256_sub_epi8(code, above);
    __m256i sign = _mm256_and_si256(_mm256_packs_epi16(a, b), _mm256_set1_epi8((char)0x80));
    code = _mm256_xor_si256(code, _mm256_xor_si256(sign, flip));
    *ret = _mm256_permute4x64_epi64(code, _MM_SHUFFLE(3, 1, 2, 0));
    return true;
}

/* Asks for memory ahead of the read; past the array's end a prefetch is harmless. */
AVX2_INLINE void prefetch_ahead(const char *src, size_t bytes)
{
    for (size_t line = 0; line < bytes; line += 64)
        _mm_prefetch((const char *)((uintptr_t)src + PREFETCH_AHEAD + line), _MM_HINT_NTA);
}

AVX2_INLINE void store_block(uint8_t *dst, __m256i bytes, bool stream)
{
    if (stream)
        _mm256_stream_si256((void *)dst, bytes); /* dst is aligned to a vector then */
    else
        _mm256_storeu_si256((void *)dst, bytes);
}

/* The lanes' amax with one block more, from the source as it is. */
AVX2_INLINE __m256i amax_block(enum f8k_dtype dtype, __m256i amax, const char *src)
{
    bool wide = dtype == F8K_F32;
    UNROLLED
    for (int i = 0; i < 4; i++)
        if (wide || i < 2) /* halves fill two vectors */
            amax = max_magnitude(wide, amax, src + VECTOR * i);
    return amax;
}

/* Ends a loop over blocks: gives what it met to the caller. */
AVX2_INLINE void give_results(const struct f8k_cast *cast, enum f8k_dtype dtype, __m256i amax,
    const struct f8k_counts *met, struct f8k_counts *counts)
{
    if (cast->amax)
        f8k_raise(cast->amax, amax_of_lanes(dtype, amax));
    counts->saturated += met->saturated;
    counts->nan += met->nan;
}

/* Whole blocks of any type. */
AVX2_INLINE void cast_blocks(const struct f8k_cast *cast, enum f8k_dtype dtype,
    enum f8k_format format, bool take_amax, struct f8k_counts *counts)
{
    const struct scaler scaler = make_scaler(cast->scale, format);
    const size_t step = BLOCK * (dtype == F8K_F32 ? 4 : 2);
    const char *src = cast->src;
    struct f8k_counts met = {0};
    __m256i amax = _mm256_setzero_si256();
    for (size_t i = 0; i < cast->count; i += BLOCK, src += step) {
        if (cast->stream)
            prefetch_ahead(src, step);
        if (take_amax)
            amax = amax_block(dtype, amax, src);
        __m256i bytes = cast_block(src, &scaler, dtype, format, &met);
        store_block(cast->dst + i, bytes, cast->stream);
    }
    give_results(cast, dtype, amax, &met, counts);
}

/* Whole blocks of bf16 by a table, each block that it does not cover in the general way. */
AVX2_INLINE void cast_blocks_by_table(const struct f8k_cast *cast, const struct bf16_table *table,
    enum f8k_format format, bool take_amax, struct f8k_counts *counts)
{
    const struct scaler scaler = make_scaler(cast->scale, format);
    const struct bf16_lookup lookup = load_table(table);
    const __m256i flip = _mm256_set1_epi8((char)(f8k_bits_of(cast->scale) >> 31 << 7));
    const size_t step = BLOCK * 2;
    const char *src = cast->src;
    struct f8k_counts met = {0};
    __m256i amax = _mm256_setzero_si256();
    for (size_t i = 0; i < cast->count; i += BLOCK, src += step) {
        __m256i bytes;
        if (cast->stream)
            prefetch_ahead(src, step);
        if (take_amax)
            amax = amax_block(F8K_BF16, amax, src);
        if (!lookup_block(src, &lookup, flip, format, &bytes))
            bytes = cast_block(src, &scaler, F8K_BF16, format, &met);
        store_block(cast->dst + i, bytes, cast->stream);
    }
    give_results(cast, F8K_BF16, amax, &met, counts);
}

/* One loop for each type, format and wish for the amax: the constants fold into it. */
AVX2_INLINE void cast_format(
    const struct f8k_cast *cast, enum f8k_format format, bool take_amax, struct f8k_counts *counts)
{
    struct bf16_table table;
    float scale = f8k_from_bits(f8k_magnitude(f8k_bits_of(cast->scale)));
    switch (cast->dtype) {
    case F8K_F32:
        cast_blocks(cast, F8K_F32, format, take_amax, counts);
        break;
    case F8K_BF16:
        if (cast->count >= TABLE_WORTH && make_bf16_table(&table, scale, format))
            cast_blocks_by_table(cast, &table, format, take_amax, counts);
        else
            cast_blocks(cast, F8K_BF16, format, take_amax, counts);
        break;
    case F8K_F16:
        cast_blocks(cast, F8K_F16, format, take_amax, counts);
        break;
    }
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

AVX2 static void cast_whole(const struct f8k_cast *cast, struct f8k_counts *counts)
{
    bool e4m3fn = cast->format == F8K_E4M3FN;
    if (cast->amax && e4m3fn)
        cast_format(cast, F8K_E4M3FN, true, counts);
    else if (cast->amax)
        cast_format(cast, F8K_E5M2, true, counts);
    else if (e4m3fn)
        cast_format(cast, F8K_E4M3FN, false, counts);
    else
        cast_format(cast, F8K_E5M2, false, counts);
}

AVX2 void f8k_avx2_cast(const struct f8k_cast *cast, struct f8k_counts *counts)
{
    if (cast->count == 0) /* the pointers may be NULL */
        return;
    /* Streaming stores need alignment; a whole line to begin with fills write buffers best. */
    size_t head = cast->stream ? -(uintptr_t)cast->dst % 64 : 0;
    if (head > cast->count)
        head = cast->count;
    size_t whole = (cast->count - head) / BLOCK * BLOCK;
    size_t tail = head + whole;
    struct f8k_cast part = cast_part(cast, 0, head);
    f8k_ref_cast(&part, counts);
    part = cast_part(cast, head, whole);
    cast_whole(&part, counts);
    part = cast_part(cast, tail, cast->count - tail);
    f8k_ref_cast(&part, counts);
    if (cast->stream)
        _mm_sfence(); /* streaming stores are visible only after a fence */
}

#endif
