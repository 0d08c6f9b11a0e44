/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scaling state of a delayed weight: seed, syncs, the window and its two algorithms, amaxes
 * that are none, and what a weight takes over from the one that it follows.
 */
#include <check.h>
#include <math.h>
#include <string.h>

#include "daemon/scaling.h"
#include "tests/lib/suite.h"

#define INFINITE 0x7f800000u
#define QUIET    0x7fc00000u

static const struct f8k_counts none;

/* A delayed weight with its history; the state is a fresh one. */
struct subject {
    struct weight weight;
    struct scaling scaling;
    uint32_t history[1024];
};

static struct subject subject;

static void begin_with(uint32_t length, uint8_t algorithm)
{
    subject.weight = (struct weight){.dtype = F8_PROTO_F32,
        .flavour = F8_PROTO_DELAYED,
        .format = F8_PROTO_E4M3FN,
        .history_length = (uint16_t)length,
        .history_algorithm = algorithm};
    memset(subject.history, 0xAA, sizeof(subject.history)); /* it is cleared, or this is seen */
    scaling_init(&subject.scaling, &subject.weight, subject.history);
}

static uint32_t bits(float value)
{
    uint32_t result;
    memcpy(&result, &value, sizeof(result));
    return result;
}

/* By the specification, in double. */
static float direct(float amax)
{
    return (float)(448.0 / fmax((double)amax, 1e-12));
}

static void seed(float amax)
{
    ck_assert(scaling_wants_amax(&subject.scaling, &subject.weight));
    scaling_in_gather(&subject.scaling, &subject.weight, bits(amax));
    scaling_cast(&subject.scaling, bits(amax));
    (void)scaling_gathered(&subject.scaling, 0, &none);
}

static void sync_bits(uint32_t amax)
{
    scaling_cast(&subject.scaling, amax);
    scaling_sync(&subject.scaling, &subject.weight);
}

static void sync(float amax)
{
    sync_bits(bits(amax));
}

static uint32_t entry(uint32_t i)
{
    return scaling_history(&subject.scaling, &subject.weight, i);
}

static void assert_scale(float amax)
{
    ck_assert_uint_eq(bits(subject.scaling.scale), bits(direct(amax)));
}

START_TEST(begins_without_a_seed)
{
    begin_with(16, F8_PROTO_HISTORY_MAX);
    ck_assert(!subject.scaling.ready);
    ck_assert(scaling_wants_amax(&subject.scaling, &subject.weight));
    ck_assert_float_eq(subject.scaling.scale, 1.0f);
    for (uint32_t i = 0; i < 16; i++)
        ck_assert_uint_eq(entry(i), 0);
    ck_assert_uint_eq(subject.history[16], 0xAAAAAAAAu); /* no more than its own */
    scaling_sync(&subject.scaling, &subject.weight);     /* nothing to go by */
    ck_assert(!subject.scaling.ready);
    ck_assert_uint_eq(subject.scaling.delayed.syncs, 0);
    ck_assert_uint_eq(subject.scaling.delayed.kept, 0);
}
END_TEST

START_TEST(first_gather_seeds)
{
    begin_with(4, F8_PROTO_HISTORY_MAX);
    seed(3);
    assert_scale(3);
    ck_assert(subject.scaling.ready && !scaling_wants_amax(&subject.scaling, &subject.weight));
    ck_assert_uint_eq(entry(0), bits(3));
    ck_assert_uint_eq(entry(1), 0);
    scaling_cast(&subject.scaling, bits(7)); /* a second gather: the scale holds */
    assert_scale(3);
    ck_assert_uint_eq(entry(0), bits(3));
    ck_assert_uint_eq(subject.scaling.amax, bits(7));
    ck_assert_uint_eq(subject.scaling.delayed.since_sync, 2);
    scaling_sync(&subject.scaling, &subject.weight);
    assert_scale(7);
    ck_assert_uint_eq(entry(0), bits(7));
    ck_assert_uint_eq(entry(1), bits(3));
    ck_assert_uint_eq(subject.scaling.delayed.syncs, 1);
    ck_assert_uint_eq(subject.scaling.delayed.since_sync, 0);
}
END_TEST

/* The last gather's amax counts, not the largest since the last sync. */
START_TEST(amax_is_that_of_the_last_gather)
{
    begin_with(2, F8_PROTO_HISTORY_MOST_RECENT);
    seed(1);
    scaling_cast(&subject.scaling, bits(100));
    sync(2);
    assert_scale(2);
    scaling_sync(&subject.scaling, &subject.weight); /* and stays until the next gather */
    ck_assert_uint_eq(entry(0), bits(2));
    ck_assert_uint_eq(entry(1), bits(2));
}
END_TEST

START_TEST(max_is_over_the_window)
{
    begin_with(3, F8_PROTO_HISTORY_MAX);
    seed(8);
    sync(4);
    assert_scale(8);
    sync(2);
    assert_scale(8);
    sync(1); /* the seed has dropped out */
    assert_scale(4);
    sync(1);
    assert_scale(2);
    sync(1);
    assert_scale(1);
    ck_assert_uint_eq(subject.scaling.delayed.syncs, 5);
}
END_TEST

START_TEST(most_recent_is_the_newest)
{
    begin_with(3, F8_PROTO_HISTORY_MOST_RECENT);
    seed(8);
    for (int i = 1; i < 20; i++) {
        sync((float)(i % 7 + 1));
        assert_scale((float)(i % 7 + 1));
        ck_assert_uint_eq(entry(0), bits((float)(i % 7 + 1)));
    }
}
END_TEST

static const uint32_t lengths[] = {1, 2, 16, 1023, 1024};

START_TEST(windows_of_any_length)
{
    uint32_t length = lengths[_i];
    begin_with(length, F8_PROTO_HISTORY_MAX);
    seed(0.5f);
    uint32_t syncs = 2 * length + 3;
    for (uint32_t i = 1; i <= syncs; i++)
        sync((float)i);
    for (uint32_t i = 0; i < length; i++)
        ck_assert_uint_eq(entry(i), bits((float)(syncs - i)));
    assert_scale((float)syncs);
    for (uint32_t i = 1; i < length; i++) {
        sync(1);
        assert_scale((float)syncs);
    }
    sync(1);
    assert_scale(1);
}
END_TEST

static const uint32_t no_amaxes[] = {0, INFINITE, QUIET, 0x7f800001u, 0x7fffffffu};

/* It keeps the scale, is counted, is seen, and does not weigh on later windows. */
START_TEST(no_amax_keeps_the_scale)
{
    for (uint8_t algorithm = 0; algorithm < 2; algorithm++) {
        begin_with(4, algorithm);
        seed(2);
        sync_bits(no_amaxes[_i]);
        assert_scale(2);
        ck_assert_uint_eq(entry(0), no_amaxes[_i]);
        ck_assert_uint_eq(subject.scaling.delayed.kept, 1);
        ck_assert_uint_eq(subject.scaling.delayed.syncs, 1);
        ck_assert_uint_eq(subject.scaling.amax, no_amaxes[_i]);
        sync(1);
        assert_scale(algorithm == F8_PROTO_HISTORY_MAX ? 2 : 1);
        sync(1);
        sync(1);
        assert_scale(1);
        ck_assert_uint_eq(subject.scaling.delayed.kept, 1);
    }
}
END_TEST

/* A seed that is none casts as the specification says; the first good amax mends it. */
START_TEST(no_amax_as_a_seed)
{
    begin_with(4, F8_PROTO_HISTORY_MAX);
    scaling_in_gather(&subject.scaling, &subject.weight, no_amaxes[_i]);
    ck_assert(subject.scaling.ready);
    if (no_amaxes[_i] == 0)
        assert_scale(0);
    else if (no_amaxes[_i] == INFINITE)
        ck_assert_uint_eq(bits(subject.scaling.scale), 0);
    else
        ck_assert(isnan(subject.scaling.scale));
    sync_bits(no_amaxes[_i]);
    sync(2);
    assert_scale(2);
    ck_assert_uint_eq(subject.scaling.delayed.kept, 1);
}
END_TEST

START_TEST(powers_of_two)
{
    begin_with(4, F8_PROTO_HISTORY_MAX);
    subject.weight.power_of_two = true;
    seed(2); /* 224 */
    ck_assert_float_eq(subject.scaling.scale, 128.0f);
    sync(3); /* 149.3 */
    ck_assert_float_eq(subject.scaling.scale, 128.0f);
    sync(3.5f); /* 128, exactly */
    ck_assert_float_eq(subject.scaling.scale, 128.0f);
    sync(3.6f);
    ck_assert_float_eq(subject.scaling.scale, 64.0f);
}
END_TEST

/* fp16 sources: no scale above the largest fp16. */
START_TEST(fp16_scales_are_capped)
{
    begin_with(2, F8_PROTO_HISTORY_MOST_RECENT);
    subject.weight.dtype = F8_PROTO_F16;
    seed(1);
    sync(1e-6f);
    ck_assert_float_eq(subject.scaling.scale, 65504.0f);
}
END_TEST

START_TEST(invalidate_forgets)
{
    begin_with(3, F8_PROTO_HISTORY_MAX);
    seed(8);
    sync(4);
    sync(2);
    scaling_invalidate(&subject.scaling, &subject.weight);
    ck_assert(scaling_wants_amax(&subject.scaling, &subject.weight));
    ck_assert_float_eq(subject.scaling.scale, 1.0f);
    for (uint32_t i = 0; i < 3; i++)
        ck_assert_uint_eq(entry(i), 0);
    scaling_sync(&subject.scaling, &subject.weight); /* nothing of before comes back */
    ck_assert_uint_eq(entry(0), 0);
    ck_assert_uint_eq(subject.scaling.delayed.syncs, 2);
    seed(1);
    assert_scale(1);
    ck_assert_uint_eq(entry(0), bits(1));
    ck_assert_uint_eq(entry(1), 0);
}
END_TEST

START_TEST(never_stale_and_lasting)
{
    begin_with(3, F8_PROTO_HISTORY_MAX);
    seed(8);
    for (uint64_t version = 1; version < 5; version++)
        ck_assert(!scaling_gathered(&subject.scaling, version, &none));
    ck_assert_uint_eq(subject.scaling.stale, 0);
    scaling_next_generation(&subject.scaling, &subject.weight);
    ck_assert(subject.scaling.ready);
    assert_scale(8);
}
END_TEST

/* A weight whose amax is another group's follows its state; its own counters and amax are its own.
 */
START_TEST(follows_its_leader)
{
    static struct scaling leader;
    static uint32_t history[3];
    begin_with(3, F8_PROTO_HISTORY_MAX);
    scaling_init(&leader, &subject.weight, history);
    scaling_in_gather(&leader, &subject.weight, bits(8));
    scaling_follow(&subject.scaling, &leader, &subject.weight);
    assert_scale(8);
    ck_assert(subject.scaling.ready);
    scaling_cast(&subject.scaling, bits(5));
    (void)scaling_gathered(&subject.scaling, 1, &(struct f8k_counts){.saturated = 2});
    leader.delayed.local = bits(9);
    scaling_sync(&leader, &subject.weight);
    scaling_follow(&subject.scaling, &leader, &subject.weight);
    assert_scale(9);
    ck_assert_uint_eq(entry(0), bits(9));
    ck_assert_uint_eq(entry(1), bits(8));
    ck_assert_uint_eq(subject.scaling.amax, bits(9));
    ck_assert_uint_eq(subject.scaling.delayed.local, bits(5));
    ck_assert_uint_eq(subject.scaling.delayed.since_sync, 0);
    ck_assert_uint_eq(subject.scaling.delayed.syncs, 1);
    ck_assert_uint_eq(subject.scaling.saturated, 2);
    scaling_cast(&subject.scaling, bits(6));
    scaling_follow(&subject.scaling, &leader, &subject.weight); /* no sync: still one gather */
    ck_assert_uint_eq(subject.scaling.delayed.since_sync, 1);
    leader.delayed.local = 0;
    scaling_sync(&leader, &subject.weight);
    scaling_follow(&subject.scaling, &leader, &subject.weight);
    ck_assert_uint_eq(subject.scaling.delayed.kept, 1);
    scaling_invalidate(&leader, &subject.weight);
    scaling_follow(&subject.scaling, &leader, &subject.weight);
    ck_assert(!subject.scaling.ready);
    ck_assert_uint_eq(subject.scaling.delayed.local, 0);
    ck_assert_uint_eq(entry(0), 0);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("scaling_delayed");
    tcase_add_test(tcase, begins_without_a_seed);
    tcase_add_test(tcase, first_gather_seeds);
    tcase_add_test(tcase, amax_is_that_of_the_last_gather);
    tcase_add_test(tcase, max_is_over_the_window);
    tcase_add_test(tcase, most_recent_is_the_newest);
    tcase_add_loop_test(tcase, windows_of_any_length, 0, 5);
    tcase_add_loop_test(tcase, no_amax_keeps_the_scale, 0, 5);
    tcase_add_loop_test(tcase, no_amax_as_a_seed, 0, 5);
    tcase_add_test(tcase, powers_of_two);
    tcase_add_test(tcase, fp16_scales_are_capped);
    tcase_add_test(tcase, invalidate_forgets);
    tcase_add_test(tcase, never_stale_and_lasting);
    tcase_add_test(tcase, follows_its_leader);
    return run_suite("scaling_delayed", tcase);
}
