/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The weights that f8bench makes and changes: the same whatever the cut into ranks, and other
 * values after each step, or a gather of stale bytes could pass for a right one.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "client/bench/check.h"
#include "client/bench/source.h"
#include "tests/lib/suite.h"

enum { SEED = 7, STEPS = 6, MANY = 1000000 };

static struct model model;
static struct source source;

static void open_source(enum f8_dtype dtype)
{
    const struct model_options options = {.dtype = dtype, .flavour = F8_DYNAMIC};
    struct bench_error error;

    ck_assert_int_eq(model_builtin("tiny", &options, &model, &error), 0);
    ck_assert_int_eq(source_open(&model, SEED, &source, &error), 0);
}

static void close_source(void)
{
    source_close(&source);
    model_done(&model);
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Fills all weights and changes them, in rectangles of `rows` x `cols`. */
static void run(uint64_t rows, uint64_t cols)
{
    for (uint32_t w = 0; w < model.num_weights; w++) {
        struct model_part all = model_whole(&model.weights[w]);
        struct model_part part = {0};
        for (part.first_row = 0; part.first_row < all.num_rows; part.first_row += rows) {
            part.num_rows = smaller(rows, all.num_rows - part.first_row);
            for (part.first_col = 0; part.first_col < all.num_cols; part.first_col += cols) {
                part.num_cols = smaller(cols, all.num_cols - part.first_col);
                source_fill(&source, w, &part);
                for (uint32_t step = 0; step < STEPS; step++)
                    source_change(&source, w, &part, step);
            }
        }
    }
}

START_TEST(the_cut_does_not_matter)
{
    open_source((enum f8_dtype)_i);
    run(MANY, MANY);
    uint8_t *whole = malloc(source.size);
    ck_assert_ptr_nonnull(whole);
    memcpy(whole, source.base, source.size);
    for (uint64_t rows = 1; rows <= 3; rows++) {
        run(rows, MANY);
        ck_assert_mem_eq(source.base, whole, source.size);
        run(MANY, 20 * rows);
        ck_assert_mem_eq(source.base, whole, source.size);
    }
    free(whole);
    close_source();
}
END_TEST

/* A rectangle out of the midst of a weight, element by element. */
START_TEST(a_part_is_copied_row_by_row)
{
    const struct model_part part = {.first_row = 2, .num_rows = 3, .first_col = 1, .num_cols = 4};
    const struct model_part none = {.first_row = 2, .num_cols = 4};
    uint32_t w = 1;
    float copy[3 * 4];
    open_source(F8_F32);
    run(MANY, MANY);
    ck_assert_uint_eq(model_cols(&model.weights[w]), 7);
    ck_assert_uint_eq(source_copy(&source, w, &part, copy), sizeof(copy));
    for (uint64_t i = 0; i < 12; i++)
        ck_assert_float_eq(
            copy[i], check_load(F8_F32, source_weight(&source, w), (2 + i / 4) * 7 + 1 + i % 4));
    ck_assert_uint_eq(source_copy(&source, w, &none, copy), 0);
    close_source();
}
END_TEST

static void check_moved(const struct model_weight *weight, const void *before, const void *after)
{
    uint64_t count = model_elements(weight);

    for (uint64_t i = 0; i < count; i++) {
        float old = check_load(weight->dtype, before, i);
        float new = check_load(weight->dtype, after, i);
        /* Subnormal fp16 values have too few bits to move by a hundredth. */
        ck_assert_msg(old != new || check_bits(old) << 1 < 0x38800000U << 1,
            "%s: element %llu stays %a", weight->name, (unsigned long long)i, (double)old);
    }
    ck_assert_uint_ne(check_bits(check_amax(weight->dtype, before, count)),
        check_bits(check_amax(weight->dtype, after, count)));
}

START_TEST(each_value_moves_in_each_step)
{
    open_source((enum f8_dtype)_i);
    uint8_t *before = malloc(source.size);
    ck_assert_ptr_nonnull(before);
    for (uint32_t w = 0; w < model.num_weights; w++) {
        struct model_part all = model_whole(&model.weights[w]);
        source_fill(&source, w, &all);
    }
    for (uint32_t step = 0; step < STEPS; step++) {
        memcpy(before, source.base, source.size);
        for (uint32_t w = 0; w < model.num_weights; w++) {
            struct model_part all = model_whole(&model.weights[w]);
            source_change(&source, w, &all, step);
            check_moved(&model.weights[w], before + source.offsets[w], source_weight(&source, w));
        }
    }
    free(before);
    close_source();
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("source");

    tcase_add_loop_test(tcase, the_cut_does_not_matter, F8_F32, F8_F16 + 1);
    tcase_add_test(tcase, a_part_is_copied_row_by_row);
    tcase_add_loop_test(tcase, each_value_moves_in_each_step, F8_F32, F8_F16 + 1);
    return run_suite("source", tcase);
}
