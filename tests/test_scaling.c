/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scaling state of a weight: which scale a cast takes after each event, and what is counted.
 */
#include <check.h>
#include <string.h>

#include "daemon/scaling.h"
#include "tests/lib/suite.h"

/* |2|: e4m3fn's scale is 224 on both paths. */
#define AMAX_TWO 0x40000000u
/* Below 1e-12 the two paths differ for bf16: see the specification's table. */
#define AMAX_TINY     0x00800000u
#define TINY_AHEAD    0x57cb58f7u
#define TINY_INGATHER 0x57cbba10u

static const struct weight dynamic = {
    .dtype = F8_PROTO_BF16, .flavour = F8_PROTO_DYNAMIC, .format = F8_PROTO_E4M3FN};
static const struct weight fixed = {.dtype = F8_PROTO_F32,
    .flavour = F8_PROTO_STATIC,
    .format = F8_PROTO_E5M2,
    .static_bits = 0x3fc00000}; /* 1.5 */
static const struct f8k_counts none;

static uint32_t bits(float value)
{
    uint32_t result;
    memcpy(&result, &value, sizeof(result));
    return result;
}

START_TEST(nothing_is_known_at_first)
{
    struct scaling scaling;
    scaling_init(&scaling, &dynamic, NULL);
    ck_assert(!scaling.ready && !scaling.amax_seen && !scaling.scale_seen);
    ck_assert_uint_eq(scaling.gathers, 0);
}
END_TEST

START_TEST(static_scale_is_always_ready)
{
    struct scaling scaling;
    scaling_init(&scaling, &fixed, NULL);
    ck_assert(scaling.ready && scaling.scale_seen && !scaling.amax_seen);
    ck_assert_float_eq(scaling.scale, 1.5f);
    scaling_gathered(&scaling, 7, &none);
    scaling_next_generation(&scaling, &fixed);
    ck_assert(scaling.ready);
    ck_assert_float_eq(scaling.scale, 1.5f);
    scaling_gathered(&scaling, 9, &none);
    ck_assert_uint_eq(scaling.stale, 0);
    ck_assert_uint_eq(scaling.gathers, 2);
}
END_TEST

START_TEST(precomputed_scale_is_used_until_the_next_generation)
{
    struct scaling scaling;
    scaling_init(&scaling, &dynamic, NULL);
    scaling_precomputed(&scaling, &dynamic, AMAX_TWO, 3);
    ck_assert(scaling.ready && scaling.amax_seen && scaling.scale_seen);
    ck_assert_float_eq(scaling.scale, 224.0f);
    ck_assert_uint_eq(scaling.amax, AMAX_TWO);
    ck_assert_uint_eq(scaling.scale_version, 3);
    scaling_next_generation(&scaling, &dynamic);
    ck_assert(!scaling.ready);
    ck_assert_uint_eq(scaling.version, SCALING_VERSION_UNKNOWN);
    ck_assert_uint_eq(scaling.scale_version, SCALING_VERSION_UNKNOWN);
    ck_assert(scaling.scale_seen); /* operators still see the last one */
}
END_TEST

START_TEST(in_gather_scale_is_for_one_gather)
{
    struct scaling scaling;
    scaling_init(&scaling, &dynamic, NULL);
    scaling_in_gather(&scaling, &dynamic, AMAX_TWO);
    ck_assert_float_eq(scaling.scale, 224.0f);
    ck_assert(!scaling.ready);
    scaling_gathered(&scaling, 5, &none);
    ck_assert_uint_eq(scaling.stale, 0);
    ck_assert(!scaling.ready);
}
END_TEST

START_TEST(paths_are_the_right_ones)
{
    struct scaling scaling;
    struct weight rounded = dynamic;
    scaling_init(&scaling, &dynamic, NULL);
    scaling_precomputed(&scaling, &dynamic, AMAX_TINY, 0);
    ck_assert_uint_eq(bits(scaling.scale), TINY_AHEAD);
    scaling_in_gather(&scaling, &dynamic, AMAX_TINY);
    ck_assert_uint_eq(bits(scaling.scale), TINY_INGATHER);
    rounded.power_of_two = true;
    scaling_precomputed(&scaling, &rounded, AMAX_TWO, 0);
    ck_assert_float_eq(scaling.scale, 128.0f);
}
END_TEST

START_TEST(stale_gathers_are_counted)
{
    struct scaling scaling;
    scaling_init(&scaling, &dynamic, NULL);
    scaling_precomputed(&scaling, &dynamic, AMAX_TWO, 3);
    scaling_gathered(&scaling, 3, &none);
    ck_assert_uint_eq(scaling.stale, 0);
    scaling_gathered(&scaling, 4, &none);
    ck_assert_uint_eq(scaling.stale, 1);
    scaling_gathered(&scaling, SCALING_VERSION_UNKNOWN, &none);
    ck_assert_uint_eq(scaling.stale, 1);
    scaling_precomputed(&scaling, &dynamic, AMAX_TWO, 4);
    scaling_gathered(&scaling, 4, &none);
    ck_assert_uint_eq(scaling.stale, 1);
    ck_assert_uint_eq(scaling.gathers, 4);
}
END_TEST

/* A scale from unknown values is older than the first ones that are told of. */
START_TEST(first_known_version_makes_an_unknown_one_stale)
{
    struct scaling scaling;
    scaling_init(&scaling, &dynamic, NULL);
    scaling_precomputed(&scaling, &dynamic, AMAX_TWO, SCALING_VERSION_UNKNOWN);
    scaling_gathered(&scaling, SCALING_VERSION_UNKNOWN, &none);
    ck_assert_uint_eq(scaling.stale, 0);
    scaling_gathered(&scaling, 1, &none);
    ck_assert_uint_eq(scaling.stale, 1);
}
END_TEST

START_TEST(counts_add_up)
{
    struct scaling scaling;
    scaling_init(&scaling, &fixed, NULL);
    scaling_gathered(&scaling, 0, &(struct f8k_counts){.saturated = 3, .nan = 1});
    scaling_next_generation(&scaling, &fixed);
    scaling_gathered(&scaling, 0, &(struct f8k_counts){.saturated = 4});
    ck_assert_uint_eq(scaling.saturated, 7);
    ck_assert_uint_eq(scaling.nan, 1);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("scaling");
    tcase_add_test(tcase, nothing_is_known_at_first);
    tcase_add_test(tcase, static_scale_is_always_ready);
    tcase_add_test(tcase, precomputed_scale_is_used_until_the_next_generation);
    tcase_add_test(tcase, in_gather_scale_is_for_one_gather);
    tcase_add_test(tcase, paths_are_the_right_ones);
    tcase_add_test(tcase, stale_gathers_are_counted);
    tcase_add_test(tcase, first_known_version_makes_an_unknown_one_stale);
    tcase_add_test(tcase, counts_add_up);
    return run_suite("scaling", tcase);
}
