/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules of round.h while nothing goes wrong: how collectives collect their ranks, which place
 * a gather gets, what a rank is refused, the early part, quiesce. test_round_broken.c has the
 * rest, test_round_death.c deaths; test_round_explore.c goes through all interleavings.
 */
#include "tests/lib/round_fixture.h"
#include "tests/lib/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

START_TEST(runs_when_all_have_asked)
{
    fix_begin(3, "o", 0, 4);
    fix_precompute(1);
    fix_precompute(2);
    assert_said("");
    fix_precompute(0);
    assert_said("start 0 precompute; ");
    round_finished(fix.rounds, F8_OK);
    assert_said("100 OK; 200 OK; 300 OK; ");
    ck_assert_uint_eq(round_completed(fix.rounds), 1);
    ck_assert(round_drained(fix.rounds));
}
END_TEST

START_TEST(runs_one_at_a_time_in_order)
{
    fix_begin(2, "oo", 0, 4);
    fix_gather(0, A);
    fix_gather(0, B);
    fix_gather(1, A);
    fix_gather(1, B);
    assert_said("start 0 gather A at 0; ");
    round_finished(fix.rounds, F8_OK);
    assert_said("100 OK; 200 OK; start 1 gather B at 1; ");
    round_finished(fix.rounds, F8_OK);
    assert_said("101 OK; 201 OK; ");
}
END_TEST

START_TEST(one_rank_alone)
{
    fix_begin(1, "s", 1, 1);
    fix_gather(0, A);
    assert_said("start 0 gather A at 0; ");
    round_finished(fix.rounds, F8_OK);
    ck_assert(round_holds(fix.rounds, 0, A));
    ck_assert_int_eq(round_release(fix.rounds, 0, A), F8_OK);
    assert_said("100 OK; clean 0; ");
    fix_precompute(0);
    assert_said("start 1 precompute; ");
}
END_TEST

START_TEST(waits_for_ranks_that_have_not_entered)
{
    bool none = false;
    struct round_shape shape = {.ranks = 2, .depth = 4, .shared = &none};
    struct round_request seal = {.tag = 7, .deadline_ms = 10, .kind = ROUND_SEAL};
    static const struct round_ops silent;
    fix.rounds = round_new(&shape, &silent, NULL);
    round_enter(fix.rounds, 0);
    ck_assert_int_eq(round_ask(fix.rounds, 0, 0, &seal), ROUND_PENDING);
    struct round_head head;
    ck_assert(round_head(fix.rounds, &head));
    ck_assert(!head.complete && !head.running);
    ck_assert(round_missing(fix.rounds, 0, 1) && !round_missing(fix.rounds, 0, 0));
}
END_TEST

START_TEST(refuses_a_bucket_in_use)
{
    fix_begin(2, "oo", 0, 8);
    fix_gather(0, A);
    ck_assert_int_eq(fix_ask(0, ROUND_GATHER, A), F8_EBUSY); /* asked for */
    ck_assert(round_uses(fix.rounds, 0, A) && !round_holds(fix.rounds, 0, A));
    fix_gather(1, A);
    round_finished(fix.rounds, F8_OK);
    ck_assert_int_eq(fix_ask(0, ROUND_GATHER, A), F8_EBUSY); /* held */
    ck_assert_int_eq(round_release(fix.rounds, 0, A), F8_OK);
    ck_assert_int_eq(fix_ask(0, ROUND_GATHER, A), ROUND_PENDING);
}
END_TEST

START_TEST(refuses_when_the_rank_uses_all_slots)
{
    fix_begin(2, "ssso", 2, 8);
    fix_hold_all(A);
    fix_gather(0, B);
    ck_assert_int_eq(fix_ask(0, ROUND_GATHER, C), F8_EBUSY);
    fix_gather(0, D); /* has a place of its own */
    ck_assert_int_eq(round_release(fix.rounds, 0, A), F8_OK);
    fix_gather(0, C);
}
END_TEST

START_TEST(refuses_a_shared_bucket_where_no_slot_is)
{
    fix_begin(1, "so", 0, 4);
    ck_assert_int_eq(fix_ask(0, ROUND_GATHER, A), F8_EBUSY);
    ck_assert_uint_eq(round_deadline(fix.rounds), ROUND_NEVER);
    fix_gather(0, B);
}
END_TEST

START_TEST(refuses_more_than_depth)
{
    fix_begin(2, "o", 0, 3);
    for (int i = 0; i < 3; i++)
        fix_precompute(0);
    ck_assert_int_eq(fix_ask(0, ROUND_PRECOMPUTE, 0), F8_ELIMIT);
    fix_precompute(1);
    ck_assert_int_eq(fix_ask(0, ROUND_PRECOMPUTE, 0), F8_ELIMIT); /* it runs: still open */
    round_finished(fix.rounds, F8_OK);
    fix_precompute(0);
}
END_TEST

START_TEST(a_refusal_changes_nothing)
{
    fix_begin(2, "so", 1, 2);
    fix_gather(0, A);
    fix_gather(0, B);
    void *before = malloc(round_size(fix.rounds));
    memcpy(before, fix.rounds, round_size(fix.rounds));
    ck_assert_int_eq(fix_ask(0, ROUND_GATHER, A), F8_ELIMIT);
    ck_assert_int_eq(round_prepare(fix.rounds, 0, A), F8_EBUSY);
    ck_assert_int_eq(round_release(fix.rounds, 0, A), F8_EORDER);
    ck_assert_mem_eq(before, fix.rounds, round_size(fix.rounds));
    free(before);
}
END_TEST

/* The ring of records is used over and over; numbers and tags stay right. */
START_TEST(goes_round_the_ring)
{
    fix_begin(3, "ss", 2, 4);
    for (uint32_t n = 0; n < 700; n++) {
        for (uint32_t r = 0; r < 3; r++)
            fix_gather((n + r) % 3, n % 2);
        round_finished(fix.rounds, F8_OK);
        char said[200];
        (void)snprintf(said, sizeof(said), "start %u gather %c at %u; %u OK; %u OK; %u OK; ", n,
            'A' + (char)(n % 2), n % 2, 100 + fix.requests[0] - 1, 200 + fix.requests[1] - 1,
            300 + fix.requests[2] - 1);
        assert_said(said);
        for (uint32_t r = 0; n > 0 && r < 3; r++)
            ck_assert_int_eq(round_release(fix.rounds, (n + 2 * r) % 3, (n + 1) % 2), F8_OK);
        fix.said[0] = '\0';
        fix.requests[0] = fix.requests[1] = fix.requests[2] = n % 90;
    }
    ck_assert_uint_eq(round_completed(fix.rounds), 700);
}
END_TEST

START_TEST(a_place_is_free_when_all_have_released)
{
    static const uint32_t orders[6][3] = {
        {0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (int o = 0; o < 6; o++) {
        fix_begin(3, "ss", 1, 4);
        fix_hold_all(A);
        for (int i = 0; i < 3; i++) {
            assert_said("");
            uint32_t r = orders[o][i];
            ck_assert_int_eq(round_release(fix.rounds, r, A), F8_OK);
            ck_assert_int_eq(round_release(fix.rounds, r, A), F8_EORDER); /* twice */
            if (i < 2)
                fix_gather(r, B);
        }
        assert_said("clean 0; ");
        fix_gather(orders[o][2], B);
        assert_said("start 1 gather B at 0; ");
        fix_end();
    }
}
END_TEST

/* Each rank has a slot left, yet none is free: the gather waits for the first release. */
START_TEST(waits_for_a_slot_that_others_hold)
{
    fix_begin(2, "sss", 2, 8);
    fix_hold_all(A);
    fix_hold_all(B);
    round_release(fix.rounds, 0, A);
    round_release(fix.rounds, 1, B);
    fix_gather(0, C);
    fix_gather(1, C);
    assert_said("");
    struct round_head head;
    ck_assert(round_head(fix.rounds, &head) && head.complete && !head.running);
    round_release(fix.rounds, 0, B);
    assert_said("clean 1; start 2 gather C at 1; ");
}
END_TEST

START_TEST(a_place_is_used_again_only_when_clean)
{
    fix_begin(1, "so", 1, 8);
    fix.clean_begins = true;
    fix_hold_all(A);
    fix_hold_all(B);
    round_release(fix.rounds, 0, A);
    round_release(fix.rounds, 0, B);
    assert_said("clean 0; clean 2; ");
    ck_assert(!round_drained(fix.rounds));
    fix_gather(0, A);
    fix_gather(0, B);
    round_cleaned(fix.rounds, 2);
    assert_said(""); /* A is first */
    round_cleaned(fix.rounds, 0);
    assert_said("start 2 gather A at 0; ");
    round_finished(fix.rounds, F8_OK);
    assert_said("102 OK; start 3 gather B at 2; ");
}
END_TEST

START_TEST(release_is_refused_before_the_gather_has_ended)
{
    fix_begin(1, "oo", 0, 4);
    ck_assert_int_eq(round_release(fix.rounds, 0, A), F8_EORDER);
    fix_gather(0, A);
    ck_assert_int_eq(round_release(fix.rounds, 0, A), F8_EORDER);
    round_finished(fix.rounds, F8_OK);
    ck_assert_int_eq(round_release(fix.rounds, 0, B), F8_EORDER);
    ck_assert_int_eq(round_release(fix.rounds, 0, A), F8_OK);
}
END_TEST

START_TEST(prepare_writes_to_an_own_place_that_is_free)
{
    fix_begin(2, "o", 0, 4);
    ck_assert_int_eq(round_prepare(fix.rounds, 0, A), F8_OK);
    assert_said("prepare 0 A at 0; ");
    ck_assert_int_eq(round_prepare(fix.rounds, 0, A), F8_EBUSY); /* runs */
    round_prepared(fix.rounds, 0, A);
    ck_assert_int_eq(round_prepare(fix.rounds, 0, A), F8_EBUSY); /* done */
    fix_hold_all(A);
    ck_assert_int_eq(round_prepare(fix.rounds, 0, A), F8_EBUSY); /* held */
    round_release(fix.rounds, 0, A);
    assert_said("");
    ck_assert_int_eq(round_prepare(fix.rounds, 0, A), F8_OK);
    assert_said("prepare 0 A; "); /* rank 1 still holds the place */
    fix.clean_begins = true;
    round_release(fix.rounds, 1, A);
    round_prepare(fix.rounds, 1, A);
    assert_said("clean 0; prepare 1 A; ");
}
END_TEST

START_TEST(prepare_never_takes_a_slot)
{
    fix_begin(1, "s", 1, 4);
    ck_assert_int_eq(round_prepare(fix.rounds, 0, A), F8_OK);
    assert_said("prepare 0 A; ");
}
END_TEST

START_TEST(a_gather_waits_for_early_parts_of_its_bucket_only)
{
    fix_begin(2, "oo", 0, 4);
    round_prepare(fix.rounds, 0, A);
    round_prepare(fix.rounds, 1, B);
    assert_said("prepare 0 A at 0; prepare 1 B at 1; ");
    ck_assert(round_reads(fix.rounds, 0, A) && !round_reads(fix.rounds, 0, B));
    fix_gather(0, A);
    ck_assert_int_eq(round_prepare(fix.rounds, 0, A), F8_EBUSY); /* asked for */
    fix_gather(1, A);
    assert_said("");
    round_prepared(fix.rounds, 0, A);
    assert_said("start 0 gather A at 0; ");
    ck_assert(!round_drained(fix.rounds));
    round_finished(fix.rounds, F8_OK);
    ck_assert(!round_reads(fix.rounds, 0, A) && round_reads(fix.rounds, 1, B));
}
END_TEST

START_TEST(prepare_that_begins_nothing_holds_up_nothing)
{
    fix_begin(1, "o", 0, 4);
    fix.prepare_begins = false;
    ck_assert_int_eq(round_prepare(fix.rounds, 0, A), F8_OK);
    ck_assert(round_drained(fix.rounds));
    fix_gather(0, A);
    assert_said("prepare 0 A at 0; start 0 gather A at 0; ");
}
END_TEST

START_TEST(quiesce_waits_for_all_that_reads)
{
    fix_begin(2, "oo", 0, 4);
    ck_assert_int_eq(round_quiesce(fix.rounds, 0, 1), F8_OK);
    fix_precompute(0);
    round_prepare(fix.rounds, 0, B);
    ck_assert_int_eq(round_quiesce(fix.rounds, 0, 2), ROUND_PENDING);
    ck_assert_int_eq(round_quiesce(fix.rounds, 0, 3), F8_EBUSY);
    ck_assert_int_eq(round_quiesce(fix.rounds, 1, 4), F8_OK);
    fix_precompute(1);
    round_finished(fix.rounds, F8_OK);
    assert_said("prepare 0 B at 1; start 0 precompute; 100 OK; 200 OK; ");
    round_prepared(fix.rounds, 0, B);
    assert_said("quiesced 0 2; ");
    fix_hold_all(B);
    ck_assert_int_eq(round_quiesce(fix.rounds, 0, 5), F8_OK); /* a held bucket is no shard */
}
END_TEST

START_TEST(knows_which_kinds_a_rank_has_asked_for)
{
    fix_begin(2, "o", 0, 4);
    fix_gather(0, A);
    fix_precompute(0);
    ck_assert(round_asked(fix.rounds, 0, ROUND_PRECOMPUTE));
    ck_assert(round_asked(fix.rounds, 0, ROUND_GATHER));
    ck_assert(!round_asked(fix.rounds, 0, ROUND_SEAL));
    ck_assert(!round_asked(fix.rounds, 1, ROUND_GATHER));
    fix_gather(1, A);
    round_finished(fix.rounds, F8_OK);
    ck_assert(!round_asked(fix.rounds, 0, ROUND_GATHER));
    ck_assert(round_asked(fix.rounds, 0, ROUND_PRECOMPUTE));
}
END_TEST

START_TEST(the_head_says_what_waits_since_when)
{
    fix_begin(2, "os", 1, 4);
    struct round_head head;
    ck_assert(!round_head(fix.rounds, &head));
    fix.now = 50;
    fix_gather(1, B);
    fix.now = 70;
    fix.deadline_ms = 30;
    fix_gather(0, B);
    ck_assert(round_head(fix.rounds, &head));
    ck_assert_uint_eq(head.opened, 50);
    ck_assert_uint_eq(head.deadline, 100);
    ck_assert(head.running && head.complete);
    ck_assert_uint_eq(head.run.bucket, B);
    ck_assert_uint_eq(head.run.place, 0);
}
END_TEST

static Suite *round_suite(void)
{
    const TTest *const tests[] = {
        runs_when_all_have_asked,
        runs_one_at_a_time_in_order,
        one_rank_alone,
        waits_for_ranks_that_have_not_entered,
        refuses_a_bucket_in_use,
        refuses_when_the_rank_uses_all_slots,
        refuses_a_shared_bucket_where_no_slot_is,
        refuses_more_than_depth,
        a_refusal_changes_nothing,
        goes_round_the_ring,
        a_place_is_free_when_all_have_released,
        waits_for_a_slot_that_others_hold,
        a_place_is_used_again_only_when_clean,
        release_is_refused_before_the_gather_has_ended,
        prepare_writes_to_an_own_place_that_is_free,
        prepare_never_takes_a_slot,
        a_gather_waits_for_early_parts_of_its_bucket_only,
        prepare_that_begins_nothing_holds_up_nothing,
        quiesce_waits_for_all_that_reads,
        knows_which_kinds_a_rank_has_asked_for,
        the_head_says_what_waits_since_when,
    };
    Suite *suite = suite_create("round");
    TCase *tcase = tcase_create("rules");
    tcase_add_checked_fixture(tcase, NULL, fix_end);
    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
        tcase_add_test(tcase, tests[i]);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return run_cases(round_suite());
}
