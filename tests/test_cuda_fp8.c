/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The casts against NVIDIA's own host code, cuda_fp8.h of the CUDA toolkit: what the trainer's GPU
 * kernels would give. Where the header was not found at configure time this is a skip.
 */
#include "tests/kernel_support.h"

#include <stdio.h>

#ifndef F8_HAVE_CUDA_FP8

int main(void)
{
    printf("skipped: cuda_fp8.h was not found when this was configured; install a CUDA toolkit or "
           "set F8_CUDA_INCLUDE\n");
    return 77;
}

#else

#include <check.h>
#include <cuda_fp8.h>
#include <string.h>

#include "tests/lib/suite.h"

static uint8_t elements[PATTERNS * 4];
static uint8_t got[PATTERNS];

static bool is_nan_code(enum f8k_format format, uint8_t code)
{
    return (code & 0x7f) > (format == F8K_E4M3FN ? 0x7e : 0x7c);
}

static float element_value(enum f8k_dtype dtype, size_t i)
{
    uint32_t bits = 0;
    float value;
    if (dtype == F8K_F16) {
        __half_raw half;
        memcpy(&half.x, elements + 2 * i, 2);
        return __internal_halfraw_to_float(half);
    }
    if (dtype == F8K_F32)
        memcpy(&bits, elements + 4 * i, 4);
    else
        memcpy((char *)&bits + 2, elements + 2 * i, 2);
    memcpy(&value, &bits, 4);
    return value;
}

static void compare(
    const struct f8k_ops *ops, enum f8k_dtype dtype, enum f8k_format format, float scale)
{
    struct f8k_counts counts = {0};
    struct f8k_cast cast = {.src = elements,
        .dst = got,
        .count = PATTERNS,
        .scale = scale,
        .dtype = dtype,
        .format = format};
    ops->cast(&cast, &counts);
    for (size_t i = 0; i < PATTERNS; i++) {
        float scaled = element_value(dtype, i) * scale;
        uint8_t code = __nv_cvt_float_to_fp8(
            scaled, __NV_SATFINITE, format == F8K_E4M3FN ? __NV_E4M3 : __NV_E5M2);
        bool both_nan = is_nan_code(format, code) && is_nan_code(format, got[i]);
        if (code != got[i] && !both_nan)
            ck_abort_msg("%s: %s element %zu (%a) times %a in %s: %02x, cuda_fp8.h has %02x",
                ops->name, f8k_dtype_name(dtype), i, (double)element_value(dtype, i), (double)scale,
                f8k_format_name(format), got[i], code);
    }
}

START_TEST(patterns_times_scales)
{
    const struct f8k_ops *ops = f8k_variant((size_t)_i);
    for (size_t d = 0; d < 3; d++) {
        fill_patterns(all_dtypes[d], elements);
        for (size_t s = 0; s < SCALES; s += 9)
            for (size_t f = 0; f < 2; f++)
                compare(ops, all_dtypes[d], all_formats[f], pattern_scale(s));
    }
}
END_TEST

/* Patterns a prime apart cover all of fp32 evenly. */
START_TEST(fp32_patterns_all_over)
{
    const struct f8k_ops *ops = f8k_variant((size_t)_i);
    uint32_t bits = 0;
    for (int round = 0; round < 32; round++) {
        for (size_t i = 0; i < PATTERNS; i++, bits += 2053)
            set_element(F8K_F32, elements, i, bits);
        compare(ops, F8K_F32, F8K_E4M3FN, 1);
        compare(ops, F8K_F32, F8K_E5M2, 1);
    }
}
END_TEST

START_TEST(codes_decode_alike)
{
    const struct f8k_ops *ops = f8k_variant((size_t)_i);
    uint8_t codes[256];
    uint16_t halves[256];
    for (int i = 0; i < 256; i++)
        codes[i] = (uint8_t)i;
    for (size_t f = 0; f < 2; f++) {
        ops->dequantise(all_formats[f], codes, F8K_F16, halves, 256, 1);
        for (int i = 0; i < 256; i++) {
            __half_raw want = __nv_cvt_fp8_to_halfraw((uint8_t)i, f == 0 ? __NV_E4M3 : __NV_E5M2);
            if (is_nan_code(all_formats[f], (uint8_t)i))
                ck_assert_uint_eq(halves[i], 0x7e00);
            else
                ck_assert_uint_eq(halves[i], want.x);
        }
    }
}
END_TEST

static Suite *cuda_suite(void)
{
    int variants = count_variants();
    Suite *suite = suite_create("cuda_fp8");
    TCase *tcase = tcase_create("every variant");
    tcase_set_timeout(tcase, 600);
    tcase_add_loop_test(tcase, patterns_times_scales, 0, variants);
    tcase_add_loop_test(tcase, fp32_patterns_all_over, 0, variants);
    tcase_add_loop_test(tcase, codes_decode_alike, 0, variants);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return run_cases(cuda_suite());
}

#endif
