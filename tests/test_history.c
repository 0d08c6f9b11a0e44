/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log of the last syncs: how much of it is kept, in which order, and when it begins anew.
 */
#include <check.h>
#include <stdlib.h>

#include "daemon/history.h"
#include "tests/lib/suite.h"

#define WEIGHTS 3

static struct history *history;

static void set_up(void)
{
    history = history_new(WEIGHTS);
    ck_assert_ptr_nonnull(history);
}

static void tear_down(void)
{
    history_free(history);
}

static void add(uint32_t weight, uint64_t number)
{
    struct history_value value = {.amax = (uint32_t)number, .scale = ~(uint32_t)number};
    history_add(history, weight, number, value);
}

/* The log has these `count` syncs, the last of them `newest`. */
static void assert_has(uint32_t weight, uint64_t newest, uint32_t count)
{
    uint32_t wrong = 0;
    ck_assert_uint_eq(history_count(history, weight, newest), count);
    for (uint32_t i = 0; i < count; i++) {
        struct history_value value = history_at(history, weight, i);
        uint32_t expected = (uint32_t)newest - i;
        wrong += value.amax != expected || value.scale != ~expected;
    }
    ck_assert_msg(wrong == 0, "%u of %u values before sync %llu are wrong", wrong, count,
        (unsigned long long)newest);
}

START_TEST(nothing_is_known_before_the_first_sync)
{
    ck_assert_uint_eq(history_count(history, 0, 0), 0);
    ck_assert_uint_eq(history_count(history, 0, 7), 0);
    ck_assert_uint_eq(history_count(NULL, 0, 7), 0);
    history_free(NULL);
}
END_TEST

/* All of them while there is room, then the last ones: at every step, over all growths. */
START_TEST(last_syncs_are_kept)
{
    for (uint64_t number = 1; number <= 2 * HISTORY_SYNCS + 3; number++) {
        add(1, number);
        assert_has(1, number, number < HISTORY_SYNCS ? (uint32_t)number : HISTORY_SYNCS);
    }
    assert_has(0, 0, 0);
    assert_has(2, 0, 0);
}
END_TEST

/* A state may go on with any number; what is of an older one is not shown as its own. */
START_TEST(other_state_begins_anew)
{
    for (uint64_t number = 501; number <= 530; number++)
        add(0, number);
    assert_has(0, 530, 30);
    ck_assert_uint_eq(history_count(history, 0, 0), 0);
    ck_assert_uint_eq(history_count(history, 0, 531), 0);
    add(0, 1);
    assert_has(0, 1, 1);
    for (uint64_t number = UINT32_MAX - 20ull; number <= UINT32_MAX + 20ull; number++)
        add(0, number);
    assert_has(0, UINT32_MAX + 20ull, 41);
    add(0, UINT32_MAX + 20ull); /* twice the same: the state went back by one */
    assert_has(0, UINT32_MAX + 20ull, 1);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("history");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, nothing_is_known_before_the_first_sync);
    tcase_add_test(tcase, last_syncs_are_kept);
    tcase_add_test(tcase, other_state_begins_anew);
    return run_suite("history", tcase);
}
