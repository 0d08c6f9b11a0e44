/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Comparison of what two ranks registered: each kind of difference, planted alone, is found and
 * named with both ranks, both pids and both values; the first of several is the one that is told.
 */
#include <check.h>
#include <string.h>

#include "daemon/weights.h"
#include "tests/lib/suite.h"

#define LIMIT 100

static void add(struct weight_list *list, const char *name, const struct weight *weight)
{
    struct reason reason = {""};
    ck_assert_msg(weights_add(list, name, weight, LIMIT, &reason) == F8_OK, "%s", reason.text);
}

static void bucket(
    struct weight_list *list, const char *name, uint32_t first, uint32_t count, bool shared)
{
    struct reason reason = {""};
    int status = weights_add_bucket(list,
        &(struct bucket_info){.name = name, .first = first, .count = count, .shared = shared},
        &reason);
    ck_assert_msg(status == F8_OK, "%s", reason.text);
}

/* The registration that all have, but for what `change` changes. */
struct plan {
    const char *second; /* name of the second weight */
    struct weight first;
    uint32_t static_bits;
    const char *bucket;
    uint32_t in_first; /* weights of the first bucket */
    bool shared;
    bool third, third_bucket; /* one weight, one bucket more */
};

static struct plan plan(void)
{
    return (struct plan){.second = "w1",
        .first = {.ndim = 2,
            .shape = {5, 7},
            .dtype = F8_PROTO_F32,
            .flavour = F8_PROTO_DYNAMIC,
            .format = F8_PROTO_E4M3FN},
        .static_bits = 0x3f800000,
        .bucket = "b",
        .in_first = 1};
}

static struct weight_list *build(const struct plan *p)
{
    struct weight_list *list = weights_new(2);
    struct weight fixed = {.ndim = 1,
        .shape = {9},
        .dtype = F8_PROTO_BF16,
        .flavour = F8_PROTO_STATIC,
        .format = F8_PROTO_E5M2,
        .static_bits = p->static_bits};
    add(list, "w0", &p->first);
    add(list, p->second, &fixed);
    if (p->third)
        add(list, "w2", &fixed);
    bucket(list, p->bucket, 0, p->in_first, p->shared);
    if (p->in_first == 1 && p->third_bucket)
        bucket(list, "c", 1, 1, false);
    return list;
}

static void name(struct plan *p)
{
    p->second = "other";
}
static void shape(struct plan *p)
{
    p->first.shape[1] = 8;
}
static void ndim(struct plan *p)
{
    p->first.ndim = 1;
}
static void dtype(struct plan *p)
{
    p->first.dtype = F8_PROTO_F16;
}
static void flavour(struct plan *p)
{
    p->first.flavour = F8_PROTO_RAW;
}
static void format(struct plan *p)
{
    p->first.format = F8_PROTO_E5M2;
}
static void power(struct plan *p)
{
    p->first.power_of_two = true;
}
static void scale(struct plan *p)
{
    p->static_bits = 0x3f800001;
}
static void more_weights(struct plan *p)
{
    p->third = true;
}
static void bucket_name(struct plan *p)
{
    p->bucket = "d";
}
static void bucket_count(struct plan *p)
{
    p->in_first = 2;
}
static void bucket_shared(struct plan *p)
{
    p->shared = true;
}
static void more_buckets(struct plan *p)
{
    p->third_bucket = true;
}

static const struct {
    void (*change)(struct plan *p);
    const char *text;
} differences[] = {
    {name, "rank 3 (pid 33) registered other as weight 1 where rank 0 (pid 10) registered w1"},
    {shape, "rank 3 (pid 33) registered weight w0 as float32 [5, 8] dynamic e4m3fn where rank 0 "
            "(pid 10) registered float32 [5, 7] dynamic e4m3fn"},
    {ndim, "as float32 [5] dynamic e4m3fn where"},
    {dtype, "as float16 [5, 7] dynamic e4m3fn where"},
    {flavour, "as float32 [5, 7] raw float32 where"},
    {format, "as float32 [5, 7] dynamic e5m2 where"},
    {power, "as float32 [5, 7] dynamic e4m3fn power-of-two where"},
    {scale, "rank 3 (pid 33) gave weight w1 the static scale 1.00000012 (0x3f800001) where rank 0 "
            "(pid 10) gave 1 (0x3f800000)"},
    {more_weights, "rank 3 (pid 33) registered 3 weights where rank 0 (pid 10) registered 2"},
    {bucket_name, "rank 3 (pid 33) registered d as bucket 0 where rank 0 (pid 10) registered b"},
    {bucket_count, "rank 3 (pid 33) registered bucket b as 2 weights from 0 on where rank 0 (pid "
                   "10) registered 1 from 0 on"},
    {bucket_shared, "as 1 shared weights from 0 on where rank 0 (pid 10) registered 1 from 0 on"},
    {more_buckets, "rank 3 (pid 33) registered 2 buckets where rank 0 (pid 10) registered 1"},
};

#define NUM_DIFFERENCES ((int)(sizeof(differences) / sizeof(differences[0])))

static int compare(struct weight_list *a, struct weight_list *b, struct reason *reason)
{
    struct weights_party of_a = {.list = a, .rank = 0, .pid = 10};
    struct weights_party of_b = {.list = b, .rank = 3, .pid = 33};
    return weights_compare(&of_a, &of_b, reason);
}

START_TEST(each_difference_is_named)
{
    struct plan one = plan(), other = plan();
    struct reason reason = {""};
    differences[_i].change(&other);
    struct weight_list *a = build(&one), *b = build(&other);
    ck_assert_int_eq(compare(a, b, &reason), F8_EMISMATCH);
    ck_assert_msg(strstr(reason.text, differences[_i].text), "\"%s\" lacks \"%s\"", reason.text,
        differences[_i].text);
    ck_assert_int_eq(compare(b, a, &reason), F8_EMISMATCH);
    ck_assert_int_eq(compare(a, a, &reason), F8_OK);
    weights_unref(a);
    weights_unref(b);
}
END_TEST

START_TEST(equal_lists_are_equal)
{
    struct plan same = plan();
    struct reason reason = {""};
    struct weight_list *a = build(&same), *b = build(&same);
    ck_assert_int_eq(compare(a, b, &reason), F8_OK);
    weights_unref(a);
    weights_unref(b);
}
END_TEST

/* In the order of registration, weights before buckets. */
START_TEST(first_difference_wins)
{
    struct plan one = plan(), other = plan();
    struct reason reason = {""};
    name(&other);
    scale(&other);
    bucket_name(&other);
    more_weights(&other);
    struct weight_list *a = build(&one), *b = build(&other);
    ck_assert_int_eq(compare(a, b, &reason), F8_EMISMATCH);
    ck_assert_ptr_nonnull(strstr(reason.text, "registered other as weight 1"));
    weights_unref(a);
    weights_unref(b);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("weights_compare");
    tcase_add_loop_test(tcase, each_difference_is_named, 0, NUM_DIFFERENCES);
    tcase_add_test(tcase, equal_lists_are_equal);
    tcase_add_test(tcase, first_difference_wins);
    return run_suite("weights_compare", tcase);
}
