/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ring of events and its waiters: what is kept and in which order, what a reader that comes
 * late is told, filters, and who is woken by what. The test turns the loop.
 */
#include "daemon/events.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "status.h"
#include "tests/lib/loop_turn.h"
#include "tests/lib/suite.h"

static uv_loop_t loop;
static struct events *events;

/* A waiter that counts. */
struct counted {
    struct events_waiter waiter;
    int calls;
};

static void on_ready(struct events_waiter *waiter)
{
    ((struct counted *)waiter)->calls++;
}

static void set_up(void)
{
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert_int_eq(events_new(&loop, &events), F8_OK);
}

static void tear_down(void)
{
    events_close(events);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    events_free(events);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}

static void tell(enum f8_proto_event kind, const char *job)
{
    events_tell(events, &(struct event){.kind = kind, .job = job, .text = "it happened"});
}

static void tell_many(int count)
{
    for (int i = 0; i < count; i++)
        tell(F8_PROTO_EVENT_RANK_JOINED, "train");
}

/* Events that the reader gets. */
static int count_events(struct events_reader *reader)
{
    int count = 0;
    events_begin(events, reader);
    while (events_next(events, reader))
        count++;
    return count;
}

START_TEST(keeps_what_it_was_told)
{
    char text[] = "rank 3 left", weight[] = "w";
    struct events_reader reader = {.after = 0};
    events_tell(events, &(struct event){.kind = F8_PROTO_EVENT_RANK_LEFT,
                            .uid = 7,
                            .has_rank = true,
                            .rank = 3,
                            .pid = 4711,
                            .value = 2.5,
                            .job = "train",
                            .group = "dp",
                            .weight = weight,
                            .text = text});
    tell(F8_PROTO_EVENT_DRAIN, NULL);
    memset(text, 'x', sizeof(text) - 1); /* it has its own copy */
    events_begin(events, &reader);
    const struct events_record *record = events_next(events, &reader);
    ck_assert_ptr_nonnull(record);
    ck_assert_uint_eq(record->sequence, 1);
    ck_assert_uint_gt(record->time_ns, 0);
    ck_assert_uint_gt(record->monotonic_ns, 0);
    ck_assert_int_eq(record->event.kind, F8_PROTO_EVENT_RANK_LEFT);
    ck_assert_uint_eq(record->event.uid, 7);
    ck_assert(record->event.has_rank && record->event.rank == 3 && record->event.pid == 4711);
    ck_assert(record->event.value == 2.5);
    ck_assert_str_eq(record->event.job, "train");
    ck_assert_str_eq(record->event.group, "dp");
    ck_assert_ptr_null(record->event.bucket);
    ck_assert_str_eq(record->event.weight, "w");
    ck_assert_ptr_null(record->event.host);
    ck_assert_str_eq(record->event.text, "rank 3 left");
    record = events_next(events, &reader);
    ck_assert_uint_eq(record->sequence, 2);
    ck_assert_ptr_null(record->event.job);
    ck_assert_ptr_null(events_next(events, &reader));
    ck_assert_uint_eq(reader.after, 2);
    ck_assert_uint_eq(reader.lost, 0);
}
END_TEST

START_TEST(a_late_reader_is_told_what_it_lost)
{
    struct events_reader first = {.after = 0}, late = {.after = 5};
    tell_many(EVENTS_KEPT);
    ck_assert_int_eq(count_events(&first), EVENTS_KEPT);
    ck_assert_uint_eq(first.lost, 0);
    tell_many(10);
    ck_assert_int_eq(count_events(&first), 10);
    ck_assert_uint_eq(first.lost, 0);
    ck_assert_int_eq(count_events(&late), EVENTS_KEPT);
    ck_assert_uint_eq(late.lost, 5);
    tell_many(3 * EVENTS_KEPT + 1);
    ck_assert_int_eq(count_events(&first), EVENTS_KEPT);
    ck_assert_uint_eq(first.lost, 2 * EVENTS_KEPT + 1);
    ck_assert_uint_eq(first.after, 4 * EVENTS_KEPT + 11);
}
END_TEST

START_TEST(from_now_and_from_another_daemon)
{
    struct events_reader now = {.after = F8_PROTO_FROM_NOW}, other = {.after = 100},
                         empty = {.after = F8_PROTO_FROM_NOW};
    ck_assert_int_eq(count_events(&empty), 0);
    ck_assert_uint_eq(empty.after, 0);
    tell_many(3);
    ck_assert_int_eq(count_events(&now), 0);
    ck_assert_uint_eq(now.after, 3);
    ck_assert(!now.restarted);
    events_begin(events, &other);
    ck_assert(other.restarted && events_has_news(events, &other));
    ck_assert_int_eq(count_events(&other), 3);
    ck_assert_uint_eq(other.lost, 0);
}
END_TEST

START_TEST(filters)
{
    struct events_reader kinds = {.kinds = 1U << F8_PROTO_EVENT_DRAIN}, job = {.job = "tr*"},
                         other = {.job = "eval"};
    tell(F8_PROTO_EVENT_RANK_JOINED, "train");
    tell(F8_PROTO_EVENT_RANK_JOINED, "trial");
    tell(F8_PROTO_EVENT_DRAIN, NULL);
    ck_assert_int_eq(count_events(&kinds), 1);
    ck_assert_int_eq(count_events(&job), 3); /* what is of no job is for all */
    ck_assert_int_eq(count_events(&other), 1);
    ck_assert_uint_eq(other.after, 3);
}
END_TEST

START_TEST(snapshots)
{
    struct events_reader reader = {.after = 0};
    const struct reason text = {.text = "no room"};
    events_tell_snapshot(events, F8_OK, 4096, &(struct reason){.text = "written"});
    events_tell_snapshot(events, F8_EIO, 4096, &text);
    events_begin(events, &reader);
    const struct events_record *record = events_next(events, &reader);
    ck_assert_int_eq(record->event.kind, F8_PROTO_EVENT_SNAPSHOT);
    ck_assert(record->event.value == 4096);
    record = events_next(events, &reader);
    ck_assert_int_eq(record->event.kind, F8_PROTO_EVENT_SNAPSHOT_FAILED);
    ck_assert_str_eq(record->event.text, "no room");
}
END_TEST

START_TEST(nobody_keeps_them)
{
    events_tell(NULL, &(struct event){.kind = F8_PROTO_EVENT_DRAIN});
    events_free(NULL);
}
END_TEST

/* A waiter that has seen all so far. */
static void begin_wait(struct counted *waiter, uint32_t kinds, uint32_t wait_ms)
{
    *waiter = (struct counted){
        .waiter = {.reader = {.after = F8_PROTO_FROM_NOW, .kinds = kinds}, .ready = on_ready}};
    events_begin(events, &waiter->waiter.reader);
    events_wait(events, &waiter->waiter, wait_ms);
}

#define LONG_MS 3600000

START_TEST(several_events_wake_once_and_from_the_loop)
{
    struct counted waiter;
    begin_wait(&waiter, 0, LONG_MS);
    tell_many(3);
    ck_assert_int_eq(waiter.calls, 0);
    (void)loop_turn(&loop);
    ck_assert_int_eq(waiter.calls, 1);
    ck_assert_int_eq(count_events(&waiter.waiter.reader), 3);
    tell_many(1); /* it waits no more */
    (void)loop_turn(&loop);
    ck_assert_int_eq(waiter.calls, 1);
}
END_TEST

START_TEST(what_it_does_not_want_does_not_wake)
{
    struct counted drain, all, other;
    begin_wait(&drain, 1U << F8_PROTO_EVENT_DRAIN, LONG_MS);
    begin_wait(&all, 0, LONG_MS);
    begin_wait(&other, 1U << F8_PROTO_EVENT_HOST_LOST, LONG_MS);
    tell_many(1);
    (void)loop_turn(&loop);
    ck_assert_int_eq(all.calls, 1);
    ck_assert_int_eq(drain.calls + other.calls, 0);
    tell(F8_PROTO_EVENT_DRAIN, NULL);
    (void)loop_turn(&loop);
    ck_assert_int_eq(drain.calls, 1);
    ck_assert_int_eq(other.calls, 0);
    ck_assert_int_eq(count_events(&drain.waiter.reader), 1);
    events_stop_waiting(&other.waiter);
}
END_TEST

/* What it does not want may have hidden what it does: that many events in one turn are a gap. */
START_TEST(a_gap_wakes)
{
    struct counted waiter;
    begin_wait(&waiter, 1U << F8_PROTO_EVENT_DRAIN, LONG_MS);
    tell_many(EVENTS_KEPT + 1);
    (void)loop_turn(&loop);
    ck_assert_int_eq(waiter.calls, 1);
    ck_assert_int_eq(count_events(&waiter.waiter.reader), 0);
    ck_assert_uint_eq(waiter.waiter.reader.lost, 1);
    /* in small parts they are looked at as they come */
    begin_wait(&waiter, 1U << F8_PROTO_EVENT_DRAIN, LONG_MS);
    for (int i = 0; i < 4; i++) {
        tell_many(EVENTS_KEPT / 2);
        (void)loop_turn(&loop);
    }
    ck_assert_int_eq(waiter.calls, 0);
    events_stop_waiting(&waiter.waiter);
}
END_TEST

START_TEST(times_end_one_by_one)
{
    struct counted first, second, third;
    begin_wait(&third, 0, LONG_MS);
    begin_wait(&first, 0, 1);
    begin_wait(&second, 0, 5);
    while (second.calls == 0)
        (void)loop_turn(&loop);
    ck_assert_int_eq(first.calls, 1);
    ck_assert_int_eq(third.calls, 0);
    ck_assert_uint_eq(second.waiter.reader.after, 0);
    events_stop_waiting(&third.waiter);
}
END_TEST

/* Ends the wait of the other, as a connection may that breaks as another is answered. */
static struct counted *stopped;
static void on_ready_stop(struct events_waiter *waiter)
{
    on_ready(waiter);
    if (stopped)
        events_stop_waiting(&stopped->waiter);
    stopped = NULL;
}

START_TEST(one_that_is_called_may_end_the_wait_of_another)
{
    struct counted first, second;
    begin_wait(&first, 0, LONG_MS);
    begin_wait(&second, 0, LONG_MS);
    first.waiter.ready = second.waiter.ready = on_ready_stop;
    /* whichever is called first */
    stopped = &first;
    tell_many(1);
    (void)loop_turn(&loop);
    if (first.calls == 0)
        ck_assert_int_eq(second.calls, 1);
}
END_TEST

START_TEST(the_end_answers_all)
{
    static struct counted first, second;
    begin_wait(&first, 0, LONG_MS);
    begin_wait(&second, 1U << F8_PROTO_EVENT_DRAIN, LONG_MS);
    events_answer_all(events);
    ck_assert_int_eq(first.calls, 1);
    ck_assert_int_eq(second.calls, 1);
    begin_wait(&first, 0, LONG_MS);
    /* tear_down closes */
}
END_TEST

START_TEST(names_and_numbers)
{
    for (uint32_t number = 0; number < 64; number++) {
        const char *name = f8_proto_event_name(number);
        ck_assert(!name || f8_proto_event_of(name) == number);
        ck_assert(!name || number < 32); /* they are bits of a set */
    }
    ck_assert_str_eq(f8_proto_event_name(F8_PROTO_EVENT_DRAIN), "drain");
    ck_assert_uint_eq(f8_proto_event_of("dra"), 0);
    ck_assert_ptr_null(f8_proto_event_name(0));
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("events");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, keeps_what_it_was_told);
    tcase_add_test(tcase, a_late_reader_is_told_what_it_lost);
    tcase_add_test(tcase, from_now_and_from_another_daemon);
    tcase_add_test(tcase, filters);
    tcase_add_test(tcase, snapshots);
    tcase_add_test(tcase, nobody_keeps_them);
    tcase_add_test(tcase, several_events_wake_once_and_from_the_loop);
    tcase_add_test(tcase, what_it_does_not_want_does_not_wake);
    tcase_add_test(tcase, a_gap_wakes);
    tcase_add_test(tcase, times_end_one_by_one);
    tcase_add_test(tcase, one_that_is_called_may_end_the_wait_of_another);
    tcase_add_test(tcase, the_end_answers_all);
    tcase_add_test(tcase, names_and_numbers);
    return run_suite("events", tcase);
}
