/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rounds on devices, in the order that streams and events give them: replies come before anything
 * has run, events hold works back, and scales are taken where only a device knows them yet.
 */
#include <check.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "protocol.h"
#include "tests/lib/device_group.h"
#include "tests/lib/suite.h"

static struct device_group group;

static void close_group(void)
{
    device_group_close(&group);
}

static void start(uint32_t ranks, uint32_t devices, uint32_t flavour)
{
    device_group_open(&group, ranks, devices, flavour);
    device_group_seal(&group);
}

static void hold(enum device_stage stage, bool held)
{
    device_backend_hold(group.rooms.cuda, stage, held);
}

static uint32_t done_of(uint32_t rank)
{
    const F8__Reply *reply = client_await(&group.clients[rank], group.ids[rank]);
    return reply->body_case == F8__REPLY__BODY_GATHER ? reply->gather->done : reply->done->done;
}

/* What the operator sees of w0. */
static void expect_seen(float scale, float amax)
{
    const F8__WeightInfo *info = device_group_weight(&group, 0);
    ck_assert(info->scale_known && info->amax_known);
    ck_assert_mem_eq(&info->scale, &scale, sizeof(scale));
    ck_assert_mem_eq(&info->amax, &amax, sizeof(amax));
}

START_TEST(a_gather_is_answered_before_it_runs)
{
    start(2, 2, F8_PROTO_DYNAMIC);
    hold(DEVICE_STREAMS, true);
    device_group_write_all(&group, 0, 1);
    device_group_all(&group, ask_gather_w0);
    device_group_ok(&group);
    ck_assert(!device_group_reads(&group, device_group_scale(2), 1));
    ck_assert_uint_eq(done_of(0), 1);
    ck_assert_uint_eq(done_of(1), 1);
    hold(DEVICE_STREAMS, false);
    rooms_synchronise(&group.rooms);
    device_group_expect(&group, device_group_scale(2), 1);
    ck_assert_uint_eq(device_group_weight(&group, 0)->gathers, 1);
    ck_assert(!device_group_weight(&group, 0)->scale_known);
    rooms_land(&group.rooms); /* now the operator sees them */
    expect_seen(device_group_scale(2), 2);
}
END_TEST

/* Requests of the host's kind have no event to name: none is given. */
START_TEST(done_events_go_round)
{
    start(2, 1, F8_PROTO_DYNAMIC);
    for (uint32_t i = 0; i < BACKEND_NUM_DONE + 2; i++) {
        device_group_gather(&group, i % 2);
        ck_assert_uint_eq(done_of(1), i % BACKEND_NUM_DONE + 1);
        for (uint32_t r = 0; r < group.num_ranks; r++)
            client_forget(&group.clients[r]);
    }
    device_group_all(&group, ask_precompute);
    device_group_ok(&group);
    ck_assert_uint_eq(done_of(0), 3);
}
END_TEST

/* A precompute of weights that have no dynamic scale does nothing, and names no event. */
START_TEST(a_precompute_of_nothing)
{
    start(2, 2, F8_PROTO_STATIC);
    device_group_all(&group, ask_precompute);
    device_group_ok(&group);
    ck_assert_uint_eq(done_of(0), 0);
    ck_assert_uint_eq(device_backend_totals(group.rooms.cuda).landings, 0);
}
END_TEST

static uint64_t ask_gather_with_event_2(struct client *client)
{
    return ask_gather_ready(client, 0, 2);
}

static uint64_t ask_pre_gather_with_event_3(struct client *client)
{
    return ask_pre_gather_ready(client, 0, 3);
}

static uint64_t ask_precompute_with_event_1(struct client *client)
{
    return ask_precompute_ready(client, 1);
}

static uint64_t ask_precompute_with_event_4(struct client *client)
{
    return ask_precompute_ready(client, 4);
}

static void set_event(uint32_t rank, uint32_t number, bool is_reached)
{
    device_backend_set_event(group.rooms.cuda, 100 + rank, number - 1, is_reached);
}

/* Shards are read when the events say so, on whatever rank. */
START_TEST(a_gather_waits_for_its_events)
{
    start(2, 2, F8_PROTO_DYNAMIC);
    device_group_write_all(&group, 0, 5);
    set_event(1, 2, false);
    device_group_all(&group, ask_gather_with_event_2);
    device_group_ok(&group);
    rooms_land(&group.rooms);
    ck_assert_uint_eq(device_backend_totals(group.rooms.cuda).works, 0);
    device_group_write_all(&group, 0, 1);
    set_event(1, 2, true);
    rooms_land(&group.rooms);
    device_group_expect(&group, device_group_scale(2), 1);
    device_group_release(&group, 0);
    set_event(1, 2, false); /* of the gather before: the next has none */
    device_group_gather(&group, 0);
    rooms_land(&group.rooms);
    device_group_expect(&group, device_group_scale(2), 1);
}
END_TEST

/* The event of a pre-gather counts for its gather, unless that brings its own. */
START_TEST(a_pre_gather_leaves_its_event)
{
    start(2, 2, F8_PROTO_DYNAMIC);
    for (int own = 0; own < 2; own++) {
        set_event(0, 3, false);
        device_group_all(&group, ask_pre_gather_with_event_3);
        device_group_ok(&group);
        device_group_all(&group, own ? ask_gather_with_event_2 : ask_gather_w0);
        device_group_ok(&group);
        rooms_land(&group.rooms);
        ck_assert_uint_eq(device_backend_totals(group.rooms.cuda).landings, !own);
        set_event(0, 3, true);
        rooms_land(&group.rooms);
        ck_assert_uint_eq(device_backend_totals(group.rooms.cuda).landings, 0);
        device_group_release(&group, 0);
    }
}
END_TEST

/* A gather that is refused leaves the event of the one that is open. */
START_TEST(a_refused_gather_changes_no_event)
{
    start(2, 2, F8_PROTO_DYNAMIC);
    set_event(0, 3, false);
    group.ids[0] = ask_gather_ready(&group.clients[0], 0, 3);
    client_refused(
        &group.clients[0], ask_gather_ready(&group.clients[0], 0, 2), F8_EBUSY, "open gather");
    client_refused(
        &group.clients[0], ask_pre_gather_ready(&group.clients[0], 0, 2), F8_EBUSY, "pre-gather");
    group.ids[1] = ask_gather(&group.clients[1], 0);
    device_group_ok(&group);
    rooms_land(&group.rooms);
    ck_assert_uint_eq(device_backend_totals(group.rooms.cuda).works, 0);
    set_event(0, 3, true);
}
END_TEST

/* Precomputes run one after the other, each with the event that came with it. */
START_TEST(precomputes_keep_the_order_of_their_events)
{
    start(2, 1, F8_PROTO_DYNAMIC);
    hold(DEVICE_COMMANDS, true);
    set_event(0, 1, false);
    set_event(1, 4, false);
    device_group_write_all(&group, 0, 1);
    device_group_all(&group, ask_precompute_with_event_1);
    device_group_all(&group, ask_precompute_with_event_4);
    hold(DEVICE_COMMANDS, false);
    device_group_ok(&group);
    set_event(1, 4, true);
    rooms_land(&group.rooms);
    ck_assert_uint_eq(device_backend_totals(group.rooms.cuda).works, 0); /* the first holds */
    set_event(1, 4, false);
    set_event(0, 1, true);
    rooms_land(&group.rooms);
    ck_assert_uint_eq(device_backend_totals(group.rooms.cuda).works, 1);
    device_group_write_all(&group, 0, 2);
    set_event(1, 4, true);
    rooms_land(&group.rooms);
    float scale = device_group_scale(4);
    ck_assert(memcmp(&device_group_weight(&group, 0)->scale, &scale, sizeof(scale)) == 0);
}
END_TEST

/* Who gathers into a place next waits for the events by which it was let go of, and once. */
START_TEST(places_are_used_again_after_their_releases)
{
    device_group_open_shared(&group, 2, 2, F8_PROTO_DYNAMIC, 1);
    device_group_seal(&group);
    device_group_all(&group, ask_gather_w0);
    device_group_ok(&group);
    rooms_land(&group.rooms);
    set_event(1, 5, false);
    send_release(&group.clients[0], 0);
    send_release_ready(&group.clients[1], 0, 5);
    device_group_write_all(&group, 1, 3);
    device_group_all(&group, ask_gather_w1);
    device_group_ok(&group);
    rooms_land(&group.rooms);
    ck_assert_uint_eq(device_backend_totals(group.rooms.cuda).landings, 1);
    ck_assert(!device_group_reads(&group, device_group_scale(6), 3));
    set_event(1, 5, true);
    rooms_land(&group.rooms);
    device_group_expect(&group, device_group_scale(6), 3);
    device_group_release(&group, 1);
    set_event(1, 5, false); /* it has been waited for: the next use has other releases */
    device_group_gather(&group, 0);
    rooms_land(&group.rooms);
    ck_assert_uint_eq(device_backend_totals(group.rooms.cuda).landings, 0);
}
END_TEST

/* The next gather begins inside the release that it has waited for. */
START_TEST(a_release_that_starts_a_gather)
{
    device_group_open_shared(&group, 2, 1, F8_PROTO_DYNAMIC, 1);
    device_group_seal(&group);
    device_group_all(&group, ask_gather_w0);
    device_group_ok(&group);
    rooms_land(&group.rooms);
    send_release(&group.clients[0], 0);
    group.ids[0] = ask_gather(&group.clients[0], 1);
    set_event(1, 6, false);
    hold(DEVICE_COMMANDS, true);
    send_release_ready(&group.clients[1], 0, 6);
    group.ids[1] = ask_gather(&group.clients[1], 1);
    hold(DEVICE_COMMANDS, false);
    device_group_ok(&group);
    rooms_land(&group.rooms);
    ck_assert_uint_eq(device_backend_totals(group.rooms.cuda).landings, 1);
    set_event(1, 6, true);
}
END_TEST

START_TEST(a_release_with_an_event_that_was_not_given)
{
    start(2, 2, F8_PROTO_DYNAMIC);
    device_group_all(&group, ask_gather_w0);
    device_group_ok(&group);
    send_release_ready(&group.clients[0], 0, ROOMS_EVENTS + 1);
    client_refused(&group.clients[0], ask_gather(&group.clients[0], 0), F8_EBUSY, "still holds");
    send_release_ready(&group.clients[0], 0, ROOMS_EVENTS);
    send_release_ready(&group.clients[0], 0, ROOMS_EVENTS);
    send_release_ready(&group.clients[0], 4711, 1);
    send_release_ready(&group.clients[1], 1, 1);
    send_release(&group.clients[1], 0);
    device_group_gather(&group, 0);
}
END_TEST

START_TEST(events_that_were_not_given)
{
    start(2, 2, F8_PROTO_DYNAMIC);
    struct client *client = &group.clients[1];
    client_refused(client, ask_gather_ready(client, 0, ROOMS_EVENTS + 1), F8_EINVAL,
        "rank 1 named its event 9, it has given 8");
    client_refused(
        client, ask_pre_gather_ready(client, 1, 4000000000), F8_EINVAL, "it has given 8");
    client_refused(client, ask_precompute_ready(client, UINT32_MAX), F8_EINVAL, "it has given 8");
    group.ids[0] = ask_gather_ready(&group.clients[0], 0, ROOMS_EVENTS);
    group.ids[1] = ask_gather_ready(client, 0, ROOMS_EVENTS);
    device_group_ok(&group);
}
END_TEST

/* One rank may be as far ahead in precomputes as the limit allows, and is then told. */
START_TEST(precomputes_ahead)
{
    start(2, 2, F8_PROTO_DYNAMIC);
    struct client *client = &group.clients[0];
    uint32_t depth = group.rooms.config.max_rounds;
    uint64_t last = 0;
    for (int again = 0; again < 3; again++) {
        for (uint32_t i = 0; i < depth; i++)
            last = ask_precompute_ready(client, i % ROOMS_EVENTS + 1);
        client_refused(client, ask_precompute_ready(client, 1), F8_ELIMIT, "collectives ahead");
        for (uint32_t i = 0; i < depth; i++)
            ck_assert_int_eq(
                client_status(&group.clients[1], ask_precompute(&group.clients[1])), F8_OK);
        ck_assert_int_eq(client_status(client, last), F8_OK);
    }
}
END_TEST

/* A gather right after a precompute casts with a scale that the host has not seen. */
START_TEST(scales_are_taken_before_they_land)
{
    start(4, 2, F8_PROTO_DYNAMIC);
    hold(DEVICE_LANDINGS, true);
    for (uint32_t step = 1; step < 4; step++) {
        float value = (float)(1u << step);
        rooms_synchronise(&group.rooms);
        device_group_write_all(&group, 0, value);
        device_group_all(&group, ask_precompute);
        device_group_ok(&group);
        device_group_gather(&group, 0);
        rooms_synchronise(&group.rooms);
        device_group_expect(&group, device_group_scale(3 * value), value); /* rank 3 has no row */
    }
    ck_assert(!device_group_weight(&group, 0)->scale_known);
    hold(DEVICE_LANDINGS, false);
    rooms_land(&group.rooms);
    float scale = device_group_scale(24);
    expect_seen(scale, 24);
    rooms_synchronise(&group.rooms);
    device_group_write_all(&group, 0, 0.5f);
    device_group_gather(&group, 0); /* from here on the host says it */
    rooms_synchronise(&group.rooms);
    device_group_expect(&group, scale, 0.5f);
}
END_TEST

/* A result of a gather that lands after a later precompute does not take its place. */
START_TEST(old_landings_do_not_win)
{
    start(2, 2, F8_PROTO_DYNAMIC);
    hold(DEVICE_LANDINGS, true);
    device_group_write_all(&group, 0, 8);
    device_group_gather(&group, 0);
    rooms_synchronise(&group.rooms);
    device_group_write_all(&group, 0, 1);
    device_group_all(&group, ask_precompute);
    device_group_ok(&group);
    hold(DEVICE_LANDINGS, false);
    while (device_backend_totals(group.rooms.cuda).landings > 1)
        (void)device_backend_turn(group.rooms.cuda); /* the gather's has come, the other not */
    hold(DEVICE_LANDINGS, true);
    device_group_gather(&group, 0);
    rooms_synchronise(&group.rooms);
    device_group_expect(&group, device_group_scale(2), 1);
    hold(DEVICE_LANDINGS, false);
}
END_TEST

/* Delayed weights: the first gather waits for its amaxes, the others do not. */
START_TEST(the_first_gather_of_a_delayed_weight)
{
    start(2, 2, F8_PROTO_DELAYED);
    hold(DEVICE_LANDINGS, true);
    device_group_write_all(&group, 0, 1);
    device_group_all(&group, ask_gather_w0);
    device_group_unanswered(&group);
    hold(DEVICE_LANDINGS, false);
    device_group_ok(&group);
    rooms_land(&group.rooms);
    device_group_expect(&group, device_group_scale(2), 1);
    device_group_release(&group, 0);
    hold(DEVICE_LANDINGS, true);
    device_group_write_all(&group, 0, 4);
    device_group_gather(&group, 0);
    rooms_synchronise(&group.rooms);
    device_group_expect(&group, device_group_scale(2), 4);
    hold(DEVICE_LANDINGS, false);
    device_group_all(&group, ask_sync);
    device_group_ok(&group);
    device_group_gather(&group, 0);
    rooms_synchronise(&group.rooms);
    device_group_expect(&group, device_group_scale(8), 4);
    ck_assert_uint_eq(device_group_weight(&group, 0)->syncs, 1);
}
END_TEST

/* The amax that a sync takes is the last gather's alone, though it was less than before. */
START_TEST(amaxes_of_delayed_weights_begin_anew)
{
    start(2, 2, F8_PROTO_DELAYED);
    for (int step = 4; step > 0; step--) {
        float amax = (float)(2 * step);
        uint32_t bits;
        rooms_synchronise(&group.rooms);
        device_group_write_all(&group, 0, (float)step);
        device_group_gather(&group, 0);
        device_group_all(&group, ask_sync);
        device_group_ok(&group);
        memcpy(&bits, &amax, sizeof(bits));
        ck_assert_uint_eq(device_group_weight(&group, 0)->history[0], bits);
    }
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("device_rounds");
    TCase *tcase = tcase_create("device_rounds");
    tcase_add_checked_fixture(tcase, NULL, close_group);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, a_gather_is_answered_before_it_runs);
    tcase_add_test(tcase, done_events_go_round);
    tcase_add_test(tcase, a_precompute_of_nothing);
    tcase_add_test(tcase, a_gather_waits_for_its_events);
    tcase_add_test(tcase, a_pre_gather_leaves_its_event);
    tcase_add_test(tcase, a_refused_gather_changes_no_event);
    tcase_add_test(tcase, precomputes_keep_the_order_of_their_events);
    tcase_add_test(tcase, places_are_used_again_after_their_releases);
    tcase_add_test(tcase, a_release_that_starts_a_gather);
    tcase_add_test(tcase, a_release_with_an_event_that_was_not_given);
    tcase_add_test(tcase, events_that_were_not_given);
    tcase_add_test(tcase, precomputes_ahead);
    tcase_add_test(tcase, scales_are_taken_before_they_land);
    tcase_add_test(tcase, old_landings_do_not_win);
    tcase_add_test(tcase, the_first_gather_of_a_delayed_weight);
    tcase_add_test(tcase, amaxes_of_delayed_weights_begin_anew);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return run_cases(make_suite());
}
