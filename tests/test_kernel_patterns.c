/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All 65,536 patterns of bf16 and fp16, and fp32 patterns over every exponent, through hundreds of
 * scales. ref is held to an oracle that shares nothing with kernels/ (the nearest of all values of
 * the format, found by search), and every other variant to ref.
 */
#include "tests/kernel_support.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <math.h>
#include <string.h>

/* Under sanitizers every eighth scale will do: they look for other faults, and take long. */
#ifndef SCALE_STEP
#define SCALE_STEP 1
#endif

static uint8_t patterns[PATTERNS * 4];
static uint8_t got[PATTERNS], want[PATTERNS];

/* The finite values >= 0 of a format: the code is the index. */
struct oracle {
    double values[128];
    int largest;
    int mantissa_bits;
};

static struct oracle make_oracle(enum f8k_format format)
{
    bool e4m3fn = format == F8K_E4M3FN;
    struct oracle oracle = {.largest = e4m3fn ? 126 : 123, .mantissa_bits = e4m3fn ? 3 : 2};
    int steps = 1 << oracle.mantissa_bits, bias = e4m3fn ? 7 : 15;
    for (int code = 0; code <= oracle.largest; code++) {
        int exponent = code / steps, mantissa = code % steps;
        oracle.values[code] = exponent ? ldexp(1 + (double)mantissa / steps, exponent - bias)
                                       : ldexp((double)mantissa / steps, 1 - bias);
    }
    return oracle;
}

static uint8_t oracle_encode(const struct oracle *oracle, float value)
{
    if (isnan(value))
        return 0x7f;
    uint8_t sign = signbit(value) ? 0x80 : 0;
    double magnitude = fabs((double)value);
    int low = 0, high = oracle->largest;
    if (magnitude >= oracle->values[high])
        return (uint8_t)(sign | high);
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (oracle->values[middle] <= magnitude)
            low = middle;
        else
            high = middle;
    }
    double below = magnitude - oracle->values[low], above = oracle->values[high] - magnitude;
    bool up = above < below || (above == below && low % 2 == 1);
    return (uint8_t)(sign | (up ? high : low));
}

/* The value of an element, by arithmetic on the definition of its type. */
static float element_value(enum f8k_dtype dtype, size_t i)
{
    float value;
    uint32_t bits = 0;
    if (dtype == F8K_F32) {
        memcpy(&value, patterns + 4 * i, 4);
        return value;
    }
    memcpy(&bits, patterns + 2 * i, 2);
    if (dtype == F8K_BF16) {
        bits <<= 16;
        memcpy(&value, &bits, 4);
        return value;
    }
    int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    if (exponent == 31)
        value = mantissa ? NAN : INFINITY;
    else
        value = exponent ? ldexpf((float)(1024 + mantissa), exponent - 25)
                         : ldexpf((float)mantissa, -24);
    return bits >> 15 ? -value : value;
}

static void cast_patterns(const struct f8k_ops *ops, enum f8k_dtype dtype, enum f8k_format format,
    float scale, uint8_t *dst, struct f8k_counts *counts, uint32_t *amax)
{
    struct f8k_cast cast = {.src = patterns,
        .dst = dst,
        .count = PATTERNS,
        .scale = scale,
        .dtype = dtype,
        .format = format,
        .amax = amax};
    ops->cast(&cast, counts);
}

static void check_against_oracle(enum f8k_dtype dtype, enum f8k_format format, float scale)
{
    struct oracle oracle = make_oracle(format);
    struct f8k_counts counts = {0}, expected = {0};
    cast_patterns(f8k_variant(0), dtype, format, scale, got, &counts, NULL);
    for (size_t i = 0; i < PATTERNS; i++) {
        float scaled = element_value(dtype, i) * scale;
        uint8_t code = oracle_encode(&oracle, scaled);
        expected.nan += isnan(scaled);
        expected.saturated += fabs((double)scaled) > oracle.values[oracle.largest];
        if (got[i] != code)
            ck_abort_msg("%s pattern %zu (%a) times %a in %s: ref has %02x, nearest is %02x",
                f8k_dtype_name(dtype), i, (double)element_value(dtype, i), (double)scale,
                f8k_format_name(format), got[i], code);
    }
    ck_assert_uint_eq(counts.nan, expected.nan);
    ck_assert_uint_eq(counts.saturated, expected.saturated);
}

START_TEST(ref_gives_the_nearest_value)
{
    enum f8k_dtype dtype = all_dtypes[_i];
    fill_patterns(dtype, patterns);
    for (size_t s = 0; s < SCALES; s += 7 * SCALE_STEP)
        for (size_t f = 0; f < 2; f++)
            check_against_oracle(dtype, all_formats[f], pattern_scale(s));
    check_against_oracle(dtype, F8K_E4M3FN, 1);
    check_against_oracle(dtype, F8K_E5M2, 1);
}
END_TEST

/* Casts with a variant and compares with what ref left in `want` and counted. */
static void check_variant(const struct f8k_ops *ops, enum f8k_dtype dtype, enum f8k_format format,
    float scale, const struct f8k_counts *want_counts, uint32_t *amax)
{
    struct f8k_counts counts = {0};
    cast_patterns(ops, dtype, format, scale, got, &counts, amax);
    for (size_t i = 0; i < PATTERNS; i++)
        if (got[i] != want[i])
            ck_abort_msg("%s pattern %zu times %a in %s: %s%s has %02x, ref %02x",
                f8k_dtype_name(dtype), i, (double)scale, f8k_format_name(format), ops->name,
                amax ? " with amax" : "", got[i], want[i]);
    ck_assert_uint_eq(counts.nan, want_counts->nan);
    ck_assert_uint_eq(counts.saturated, want_counts->saturated);
}

static void check_against_ref(enum f8k_dtype dtype, enum f8k_format format, float scale)
{
    struct f8k_counts counts = {0};
    uint32_t want_amax = f8k_variant(0)->amax(dtype, patterns, PATTERNS);
    cast_patterns(f8k_variant(0), dtype, format, scale, want, &counts, NULL);
    for (size_t v = 1; f8k_variant(v); v++) {
        uint32_t amax = 0;
        check_variant(f8k_variant(v), dtype, format, scale, &counts, NULL);
        check_variant(f8k_variant(v), dtype, format, scale, &counts, &amax);
        ck_assert_uint_eq(amax, want_amax);
    }
}

START_TEST(variants_equal_ref)
{
    enum f8k_dtype dtype = all_dtypes[_i];
    fill_patterns(dtype, patterns);
    for (size_t s = 0; s < SCALES; s += SCALE_STEP)
        for (size_t f = 0; f < 2; f++)
            check_against_ref(dtype, all_formats[f], pattern_scale(s));
}
END_TEST

/* Each finite value of a format is a fixed point of dequantise and cast, in every source type. */
START_TEST(codes_survive_a_round_trip)
{
    const struct f8k_ops *ops = f8k_variant((size_t)_i);
    for (size_t d = 0; d < 3; d++)
        for (size_t f = 0; f < 2; f++) {
            uint8_t codes[256], back[256];
            struct f8k_counts counts = {0};
            struct f8k_cast cast = {.src = patterns,
                .dst = back,
                .count = 256,
                .scale = 1,
                .dtype = all_dtypes[d],
                .format = all_formats[f]};
            for (int i = 0; i < 256; i++)
                codes[i] = (uint8_t)i;
            ops->dequantise(all_formats[f], codes, all_dtypes[d], patterns, 256, 1);
            ops->cast(&cast, &counts);
            int largest = all_formats[f] == F8K_E4M3FN ? 0x7e : 0x7b;
            for (int i = 0; i < 256; i++)
                if ((i & 0x7f) <= largest)
                    ck_assert_uint_eq(back[i], codes[i]);
            ck_assert_uint_eq(counts.nan, all_formats[f] == F8K_E4M3FN ? 2 : 6);
            ck_assert_uint_eq(counts.saturated, all_formats[f] == F8K_E4M3FN ? 0 : 2);
        }
}
END_TEST

static uint32_t crc32_of(const uint8_t *bytes, size_t count)
{
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < count; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (crc & 1 ? UINT32_C(0xedb88320) : 0);
    }
    return ~crc;
}

/* Checksums of a cast by the reference implementation (torchao on CPU), recorded once. */
static const struct {
    enum f8k_dtype dtype;
    enum f8k_format format;
    uint32_t scale, crc;
} recorded[] = {
    {F8K_F32, F8K_E4M3FN, 0x44600000, 0x2da34575},
    {F8K_F32, F8K_E5M2, 0x47e00000, 0x8679c14c},
    {F8K_BF16, F8K_E4M3FN, 0x44600000, 0x8ba294da},
    {F8K_BF16, F8K_E5M2, 0x47e00000, 0x000966a0},
    {F8K_F16, F8K_E4M3FN, 0x44600000, 0x199b7afa},
    {F8K_F16, F8K_E5M2, 0x477fe000, 0xa827bbcb},
};

/* A value in [-0.5, 0.5) to a 16-bit type: the nearest of the type's 65,536 by hand. */
static uint16_t to_half(float value, enum f8k_dtype dtype)
{
    int exponent;
    frexp(value, &exponent); /* |value| in [2^(exponent - 1), 2^exponent) */
    int least = dtype == F8K_F16 ? -13 : -125, digits = dtype == F8K_F16 ? 11 : 8;
    int shift = digits - (exponent < least ? least : exponent);
    double units = nearbyint(ldexp(fabs((double)value), shift));
    uint32_t base = exponent < least ? 0 : (uint32_t)(exponent - least) << (digits - 1);
    return (uint16_t)((signbit(value) ? 0x8000 : 0) | (base + (uint32_t)units));
}

START_TEST(recorded_checksums)
{
    const struct f8k_ops *ops = f8k_variant((size_t)_i);
    static const uint8_t first[8] = {0xfe, 0x6d, 0xf7, 0x7a, 0xdc, 0xfb, 0x74, 0xf2};
    for (size_t c = 0; c < sizeof(recorded) / sizeof(recorded[0]); c++) {
        enum f8k_dtype dtype = recorded[c].dtype;
        for (uint32_t i = 0; i < 4096; i++) {
            float value = (float)((i * UINT32_C(2654435761)) >> 8) * 0x1p-24f - 0.5f;
            uint32_t bits;
            memcpy(&bits, &value, 4);
            set_element(dtype, patterns, i, dtype == F8K_F32 ? bits : to_half(value, dtype));
        }
        uint32_t amax = ops->amax(dtype, patterns, 4096), scale_bits;
        struct f8k_counts counts = {0};
        struct f8k_cast cast = {.src = patterns,
            .dst = got,
            .count = 4096,
            .scale = f8k_scale(amax, dtype, recorded[c].format, F8K_SCALE_DIRECT, false),
            .dtype = dtype,
            .format = recorded[c].format};
        memcpy(&scale_bits, &cast.scale, 4);
        ops->cast(&cast, &counts);
        ck_assert_uint_eq(scale_bits, recorded[c].scale);
        ck_assert_uint_eq(crc32_of(got, 4096), recorded[c].crc);
        ck_assert_uint_eq(counts.saturated + counts.nan, 0);
        if (c == 0)
            ck_assert_mem_eq(got, first, sizeof(first));
    }
}
END_TEST

static Suite *patterns_suite(void)
{
    int variants = count_variants();
    Suite *suite = suite_create("kernel patterns");
    TCase *tcase = tcase_create("patterns");
    tcase_set_timeout(tcase, 600);
    tcase_add_loop_test(tcase, ref_gives_the_nearest_value, 0, 3);
    tcase_add_loop_test(tcase, variants_equal_ref, 0, 3);
    tcase_add_loop_test(tcase, codes_survive_a_round_trip, 0, variants);
    tcase_add_loop_test(tcase, recorded_checksums, 0, variants);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return run_cases(patterns_suite());
}
