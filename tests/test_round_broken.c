/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules of round.h once something goes wrong: the causes and whom they name, what still runs
 * to its end, who is answered what and when, and what is refused from then on. Deaths are in
 * test_round_death.c.
 */
#include "tests/lib/round_fixture.h"
#include "tests/lib/suite.h"

START_TEST(mismatch_of_buckets)
{
    fix_begin(3, "oo", 0, 4);
    fix_precompute(1);
    fix_gather(1, A);
    fix_precompute(2);
    fix_gather(2, B);
    assert_said("broken; cancel; 200 EMISMATCH; 300 EMISMATCH; 201 EMISMATCH; 301 EMISMATCH; ");
    assert_cause(ROUND_MISMATCH, F8_EMISMATCH, 1, 2);
    ck_assert_int_eq(fix.cause.kind, ROUND_GATHER);
    ck_assert_uint_eq(fix.cause.bucket, B);
    ck_assert_uint_eq(fix.cause.other_rank, 1);
    ck_assert_int_eq(fix.cause.other_kind, ROUND_GATHER);
    ck_assert_uint_eq(fix.cause.other_bucket, A);
    ck_assert(!round_uses(fix.rounds, 1, A) && !round_uses(fix.rounds, 2, B));
    assert_over();
}
END_TEST

START_TEST(mismatch_of_kinds)
{
    fix_begin(2, "o", 0, 4);
    fix_gather(1, A);
    fix_precompute(0);
    assert_said("broken; cancel; 100 EMISMATCH; 200 EMISMATCH; ");
    assert_cause(ROUND_MISMATCH, F8_EMISMATCH, 0, 0);
    ck_assert_int_eq(fix.cause.kind, ROUND_PRECOMPUTE);
    ck_assert_int_eq(fix.cause.other_kind, ROUND_GATHER);
    ck_assert_uint_eq(fix.cause.other_rank, 1);
    assert_over();
}
END_TEST

START_TEST(mismatch_behind_a_run_lets_it_end)
{
    fix_begin(2, "o", 0, 4);
    fix_gather(0, A);
    fix_gather(1, A);
    fix_precompute(0);
    ck_assert_int_eq(round_release(fix.rounds, 1, A), F8_EORDER);
    ck_assert_int_eq(fix_ask(1, ROUND_SEAL, 0), ROUND_PENDING);
    assert_said("start 0 gather A at 0; broken; cancel; ");
    round_finished(fix.rounds, F8_OK);
    assert_said("100 OK; 200 OK; 101 EMISMATCH; 201 EMISMATCH; ");
    ck_assert(round_holds(fix.rounds, 0, A) && round_holds(fix.rounds, 1, A));
    ck_assert_int_eq(round_release(fix.rounds, 0, A), F8_OK);
    ck_assert_int_eq(round_release(fix.rounds, 1, A), F8_OK);
    assert_said("clean 0; ");
    assert_over();
}
END_TEST

START_TEST(a_missing_rank_is_overdue)
{
    fix_begin(3, "o", 0, 4);
    fix.now = 10;
    fix_precompute(0);
    fix.deadline_ms = 500; /* per call: the nearest counts */
    fix_precompute(2);
    ck_assert_uint_eq(round_deadline(fix.rounds), 510);
    round_tick(fix.rounds, 509);
    ck_assert(!round_is_broken(fix.rounds));
    round_tick(fix.rounds, 510);
    assert_said("broken; cancel; 100 EDEADLINE; 300 EDEADLINE; ");
    assert_cause(ROUND_OVERDUE, F8_EDEADLINE, 0, 0);
    ck_assert(!fix.cause.place);
    assert_over();
}
END_TEST

START_TEST(a_deadline_never_wraps)
{
    fix_begin(2, "o", 0, 4);
    fix.now = 1000;
    fix.deadline_ms = UINT64_MAX;
    fix_precompute(0);
    ck_assert_uint_eq(round_deadline(fix.rounds), ROUND_NEVER);
    round_tick(fix.rounds, 5000);
    ck_assert(!round_is_broken(fix.rounds));
}
END_TEST

START_TEST(a_place_that_stays_held_is_overdue)
{
    fix_begin(2, "o", 0, 4);
    fix_hold_all(A);
    round_release(fix.rounds, 0, A);
    fix_gather(0, A);
    round_tick(fix.rounds, 1000);
    assert_said("broken; cancel; 101 EDEADLINE; "); /* rank 1 is missing, it holds A */
    ck_assert(!fix.cause.place);
    fix_end();

    fix_begin(2, "sss", 2, 4);
    fix_hold_all(A);
    fix_hold_all(B);
    round_release(fix.rounds, 0, A);
    round_release(fix.rounds, 1, B);
    fix_gather(0, C);
    fix_gather(1, C);
    ck_assert_uint_eq(round_deadline(fix.rounds), 1000);
    round_tick(fix.rounds, 1000);
    assert_said("broken; cancel; 102 EDEADLINE; 202 EDEADLINE; ");
    assert_cause(ROUND_OVERDUE, F8_EDEADLINE, 2, 0);
    ck_assert(fix.cause.place);
    ck_assert(round_holds(fix.rounds, 0, B) && round_holds(fix.rounds, 1, A));
}
END_TEST

START_TEST(what_runs_or_follows_complete_is_not_overdue)
{
    fix_begin(2, "o", 0, 4);
    fix_precompute(0);
    fix_precompute(1);
    fix_precompute(0);
    fix_precompute(1);
    assert_said("start 0 precompute; ");
    ck_assert_uint_eq(round_deadline(fix.rounds), ROUND_NEVER);
    round_tick(fix.rounds, 5000);
    ck_assert(!round_is_broken(fix.rounds));
    fix.now = 5000;
    fix_precompute(1); /* its follower lacks rank 0 */
    ck_assert_uint_eq(round_deadline(fix.rounds), 6000);
    round_finished(fix.rounds, F8_OK);
    assert_said("100 OK; 200 OK; start 1 precompute; ");
    round_tick(fix.rounds, 6000);
    assert_said("broken; cancel; ");
    assert_cause(ROUND_OVERDUE, F8_EDEADLINE, 2, 0);
    ck_assert(round_missing(fix.rounds, 2, 0) && !round_missing(fix.rounds, 2, 1));
    round_finished(fix.rounds, F8_OK);
    assert_said("101 OK; 201 OK; 202 EDEADLINE; ");
    assert_over();
}
END_TEST

/* The early part is our own work, as a run is: no rank and no place is to blame for it. */
START_TEST(what_waits_for_an_early_part_is_not_overdue)
{
    fix_begin(2, "o", 0, 4);
    round_prepare(fix.rounds, 0, A);
    fix_gather(0, A);
    ck_assert_uint_eq(round_deadline(fix.rounds), 1000); /* rank 1 is missing */
    fix_gather(1, A);
    ck_assert_uint_eq(round_deadline(fix.rounds), ROUND_NEVER);
    round_tick(fix.rounds, 5000);
    assert_said("prepare 0 A at 0; ");
    round_prepared(fix.rounds, 0, A);
    assert_said("start 0 gather A at 0; ");
}
END_TEST

START_TEST(a_failed_run_fails_all_that_follows)
{
    fix_begin(2, "oo", 0, 4);
    fix_hold_all(B);
    fix_gather(0, A);
    fix_gather(1, A);
    fix_precompute(1);
    round_finished(fix.rounds, F8_EIO);
    assert_said("start 1 gather A at 0; clean 0; broken; cancel; 101 EIO; 201 EIO; 202 EIO; ");
    assert_cause(ROUND_RUN_FAILED, F8_EIO, 1, 0);
    ck_assert_int_eq(fix.cause.kind, ROUND_GATHER);
    ck_assert_uint_eq(fix.cause.bucket, A);
    ck_assert_uint_eq(round_completed(fix.rounds), 1); /* failed ones do not count */
    ck_assert(!round_uses(fix.rounds, 0, A) && round_holds(fix.rounds, 0, B));
    assert_over();
}
END_TEST

START_TEST(a_start_that_refuses_fails_at_once)
{
    fix_begin(2, "o", 0, 4);
    fix.start_status = F8_EIO;
    fix_gather(0, A);
    fix_gather(1, A);
    assert_said("start 0 gather A at 0; broken; cancel; 100 EIO; 200 EIO; ");
    assert_cause(ROUND_RUN_FAILED, F8_EIO, 0, 0);
    assert_over();
}
END_TEST

START_TEST(a_start_that_refuses_waits_for_early_parts)
{
    fix_begin(1, "oo", 0, 4);
    fix.start_status = F8_EIO;
    round_prepare(fix.rounds, 0, B);
    fix_gather(0, A);
    assert_said("prepare 0 B at 1; start 0 gather A at 0; broken; cancel; ");
    round_prepared(fix.rounds, 0, B);
    assert_said("100 EIO; ");
    assert_over();
}
END_TEST

static Suite *round_suite(void)
{
    const TTest *const tests[] = {
        mismatch_of_buckets,
        mismatch_of_kinds,
        mismatch_behind_a_run_lets_it_end,
        a_missing_rank_is_overdue,
        a_deadline_never_wraps,
        a_place_that_stays_held_is_overdue,
        what_runs_or_follows_complete_is_not_overdue,
        what_waits_for_an_early_part_is_not_overdue,
        a_failed_run_fails_all_that_follows,
        a_start_that_refuses_fails_at_once,
        a_start_that_refuses_waits_for_early_parts,
    };
    Suite *suite = suite_create("round, broken");
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
