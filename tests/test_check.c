/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checker of f8bench against values that are known from elsewhere: OCP's tables, the
 * reference's measured scales, and the checksums of a vector that anyone can compute. Then: that
 * it finds what is wrong. It must itself be right, since it judges the kernels.
 */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/bench/check.h"
#include "tests/lib/suite.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

START_TEST(test_decode_is_ocp)
{
    static const struct {
        enum f8_format format;
        uint8_t code;
        double value;
    } rows[] = {
        {F8_E4M3FN, 0x00, 0.0},
        {F8_E4M3FN, 0x01, 0x1p-9},
        {F8_E4M3FN, 0x07, 0x1.cp-7},
        {F8_E4M3FN, 0x08, 0x1p-6},
        {F8_E4M3FN, 0x38, 1.0},
        {F8_E4M3FN, 0x7e, 448.0},
        {F8_E4M3FN, 0xb8, -1.0},
        {F8_E4M3FN, 0xfe, -448.0},
        {F8_E5M2, 0x01, 0x1p-16},
        {F8_E5M2, 0x03, 0x1.8p-15},
        {F8_E5M2, 0x04, 0x1p-14},
        {F8_E5M2, 0x3c, 1.0},
        {F8_E5M2, 0x7b, 57344.0},
        {F8_E5M2, 0x7c, INFINITY},
        {F8_E5M2, 0xfc, -INFINITY},
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        ck_assert_double_eq(check_decode(rows[i].format, rows[i].code), rows[i].value);
    }
    for (int sign = 0; sign < 0x100; sign += 0x80) {
        ck_assert(isnan(check_decode(F8_E4M3FN, (uint8_t)(0x7f | sign))));
        for (int code = 0x7d; code <= 0x7f; code++) {
            ck_assert(isnan(check_decode(F8_E5M2, (uint8_t)(code | sign))));
        }
    }
}
END_TEST

START_TEST(test_encode_ties_saturation_subnormals_specials)
{
    static const struct {
        enum f8_format format;
        float value;
        uint8_t code;
    } rows[] = {
        /* ties go to the even code */
        {F8_E4M3FN, 1.0625F, 0x38},
        {F8_E4M3FN, 1.1875F, 0x3a},
        {F8_E4M3FN, 0x1.100002p0F, 0x39},
        {F8_E5M2, 1.125F, 0x3c},
        {F8_E5M2, 1.375F, 0x3e},
        {F8_E5M2, 0x1.1ffffep0F, 0x3c},
        /* beyond the largest finite value; 464 would be a tie with a code that is not there */
        {F8_E4M3FN, 448, 0x7e},
        {F8_E4M3FN, 464, 0x7e},
        {F8_E4M3FN, 1e30F, 0x7e},
        {F8_E4M3FN, -1e30F, 0xfe},
        {F8_E4M3FN, INFINITY, 0x7e},
        {F8_E5M2, 57344, 0x7b},
        {F8_E5M2, 1e30F, 0x7b},
        {F8_E5M2, -INFINITY, 0xfb},
        /* subnormals, and what is too small */
        {F8_E4M3FN, 0x1p-9F, 0x01},
        {F8_E4M3FN, 0x1p-10F, 0x00},
        {F8_E4M3FN, -0x1p-10F, 0x80},
        {F8_E4M3FN, 0x1.000002p-10F, 0x01},
        {F8_E4M3FN, 0x1.8p-9F, 0x02},
        {F8_E4M3FN, 0x1.fp-7F, 0x08},
        {F8_E4M3FN, 0x1p-149F, 0x00},
        {F8_E5M2, 0x1p-17F, 0x00},
        {F8_E5M2, 0x1.8p-16F, 0x02},
        {F8_E5M2, 0x1.000002p-17F, 0x01},
        /* zeros keep their sign */
        {F8_E4M3FN, 0.0F, 0x00},
        {F8_E4M3FN, -0.0F, 0x80},
        {F8_E5M2, -0.0F, 0x80},
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        ck_assert_msg(check_encode(rows[i].format, rows[i].value) == rows[i].code,
            "row %zu: %a is 0x%02x, must be 0x%02x", i, (double)rows[i].value,
            check_encode(rows[i].format, rows[i].value), rows[i].code);
    }
    ck_assert(isnan(check_decode(F8_E4M3FN, check_encode(F8_E4M3FN, NAN))));
    ck_assert(isnan(check_decode(F8_E5M2, check_encode(F8_E5M2, -NAN))));
}
END_TEST

/* A code's value is that code again. */
START_TEST(test_encode_undoes_decode)
{
    for (int format = F8_E4M3FN; format <= F8_E5M2; format++) {
        for (int code = 0; code < 256; code++) {
            double value = check_decode((enum f8_format)format, (uint8_t)code);
            if (!isnan(value) && !isinf(value)) {
                ck_assert_int_eq(check_encode((enum f8_format)format, (float)value), code);
            }
        }
    }
}
END_TEST

START_TEST(test_load)
{
    static const uint16_t halves[] = {0x3c00, 0xc000, 0x7bff, 0x0001, 0x8000, 0x0400, 0x7c00};
    static const float values[] = {1, -2, 65504, 0x1p-24F, -0.0F, 0x1p-14F, INFINITY};
    static const uint16_t bf16 = 0x3fc0;
    static const uint16_t half_nan = 0x7e01;

    for (size_t i = 0; i < COUNT(halves); i++) {
        ck_assert_uint_eq(check_bits(check_load(F8_F16, halves, i)), check_bits(values[i]));
    }
    ck_assert_float_eq(check_load(F8_BF16, &bf16, 0), 1.5F);
    ck_assert(isnan(check_load(F8_F16, &half_nan, 0)));
}
END_TEST

START_TEST(test_amax)
{
    float values[] = {1, -3, 2, NAN, INFINITY};

    ck_assert_float_eq(check_amax(F8_F32, values, 3), 3);
    ck_assert(isnan(check_amax(F8_F32, values, 5)));
    ck_assert(isinf(check_amax(F8_F32, values + 4, 1)));
    ck_assert_uint_eq(check_bits(check_amax(F8_F32, values, 0)), 0);
    values[0] = -0.0F;
    ck_assert_uint_eq(check_bits(check_amax(F8_F32, values, 1)), 0);
}
END_TEST

START_TEST(test_scale)
{
    static const struct {
        float amax;
        enum f8_dtype dtype;
        enum f8_format format;
        bool precomputed;
        bool power_of_two;
        uint32_t bits;
    } rows[] = {
        {0.5F, F8_F32, F8_E4M3FN, false, false, 0x44600000}, /* 896 */
        {0.5F, F8_F32, F8_E4M3FN, true, false, 0x44600000},
        {0.5F, F8_F32, F8_E5M2, false, false, 0x47e00000},
        {0.5F, F8_F16, F8_E5M2, false, false, 0x477fe000}, /* capped at 65504 */
        {0, F8_BF16, F8_E4M3FN, true, false, 0x57cb58f7},  /* measured */
        {0, F8_BF16, F8_E4M3FN, false, false, 0x57cbba10}, /* measured */
        {0, F8_F16, F8_E4M3FN, true, false, 0x477fe000},
        {0, F8_F16, F8_E4M3FN, false, false, 0x477fe000},
        {INFINITY, F8_F32, F8_E4M3FN, true, false, 0}, {INFINITY, F8_F32, F8_E4M3FN, true, true, 0},
        {448, F8_F32, F8_E4M3FN, true, true, 0x3f800000},
        {0x1.c00002p8F, F8_F32, F8_E4M3FN, true, true, 0x3f000000}, /* just below 1 */
        {0.5F, F8_F32, F8_E4M3FN, true, true, 0x44000000},          /* 512 */
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        float scale = check_scale(
            rows[i].amax, rows[i].dtype, rows[i].format, rows[i].precomputed, rows[i].power_of_two);
        ck_assert_msg(check_bits(scale) == rows[i].bits, "row %zu: 0x%08x, must be 0x%08x", i,
            check_bits(scale), rows[i].bits);
    }
    ck_assert(isnan(check_scale(NAN, F8_F16, F8_E4M3FN, false, true)));
}
END_TEST

/* zlib's CRC-32, a bit at a time. */
static uint32_t crc32_of(const uint8_t *bytes, size_t count)
{
    uint32_t crc = 0xffffffff;

    for (size_t i = 0; i < count; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
        }
    }
    return ~crc;
}

#define KNOWN 4096

/* The known vector, as the source type: exact in fp32; the 16-bit ones by trying both neighbours.
 */
static void known_vector(enum f8_dtype dtype, void *to)
{
    for (uint32_t i = 0; i < KNOWN; i++) {
        float value = (float)(i * 2654435761U >> 8) * 0x1p-24F - 0.5F;
        if (dtype == F8_F32) {
            ((float *)to)[i] = value;
        } else if (dtype == F8_BF16) {
            uint32_t bits = check_bits(value);
            ((uint16_t *)to)[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
        } else {
            /* fp16 by its definition: 11 bits, not below 2^-24 */
            int exponent = value == 0 ? -24 : ilogbf(value) - 10;
            float unit = ldexpf(1, exponent < -24 ? -24 : exponent);
            float rounded = rintf(value / unit) * unit;
            uint32_t code = 0;
            while (check_load(F8_F16, &(uint16_t){(uint16_t)code}, 0) != fabsf(rounded)) {
                code++;
            }
            ((uint16_t *)to)[i] = (uint16_t)(code | (signbit(value) ? 0x8000 : 0));
        }
    }
}

START_TEST(test_known_checksums)
{
    static const uint8_t first[] = {0xfe, 0x6d, 0xf7, 0x7a, 0xdc, 0xfb, 0x74, 0xf2};
    static const struct {
        enum f8_dtype dtype;
        enum f8_format format;
        uint32_t scale;
        uint32_t crc;
    } rows[] = {
        {F8_F32, F8_E4M3FN, 0x44600000, 0x2da34575},
        {F8_F32, F8_E5M2, 0x47e00000, 0x8679c14c},
        {F8_BF16, F8_E4M3FN, 0x44600000, 0x8ba294da},
        {F8_BF16, F8_E5M2, 0x47e00000, 0x000966a0},
        {F8_F16, F8_E4M3FN, 0x44600000, 0x199b7afa},
        {F8_F16, F8_E5M2, 0x477fe000, 0xa827bbcb},
    };
    static float source[KNOWN];
    static uint8_t codes[KNOWN];

    for (size_t i = 0; i < COUNT(rows); i++) {
        float amax, scale;
        known_vector(rows[i].dtype, source);
        amax = check_amax(rows[i].dtype, source, KNOWN);
        scale = check_scale(amax, rows[i].dtype, rows[i].format, false, false);
        ck_assert_uint_eq(check_bits(scale), rows[i].scale);
        for (uint32_t j = 0; j < KNOWN; j++) {
            codes[j] = check_encode(rows[i].format, check_load(rows[i].dtype, source, j) * scale);
        }
        ck_assert_uint_eq(crc32_of(codes, KNOWN), rows[i].crc);
        if (i == 0) {
            ck_assert_mem_eq(codes, first, sizeof(first));
        }
    }
}
END_TEST

/* 5 rows of 7 over 4 ranks: 2, 2, 1, 0, so 3 rows of padding. */
#define ROWS   5
#define COLS   7
#define PADDED 8

struct gathered {
    float source[ROWS * COLS];
    uint8_t data[PADDED * COLS * sizeof(float)];
    struct check_spec spec;
    struct check_got got;
    struct check_result result;
};

/* A right gather, made with the checker's own arithmetic. */
static void gather(struct gathered *g, enum f8_flavour flavour)
{
    memset(g, 0, sizeof(*g));
    for (int i = 0; i < ROWS * COLS; i++) {
        g->source[i] = (float)(i - 17) / 8;
    }
    g->spec = (struct check_spec){.name = "w",
        .source = g->source,
        .rows = ROWS,
        .cols = COLS,
        .world_size = 4,
        .dtype = F8_F32,
        .flavour = flavour,
        .format = F8_E4M3FN,
        .precomputed = true};
    g->got.data = g->data;
    g->got.size = (uint64_t)ROWS * COLS * check_element_size(&g->spec);
    if (flavour == F8_RAW) {
        memcpy(g->data, g->source, sizeof(g->source));
        return;
    }
    g->got.scale = check_scale(17 / 8.F, F8_F32, F8_E4M3FN, true, false);
    for (int i = 0; i < ROWS * COLS; i++) {
        g->data[i] = check_encode(F8_E4M3FN, g->source[i] * g->got.scale);
    }
}

static uint64_t mismatches(struct gathered *g)
{
    struct checker *checker = checker_new();

    checker_compare(checker, &g->spec, &g->got, &g->result);
    checker_free(checker);
    return g->result.mismatches;
}

START_TEST(test_right_ones_pass)
{
    struct gathered g;

    gather(&g, F8_DYNAMIC);
    ck_assert_uint_eq(check_padding_size(&g.spec), 3 * COLS);
    ck_assert_uint_eq(mismatches(&g), 0);
    ck_assert_uint_eq(g.result.bytes, PADDED * COLS + sizeof(float));
    gather(&g, F8_RAW);
    ck_assert_uint_eq(mismatches(&g), 0);
    ck_assert_uint_eq(g.result.bytes, PADDED * COLS * sizeof(float));
}
END_TEST

START_TEST(test_every_wrong_byte_is_found)
{
    struct gathered g;

    for (int i = 0; i < PADDED * COLS; i++) {
        gather(&g, F8_DYNAMIC);
        g.data[i] ^= 1;
        ck_assert_uint_eq(mismatches(&g), 1);
    }
    for (int i = 0; i < PADDED * COLS * 4; i++) {
        gather(&g, F8_RAW);
        g.data[i] ^= 1;
        ck_assert_uint_eq(mismatches(&g), 1);
    }
}
END_TEST

START_TEST(test_texts_name_weight_index_and_values)
{
    struct gathered g;

    gather(&g, F8_DYNAMIC);
    g.data[10] ^= 1;
    mismatches(&g);
    ck_assert_str_eq(
        g.result.first, "weight w: element 10 (row 1): expected 0xf4 (-192), got 0xf5 (-208)");
    gather(&g, F8_DYNAMIC);
    g.got.scale = check_from_bits(check_bits(g.got.scale) ^ 1);
    mismatches(&g);
    ck_assert_uint_eq(g.result.mismatches, 1);
    ck_assert_ptr_nonnull(strstr(g.result.first, "weight w: scale: expected 0x4352d2d3"));
    gather(&g, F8_RAW);
    g.got.size -= 4;
    mismatches(&g);
    ck_assert_str_eq(g.result.first, "weight w: size: expected 140 bytes, got 136");
    gather(&g, F8_DYNAMIC);
    g.data[ROWS * COLS + 2] = 9;
    mismatches(&g);
    ck_assert_str_eq(g.result.first, "weight w: byte 2 of the padding: expected 0x00, got 0x09");
}
END_TEST

START_TEST(test_sixteen_bit_sources_use_the_same_search)
{
    uint16_t source[300];
    uint8_t data[300];
    struct check_spec spec = {.name = "h",
        .source = source,
        .rows = 300,
        .cols = 1,
        .world_size = 1,
        .dtype = F8_F16,
        .flavour = F8_STATIC,
        .format = F8_E5M2,
        .static_scale = 3};
    struct check_got got = {.data = data, .size = 300, .scale = 3};
    struct check_result result = {0};
    struct checker *checker = checker_new();

    for (uint32_t i = 0; i < 300; i++) {
        source[i] = (uint16_t)(i * 219);
        data[i] = check_encode(F8_E5M2, check_load(F8_F16, source, i) * 3);
    }
    checker_compare(checker, &spec, &got, &result);
    ck_assert_uint_eq(result.mismatches, 0);
    spec.static_scale = 5; /* another scale: the table must not be that of 3 */
    checker_compare(checker, &spec, &got, &result);
    ck_assert_uint_gt(result.mismatches, 100);
    checker_free(checker);
}
END_TEST

START_TEST(test_raw_bf16)
{
    static const float source[] = {1, 0x1.01p0F, 0x1.03p0F, 0x1.010002p0F, -0x1.01p0F,
        0x1.fffffep127F, 0x1.fep127F, INFINITY, NAN, -0.0F};
    uint16_t data[] = {
        0x3f80, 0x3f80, 0x3f82, 0x3f81, 0xbf80, 0x7f80, 0x7f7f, 0x7f80, 0x7fc1, 0x8000};
    struct check_spec spec = {.name = "b",
        .source = source,
        .rows = COUNT(source),
        .cols = 1,
        .world_size = 1,
        .dtype = F8_F32,
        .flavour = F8_RAW_BF16};
    struct check_got got = {.data = (const uint8_t *)data, .size = sizeof(data)};
    struct check_result result = {0};
    struct checker *checker = checker_new();

    checker_compare(checker, &spec, &got, &result);
    ck_assert_msg(result.mismatches == 0, "%s", result.first);
    data[3] = 0x3f80;
    checker_compare(checker, &spec, &got, &result);
    ck_assert_uint_eq(result.mismatches, 1);
    checker_free(checker);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("check");
    TCase *arithmetic = tcase_create("arithmetic");
    TCase *compare = tcase_create("compare");

    suite_add_tcase(suite, arithmetic);
    tcase_add_test(arithmetic, test_decode_is_ocp);
    tcase_add_test(arithmetic, test_encode_ties_saturation_subnormals_specials);
    tcase_add_test(arithmetic, test_encode_undoes_decode);
    tcase_add_test(arithmetic, test_load);
    tcase_add_test(arithmetic, test_amax);
    tcase_add_test(arithmetic, test_scale);
    tcase_add_test(arithmetic, test_known_checksums);
    suite_add_tcase(suite, compare);
    tcase_add_test(compare, test_right_ones_pass);
    tcase_add_test(compare, test_every_wrong_byte_is_found);
    tcase_add_test(compare, test_texts_name_weight_index_and_values);
    tcase_add_test(compare, test_sixteen_bit_sources_use_the_same_search);
    tcase_add_test(compare, test_raw_bf16);
    return run_cases(suite);
}
