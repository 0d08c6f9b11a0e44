/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checker's delayed scaling against the reference's record (tests/vectors/delayed.tsv) and the
 * rules that it does not show: short windows, most recent, amaxes that keep the scale. Then parts
 * of weights, whose amax is taken over the whole.
 */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/bench/check.h"
#include "tests/lib/suite.h"

#define LENGTH 16 /* of the histories of the record */

/* A line of delayed.tsv. */
struct row {
    char dtype[8];
    unsigned step;
    uint32_t scale_used, amax, scale_after;
    char history[LENGTH * 9 + 1];
};

/* Reads the next line that is no comment; false at the end. */
static bool read_row(FILE *file, struct row *row)
{
    char line[512];
    do {
        if (!fgets(line, sizeof(line), file))
            return false;
    } while (line[0] == '#');
    int fields = sscanf(line, "%7s %u %*u %*u %*s %*s %x %x %x %144s", row->dtype, &row->step,
        &row->scale_used, &row->amax, &row->scale_after, row->history);
    ck_assert_msg(fields == 6, "%s", line);
    return true;
}

static enum f8_dtype dtype_of(const char *name)
{
    if (strcmp(name, "f32") == 0)
        return F8_F32;
    return strcmp(name, "bf16") == 0 ? F8_BF16 : F8_F16;
}

static void check_history(const struct check_delayed *delayed, const char *expected)
{
    char text[LENGTH * 9 + 1];
    size_t used = 0;
    for (int i = 0; i < LENGTH; i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%08x", i > 0 ? "," : "",
            check_bits(delayed->history[i]));
    ck_assert_str_eq(text, expected);
}

START_TEST(follows_the_reference)
{
    char path[4096];
    (void)snprintf(path, sizeof(path), "%s/delayed.tsv", getenv("VECTORS"));
    FILE *file = fopen(path, "r");
    ck_assert_msg(file != NULL, "%s cannot be read", path);
    struct check_delayed *delayed = NULL;
    struct row row;
    int rows = 0;
    for (; read_row(file, &row); rows++) {
        if (row.step == 0) {
            free(delayed);
            delayed =
                check_delayed_new(dtype_of(row.dtype), F8_E4M3FN, false, F8_HISTORY_MAX, LENGTH);
        }
        ck_assert_ptr_nonnull(delayed);
        check_delayed_gather(delayed, check_from_bits(row.amax));
        ck_assert_uint_eq(check_bits(delayed->scale), row.scale_used);
        check_delayed_sync(delayed);
        ck_assert_uint_eq(check_bits(delayed->scale), row.scale_after);
        check_history(delayed, row.history);
    }
    ck_assert_int_eq(rows, 18);
    free(delayed);
    (void)fclose(file);
}
END_TEST

/* Amaxes of six steps, and the amax that the scale follows from after each sync. */
static const struct {
    enum f8_history algorithm;
    uint32_t length;
    float amax[6], decisive[6];
} windows[] = {
    {F8_HISTORY_MAX, 1, {7, 1, 7, 2, 3, 1}, {7, 1, 7, 2, 3, 1}},
    {F8_HISTORY_MAX, 2, {7, 1, 2, 1, 3, 1}, {7, 7, 2, 2, 3, 3}},
    {F8_HISTORY_MAX, 3, {7, 1, 2, 1, 3, 1}, {7, 7, 7, 2, 3, 3}},
    {F8_HISTORY_MOST_RECENT, 3, {7, 1, 2, 1, 3, 1}, {7, 1, 2, 1, 3, 1}},
    /* zero and what is not finite keep the scale, and count for nothing later */
    {F8_HISTORY_MAX, 3, {7, 0, 0, 0, 2, NAN}, {7, 7, 7, 7, 2, 2}},
    {F8_HISTORY_MAX, 3, {7, INFINITY, 2, 1, 1, 1}, {7, 7, 7, 2, 2, 1}},
    {F8_HISTORY_MAX, 16, {7, NAN, 2, 8, 1, 1}, {7, 7, 7, 8, 8, 8}},
    {F8_HISTORY_MOST_RECENT, 2, {7, 1, NAN, INFINITY, 0, 3}, {7, 1, 1, 1, 1, 3}},
};

START_TEST(the_window_moves)
{
    struct check_delayed *delayed =
        check_delayed_new(F8_BF16, F8_E5M2, true, windows[_i].algorithm, windows[_i].length);
    ck_assert_ptr_nonnull(delayed);
    check_delayed_sync(delayed); /* nothing, before the first gather */
    ck_assert(!delayed->seeded);
    for (int step = 0; step < 6; step++) {
        if (step > 0)
            check_delayed_gather(delayed, 99); /* of several between two syncs the last counts */
        check_delayed_gather(delayed, windows[_i].amax[step]);
        check_delayed_sync(delayed);
        ck_assert_float_eq(
            delayed->scale, check_scale(windows[_i].decisive[step], F8_BF16, F8_E5M2, false, true));
    }
    free(delayed);
}
END_TEST

START_TEST(a_seed_that_is_no_number_holds_until_the_next_sync)
{
    struct check_delayed *delayed = check_delayed_new(F8_F32, F8_E4M3FN, false, F8_HISTORY_MAX, 4);
    ck_assert_ptr_nonnull(delayed);
    check_delayed_gather(delayed, NAN);
    ck_assert(isnan(delayed->scale));
    check_delayed_sync(delayed);
    ck_assert(isnan(delayed->scale));
    check_delayed_gather(delayed, 2);
    ck_assert(isnan(delayed->scale));
    check_delayed_sync(delayed);
    ck_assert_float_eq(delayed->scale, 224);
    free(delayed);
}
END_TEST

/* Rows 1 and 2, columns 2 to 4 of 4 x 6; the largest value lies outside. */
enum { ROWS = 4, COLS = 6, PART_ROWS = 2, PART_COLS = 3 };

static uint64_t compare_part(enum f8_flavour flavour, enum f8_dtype dtype, int flipped)
{
    struct check_delayed *delayed = check_delayed_new(dtype, F8_E4M3FN, false, F8_HISTORY_MAX, 2);
    struct checker *checker = checker_new();
    struct check_result result = {0};
    uint16_t whole[ROWS * COLS * 2];
    uint8_t data[PART_ROWS * PART_COLS * 4];
    size_t size = dtype == F8_F32 ? 4 : 2;
    const uint8_t *source = (const uint8_t *)whole + (1 * COLS + 2) * size;
    ck_assert(delayed && checker);
    for (int i = 0; i < ROWS * COLS * 2; i++)
        whole[i] = (uint16_t)(0x3f80 - i * 5);
    float amax = check_amax(dtype, whole, (uint64_t)ROWS * COLS);
    check_delayed_gather(delayed, amax);
    struct check_spec spec = {.name = "p",
        .source = source,
        .rows = PART_ROWS,
        .cols = PART_COLS,
        .stride = COLS,
        .amax_whole = whole,
        .amax_count = (uint64_t)ROWS * COLS,
        .world_size = 1,
        .dtype = dtype,
        .flavour = flavour,
        .format = F8_E4M3FN,
        .static_scale = 3,
        .delayed = delayed};
    struct check_got got = {.data = data,
        .size = (uint64_t)PART_ROWS * PART_COLS * check_element_size(&spec),
        .scale = flavour == F8_STATIC ? 3 : check_scale(amax, dtype, F8_E4M3FN, false, false)};
    for (int i = 0; i < PART_ROWS * PART_COLS; i++) {
        int from = (1 + i / PART_COLS) * COLS + 2 + i % PART_COLS;
        if (check_is_float8(&spec))
            data[i] = check_encode(F8_E4M3FN, check_load(dtype, whole, (uint64_t)from) * got.scale);
        else
            memcpy(data + (size_t)i * size, (const uint8_t *)whole + (size_t)from * size, size);
    }
    if (flipped >= 0)
        data[flipped] ^= 1;
    checker_compare(checker, &spec, &got, &result);
    checker_free(checker);
    free(delayed);
    return result.mismatches;
}

START_TEST(parts_are_compared_in_place)
{
    static const enum f8_flavour flavours[] = {F8_DYNAMIC, F8_DELAYED, F8_STATIC, F8_RAW};
    for (int f = 0; f < 4; f++) {
        int bytes = PART_ROWS * PART_COLS * (flavours[f] == F8_RAW ? 2 : 1);
        for (int flipped = -1; flipped < bytes; flipped++) {
            uint64_t expected = flipped >= 0;
            ck_assert_uint_eq(compare_part(flavours[f], F8_BF16, flipped), expected);
            ck_assert_uint_eq(compare_part(flavours[f], F8_F32, flipped), expected);
        }
    }
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("delayed");
    tcase_add_test(cases, follows_the_reference);
    tcase_add_loop_test(cases, the_window_moves, 0, (int)(sizeof(windows) / sizeof(windows[0])));
    tcase_add_test(cases, a_seed_that_is_no_number_holds_until_the_next_sync);
    tcase_add_test(cases, parts_are_compared_in_place);
    return run_suite("check_delayed", cases);
}
