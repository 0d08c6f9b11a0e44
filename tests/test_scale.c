/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scale that follows from an amax: both paths, the fp16 cap, non-finite amaxes, powers of two,
 * and the scalar conversions that the paths round through.
 */
#include "kernels/fp8.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <float.h>
#include <math.h>

static uint32_t scale_bits(
    uint32_t amax, enum f8k_dtype dtype, enum f8k_format format, enum f8k_scale_path path)
{
    return f8k_bits_of(f8k_scale(amax, dtype, format, path, false));
}

#define DIRECT(amax, dtype, format) scale_bits(amax, dtype, format, F8K_SCALE_DIRECT)
#define PRE(amax, dtype, format)    scale_bits(amax, dtype, format, F8K_SCALE_PRECOMPUTE)

START_TEST(plain_quotients)
{
    ck_assert_uint_eq(DIRECT(0x3f000000, F8K_F32, F8K_E4M3FN), 0x44600000); /* 448 / 0.5 */
    ck_assert_uint_eq(DIRECT(0x3f000000, F8K_BF16, F8K_E5M2), 0x47e00000);
    ck_assert_uint_eq(DIRECT(0x4059f8c4, F8K_F32, F8K_E4M3FN), 0x43038a3d);
    ck_assert_uint_eq(PRE(0x4059f8c4, F8K_F32, F8K_E4M3FN), 0x43038a3d);
    ck_assert_uint_eq(DIRECT(0x7f7fffff, F8K_F32, F8K_E4M3FN), f8k_bits_of((float)(448 / FLT_MAX)));
}
END_TEST

START_TEST(zero_amax_is_floored)
{
    uint32_t direct = f8k_bits_of((float)(448 / 1e-12));
    ck_assert_uint_eq(direct, 0x57cbba10);
    ck_assert_uint_eq(DIRECT(0, F8K_F32, F8K_E4M3FN), direct);
    ck_assert_uint_eq(DIRECT(0, F8K_BF16, F8K_E4M3FN), direct);
    ck_assert_uint_eq(PRE(0, F8K_F32, F8K_E4M3FN), direct);
    ck_assert_uint_eq(PRE(0, F8K_BF16, F8K_E4M3FN), 0x57cb58f7);
    ck_assert_uint_eq(DIRECT(0, F8K_F32, F8K_E5M2), f8k_bits_of((float)(57344 / 1e-12)));
}
END_TEST

/* The paths differ below 1e-12 in bf16 only, and agree from there on. */
START_TEST(paths_differ_for_tiny_bf16)
{
    ck_assert_uint_eq(DIRECT(1, F8K_BF16, F8K_E4M3FN), 0x57cbba10);
    ck_assert_uint_eq(PRE(1, F8K_BF16, F8K_E4M3FN), 0x57cb58f7);
    uint32_t floor_bits = f8k_bf16_bits(f8k_to_bf16(1e-12f)), below = floor_bits - 0x10000;
    ck_assert_uint_eq(PRE(below, F8K_BF16, F8K_E4M3FN), 0x57cb58f7);
    ck_assert_uint_eq(DIRECT(below, F8K_BF16, F8K_E4M3FN), 0x57cbba10);
    for (uint32_t amax = floor_bits; amax < 0x7f800000; amax += 0x10000)
        if (DIRECT(amax, F8K_BF16, F8K_E4M3FN) != PRE(amax, F8K_BF16, F8K_E4M3FN))
            ck_abort_msg("paths differ for amax %08x", amax);
}
END_TEST

START_TEST(fp16_scales_are_capped)
{
    uint32_t cap = f8k_bits_of(65504.0f);
    ck_assert_uint_eq(DIRECT(0, F8K_F16, F8K_E4M3FN), cap);
    ck_assert_uint_eq(PRE(0, F8K_F16, F8K_E4M3FN), cap);
    ck_assert_uint_eq(PRE(0, F8K_F16, F8K_E5M2), cap);
    ck_assert_uint_eq(DIRECT(f8k_bits_of(0x1p-24f), F8K_F16, F8K_E4M3FN), cap);
    ck_assert_uint_eq(DIRECT(0x3f000000, F8K_F16, F8K_E5M2), 0x477fe000); /* 114688 is above it */
    ck_assert_uint_eq(DIRECT(0x3f800000, F8K_F16, F8K_E5M2), f8k_bits_of(57344.0f));
    ck_assert(f8k_scale(0, F8K_F16, F8K_E4M3FN, F8K_SCALE_PRECOMPUTE, true) == 32768.0f);
}
END_TEST

START_TEST(non_finite_amaxes)
{
    static const uint32_t nans[] = {0x7fc00000, 0x7f800001, 0x7fffffff};
    for (int path = F8K_SCALE_DIRECT; path <= F8K_SCALE_PRECOMPUTE; path++)
        for (int dtype = F8K_F32; dtype <= F8K_F16; dtype++)
            for (int p2 = 0; p2 < 2; p2++) {
                for (int i = 0; i < 3; i++)
                    ck_assert_uint_eq(f8k_bits_of(f8k_scale(nans[i], (enum f8k_dtype)dtype,
                                          F8K_E4M3FN, (enum f8k_scale_path)path, p2)),
                        F8K_F32_NAN);
                float scale = f8k_scale(
                    F8K_F32_INF, (enum f8k_dtype)dtype, F8K_E5M2, (enum f8k_scale_path)path, p2);
                ck_assert_uint_eq(f8k_bits_of(scale), 0);
            }
}
END_TEST

START_TEST(powers_of_two_round_down)
{
    ck_assert(f8k_floor_power_of_two(1.0f) == 1.0f);
    ck_assert(f8k_floor_power_of_two(0x1.fffffep-1f) == 0.5f);
    ck_assert(f8k_floor_power_of_two(0x1p-149f) == 0x1p-149f);
    ck_assert(f8k_floor_power_of_two(0x1.8p-148f) == 0x1p-148f);
    ck_assert(f8k_floor_power_of_two(0x0.fffffep-126f) == 0x1p-127f);
    ck_assert(f8k_floor_power_of_two(FLT_MAX) == 0x1p127f);
    ck_assert(f8k_floor_power_of_two(0.0f) == 0.0f);
    ck_assert(isinf(f8k_floor_power_of_two(INFINITY)));
    ck_assert(isnan(f8k_floor_power_of_two(NAN)));
}
END_TEST

/* Just below, at and just above every power of two, subnormal ones included. */
START_TEST(powers_of_two_at_every_edge)
{
    for (int k = -149; k <= 127; k++) {
        float power = ldexpf(1, k), below = nextafterf(power, 0),
              above = nextafterf(power, FLT_MAX);
        float want = k > -149 ? ldexpf(1, k - 1) : 0;
        bool next = k == -149; /* above 2^-149 comes 2^-148 */
        ck_assert(f8k_floor_power_of_two(power) == power);
        ck_assert(f8k_floor_power_of_two(below) == want);
        ck_assert(f8k_floor_power_of_two(above) == (next ? above : power));
    }
}
END_TEST

START_TEST(scale_as_power_of_two)
{
    /* amax 448: the scale 1; one above: a scale just below 1, so 0.5; as the float32 rounds. */
    ck_assert(f8k_scale(0x43e00000, F8K_F32, F8K_E4M3FN, F8K_SCALE_DIRECT, true) == 1.0f);
    ck_assert(f8k_scale(0x43e00001, F8K_F32, F8K_E4M3FN, F8K_SCALE_DIRECT, true) == 0.5f);
    ck_assert(f8k_scale(0x4059f8c4, F8K_F32, F8K_E4M3FN, F8K_SCALE_DIRECT, true) == 128.0f);
    ck_assert(f8k_scale(0, F8K_F32, F8K_E4M3FN, F8K_SCALE_DIRECT, true) == 0x1p48f);
}
END_TEST

/* Every fp16 goes to fp32 and back; between neighbours, the tie goes to the even one. */
START_TEST(fp16_conversions)
{
    for (uint32_t half = 0; half < 0x7c00; half++) {
        float value = f8k_from_bits(f8k_f16_bits((uint16_t)half));
        float next = half == 0x7bff ? 65536 : f8k_from_bits(f8k_f16_bits((uint16_t)(half + 1)));
        float tie = (value + next) / 2;
        uint32_t even = half + (half & 1);
        bool right = f8k_to_f16(value) == half && f8k_to_f16(-value) == (half | 0x8000) &&
                     f8k_to_f16(tie) == even && f8k_to_f16(nextafterf(tie, 0)) == half &&
                     f8k_to_f16(nextafterf(tie, FLT_MAX)) == half + 1;
        if (!right)
            ck_abort_msg("fp16 %04x (%a) is rounded wrongly", half, (double)value);
    }
    ck_assert_uint_eq(f8k_to_f16(1e30f), 0x7c00);
    ck_assert_uint_eq(f8k_to_f16(-INFINITY), 0xfc00);
    ck_assert_uint_eq(f8k_to_f16(NAN), 0x7e00);
    ck_assert(isinf(f8k_from_bits(f8k_f16_bits(0x7c00))));
    ck_assert(f8k_is_nan(f8k_f16_bits(0x7c01)));
}
END_TEST

START_TEST(bf16_conversions)
{
    for (uint32_t half = 0; half < 0x7f80; half++) {
        uint32_t even = half + (half & 1), bits = half << 16;
        bool right = f8k_to_bf16(f8k_from_bits(bits)) == half &&
                     f8k_to_bf16(f8k_from_bits(bits | 0x7fff)) == half &&
                     f8k_to_bf16(f8k_from_bits(bits | 0x8000)) == even &&
                     f8k_to_bf16(f8k_from_bits(bits | 0x80008001)) == (half | 0x8000) + 1;
        if (!right)
            ck_abort_msg("bf16 %04x is rounded wrongly", half);
    }
    ck_assert_uint_eq(f8k_to_bf16(-INFINITY), 0xff80);
    ck_assert_uint_eq(f8k_to_bf16(f8k_from_bits(0xffffffff)), 0x7fc0);
}
END_TEST

START_TEST(names_and_sizes)
{
    ck_assert_str_eq(f8k_dtype_name(F8K_BF16), "bfloat16");
    ck_assert_str_eq(f8k_format_name(F8K_E5M2), "e5m2");
    ck_assert_uint_eq(f8k_dtype_size(F8K_F32), 4);
    ck_assert_uint_eq(f8k_dtype_size(F8K_F16), 2);
    ck_assert(f8k_format_max(F8K_E4M3FN) == 448 && f8k_format_max(F8K_E5M2) == 57344);
    ck_assert_ptr_null(f8k_dtype_name((enum f8k_dtype)9));
    ck_assert_ptr_null(f8k_format_name((enum f8k_format)0));
    ck_assert_uint_eq(f8k_dtype_size((enum f8k_dtype)0), 0);
    ck_assert(f8k_format_max((enum f8k_format)7) == 0);
}
END_TEST

static Suite *scale_suite(void)
{
    Suite *suite = suite_create("scale");
    TCase *tcase = tcase_create("scale");
    tcase_add_test(tcase, plain_quotients);
    tcase_add_test(tcase, zero_amax_is_floored);
    tcase_add_test(tcase, paths_differ_for_tiny_bf16);
    tcase_add_test(tcase, fp16_scales_are_capped);
    tcase_add_test(tcase, non_finite_amaxes);
    tcase_add_test(tcase, powers_of_two_round_down);
    tcase_add_test(tcase, powers_of_two_at_every_edge);
    tcase_add_test(tcase, scale_as_power_of_two);
    tcase_add_test(tcase, fp16_conversions);
    tcase_add_test(tcase, bf16_conversions);
    tcase_add_test(tcase, names_and_sizes);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return run_cases(scale_suite());
}
