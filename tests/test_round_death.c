/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules of round.h when a rank dies or leaves: what all had asked for still runs, unless it
 * would wait for a live rank; the rest fails, in order. Also ranks that go before the seal.
 */
#include "tests/lib/round_fixture.h"
#include "tests/lib/suite.h"

START_TEST(death_while_the_others_wait)
{
    fix_begin(3, "o", 0, 4);
    fix_precompute(0);
    fix_precompute(1);
    round_leave(fix.rounds, 1, true);
    assert_said("broken; cancel; 100 ERANKDEAD; ");
    assert_cause(ROUND_RANK_DIED, F8_ERANKDEAD, 0, 1);
    round_leave(fix.rounds, 1, true); /* twice is once */
    assert_over();
}
END_TEST

START_TEST(death_during_a_run_has_one_outcome_for_all)
{
    for (int failed = 0; failed < 2; failed++) {
        fix_begin(3, "o", 0, 4);
        for (uint32_t r = 0; r < 3; r++)
            fix_gather(r, A);
        fix_precompute(0);
        round_leave(fix.rounds, 1, true);
        assert_said("start 0 gather A at 0; broken; cancel; ");
        round_finished(fix.rounds, failed ? F8_EIO : F8_OK);
        /* The first cause is kept, whatever follows from it. */
        assert_said(failed ? "clean 0; 100 ERANKDEAD; 300 ERANKDEAD; 101 ERANKDEAD; "
                           : "100 OK; 300 OK; 101 ERANKDEAD; ");
        assert_cause(ROUND_RANK_DIED, F8_ERANKDEAD, 0, 1);
        ck_assert_uint_eq(round_completed(fix.rounds), (failed ? 0 : 1));
        ck_assert(!round_holds(fix.rounds, 1, A));
        if (!failed) {
            round_release(fix.rounds, 2, A);
            round_leave(fix.rounds, 0, true);
            assert_said("clean 0; ");
        }
        assert_over();
        fix_end();
    }
}
END_TEST

/* Whoever dies, and whether it dies or leaves: what all had asked for runs, the rest fails. */
START_TEST(what_was_complete_at_a_death_still_runs)
{
    for (uint32_t victim = 0; victim < 3; victim++) {
        fix_begin(3, "ooo", 0, 8);
        for (uint32_t r = 0; r < 3; r++) {
            fix_gather(r, A);
            fix_precompute(r);
            fix_gather(r, B);
        }
        for (uint32_t r = 0; r < 3; r++)
            if (r != victim)
                fix_gather(r, C);
        round_leave(fix.rounds, victim, victim == 0);
        ck_assert_uint_eq(round_deadline(fix.rounds), ROUND_NEVER);
        assert_said("start 0 gather A at 0; broken; cancel; ");
        static const char *const said[3][3] = {
            {"200 OK; 300 OK; start 1 precompute; ", "201 OK; 301 OK; start 2 gather B at 1; ",
                "202 OK; 302 OK; 203 ERANKDEAD; 303 ERANKDEAD; "},
            {"100 OK; 300 OK; start 1 precompute; ", "101 OK; 301 OK; start 2 gather B at 1; ",
                "102 OK; 302 OK; 103 ERANKDEAD; 303 ERANKDEAD; "},
            {"100 OK; 200 OK; start 1 precompute; ", "101 OK; 201 OK; start 2 gather B at 1; ",
                "102 OK; 202 OK; 103 ERANKDEAD; 203 ERANKDEAD; "},
        };
        for (int n = 0; n < 3; n++) {
            round_finished(fix.rounds, F8_OK);
            assert_said(said[victim][n]);
        }
        uint32_t live = victim == 0 ? 1 : 0;
        ck_assert(round_holds(fix.rounds, live, A) && round_holds(fix.rounds, live, B));
        ck_assert(!round_uses(fix.rounds, live, C) && !round_holds(fix.rounds, victim, A));
        ck_assert_uint_eq(round_completed(fix.rounds), 3);
        assert_over();
        fix_end();
    }
}
END_TEST

/* Two slots, and the live ranks hold both: C can only wait for them, which nothing does. */
START_TEST(a_death_ends_what_waits_for_a_live_holder)
{
    fix_begin(3, "sss", 2, 8);
    fix_hold_all(A);
    fix_hold_all(B);
    round_release(fix.rounds, 0, A);
    round_release(fix.rounds, 1, B);
    round_release(fix.rounds, 2, A);
    for (uint32_t r = 0; r < 3; r++)
        fix_gather(r, C);
    for (uint32_t r = 0; r < 3; r++)
        fix_precompute(r); /* needs no place, but comes behind */
    round_leave(fix.rounds, 2, true);
    assert_said("broken; cancel; 102 ERANKDEAD; 202 ERANKDEAD; 103 ERANKDEAD; 203 ERANKDEAD; ");
    assert_cause(ROUND_RANK_DIED, F8_ERANKDEAD, 2, 2);
    round_release(fix.rounds, 0, B);
    round_release(fix.rounds, 1, A);
    assert_said("clean 1; clean 0; ");
    assert_over();
}
END_TEST

START_TEST(a_death_that_frees_the_place_lets_it_run)
{
    fix_begin(3, "sss", 2, 8);
    fix.clean_begins = true;
    fix_hold_all(A);
    fix_hold_all(B);
    round_release(fix.rounds, 0, A);
    round_release(fix.rounds, 1, A);
    round_release(fix.rounds, 2, B);
    for (uint32_t r = 0; r < 3; r++)
        fix_gather(r, C);
    round_leave(fix.rounds, 2, true);
    assert_said("clean 0; broken; cancel; "); /* cleaning is our own work: it is waited for */
    round_cleaned(fix.rounds, 0);
    assert_said("start 2 gather C at 0; ");
    round_finished(fix.rounds, F8_OK);
    assert_said("102 OK; 202 OK; ");
    assert_over();
}
END_TEST

START_TEST(what_goes_on_after_a_death_waits_for_its_early_parts)
{
    fix_begin(2, "oo", 0, 8);
    round_prepare(fix.rounds, 0, A);
    round_prepare(fix.rounds, 1, B);
    for (uint32_t r = 0; r < 2; r++)
        fix_gather(r, A);
    round_leave(fix.rounds, 1, true);
    assert_said("prepare 0 A at 0; prepare 1 B at 1; broken; cancel; ");
    round_prepared(fix.rounds, 0, A);
    assert_said("start 0 gather A at 0; "); /* B's part is in nobody's way */
    round_finished(fix.rounds, F8_OK);
    assert_said("100 OK; ");
    round_prepared(fix.rounds, 1, B);
    assert_over();
}
END_TEST

START_TEST(a_failure_ends_what_goes_on_after_a_death)
{
    for (int refused = 0; refused < 2; refused++) {
        fix_begin(3, "oo", 0, 8);
        for (uint32_t r = 0; r < 3; r++) {
            fix_precompute(r);
            fix_gather(r, A);
            fix_gather(r, B);
        }
        round_leave(fix.rounds, 2, true);
        fix.start_status = refused ? F8_EMISMATCH : F8_OK;
        round_finished(fix.rounds, F8_OK);
        if (!refused)
            round_finished(fix.rounds, F8_EIO);
        assert_said(refused ? "start 0 precompute; broken; cancel; 100 OK; 200 OK; "
                              "start 1 gather A at 0; 101 ERANKDEAD; 201 ERANKDEAD; "
                              "102 ERANKDEAD; 202 ERANKDEAD; "
                            : "start 0 precompute; broken; cancel; 100 OK; 200 OK; "
                              "start 1 gather A at 0; clean 0; 101 ERANKDEAD; 201 ERANKDEAD; "
                              "102 ERANKDEAD; 202 ERANKDEAD; ");
        assert_cause(ROUND_RANK_DIED, F8_ERANKDEAD, 0, 2);
        assert_over();
        fix_end();
    }
}
END_TEST

START_TEST(a_second_death_changes_nothing)
{
    fix_begin(3, "oo", 0, 8);
    for (uint32_t r = 0; r < 3; r++) {
        fix_gather(r, A);
        fix_gather(r, B);
    }
    round_leave(fix.rounds, 2, true);
    round_leave(fix.rounds, 0, false);
    round_finished(fix.rounds, F8_OK);
    round_finished(fix.rounds, F8_OK);
    assert_said("start 0 gather A at 0; broken; cancel; 200 OK; start 1 gather B at 1; 201 OK; ");
    assert_cause(ROUND_RANK_DIED, F8_ERANKDEAD, 0, 2);
    assert_over();
}
END_TEST

/* Nobody would get it. */
START_TEST(nothing_goes_on_once_all_are_dead)
{
    fix_begin(2, "oo", 0, 8);
    for (uint32_t r = 0; r < 2; r++) {
        fix_gather(r, A);
        fix_gather(r, B);
    }
    round_leave(fix.rounds, 0, true);
    round_leave(fix.rounds, 1, true);
    round_finished(fix.rounds, F8_OK);
    assert_said("start 0 gather A at 0; broken; cancel; clean 0; ");
    assert_over();
}
END_TEST

/* Only a death is outlived: disagreement and lateness are the ranks' own fault. */
START_TEST(nothing_goes_on_after_a_mismatch)
{
    fix_begin(2, "oo", 0, 8);
    for (uint32_t r = 0; r < 2; r++) {
        fix_gather(r, A);
        fix_gather(r, B);
    }
    fix_precompute(0);
    ck_assert_int_eq(fix_ask(1, ROUND_SEAL, 0), ROUND_PENDING);
    round_leave(fix.rounds, 1, true);
    round_finished(fix.rounds, F8_OK);
    assert_said("start 0 gather A at 0; broken; cancel; 100 OK; 101 EMISMATCH; 102 EMISMATCH; ");
    assert_over();
}
END_TEST

START_TEST(death_of_all_during_a_run)
{
    fix_begin(2, "o", 0, 4);
    fix.clean_begins = true;
    fix_gather(0, A);
    fix_gather(1, A);
    round_leave(fix.rounds, 0, true);
    round_leave(fix.rounds, 1, true);
    assert_said("start 0 gather A at 0; broken; cancel; ");
    round_finished(fix.rounds, F8_OK);
    assert_said("clean 0; ");
    ck_assert(!round_drained(fix.rounds));
    round_cleaned(fix.rounds, 0);
    ck_assert(round_drained(fix.rounds));
}
END_TEST

START_TEST(death_of_the_last_holder_frees_the_place)
{
    fix_begin(2, "o", 0, 4);
    fix_hold_all(A);
    round_release(fix.rounds, 0, A);
    round_leave(fix.rounds, 1, true);
    assert_said("clean 0; broken; cancel; ");
    assert_over();
}
END_TEST

START_TEST(death_waits_for_early_parts)
{
    fix_begin(2, "oo", 0, 4);
    fix_gather(0, A);
    round_prepare(fix.rounds, 0, B);
    round_prepare(fix.rounds, 1, B);
    round_leave(fix.rounds, 1, true);
    assert_said("prepare 0 B at 1; prepare 1 B at 1; broken; cancel; ");
    ck_assert_int_eq(round_quiesce(fix.rounds, 0, 5), ROUND_PENDING);
    round_prepared(fix.rounds, 0, B);
    assert_said("");
    ck_assert(!round_drained(fix.rounds));
    round_prepared(fix.rounds, 1, B);
    assert_said("100 ERANKDEAD; quiesced 0 5; ");
    ck_assert(!round_reads(fix.rounds, 0, B)); /* never gathered, and never will be */
    assert_over();
}
END_TEST

START_TEST(leaving_names_itself_so)
{
    fix_begin(2, "o", 0, 4);
    round_leave(fix.rounds, 0, false);
    assert_said("broken; cancel; ");
    assert_cause(ROUND_RANK_LEFT, F8_ERANKDEAD, 0, 0);
    assert_over();
}
END_TEST

START_TEST(before_the_seal_a_rank_can_come_and_go)
{
    fix_begin(2, "", 0, 4);
    round_leave(fix.rounds, 1, false);
    ck_assert(!round_is_broken(fix.rounds));
    round_enter(fix.rounds, 1);
    ck_assert_int_eq(fix_ask(0, ROUND_SEAL, 0), ROUND_PENDING);
    ck_assert_int_eq(fix_ask(1, ROUND_SEAL, 0), ROUND_PENDING);
    assert_said("start 0 seal; ");
    round_leave(fix.rounds, 1, true); /* not once it has begun */
    assert_said("broken; cancel; ");
    round_finished(fix.rounds, F8_OK);
    assert_said("100 OK; ");
}
END_TEST

/* The others would ask for the seal, and wait for it in vain. */
START_TEST(before_the_seal_a_death_breaks)
{
    fix_begin(2, "", 0, 4);
    round_leave(fix.rounds, 1, true);
    assert_said("broken; cancel; ");
    ck_assert_int_eq(fix_ask(0, ROUND_SEAL, 0), F8_EBROKEN);
}
END_TEST

/* A generation that never came to its seal has no buckets; a client may still name one. */
START_TEST(nothing_can_be_released_before_the_seal)
{
    fix_begin(2, "", 0, 1);
    ck_assert_int_eq(round_release(fix.rounds, 0, A), F8_EORDER);
    ck_assert_int_eq(fix_ask(0, ROUND_SEAL, 0), ROUND_PENDING);
    round_leave(fix.rounds, 1, true);
    assert_said("broken; cancel; 100 ERANKDEAD; ");
    ck_assert_int_eq(round_release(fix.rounds, 0, A), F8_EORDER);
    ck_assert_int_eq(round_release(fix.rounds, 0, UINT32_MAX), F8_EORDER);
}
END_TEST

START_TEST(late_callers_are_refused_while_the_run_ends)
{
    fix_begin(2, "oo", 0, 4);
    fix_gather(0, A);
    fix_gather(1, A);
    round_leave(fix.rounds, 1, true);
    ck_assert_int_eq(fix_ask(0, ROUND_GATHER, B), F8_EBROKEN);
    ck_assert_int_eq(round_prepare(fix.rounds, 0, B), F8_EBROKEN);
    ck_assert_int_eq(round_quiesce(fix.rounds, 0, 8), ROUND_PENDING);
    round_finished(fix.rounds, F8_OK);
    assert_said("start 0 gather A at 0; broken; cancel; 100 OK; quiesced 0 8; ");
}
END_TEST

static Suite *round_suite(void)
{
    const TTest *const tests[] = {
        death_while_the_others_wait,
        death_during_a_run_has_one_outcome_for_all,
        what_was_complete_at_a_death_still_runs,
        a_death_ends_what_waits_for_a_live_holder,
        a_death_that_frees_the_place_lets_it_run,
        what_goes_on_after_a_death_waits_for_its_early_parts,
        a_failure_ends_what_goes_on_after_a_death,
        a_second_death_changes_nothing,
        nothing_goes_on_once_all_are_dead,
        nothing_goes_on_after_a_mismatch,
        death_of_all_during_a_run,
        death_of_the_last_holder_frees_the_place,
        death_waits_for_early_parts,
        leaving_names_itself_so,
        before_the_seal_a_rank_can_come_and_go,
        before_the_seal_a_death_breaks,
        nothing_can_be_released_before_the_seal,
        late_callers_are_refused_while_the_run_ends,
    };
    Suite *suite = suite_create("round, deaths");
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
