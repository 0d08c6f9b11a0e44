/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract suite of the CUDA kernels that write or look at weights: whatever the operation,
 * type, format, size, alignment and values, the same bits as ref, and not one byte beside what the
 * table names is touched. Runs on a GPU, or on the simulator, and skips where there is neither.
 */
#include "proto/status.h"
#include "tests/lib/cuda_cases.h"
#include "tests/lib/cuda_device.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Under sanitizers about one case in so many will do: they look for other faults, and take long. */
#ifndef SPARSE
#define SPARSE 1
#endif

#define SCALE_STEP (4 * SPARSE)

#define SLOTS 64

static struct cuda_cases cases;

static void open_cases(void)
{
    cases_init(&cases, SLOTS, 0);
}

static void close_cases(void)
{
    cases_done(&cases);
}

/* The step to the next case: 1, or SPARSE on average. */
static size_t step(struct rng *rng)
{
    return 1 + rng_below(rng, 2 * SPARSE - 1);
}

static struct cuda_case case_of(unsigned op, enum f8k_dtype dtype, size_t count)
{
    return (struct cuda_case){.op = op,
        .dtype = dtype,
        .format = F8K_E4M3FN,
        .count = count,
        .scale = 1,
        .amax_slot = NO_SLOT,
        .counts_slot = NO_SLOT};
}

/* ---- sizes and alignments ---- */

/* Every size to a little over a few vectors, from each element in a vector, to each byte in one. */
START_TEST(cast_every_size_and_alignment)
{
    enum f8k_dtype dtype = all_dtypes[_i % 3];
    enum f8k_format format = all_formats[_i / 3];
    struct rng rng = {.state = 1 + (uint64_t)_i};
    for (size_t offset = 0; offset <= 16; offset += f8k_dtype_size(dtype)) {
        for (size_t count = 0; count <= 100; count += step(&rng))
            for (size_t to = count % 3; to <= 16; to += 3) {
                struct cuda_case cast = case_of(F8CU_CAST, dtype, count);
                cast.format = format;
                cast.src_offset = offset;
                cast.dst_offset = to;
                cast.scale = random_scale(&rng);
                cast.amax_slot = rng_below(&rng, 2) ? (uint32_t)rng_below(&rng, SLOTS) : NO_SLOT;
                cast.counts_slot = rng_below(&rng, 4) ? (uint32_t)rng_below(&rng, SLOTS) : NO_SLOT;
                cases_add_random(&cases, &cast, &rng);
            }
        cases_run(&cases);
    }
}
END_TEST

START_TEST(amax_every_size_and_alignment)
{
    enum f8k_dtype dtype = all_dtypes[_i];
    struct rng rng = {.state = 2 + (uint64_t)_i};
    for (size_t offset = 0; offset <= 16; offset += f8k_dtype_size(dtype))
        for (size_t count = 0; count <= 100; count += step(&rng)) {
            struct cuda_case amax = case_of(F8CU_AMAX, dtype, count);
            amax.src_offset = offset;
            amax.amax_slot = (uint32_t)(count % SLOTS);
            cases_add_random(&cases, &amax, &rng);
            if (cases.count == SLOTS / 2)
                cases_run(&cases); /* few share a slot, so each has a chance to be the largest */
        }
    cases_run(&cases);
}
END_TEST

START_TEST(bytes_every_size_and_alignment)
{
    static const unsigned ops[] = {F8CU_COPY, F8CU_FILL};
    struct rng rng = {.state = 3};
    for (size_t from = 0; from <= 16; from += 1 + step(&rng) / 8) {
        for (size_t count = 0; count <= 100; count += step(&rng) + rng_below(&rng, 3))
            for (size_t to = 0; to <= 16; to += 1 + rng_below(&rng, 2)) {
                struct cuda_case bytes = case_of(ops[_i], F8K_F32, count);
                bytes.src_offset = from;
                bytes.dst_offset = to;
                bytes.byte = (uint8_t)rng_next(&rng);
                cases_add_random(&cases, &bytes, &rng);
            }
        cases_run(&cases);
    }
}
END_TEST

START_TEST(to_bf16_every_size_and_alignment)
{
    struct rng rng = {.state = 4};
    for (size_t from = 0; from <= 16; from += 4) {
        for (size_t count = 0; count <= 100; count += step(&rng))
            for (size_t to = 0; to <= 16; to += 2) {
                struct cuda_case narrow = case_of(F8CU_TO_BF16, F8K_F32, count);
                narrow.src_offset = from;
                narrow.dst_offset = to;
                cases_add_random(&cases, &narrow, &rng);
            }
        cases_run(&cases);
    }
}
END_TEST

START_TEST(dequantise_every_size_and_alignment)
{
    enum f8k_dtype dtype = all_dtypes[_i % 3];
    struct rng rng = {.state = 5 + (uint64_t)_i};
    for (size_t count = 0; count <= 100; count += step(&rng))
        for (size_t to = 0; to <= 16; to += f8k_dtype_size(dtype)) {
            struct cuda_case wide = case_of(CASE_DEQUANTISE, dtype, count);
            wide.format = all_formats[_i / 3];
            wide.scale = random_scale(&rng);
            wide.src_offset = rng_below(&rng, 17);
            wide.dst_offset = to;
            cases_add_random(&cases, &wide, &rng);
        }
    cases_run(&cases);
}
END_TEST

/* Where an entry is cut into parts, each part by itself has a head and a tail. */
START_TEST(around_the_size_of_a_part)
{
    static const size_t counts[] = {F8CU_PART - 1, F8CU_PART, F8CU_PART + 1, 2 * F8CU_PART - 7,
        2 * F8CU_PART, 2 * F8CU_PART + 9};
    static const unsigned ops[] = {
        F8CU_AMAX, F8CU_CAST, F8CU_COPY, F8CU_TO_BF16, F8CU_FILL, CASE_DEQUANTISE};
    struct rng rng = {.state = 6 + (uint64_t)_i};
    for (size_t d = 0; d < 3; d++)
        for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
            size_t size = ops[_i] == F8CU_TO_BF16 ? 4 : f8k_dtype_size(all_dtypes[d]);
            bool is_aligned = rng_below(&rng, 3) == 0;
            struct cuda_case one = case_of(ops[_i], all_dtypes[d], counts[c]);
            one.format = all_formats[c % 2];
            one.src_offset = is_aligned ? 0 : rng_below(&rng, 16) * size;
            one.dst_offset = is_aligned ? 0 : rng_below(&rng, 16) * size;
            one.scale = random_scale(&rng);
            one.amax_slot = (uint32_t)d;
            one.counts_slot = (uint32_t)c;
            if (ops[_i] == F8CU_TO_BF16)
                one.dtype = F8K_F32;
            cases_add_random(&cases, &one, &rng);
        }
    cases_run(&cases);
}
END_TEST

/* ---- values ---- */

/* One special among ordinary values, in each place of several vectors, a head and a tail. */
START_TEST(specials_in_every_lane)
{
    enum f8k_dtype dtype = all_dtypes[_i % 3];
    uint32_t plain = dtype == F8K_F16 ? 0x3400 : dtype == F8K_BF16 ? 0x3e80 : 0x3e800000;
    struct rng rng = {.state = 7 + (uint64_t)_i};
    for (size_t s = 0; special_element(dtype, s); s++) {
        for (size_t at = 0; at < 43; at += step(&rng)) {
            struct cuda_case one = case_of(F8CU_CAST, dtype, 43);
            one.format = all_formats[_i / 3];
            one.src_offset = f8k_dtype_size(dtype);
            one.dst_offset = at % 2 ? 1 : 5;
            one.scale = s % 3 ? 1.0f : -60000.0f;
            one.amax_slot = (uint32_t)at;
            one.counts_slot = (uint32_t)at;
            void *src = cases_add(&cases, &one);
            for (size_t i = 0; i < one.count; i++)
                set_element(dtype, src, i, i == at ? *special_element(dtype, s) : plain);
        }
        cases_run(&cases);
    }
}
END_TEST

START_TEST(amax_finds_one_element_anywhere)
{
    enum f8k_dtype dtype = all_dtypes[_i];
    struct rng rng = {.state = 7 + (uint64_t)_i};
    for (size_t s = 0; special_element(dtype, s); s++) {
        for (size_t at = 0; at < 43; at += step(&rng)) {
            struct cuda_case one = case_of(F8CU_AMAX, dtype, 43);
            one.src_offset = f8k_dtype_size(dtype);
            one.amax_slot = (uint32_t)at;
            void *src = cases_add(&cases, &one);
            for (size_t i = 0; i < one.count; i++)
                set_element(dtype, src, i, i == at ? *special_element(dtype, s) : 0);
        }
        cases_run(&cases);
    }
}
END_TEST

/* Each thread of a block in turn has the largest element. */
START_TEST(amax_from_every_thread)
{
    static uint32_t element[] = {0x3f800000, 0x3f80, 0x3c00};
    size_t per_vector = 16 / f8k_dtype_size(all_dtypes[_i]);
    struct rng rng = {.state = 10};
    for (size_t thread = 0; thread < 256; thread += step(&rng)) {
        struct cuda_case one = case_of(F8CU_AMAX, all_dtypes[_i], 256 * per_vector);
        one.amax_slot = (uint32_t)cases.count;
        void *src = cases_add(&cases, &one);
        memset(src, 0, 256 * 16);
        set_element(all_dtypes[_i], src, thread * per_vector + thread % per_vector, element[_i]);
        if (cases.count == SLOTS)
            cases_run(&cases);
    }
    cases_run(&cases);
}
END_TEST

/* All patterns of 16 bits, or fp32 patterns over every exponent, through scales of all sizes. */
START_TEST(patterns_times_scales)
{
    enum f8k_dtype dtype = all_dtypes[_i % 3];
    for (size_t s = (size_t)_i % 4; s < SCALES; s += SCALE_STEP) {
        struct cuda_case one = case_of(F8CU_CAST, dtype, PATTERNS);
        one.format = all_formats[_i / 3];
        one.scale = pattern_scale(s);
        one.amax_slot = 0;
        one.counts_slot = 0;
        fill_patterns(dtype, cases_add(&cases, &one));
        cases_run(&cases);
    }
}
END_TEST

START_TEST(patterns_to_bf16)
{
    struct cuda_case one = case_of(F8CU_TO_BF16, F8K_F32, PATTERNS);
    fill_patterns(F8K_F32, cases_add(&cases, &one));
    cases_run(&cases);
}
END_TEST

START_TEST(dequantise_every_code)
{
    for (size_t s = 0; s < SCALES; s++) {
        struct cuda_case one = case_of(CASE_DEQUANTISE, all_dtypes[_i % 3], 256);
        one.format = all_formats[_i / 3];
        one.scale = pattern_scale(s);
        uint8_t *codes = cases_add(&cases, &one);
        for (size_t i = 0; i < 256; i++)
            codes[i] = (uint8_t)i;
    }
    cases_run(&cases);
}
END_TEST

/* ---- tables ---- */

/* Many tensors of all kinds in one table, empty ones among them, that share amaxes and counts. */
START_TEST(random_tables)
{
    struct rng rng = {.state = 100 + (uint64_t)_i};
    size_t tasks = 1 + rng_below(&rng, 300);
    for (size_t i = 0; i < tasks; i++) {
        unsigned op = (unsigned)rng_below(&rng, F8CU_FILL + 1);
        enum f8k_dtype dtype = op == F8CU_TO_BF16 ? F8K_F32 : all_dtypes[rng_below(&rng, 3)];
        size_t limit = rng_below(&rng, 20) ? 2000 : 3 * F8CU_PART;
        struct cuda_case one = case_of(op, dtype, rng_below(&rng, 4) ? rng_below(&rng, limit) : 0);
        one.format = all_formats[rng_below(&rng, 2)];
        one.src_offset = rng_below(&rng, 2) * rng_below(&rng, 16) * f8k_dtype_size(dtype);
        one.dst_offset = rng_below(&rng, 2) * rng_below(&rng, 16) * 2;
        one.scale = random_scale(&rng);
        one.byte = (uint8_t)i;
        one.counts_slot = rng_below(&rng, 3) ? (uint32_t)rng_below(&rng, 3) : NO_SLOT;
        if (op == F8CU_AMAX || rng_below(&rng, 2))
            one.amax_slot = (uint32_t)rng_below(&rng, SLOTS);
        cases_add_random(&cases, &one, &rng);
    }
    cases_run(&cases);
}
END_TEST

/* What is there already is only ever raised, and a launch twice counts twice. */
START_TEST(amax_is_raised)
{
    static const uint32_t before[] = {0, 0x3f800000, 0x7f800000, 0x7fffffff};
    struct rng rng = {.state = 8};
    cases_done(&cases);
    cases_init(&cases, SLOTS, before[_i]);
    for (uint32_t i = 0; i < SLOTS; i++) {
        struct cuda_case one = case_of(i % 2 ? F8CU_AMAX : F8CU_CAST, all_dtypes[i % 3], i);
        one.amax_slot = i;
        cases_add_random(&cases, &one, &rng);
    }
    cases_run(&cases);
}
END_TEST

/*
 * Sources and destinations that end where their memory does, or begin there: a vector too many
 * would be a fault of the device.
 */
START_TEST(nothing_is_read_past_memory)
{
    static const unsigned ops[] = {F8CU_AMAX, F8CU_CAST, F8CU_COPY, F8CU_TO_BF16, F8CU_FILL};
    const size_t memory = (size_t)2 << 20; /* what devices map at a time */
    uint8_t *src = device_alloc(memory), *dst = device_alloc(memory);
    uint8_t *rest = device_alloc(sizeof(struct f8cu_task) + 64);
    struct f8cu_task *table = (struct f8cu_task *)(void *)(rest + 64);
    enum f8k_dtype dtype = ops[_i] == F8CU_TO_BF16 ? F8K_F32 : all_dtypes[_i % 3];
    size_t size = ops[_i] == F8CU_COPY ? 1 : f8k_dtype_size(dtype);
    size_t to_size = ops[_i] == F8CU_TO_BF16 ? 2 : 1;
    for (size_t count = 1; count <= 70; count++)
        for (int is_at_end = 0; is_at_end < 2; is_at_end++) {
            struct f8cu_task task = {
                .src = is_at_end ? src + memory - count * size : src,
                .dst = is_at_end ? dst + memory - count * to_size : dst,
                .count = count,
                .scale = (float *)(void *)rest,
                .amax = (uint32_t *)(void *)(rest + 4),
                .op = (uint8_t)ops[_i],
                .dtype = (uint8_t)dtype,
                .format = F8K_E5M2,
            };
            device_upload(table, &task, sizeof(task));
            int status = ops[_i] == F8CU_AMAX ? f8cu_amax(table, 1, 1, device_stream())
                                              : f8cu_write(table, 1, 1, device_stream());
            ck_assert_int_eq(status, F8_OK);
            device_wait();
        }
    device_free(src);
    device_free(dst);
    device_free(rest);
}
END_TEST

START_TEST(launchers_refuse_what_is_no_table)
{
    void *stream = device_stream();
    struct f8cu_task *table = device_alloc(sizeof(*table));
    ck_assert_int_eq(f8cu_amax(NULL, 0, 0, stream), F8_OK);
    ck_assert_int_eq(f8cu_write(NULL, 0, 0, stream), F8_OK);
    ck_assert_int_eq(f8cu_amax(NULL, 1, 1, stream), F8_EINVAL);
    ck_assert_int_eq(f8cu_write(NULL, 1, 1, stream), F8_EINVAL);
    ck_assert_int_eq(f8cu_amax(table, 0, 1, stream), F8_EINVAL);
    ck_assert_int_eq(f8cu_write(table, 0, 1, stream), F8_EINVAL);
    ck_assert_int_eq(f8cu_amax(table, 1, 1u << 31, stream), F8_EINVAL);
    ck_assert_int_eq(f8cu_write(table, 1, 1u << 31, stream), F8_EINVAL);
    device_free(table);
}
END_TEST

START_TEST(dequantise_refuses_what_is_none)
{
    void *stream = device_stream();
    uint8_t *some = device_alloc(64);
    const float *scale = (const float *)(void *)some;
    const enum f8k_dtype no_dtype = (enum f8k_dtype)0; /* C++ allows no larger ones either */
    ck_assert_int_eq(f8cu_dequantise(F8K_E5M2, NULL, F8K_F32, NULL, 0, NULL, stream), F8_OK);
    ck_assert_int_eq(f8cu_dequantise(F8K_E5M2, NULL, F8K_F32, some, 1, scale, stream), F8_EINVAL);
    ck_assert_int_eq(f8cu_dequantise(F8K_E5M2, some, F8K_F32, NULL, 1, scale, stream), F8_EINVAL);
    ck_assert_int_eq(f8cu_dequantise(F8K_E5M2, some, F8K_F32, some, 1, NULL, stream), F8_EINVAL);
    ck_assert_int_eq(f8cu_dequantise(F8K_E5M2, some, no_dtype, some, 1, scale, stream), F8_EINVAL);
    ck_assert_int_eq(f8cu_dequantise(0, some, F8K_F32, some, 1, scale, stream), F8_EINVAL);
    ck_assert_int_eq(
        f8cu_dequantise(F8K_E5M2, some, F8K_F32, some, UINT64_C(1) << 46, scale, stream),
        F8_EINVAL);
    device_free(some);
}
END_TEST

static Suite *cuda_kernels_suite(void)
{
    Suite *suite = suite_create("cuda_kernels");
    TCase *tcase = tcase_create("against ref");
    tcase_set_timeout(tcase, 600);
    tcase_add_checked_fixture(tcase, open_cases, close_cases);
    tcase_add_loop_test(tcase, cast_every_size_and_alignment, 0, 6);
    tcase_add_loop_test(tcase, amax_every_size_and_alignment, 0, 3);
    tcase_add_loop_test(tcase, bytes_every_size_and_alignment, 0, 2);
    tcase_add_test(tcase, to_bf16_every_size_and_alignment);
    tcase_add_loop_test(tcase, dequantise_every_size_and_alignment, 0, 6);
    tcase_add_loop_test(tcase, around_the_size_of_a_part, 0, 6);
    tcase_add_loop_test(tcase, specials_in_every_lane, 0, 6);
    tcase_add_loop_test(tcase, amax_finds_one_element_anywhere, 0, 3);
    tcase_add_loop_test(tcase, amax_from_every_thread, 0, 3);
    tcase_add_loop_test(tcase, patterns_times_scales, 0, 6);
    tcase_add_test(tcase, patterns_to_bf16);
    tcase_add_loop_test(tcase, dequantise_every_code, 0, 6);
    tcase_add_loop_test(tcase, random_tables, 0, 2 + 18 / SPARSE);
    tcase_add_loop_test(tcase, amax_is_raised, 0, 4);
    tcase_add_loop_test(tcase, nothing_is_read_past_memory, 0, 5);
    tcase_add_test(tcase, launchers_refuse_what_is_no_table);
    tcase_add_test(tcase, dequantise_refuses_what_is_none);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    if (!device_open())
        return 77;
    int status =
        run_cases_unforked(cuda_kernels_suite()); /* an open device does not survive a fork */
    device_close();
    return status;
}
