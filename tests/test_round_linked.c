/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules of round.h for machines that depend on others: heads that cannot begin yet, runs that
 * wait, and breaks that come from outside.
 */
#include "tests/lib/round_fixture.h"
#include "tests/lib/suite.h"

#include <stdio.h>

/* All ranks gather A, which begins. */
static void run_gather(void)
{
    fix_begin(2, "oo", 0, 4);
    fix_gather(0, A);
    fix_gather(1, A);
    assert_said("start 0 gather A at 0; ");
}

START_TEST(later_is_tried_again_when_poked)
{
    fix_begin(2, "oo", 0, 4);
    fix.start_status = ROUND_LATER;
    fix_gather(0, A);
    round_poke(fix.rounds);
    assert_said("");
    fix_gather(1, A);
    assert_said("start 0 gather A at 0; ");
    round_poke(fix.rounds);
    assert_said("start 0 gather A at 0; ");
    struct round_head head;
    ck_assert(round_head(fix.rounds, &head));
    ck_assert(head.complete && head.outside && !head.running);
    fix.start_status = F8_OK;
    round_poke(fix.rounds);
    assert_said("start 0 gather A at 0; ");
    ck_assert(round_head(fix.rounds, &head) && head.running && !head.outside);
    round_finished(fix.rounds, F8_OK);
    assert_said("100 OK; 200 OK; ");
}
END_TEST

START_TEST(poke_without_need_does_nothing)
{
    fix_begin(2, "oo", 0, 4);
    round_poke(fix.rounds);
    fix_gather(0, A);
    fix_gather(1, A);
    assert_said("start 0 gather A at 0; ");
    round_poke(fix.rounds);
    ck_assert(round_pause(fix.rounds));
    round_poke(fix.rounds);
    assert_said("");
}
END_TEST

START_TEST(held_up_head_is_timed)
{
    fix_begin(2, "oo", 0, 4);
    fix.start_status = ROUND_LATER;
    fix_gather(0, A);
    fix_gather(1, A);
    assert_said("start 0 gather A at 0; ");
    fix_gather(0, B);
    assert_said("start 0 gather A at 0; "); /* any event tries again */
    ck_assert_uint_eq(round_deadline(fix.rounds), 1000);
    round_tick(fix.rounds, 999);
    assert_said("start 0 gather A at 0; ");
    round_tick(fix.rounds, 1000);
    assert_said("broken; cancel; 100 EDEADLINE; 200 EDEADLINE; 101 EDEADLINE; ");
    assert_cause(ROUND_OVERDUE, F8_EDEADLINE, 0, 0);
    ck_assert(fix.cause.outside && !fix.cause.place);
    assert_over();
}
END_TEST

START_TEST(paused_head_is_timed)
{
    run_gather();
    ck_assert_uint_eq(round_deadline(fix.rounds), ROUND_NEVER);
    ck_assert(round_pause(fix.rounds));
    struct round_head head;
    ck_assert(round_head(fix.rounds, &head) && head.outside && !head.running);
    ck_assert_uint_eq(round_deadline(fix.rounds), 1000);
    ck_assert(!round_drained(fix.rounds));
    round_tick(fix.rounds, 1000);
    assert_said("broken; cancel; 100 EDEADLINE; 200 EDEADLINE; ");
    assert_cause(ROUND_OVERDUE, F8_EDEADLINE, 0, 0);
    ck_assert(fix.cause.outside && !fix.cause.place);
    assert_over();
}
END_TEST

START_TEST(what_waits_for_a_rank_is_not_outside)
{
    run_gather();
    ck_assert(round_pause(fix.rounds));
    fix.deadline_ms = 500;
    fix_gather(0, B);
    assert_said("");
    round_tick(fix.rounds, 500);
    assert_cause(ROUND_OVERDUE, F8_EDEADLINE, 1, 0);
    ck_assert(!fix.cause.outside && !fix.cause.place);
    assert_said("broken; cancel; 100 EDEADLINE; 200 EDEADLINE; 101 EDEADLINE; ");
    assert_over();
}
END_TEST

START_TEST(resumed_run_goes_on)
{
    run_gather();
    fix_precompute(0);
    fix_precompute(1);
    ck_assert(round_pause(fix.rounds));
    ck_assert_int_eq(round_quiesce(fix.rounds, 1, 7), ROUND_PENDING);
    round_resume(fix.rounds);
    ck_assert_uint_eq(round_deadline(fix.rounds), ROUND_NEVER);
    round_tick(fix.rounds, 5000);
    assert_said("");
    round_finished(fix.rounds, F8_OK);
    assert_said("100 OK; 200 OK; start 1 precompute; ");
    ck_assert(round_holds(fix.rounds, 0, A));
    round_finished(fix.rounds, F8_OK);
    assert_said("101 OK; 201 OK; quiesced 1 7; ");
}
END_TEST

START_TEST(nothing_starts_beside_a_paused_run)
{
    run_gather();
    ck_assert(round_pause(fix.rounds));
    fix_gather(0, B);
    fix_gather(1, B);
    ck_assert_int_eq(round_release(fix.rounds, 0, A), F8_EORDER);
    assert_said("");
}
END_TEST

/* The run is over without round_finished: cancel is what tells its owner. */
static void break_from_outside(void)
{
    round_break(fix.rounds, F8_ERANKDEAD);
}

static void kill_rank(void)
{
    round_leave(fix.rounds, 1, true);
}

static void let_rank_leave(void)
{
    round_leave(fix.rounds, 1, false);
}

static const struct {
    void (*happens)(void);
    enum round_trouble trouble;
    uint32_t rank;
    const char *said;
} breaks[] = {
    {break_from_outside, ROUND_OTHER_GROUP, 0, "broken; cancel; 100 ERANKDEAD; 200 ERANKDEAD; "},
    {kill_rank, ROUND_RANK_DIED, 1, "broken; cancel; 100 ERANKDEAD; "},
    {let_rank_leave, ROUND_RANK_LEFT, 1, "broken; cancel; 100 ERANKDEAD; "},
};

/* Not even a death lets it go on, since after a break nothing waits; it has written nothing. */
START_TEST(break_ends_a_paused_run)
{
    run_gather();
    ck_assert(round_pause(fix.rounds));
    breaks[_i].happens();
    assert_said(breaks[_i].said);
    assert_cause(breaks[_i].trouble, F8_ERANKDEAD, 0, breaks[_i].rank);
    ck_assert(round_drained(fix.rounds) && !round_uses(fix.rounds, 0, A));
    round_poke(fix.rounds);
    assert_said("");
}
END_TEST

START_TEST(broken_run_cannot_pause)
{
    run_gather();
    breaks[_i].happens();
    assert_said("broken; cancel; ");
    ck_assert(!round_pause(fix.rounds));
    round_finished(fix.rounds, F8_EBROKEN);
    ck_assert(!round_holds(fix.rounds, 0, A));
    ck_assert(round_drained(fix.rounds));
}
END_TEST

/* After a break nothing waits: what a death had let go on ends where it would. */
START_TEST(later_ends_what_goes_on_after_a_death)
{
    run_gather();
    fix_gather(0, B);
    fix_gather(1, B);
    round_leave(fix.rounds, 1, true);
    assert_said("broken; cancel; ");
    fix.start_status = ROUND_LATER;
    round_finished(fix.rounds, F8_OK);
    assert_said("100 OK; start 1 gather B at 1; 101 ERANKDEAD; ");
    round_poke(fix.rounds);
    assert_said("");
    ck_assert(round_drained(fix.rounds));
}
END_TEST

START_TEST(break_from_outside_ends_what_goes_on_after_a_death)
{
    run_gather();
    fix_precompute(0);
    fix_precompute(1);
    round_leave(fix.rounds, 1, true);
    round_break(fix.rounds, F8_EDEADLINE);
    assert_said("broken; cancel; ");
    round_finished(fix.rounds, F8_OK);
    assert_said("100 OK; 101 ERANKDEAD; "); /* the first cause */
    assert_cause(ROUND_RANK_DIED, F8_ERANKDEAD, 0, 1);
}
END_TEST

START_TEST(break_from_outside_at_rest)
{
    fix_begin(2, "oo", 0, 4);
    round_break(fix.rounds, F8_EMISMATCH);
    assert_said("broken; cancel; ");
    assert_cause(ROUND_OTHER_GROUP, F8_EMISMATCH, 0, 0);
    assert_over();
}
END_TEST

/* 's': a sealed machine breaks when one leaves; one that is forming lets it go, and come back. */
START_TEST(leaving_at_rest)
{
    bool sealed = _i;
    fix_begin(2, sealed ? "oo" : "", 0, 4);
    round_leave(fix.rounds, 1, false);
    ck_assert_int_eq(round_is_broken(fix.rounds), sealed);
    if (sealed) {
        assert_said("broken; cancel; ");
        assert_cause(ROUND_RANK_LEFT, F8_ERANKDEAD, 0, 1);
        return;
    }
    round_enter(fix.rounds, 1);
    ck_assert_int_eq(fix_ask(0, ROUND_SEAL, 0), ROUND_PENDING);
    ck_assert_int_eq(fix_ask(1, ROUND_SEAL, 0), ROUND_PENDING);
    assert_said("start 0 seal; ");
}
END_TEST

START_TEST(state_rounds_are_collectives)
{
    static const enum round_kind kinds[] = {ROUND_SYNC, ROUND_INVALIDATE};
    static const char *const names[] = {"sync", "invalidate"};
    char said[64];
    fix_begin(2, "o", 0, 4);
    ck_assert_int_eq(fix_ask(0, kinds[_i], 0), ROUND_PENDING);
    ck_assert(round_asked(fix.rounds, 0, kinds[_i]) && round_is_open(fix.rounds, 0));
    ck_assert(!round_asked(fix.rounds, 0, kinds[1 - _i]) && !round_is_open(fix.rounds, 1));
    ck_assert_int_eq(fix_ask(1, kinds[_i], 0), ROUND_PENDING);
    (void)snprintf(said, sizeof(said), "start 0 %s; ", names[_i]);
    assert_said(said);
    round_finished(fix.rounds, F8_OK);
    assert_said("100 OK; 200 OK; ");
    ck_assert(!round_is_open(fix.rounds, 0));
    ck_assert_int_eq(fix_ask(0, kinds[_i], 0), ROUND_PENDING);
    ck_assert_int_eq(fix_ask(1, kinds[1 - _i], 0), ROUND_PENDING);
    assert_said("broken; cancel; 101 EMISMATCH; 201 EMISMATCH; ");
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("links");
    tcase_add_checked_fixture(tcase, NULL, fix_end);
    tcase_add_test(tcase, later_is_tried_again_when_poked);
    tcase_add_test(tcase, poke_without_need_does_nothing);
    tcase_add_test(tcase, held_up_head_is_timed);
    tcase_add_test(tcase, paused_head_is_timed);
    tcase_add_test(tcase, what_waits_for_a_rank_is_not_outside);
    tcase_add_test(tcase, resumed_run_goes_on);
    tcase_add_test(tcase, nothing_starts_beside_a_paused_run);
    tcase_add_loop_test(tcase, break_ends_a_paused_run, 0, 3);
    tcase_add_loop_test(tcase, broken_run_cannot_pause, 0, 3);
    tcase_add_test(tcase, later_ends_what_goes_on_after_a_death);
    tcase_add_test(tcase, break_from_outside_ends_what_goes_on_after_a_death);
    tcase_add_test(tcase, break_from_outside_at_rest);
    tcase_add_loop_test(tcase, leaving_at_rest, 0, 2);
    tcase_add_loop_test(tcase, state_rounds_are_collectives, 0, 2);
    return run_suite("round, linked", tcase);
}
