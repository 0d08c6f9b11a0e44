/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists of weights and buckets: the sentence of every check, what is kept and dropped, and where
 * the layout puts them. Sizes that would overflow are refused, never wrapped.
 */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "daemon/weights.h"
#include "tests/lib/suite.h"

#define LIMIT 100

static struct weight plain(void)
{
    return (struct weight){.ndim = 2,
        .shape = {5, 1000},
        .dtype = F8_PROTO_F32,
        .flavour = F8_PROTO_DYNAMIC,
        .format = F8_PROTO_E4M3FN};
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static void add(struct weight_list *list, const char *name, const struct weight *weight)
{
    struct reason reason = {""};
    ck_assert_msg(weights_add(list, name, weight, LIMIT, &reason) == F8_OK, "%s", reason.text);
}

static int add_bucket(struct weight_list *list, const char *name, uint32_t first, uint32_t count,
    bool shared, struct reason *reason)
{
    return weights_add_bucket(list,
        &(struct bucket_info){.name = name, .first = first, .count = count, .shared = shared},
        reason);
}

static void bucket(
    struct weight_list *list, const char *name, uint32_t first, uint32_t count, bool shared)
{
    struct reason reason = {""};
    ck_assert_msg(
        add_bucket(list, name, first, count, shared, &reason) == F8_OK, "%s", reason.text);
}

static void assert_has(const struct reason *reason, const char *part)
{
    ck_assert_msg(strstr(reason->text, part), "\"%s\" lacks \"%s\"", reason->text, part);
}

/* Names are UTF-8 and make long sentences: no half of a character may be left at a cut. */
START_TEST(sentences_are_cut_between_characters)
{
    char euros[3 * REASON_SIZE + 1] = "";
    struct reason reason;
    for (size_t i = 0; i < REASON_SIZE; i++)
        memcpy(euros + 3 * i, "\xe2\x82\xac", 4);
    for (size_t before = 0; before < 3; before++) {
        (void)reason_set(&reason, F8_EINVAL, "%.*s%s", (int)before, "ab", euros);
        size_t length = strlen(reason.text);
        ck_assert_uint_ge(length, REASON_SIZE - 3);
        ck_assert_uint_eq((length - before) % 3, 0);
    }
    (void)reason_set(&reason, F8_EINVAL, "%.4s", euros);
    ck_assert_str_eq(reason.text, "\xe2\x82\xac");
    (void)reason_set(&reason, F8_EINVAL, "%s", "a\xf0\x9f\x98\x80");
    ck_assert_uint_eq(strlen(reason.text), 5);
}
END_TEST

/* ---- Checks of one weight ---- */

#define N16  "nnnnnnnnnnnnnnnn"
#define N64  N16 N16 N16 N16
#define N256 N64 N64 N64 N64 /* one more than a name may have */

static const struct {
    const char *name;
    struct weight weight;
    const char *text; /* part of the sentence */
} bad[] = {
    {"", {.ndim = 1, .shape = {1}}, "the name of weight 0 is empty"},
    {N256, {.ndim = 1, .shape = {1}}, "has 256 bytes, the limit is 255"},
    {"w\x1b[2J", {.ndim = 1, .shape = {1}},
        "the name of weight 0 has the control character U+001B at byte 1"},
    {"\xff", {.ndim = 0}, "the name of weight 0 is not UTF-8 at byte 0"},
    {"w", {.ndim = 0}, "weight w has 0 dimensions, allowed are 1 to 8"},
    {"w", {.ndim = 9}, "weight w has 9 dimensions"},
    {"w", {.ndim = 1, .shape = {(UINT64_C(1) << 48) + 1}}, "weight w has more than 2^48 elements"},
    {"w", {.ndim = 2, .shape = {UINT64_C(1) << 32, UINT64_C(1) << 32}}, "more than 2^48"},
    {"w", {.ndim = 3, .shape = {0, UINT64_C(1) << 40, UINT64_C(1) << 40}}, "more than 2^48"},
    {"w", {.ndim = 1, .shape = {1}, .dtype = 9}, "weight w has dtype 9, known are 1 (float32)"},
    {"w", {.ndim = 1, .shape = {1}, .dtype = F8_PROTO_F32, .flavour = 6},
        "weight w has flavour 6, which this daemon lacks"},
    {"w", {.ndim = 1, .shape = {1}, .dtype = F8_PROTO_F16, .flavour = F8_PROTO_RAW_BF16},
        "flavour raw-bf16 takes float32 sources, not float16"},
    {"w", {.ndim = 1, .shape = {1}, .dtype = F8_PROTO_F32, .flavour = F8_PROTO_DYNAMIC},
        "weight w has float8 format 0, known are 1 (e4m3fn)"},
};

#define NUM_BAD ((int)(sizeof(bad) / sizeof(bad[0])))

START_TEST(bad_weights_are_named)
{
    struct weight_list *list = weights_new(4);
    struct reason reason = {""};
    ck_assert_int_eq(weights_add(list, bad[_i].name, &bad[_i].weight, LIMIT, &reason), F8_EINVAL);
    assert_has(&reason, bad[_i].text);
    ck_assert_uint_eq(list->num_weights, 0);
    weights_unref(list);
}
END_TEST

START_TEST(static_scales_are_finite_and_positive)
{
    static const float scales[] = {0.0f, -0.0f, -1.0f, NAN, INFINITY, -INFINITY};
    struct weight_list *list = weights_new(1);
    struct weight weight = plain();
    struct reason reason = {""};
    weight.flavour = F8_PROTO_STATIC;
    for (size_t i = 0; i < sizeof(scales) / sizeof(scales[0]); i++) {
        weight.static_bits = bits_of(scales[i]);
        ck_assert_int_eq(weights_add(list, "w", &weight, LIMIT, &reason), F8_EINVAL);
        assert_has(&reason, "weight w has static scale");
    }
    weight.static_bits = 1; /* the smallest subnormal is a scale */
    add(list, "w", &weight);
    weights_unref(list);
}
END_TEST

START_TEST(names_and_numbers_are_limited)
{
    struct weight_list *list = weights_new(1);
    struct weight weight = plain();
    struct reason reason = {""};
    add(list, "w", &weight);
    ck_assert_int_eq(weights_add(list, "w", &weight, LIMIT, &reason), F8_EEXIST);
    assert_has(&reason, "weight w is registered twice by this rank");
    ck_assert_int_eq(weights_add(list, "x", &weight, 1, &reason), F8_ELIMIT);
    assert_has(&reason, "weight x is one more than the limit of 1 weights");
    ck_assert_uint_eq(list->num_weights, 1);
    weights_unref(list);
}
END_TEST

START_TEST(what_is_not_told_is_filled_in)
{
    struct weight_list *list = weights_new(4);
    struct weight weight = {.ndim = 3,
        .shape = {5, 3, 7},
        .dtype = F8_PROTO_F32,
        .flavour = F8_PROTO_RAW_BF16,
        .format = F8_PROTO_E5M2,
        .static_bits = 5,
        .power_of_two = true};
    add(list, "raw", &weight);
    const struct weight *added = &list->weights[0];
    ck_assert_uint_eq(added->rows, 5);
    ck_assert_uint_eq(added->cols, 21);
    ck_assert_uint_eq(added->wire, F8_PROTO_WIRE_BF16);
    ck_assert_uint_eq(added->bucket, WEIGHT_NO_BUCKET);
    /* What a flavour does not use is not compared between ranks. */
    ck_assert_uint_eq(added->format, 0);
    ck_assert_uint_eq(added->static_bits, 0);
    ck_assert(!added->power_of_two);
    ck_assert_uint_eq(weight_shard_count(added, 4, 0), 42);
    ck_assert_uint_eq(weight_shard_count(added, 4, 3), 0);
    ck_assert_uint_eq(weight_wire_bytes(added), 210);
    ck_assert(!weight_is_float8(added));
    weights_unref(list);
}
END_TEST

START_TEST(shapes_in_words)
{
    struct weight weight = {.ndim = 2, .shape = {4096, 1024}};
    char text[64], small[8];
    ck_assert_str_eq(weight_shape_text(&weight, text, sizeof(text)), "[4096, 1024]");
    ck_assert_str_eq(weight_shape_text(&weight, small, sizeof(small)), "[4096, ");
}
END_TEST

/* ---- Buckets ---- */

static struct weight_list *list_of(uint32_t world_size, uint32_t count)
{
    struct weight_list *list = weights_new(world_size);
    struct weight weight = plain();
    char name[16];
    for (uint32_t w = 0; w < count; w++) {
        (void)snprintf(name, sizeof(name), "w%u", w);
        add(list, name, &weight);
    }
    return list;
}

static const struct {
    const char *name;
    uint32_t first, count;
    const char *text;
} bad_buckets[] = {
    {"", 2, 1, "the name of bucket 1 is empty"},
    {N256, 2, 1, "has 256 bytes"},
    {"b\n", 2, 1, "the name of bucket 1 has the control character U+000A at byte 1"},
    {"b\xc3", 2, 1, "the name of bucket 1 is not UTF-8 at byte 1"},
    {"b", 2, 0, "bucket b has no weights"},
    {"b", 2, 2, "bucket b has weights 2 to 3, but only 3 are registered"},
    {"b", 4, 1, "bucket b has weights 4 to 4"},
    {"b", UINT32_MAX, UINT32_MAX, "bucket b has weights 4294967295 to 8589934589"},
    {"b", 1, 2, "weight w1 is in bucket a and in bucket b"},
};

#define NUM_BAD_BUCKETS ((int)(sizeof(bad_buckets) / sizeof(bad_buckets[0])))

START_TEST(bad_buckets_are_named)
{
    struct weight_list *list = list_of(2, 3);
    struct reason reason = {""};
    bucket(list, "a", 0, 2, false);
    ck_assert_int_eq(add_bucket(list, bad_buckets[_i].name, bad_buckets[_i].first,
                         bad_buckets[_i].count, false, &reason),
        F8_EINVAL);
    assert_has(&reason, bad_buckets[_i].text);
    ck_assert_uint_eq(list->num_buckets, 1);
    ck_assert_uint_eq(list->weights[2].bucket, WEIGHT_NO_BUCKET);
    ck_assert_int_eq(add_bucket(list, "a", 2, 1, false, &reason), F8_EEXIST);
    assert_has(&reason, "bucket a is registered twice");
    weights_unref(list);
}
END_TEST

START_TEST(completeness_names_the_first_gap)
{
    struct weight_list *list = list_of(2, 3);
    struct reason reason = {""};
    ck_assert_int_eq(weights_check_complete(list, &reason), F8_EORDER);
    assert_has(&reason, "no bucket is registered");
    bucket(list, "a", 0, 1, false);
    bucket(list, "c", 2, 1, false);
    ck_assert_int_eq(weights_check_complete(list, &reason), F8_EINVAL);
    assert_has(&reason, "weight w1 is in no bucket");
    bucket(list, "b", 1, 1, false);
    ck_assert_int_eq(weights_check_complete(list, &reason), F8_OK);
    weights_unref(list);
}
END_TEST

START_TEST(truncating_takes_all_back)
{
    struct weight_list *list = list_of(2, 40);
    struct weight weight = plain();
    bucket(list, "a", 0, 1, false);
    bucket(list, "b", 1, 39, false);
    weights_truncate(list, 3, 1);
    ck_assert_uint_eq(list->num_weights, 3);
    ck_assert_uint_eq(list->num_buckets, 1);
    ck_assert_uint_eq(list->weights[0].bucket, 0);
    ck_assert_uint_eq(list->weights[1].bucket, WEIGHT_NO_BUCKET);
    ck_assert_uint_eq(list->weights[2].bucket, WEIGHT_NO_BUCKET);
    add(list, "w3", &weight); /* names are free again */
    bucket(list, "b", 1, 3, true);
    ck_assert_str_eq(list->weights[2].name, "w2");
    weights_truncate(list, 0, 0);
    ck_assert_uint_eq(list->weight_names.count, 0);
    ck_assert_uint_eq(list->bucket_names.count, 0);
    weights_unref(list);
}
END_TEST

/* ---- Layout ---- */

/* Every w takes 8192 bytes over 4 ranks; a place's scales 4096. */
#define SPAN   8192
#define SCALES 4096

START_TEST(layout_of_own_places)
{
    struct weight_list *list = list_of(4, 3);
    struct weights_layout layout = {0};
    bucket(list, "a", 0, 1, false);
    bucket(list, "b", 1, 2, false);
    ck_assert_int_eq(weights_lay_out(list, 3, &layout), F8_OK);
    ck_assert_uint_eq(layout.slot_span, 0);
    ck_assert_uint_eq(layout.size, 3 * SPAN + 2 * SCALES);
    ck_assert_uint_eq(list->buckets[0].own, 0);
    ck_assert_uint_eq(list->buckets[0].scales, SPAN);
    ck_assert_uint_eq(list->buckets[1].own, SPAN + SCALES);
    ck_assert_uint_eq(list->buckets[1].span, 2 * SPAN + SCALES);
    ck_assert_uint_eq(list->weights[1].offset, 0);
    ck_assert_uint_eq(list->weights[2].offset, SPAN);
    weights_unref(list);
}
END_TEST

START_TEST(layout_of_slots)
{
    struct weight_list *list = list_of(4, 3);
    struct weights_layout layout = {0};
    bucket(list, "a", 0, 1, true);
    bucket(list, "b", 1, 2, true);
    ck_assert_int_eq(weights_lay_out(list, 2, &layout), F8_OK);
    ck_assert_uint_eq(layout.slot_span, 2 * SPAN + SCALES); /* of the largest */
    ck_assert_uint_eq(layout.size, 2 * layout.slot_span);
    weights_unref(list);
}
END_TEST

START_TEST(layout_of_both)
{
    struct weight_list *list = list_of(4, 3);
    struct weights_layout layout = {0};
    bucket(list, "a", 0, 1, false);
    bucket(list, "b", 1, 1, true);
    bucket(list, "c", 2, 1, false);
    ck_assert_int_eq(weights_lay_out(list, 2, &layout), F8_OK);
    ck_assert_uint_eq(layout.slot_span, SPAN + SCALES);
    ck_assert_uint_eq(layout.size, 4 * (SPAN + SCALES));
    ck_assert_uint_eq(list->buckets[0].own, 0);
    ck_assert_uint_eq(list->buckets[2].own, SPAN + SCALES);
    weights_unref(list);
}
END_TEST

/* 2^31 - 1023 slots of 2^33 + 4096 bytes are less than a slot, modulo 2^64. */
START_TEST(slots_cannot_wrap_around)
{
    struct weight_list *list = weights_new(1);
    struct weights_layout layout = {.size = 77};
    struct weight weight = plain();
    weight.flavour = F8_PROTO_RAW;
    weight.shape[0] = UINT64_C(1) << 31;
    weight.shape[1] = 1;
    add(list, "w", &weight);
    bucket(list, "b", 0, 1, true);
    ck_assert_int_eq(weights_lay_out(list, (UINT32_C(1) << 31) - 1023, &layout), F8_ELIMIT);
    ck_assert_uint_eq(layout.size, 77);
    ck_assert_int_eq(weights_lay_out(list, 3, &layout), F8_OK);
    ck_assert_uint_eq(layout.size, 3 * ((UINT64_C(1) << 33) + SCALES));
    weights_unref(list);
}
END_TEST

/* Two of them wrap around together, four do so exactly to a small number. */
START_TEST(weights_cannot_wrap_around)
{
    struct weights_layout layout;
    struct weight weight = plain();
    char name[16];
    weight.flavour = F8_PROTO_RAW;
    weight.shape[0] = 1;
    weight.shape[1] = F8_PROTO_MAX_ELEMENTS;
    for (int apart = 0; apart < 2; apart++) {
        struct weight_list *list = weights_new(4096);
        for (uint32_t w = 0; w < 4; w++) {
            (void)snprintf(name, sizeof(name), "w%u", w);
            add(list, name, &weight);
            if (apart)
                bucket(list, name, w, 1, false);
        }
        if (!apart)
            bucket(list, "b", 0, 4, false);
        ck_assert_int_eq(weights_lay_out(list, 0, &layout), F8_ELIMIT);
        weights_unref(list);
    }
}
END_TEST

static void add_all(TCase *tcase)
{
    tcase_add_test(tcase, sentences_are_cut_between_characters);
    tcase_add_loop_test(tcase, bad_weights_are_named, 0, NUM_BAD);
    tcase_add_test(tcase, static_scales_are_finite_and_positive);
    tcase_add_test(tcase, names_and_numbers_are_limited);
    tcase_add_test(tcase, what_is_not_told_is_filled_in);
    tcase_add_test(tcase, shapes_in_words);
    tcase_add_loop_test(tcase, bad_buckets_are_named, 0, NUM_BAD_BUCKETS);
    tcase_add_test(tcase, completeness_names_the_first_gap);
    tcase_add_test(tcase, truncating_takes_all_back);
    tcase_add_test(tcase, layout_of_own_places);
    tcase_add_test(tcase, layout_of_slots);
    tcase_add_test(tcase, layout_of_both);
    tcase_add_test(tcase, slots_cannot_wrap_around);
    tcase_add_test(tcase, weights_cannot_wrap_around);
}

int main(void)
{
    TCase *tcase = tcase_create("weights");
    add_all(tcase);
    return run_suite("weights", tcase);
}
