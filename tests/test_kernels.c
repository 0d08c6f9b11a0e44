/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract suite of the kernels, run over every variant that this CPU has: whatever the size,
 * the alignment and the values, the same bits as ref, and not one byte beside the arrays touched
 * (guard pages on both sides). test_kernel_patterns.c holds ref itself to account.
 */
#include "kernels/fp8.h"
#include "tests/kernel_support.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <stdlib.h>

#define MAX_COUNT   400
#define LARGE_COUNT 6000 /* variants may do longer arrays in another way */
#define CANARY      0xa5

static struct guarded source, target, expected;

static void open_for(size_t count)
{
    source = guarded_open(4 * count + 64);
    target = guarded_open(4 * count + 64);
    expected = guarded_open(4 * count + 64);
}

static void open_buffers(void)
{
    open_for(MAX_COUNT);
}

static void open_large_buffers(void)
{
    open_for(LARGE_COUNT);
}

static void close_buffers(void)
{
    guarded_close(&source);
    guarded_close(&target);
    guarded_close(&expected);
}

/* Where to put `bytes`: against either guard, `offset` bytes away from it. */
static void *place(const struct guarded *memory, size_t bytes, bool at_end, size_t offset)
{
    return at_end ? guarded_at_end(memory, bytes, offset) : memory->low + offset;
}

static void fill_random(struct rng *rng, enum f8k_dtype dtype, void *dst, size_t count)
{
    for (size_t i = 0; i < count; i++)
        set_element(dtype, dst, i, random_element(rng, dtype));
}

/* Whether all are CANARY: the first is, and each equals the next. Fast under sanitizers too. */
static bool untouched(const uint8_t *bytes, size_t count)
{
    return count == 0 || (*bytes == CANARY && memcmp(bytes, bytes + 1, count - 1) == 0);
}

/* Whether the bytes of target outside [dst, dst + bytes) are as they were. Check's own assertions
 * cost a write each, so loops over bytes ask first and assert once. */
static bool surroundings_intact(const void *dst, size_t bytes)
{
    const uint8_t *begin = bytes ? dst : target.low, *end = begin + bytes;
    return untouched(target.low, (size_t)(begin - target.low)) &&
           untouched(end, (size_t)(target.low + target.size - end));
}

/* One element after the other, apart from all variants. */
static uint32_t plain_amax(enum f8k_dtype dtype, const void *src, size_t count)
{
    uint32_t amax = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t bits = f8k_load_bits(dtype, src, i) & 0x7fffffff;
        amax = bits > amax ? bits : amax;
    }
    return amax;
}

/* The same cast with the amax taken: same bytes and counts, and `amax` only ever rises. */
static void check_fused(
    const struct f8k_ops *ops, struct f8k_cast cast, const struct f8k_counts *want)
{
    uint32_t amax = 0, alone = ops->amax(cast.dtype, cast.src, cast.count);
    struct f8k_counts counts = {.saturated = 7, .nan = 9};
    cast.amax = &amax;
    memset(target.low, CANARY, target.size);
    ops->cast(&cast, &counts);
    if (amax != alone || amax != plain_amax(cast.dtype, cast.src, cast.count))
        ck_abort_msg("%s %s, %zu elements, scale %a (stream %d): amax %08x, alone it is %08x",
            ops->name, f8k_dtype_name(cast.dtype), cast.count, (double)cast.scale, cast.stream,
            amax, alone);
    if (cast.count && memcmp(cast.dst, expected.low, cast.count) != 0)
        ck_abort_msg("%s %s to %s, scale %a, %zu elements (stream %d): other bytes with amax",
            ops->name, f8k_dtype_name(cast.dtype), f8k_format_name(cast.format), (double)cast.scale,
            cast.count, cast.stream);
    ck_assert_uint_eq(counts.saturated, want->saturated);
    ck_assert_uint_eq(counts.nan, want->nan);
    ck_assert(surroundings_intact(cast.dst, cast.count));
}

/* Casts with a variant and with ref and compares bytes, counts, and what lies around dst; then
 * once more with the amax. */
static void check_cast(const struct f8k_ops *ops, const struct f8k_cast *cast)
{
    struct f8k_cast ref = *cast;
    struct f8k_counts counts = {.saturated = 7, .nan = 9}, ref_counts = counts;
    ref.dst = expected.low;
    memset(target.low, CANARY, target.size);
    f8k_variant(0)->cast(&ref, &ref_counts);
    ops->cast(cast, &counts);
    for (size_t i = 0; i < cast->count; i++)
        if (cast->dst[i] != ref.dst[i])
            ck_abort_msg(
                "%s %s to %s, scale %a, element %zu of %zu (stream %d): %02x, ref has %02x",
                ops->name, f8k_dtype_name(cast->dtype), f8k_format_name(cast->format),
                (double)cast->scale, i, cast->count, cast->stream, cast->dst[i], ref.dst[i]);
    ck_assert_uint_eq(counts.saturated, ref_counts.saturated);
    ck_assert_uint_eq(counts.nan, ref_counts.nan);
    ck_assert(surroundings_intact(cast->dst, cast->count));
    check_fused(ops, *cast, &ref_counts);
}

START_TEST(cast_any_size_and_alignment)
{
    const struct f8k_ops *ops = f8k_variant((size_t)_i);
    struct rng rng = {.state = 1};
    for (int round = 0; round < 3000; round++) {
        enum f8k_dtype dtype = all_dtypes[rng_below(&rng, 3)];
        size_t size = f8k_dtype_size(dtype);
        size_t count = rng_below(&rng, round % 4 ? 100 : MAX_COUNT);
        bool at_end = rng_below(&rng, 2);
        size_t offset = rng_below(&rng, 3) ? rng_below(&rng, 64 / size) * size : 0;
        void *src = place(&source, count * size, at_end, offset);
        fill_random(&rng, dtype, src, count);
        struct f8k_cast cast = {
            .src = src,
            .dst = place(&target, count, at_end, rng_below(&rng, 3) ? rng_below(&rng, 64) : 0),
            .count = count,
            .scale = random_scale(&rng),
            .dtype = dtype,
            .format = all_formats[rng_below(&rng, 2)],
            .stream = rng_below(&rng, 2),
        };
        check_cast(ops, &cast);
    }
}
END_TEST

/* Weights with few outliers and scales to match: nearly all results are normal. */
START_TEST(cast_large_arrays)
{
    const struct f8k_ops *ops = f8k_variant((size_t)_i);
    struct rng rng = {.state = 6};
    for (int round = 0; round < 400; round++) {
        enum f8k_dtype dtype = round % 2 ? F8K_BF16 : all_dtypes[rng_below(&rng, 3)];
        size_t size = f8k_dtype_size(dtype), count = 4000 + rng_below(&rng, LARGE_COUNT - 4000);
        bool at_end = rng_below(&rng, 2);
        uint8_t *src = place(&source, count * size, at_end, rng_below(&rng, 64 / size) * size);
        uint32_t rarity = 1 + (uint32_t)rng_below(&rng, 400);
        for (size_t i = 0; i < count; i++) {
            uint32_t one = dtype == F8K_F32 ? 0x3f800000 : dtype == F8K_BF16 ? 0x3f80 : 0x3c00;
            uint32_t noise = (uint32_t)rng_next(&rng) & (dtype == F8K_F32 ? 0x81ffffff : 0x81ff);
            bool outlier = rng_below(&rng, rarity) == 0;
            set_element(dtype, src, i, outlier ? random_element(&rng, dtype) : one ^ noise);
        }
        struct f8k_cast cast = {
            .src = src,
            .dst = place(&target, count, at_end, rng_below(&rng, 64)),
            .count = count,
            .scale = round % 8 ? 1.0f + (float)rng_below(&rng, 1000) * 0.0123f : random_scale(&rng),
            .dtype = dtype,
            .format = all_formats[rng_below(&rng, 2)],
            .stream = rng_below(&rng, 2),
        };
        cast.scale = round % 5 ? cast.scale : -cast.scale;
        check_cast(ops, &cast);
    }
}
END_TEST

/* One special among ordinary values, in each place of two blocks and a tail. */
static void check_special_everywhere(
    const struct f8k_ops *ops, struct f8k_cast *cast, uint32_t bits)
{
    uint32_t plain = cast->dtype == F8K_F16    ? 0x3400
                     : cast->dtype == F8K_BF16 ? 0x3e80
                                               : 0x3e800000;
    for (size_t at = 0; at < cast->count; at++) {
        for (size_t i = 0; i < cast->count; i++)
            set_element(cast->dtype, source.low, i, i == at ? bits : plain);
        check_cast(ops, cast);
    }
}

START_TEST(cast_specials_in_every_lane)
{
    const struct f8k_ops *ops = f8k_variant((size_t)_i);
    for (size_t d = 0; d < 3; d++)
        for (size_t f = 0; f < 2; f++)
            for (size_t s = 0; special_element(all_dtypes[d], s); s++) {
                struct f8k_cast cast = {
                    .src = source.low,
                    .dst = target.low + 3,
                    .count = 75,
                    .scale = s % 3 ? 1.0f : -60000.0f,
                    .dtype = all_dtypes[d],
                    .format = all_formats[f],
                    .stream = s % 2,
                };
                check_special_everywhere(ops, &cast, *special_element(all_dtypes[d], s));
            }
}
END_TEST

START_TEST(cast_counts_what_it_met)
{
    const struct f8k_ops *ops = f8k_variant((size_t)_i);
    float values[100];
    for (int i = 0; i < 100; i++)
        values[i] = 448.0f;
    values[3] = 449.0f;
    values[40] = -INFINITY;
    values[41] = 0x1.c00002p+8f; /* one above 448: rounds to it, but the clamp changed it */
    values[63] = NAN;
    values[99] = 1e30f;
    uint8_t bytes[100];
    struct f8k_counts counts = {0};
    struct f8k_cast cast = {.src = values,
        .dst = bytes,
        .count = 100,
        .scale = 1,
        .dtype = F8K_F32,
        .format = F8K_E4M3FN};
    ops->cast(&cast, &counts);
    ck_assert_uint_eq(counts.saturated, 4);
    ck_assert_uint_eq(counts.nan, 1);
    for (int i = 0; i < 100; i++)
        ck_assert_uint_eq(bytes[i], i == 63 ? 0x7f : i == 40 ? 0xfe : 0x7e);
    cast.scale = 0; /* Inf times 0 is NaN, and nothing is clamped */
    ops->cast(&cast, &counts);
    ck_assert_uint_eq(counts.saturated, 4);
    ck_assert_uint_eq(counts.nan, 3);
    ck_assert_uint_eq(bytes[40], 0x7f);
    ck_assert_uint_eq(bytes[3], 0);
}
END_TEST

/* Parts of a shard share one amax: each raises what the others left, and none lowers it. */
START_TEST(cast_raises_amax)
{
    const struct f8k_ops *ops = f8k_variant((size_t)_i);
    float values[100];
    uint8_t bytes[100];
    uint32_t amax = 0x40000000; /* 2 */
    struct f8k_counts counts = {0};
    struct f8k_cast cast = {.src = values,
        .dst = bytes,
        .count = 100,
        .scale = 1,
        .dtype = F8K_F32,
        .format = F8K_E4M3FN,
        .amax = &amax};
    for (int i = 0; i < 100; i++)
        values[i] = -1;
    ops->cast(&cast, &counts);
    ck_assert_uint_eq(amax, 0x40000000);
    values[17] = -3;
    ops->cast(&cast, &counts);
    ck_assert_uint_eq(amax, 0x40400000);
    values[18] = -INFINITY;
    ops->cast(&cast, &counts);
    ck_assert_uint_eq(amax, F8K_F32_INF);
    values[99] = -NAN; /* in the tail of vectors */
    ops->cast(&cast, &counts);
    ck_assert(f8k_is_nan(amax));
    values[18] = values[99] = 0;
    ops->cast(&cast, &counts);
    ck_assert(f8k_is_nan(amax));
}
END_TEST

START_TEST(amax_any_size_and_alignment)
{
    const struct f8k_ops *ops = f8k_variant((size_t)_i);
    struct rng rng = {.state = 2};
    for (int round = 0; round < 5000; round++) {
        enum f8k_dtype dtype = all_dtypes[rng_below(&rng, 3)];
        size_t size = f8k_dtype_size(dtype);
        size_t count = rng_below(&rng, round % 4 ? 150 : MAX_COUNT);
        size_t offset = rng_below(&rng, 64 / size) * size;
        void *src = place(&source, count * size, rng_below(&rng, 2), round % 3 ? offset : 0);
        fill_random(&rng, dtype, src, count);
        uint32_t want = plain_amax(dtype, src, count);
        uint32_t amax = ops->amax(dtype, src, count);
        ck_assert_msg(amax == want, "%s %s, %zu elements: amax %08x, want %08x", ops->name,
            f8k_dtype_name(dtype), count, amax, want);
    }
}
END_TEST

/* The largest value, an infinity, then a NaN, alone in each place: each must reach the result. */
START_TEST(amax_finds_one_element_anywhere)
{
    const struct f8k_ops *ops = f8k_variant((size_t)_i);
    for (size_t d = 0; d < 3; d++)
        for (size_t s = 0; special_element(all_dtypes[d], s); s++)
            for (size_t at = 0; at < 150; at++) {
                uint32_t special = *special_element(all_dtypes[d], s);
                for (size_t i = 0; i < 150; i++)
                    set_element(all_dtypes[d], source.low, i, i == at ? special : 0);
                uint32_t want = f8k_load_bits(all_dtypes[d], source.low, at) & 0x7fffffff;
                if (ops->amax(all_dtypes[d], source.low, 150) != want)
                    ck_abort_msg("%s %s: amax loses %08x at %zu", ops->name,
                        f8k_dtype_name(all_dtypes[d]), special, at);
            }
}
END_TEST

START_TEST(amax_nan_sticks_beside_infinity)
{
    const struct f8k_ops *ops = f8k_variant((size_t)_i);
    float values[100];
    for (int nan = 0; nan < 100; nan++) {
        for (int i = 0; i < 100; i++)
            values[i] = i == nan ? -NAN : i % 2 ? INFINITY : -INFINITY;
        ck_assert(f8k_is_nan(ops->amax(F8K_F32, values, 100)));
        values[nan] = 1;
        ck_assert_uint_eq(ops->amax(F8K_F32, values, 100), F8K_F32_INF);
    }
}
END_TEST

static void check_dequantise(const struct f8k_ops *ops, struct rng *rng, enum f8k_format format,
    enum f8k_dtype dtype, size_t count, float scale)
{
    size_t bytes = count * f8k_dtype_size(dtype);
    uint8_t *src = place(&source, count, rng_below(rng, 2), rng_below(rng, 40));
    for (size_t i = 0; i < count; i++)
        src[i] = (uint8_t)(count >= 256 ? i : rng_next(rng));
    size_t offset = rng_below(rng, 8) * f8k_dtype_size(dtype);
    uint8_t *dst = place(&target, bytes, rng_below(rng, 2), rng_below(rng, 2) ? offset : 0);
    memset(target.low, CANARY, target.size);
    f8k_variant(0)->dequantise(format, src, dtype, expected.low, count, scale);
    ops->dequantise(format, src, dtype, dst, count, scale);
    if (bytes)
        ck_assert_mem_eq(dst, expected.low, bytes);
    ck_assert(surroundings_intact(dst, bytes));
}

START_TEST(dequantise_all_codes_and_any_size)
{
    const struct f8k_ops *ops = f8k_variant((size_t)_i);
    struct rng rng = {.state = 3};
    for (size_t s = 0; s < SCALES; s++)
        for (size_t d = 0; d < 3; d++)
            for (size_t f = 0; f < 2; f++) {
                check_dequantise(ops, &rng, all_formats[f], all_dtypes[d], 256, pattern_scale(s));
                size_t count = rng_below(&rng, 60);
                check_dequantise(ops, &rng, all_formats[f], all_dtypes[d], count, pattern_scale(s));
            }
}
END_TEST

/* Each scale with all codes, several times over, and a tail that fills no vector. */
START_TEST(dequantise_large_arrays)
{
    const struct f8k_ops *ops = f8k_variant((size_t)_i);
    struct rng rng = {.state = 7};
    for (size_t s = 0; s < SCALES; s++)
        for (size_t d = 0; d < 3; d++)
            for (size_t f = 0; f < 2; f++) {
                size_t count = 1000 + rng_below(&rng, s % 8 ? 100 : LARGE_COUNT - 1000);
                float scale = rng_below(&rng, 2) ? pattern_scale(s) : -pattern_scale(s);
                check_dequantise(ops, &rng, all_formats[f], all_dtypes[d], count, scale);
            }
}
END_TEST

START_TEST(to_bf16_any_size)
{
    const struct f8k_ops *ops = f8k_variant((size_t)_i);
    struct rng rng = {.state = 4};
    for (int round = 0; round < 3000; round++) {
        size_t count = rng_below(&rng, 100);
        float *src = place(&source, 4 * count, rng_below(&rng, 2), 4 * rng_below(&rng, 8));
        uint16_t *dst = place(&target, 2 * count, rng_below(&rng, 2), 2 * rng_below(&rng, 8));
        uint16_t *want = (uint16_t *)(void *)expected.low;
        fill_random(&rng, F8K_F32, src, count);
        memset(target.low, CANARY, target.size);
        f8k_variant(0)->to_bf16(src, want, count);
        ops->to_bf16(src, dst, count);
        if (count)
            ck_assert_mem_eq(dst, want, 2 * count);
        ck_assert(surroundings_intact(dst, 2 * count));
    }
}
END_TEST

START_TEST(empty_arrays)
{
    const struct f8k_ops *ops = f8k_variant((size_t)_i);
    for (size_t d = 0; d < 3; d++) {
        struct f8k_counts counts = {0};
        struct f8k_cast cast = {.scale = NAN, .dtype = all_dtypes[d], .format = F8K_E4M3FN};
        ck_assert_uint_eq(ops->amax(all_dtypes[d], NULL, 0), 0);
        ops->cast(&cast, &counts);
        cast.stream = true;
        ops->cast(&cast, &counts);
        uint32_t amax = 0;
        cast.amax = &amax;
        ops->cast(&cast, &counts);
        ck_assert_uint_eq(amax, 0);
        ck_assert_uint_eq(counts.nan + counts.saturated, 0);
        ops->dequantise(F8K_E5M2, NULL, all_dtypes[d], NULL, 0, 1);
    }
    ops->to_bf16(NULL, NULL, 0);
}
END_TEST

static Suite *kernels_suite(void)
{
    int variants = count_variants();
    Suite *suite = suite_create("kernels");
    TCase *tcase = tcase_create("every variant");
    tcase_add_checked_fixture(tcase, open_buffers, close_buffers);
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, cast_any_size_and_alignment, 0, variants);
    tcase_add_loop_test(tcase, cast_specials_in_every_lane, 0, variants);
    tcase_add_loop_test(tcase, cast_counts_what_it_met, 0, variants);
    tcase_add_loop_test(tcase, cast_raises_amax, 0, variants);
    tcase_add_loop_test(tcase, amax_any_size_and_alignment, 0, variants);
    tcase_add_loop_test(tcase, amax_finds_one_element_anywhere, 0, variants);
    tcase_add_loop_test(tcase, amax_nan_sticks_beside_infinity, 0, variants);
    tcase_add_loop_test(tcase, dequantise_all_codes_and_any_size, 0, variants);
    tcase_add_loop_test(tcase, to_bf16_any_size, 0, variants);
    tcase_add_loop_test(tcase, empty_arrays, 0, variants);
    suite_add_tcase(suite, tcase);
    TCase *large = tcase_create("every variant, large arrays");
    tcase_add_checked_fixture(large, open_large_buffers, close_buffers);
    tcase_set_timeout(large, 120);
    tcase_add_loop_test(large, cast_large_arrays, 0, variants);
    tcase_add_loop_test(large, dequantise_large_arrays, 0, variants);
    suite_add_tcase(suite, large);
    return suite;
}

int main(void)
{
    return run_cases(kernels_suite());
}
