/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What devices found, on its way: who waits for it, what a failure does, and ranks that die, leave
 * and come back with results still to land. Nothing may be left, and nothing counted twice.
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

static struct device_backend_totals totals(void)
{
    return device_backend_totals(group.rooms.cuda);
}

/* ---- who waits ---- */

START_TEST(quiesces_wait_for_landings)
{
    uint64_t second;
    start(2, 2, F8_PROTO_DYNAMIC);
    hold(DEVICE_LANDINGS, true);
    device_group_gather(&group, 0);
    device_group_all(&group, ask_quiesce);
    second = ask_quiesce(&group.clients[1]);
    device_group_unanswered(&group);
    hold(DEVICE_LANDINGS, false);
    device_group_ok(&group);
    ck_assert_int_eq(client_status(&group.clients[1], second), F8_OK);
    device_group_all(&group, ask_quiesce); /* at rest: at once */
    for (int r = 0; r < 2; r++)
        ck_assert_ptr_nonnull(client_reply(&group.clients[r], group.ids[r]));
}
END_TEST

/* The quiesce was there before the round had ended, and the next round begins meanwhile. */
START_TEST(quiesces_wait_for_rounds_and_then_landings)
{
    uint64_t quiesces[2], gathers[2];
    start(2, 2, F8_PROTO_DYNAMIC);
    hold(DEVICE_COMMANDS, true);
    hold(DEVICE_LANDINGS, true);
    for (int r = 0; r < 2; r++)
        gathers[r] = ask_gather(&group.clients[r], 0);
    for (int r = 0; r < 2; r++)
        quiesces[r] = ask_quiesce(&group.clients[r]);
    hold(DEVICE_COMMANDS, false);
    for (int r = 0; r < 2; r++)
        ck_assert_int_eq(client_status(&group.clients[r], gathers[r]), F8_OK);
    gathers[0] = ask_gather(&group.clients[0], 1); /* rank 0 goes on and is open again */
    memcpy(group.ids, quiesces, sizeof(quiesces));
    device_group_unanswered(&group);
    hold(DEVICE_LANDINGS, false);
    ck_assert_int_eq(client_status(&group.clients[1], quiesces[1]), F8_OK);
    gathers[1] = ask_gather(&group.clients[1], 1);
    for (int r = 0; r < 2; r++)
        ck_assert_int_eq(client_status(&group.clients[r], gathers[r]), F8_OK);
    ck_assert_int_eq(client_status(&group.clients[0], quiesces[0]), F8_OK);
}
END_TEST

START_TEST(syncs_wait_for_landings)
{
    start(2, 2, F8_PROTO_DELAYED);
    device_group_write_all(&group, 0, 1);
    device_group_gather(&group, 0);
    rooms_land(&group.rooms);
    hold(DEVICE_LANDINGS, true);
    device_group_write_all(&group, 0, 4);
    device_group_gather(&group, 0);
    device_group_all(&group, ask_sync);
    device_group_unanswered(&group);
    hold(DEVICE_LANDINGS, false);
    device_group_ok(&group);
    float scale = device_group_scale(8);
    ck_assert(memcmp(&device_group_weight(&group, 0)->scale, &scale, sizeof(scale)) == 0);
}
END_TEST

START_TEST(invalidates_wait_for_landings)
{
    start(2, 2, F8_PROTO_DYNAMIC);
    hold(DEVICE_LANDINGS, true);
    device_group_all(&group, ask_precompute);
    device_group_ok(&group);
    device_group_all(&group, ask_invalidate);
    device_group_unanswered(&group);
    hold(DEVICE_LANDINGS, false);
    device_group_ok(&group);
    device_group_write_all(&group, 0, 1);
    device_group_gather(&group, 0);
    rooms_land(&group.rooms);
    device_group_expect(&group, device_group_scale(2), 1);
}
END_TEST

START_TEST(the_deadline_of_a_sync_that_waits)
{
    start(2, 2, F8_PROTO_DYNAMIC);
    hold(DEVICE_LANDINGS, true);
    device_group_gather(&group, 0);
    group.rooms.config.deadline_ms = 30;
    device_group_all(&group, ask_sync);
    device_group_refused(&group, F8_EDEADLINE,
        "the deadline of sync, collective 3 of group dp, passed: it waited for what its devices "
        "were to find");
    hold(DEVICE_LANDINGS, false);
    group.rooms.config.deadline_ms = 600000;
}
END_TEST

/* ---- counts ---- */

static uint64_t gather_saturated(uint32_t times)
{
    for (uint32_t i = 0; i < times; i++)
        device_group_gather(&group, 0);
    rooms_land(&group.rooms);
    return device_group_weight(&group, 0)->saturated;
}

static void rejoin_all(void)
{
    for (uint32_t r = 0; r < group.num_ranks; r++)
        device_group_rejoin(&group, r);
    device_group_seal(&group);
}

static void fail_landing(void)
{
    device_backend_fail(
        group.rooms.cuda, DEVICE_FAULT_LANDING, F8_EIO, "device 1 gave cudaErrorIllegalAddress");
}

/* Devices count on; each element that saturated is told once, also over seals with the same arena;
 * what an arena that has failed was still to tell goes with it. */
START_TEST(counts_are_told_once)
{
    start(2, 2, F8_PROTO_STATIC);
    device_group_write_all(&group, 0, 1000); /* past 448, all 50 elements */
    ck_assert_uint_eq(gather_saturated(3), 150);
    hold(DEVICE_LANDINGS, true);
    device_group_gather(&group, 0);
    device_group_gather(&group, 0);
    ck_assert_uint_eq(device_group_weight(&group, 0)->saturated, 150);
    hold(DEVICE_LANDINGS, false);
    rooms_land(&group.rooms);
    ck_assert_uint_eq(device_group_weight(&group, 0)->saturated, 250);
    ck_assert_uint_eq(device_group_weight(&group, 1)->saturated, 0);
    client_close(&group.clients[1], true);
    device_group_rejoin(&group, 0);
    device_group_enter(&group, 1, 201);
    device_group_seal(&group);
    device_group_write_all(&group, 0, 1000);
    ck_assert_uint_eq(gather_saturated(1), 300);
    fail_landing();
    device_group_gather(&group, 0); /* counted by the device, and never told */
    rooms_land(&group.rooms);
    rejoin_all();
    ck_assert_uint_eq(totals().arenas, 1);
    ck_assert_uint_eq(gather_saturated(1), 350);
}
END_TEST

/* ---- failures ---- */

START_TEST(a_landing_that_fails_breaks_the_group)
{
    start(2, 2, F8_PROTO_DYNAMIC);
    hold(DEVICE_LANDINGS, true);
    device_group_gather(&group, 0);
    uint64_t quiesce = ask_quiesce(&group.clients[1]);
    uint64_t open = ask_gather(&group.clients[0], 1);
    fail_landing();
    hold(DEVICE_LANDINGS, false);
    client_refused(&group.clients[0], open, F8_EIO, "device 1 gave cudaErrorIllegalAddress");
    ck_assert_int_eq(client_status(&group.clients[1], quiesce), F8_OK);
    client_refused(&group.clients[1], ask_gather(&group.clients[1], 1), F8_EBROKEN,
        "group dp is broken: device 1 gave cudaErrorIllegalAddress");
    ck_assert_str_eq(device_group_info(&group)->cause, "device 1 gave cudaErrorIllegalAddress");
    ck_assert_uint_eq(group.rooms.context.collective.failed, 1);
    rejoin_all();
    device_group_write_all(&group, 0, 1);
    device_group_gather(&group, 0);
    rooms_land(&group.rooms);
    device_group_expect(&group, device_group_scale(2), 1);
}
END_TEST

/* The precompute that failed is forgotten: nobody waits for its scale any more. */
START_TEST(a_precompute_that_fails_to_land)
{
    start(2, 2, F8_PROTO_DYNAMIC);
    fail_landing();
    device_group_all(&group, ask_precompute);
    device_group_ok(&group);
    rooms_land(&group.rooms);
    rejoin_all();
    device_group_write_all(&group, 1, 3);
    device_group_gather(&group, 1);
    rooms_land(&group.rooms);
    device_group_expect(&group, device_group_scale(6), 3);
    device_group_all(&group, ask_precompute);
    device_group_ok(&group);
    device_group_gather(&group, 1);
    rooms_land(&group.rooms);
    device_group_expect(&group, device_group_scale(6), 3);
}
END_TEST

START_TEST(a_second_failure_is_not_told)
{
    start(2, 2, F8_PROTO_DYNAMIC);
    hold(DEVICE_LANDINGS, true);
    device_group_gather(&group, 0);
    device_group_gather(&group, 1);
    fail_landing();
    hold(DEVICE_LANDINGS, false);
    while (totals().landings > 1)
        (void)device_backend_turn(group.rooms.cuda);
    device_backend_fail(group.rooms.cuda, DEVICE_FAULT_LANDING, F8_EDEADLINE, "later trouble");
    rooms_land(&group.rooms);
    ck_assert_str_eq(device_group_info(&group)->cause, "device 1 gave cudaErrorIllegalAddress");
    ck_assert_uint_eq(group.rooms.context.collective.failed, 1);
}
END_TEST

static void expect_refused_and_back(device_group_ask *ask, int status, const char *text)
{
    device_group_all(&group, ask);
    device_group_refused(&group, status, text);
    rejoin_all();
    device_group_write_all(&group, 0, 1);
    device_group_gather(&group, 0);
    rooms_land(&group.rooms);
    device_group_expect(&group, device_group_scale(2), 1);
}

START_TEST(a_work_that_is_not_queued)
{
    start(2, 2, F8_PROTO_DYNAMIC);
    device_backend_fail(
        group.rooms.cuda, DEVICE_FAULT_WORK, F8_EIO, "device 0: cudaErrorLaunchFailure");
    expect_refused_and_back(ask_gather_w0, F8_EIO, "device 0: cudaErrorLaunchFailure");
    ck_assert_uint_eq(totals().landings, 0);
    device_backend_fail(
        group.rooms.cuda, DEVICE_FAULT_WORK, F8_EIO, "device 0: cudaErrorLaunchFailure");
    expect_refused_and_back(ask_precompute, F8_EIO, "device 0: cudaErrorLaunchFailure");
}
END_TEST

/* A delayed weight's first gather ends with a landing, or with its failure. */
START_TEST(amaxes_that_do_not_come)
{
    start(2, 2, F8_PROTO_DELAYED);
    device_backend_fail(group.rooms.cuda, DEVICE_FAULT_LANDING, F8_EDEADLINE,
        "device 1 has not finished for 600 s");
    expect_refused_and_back(ask_gather_w0, F8_EDEADLINE, "device 1 has not finished for 600 s");
}
END_TEST

START_TEST(an_arena_that_is_not_reserved)
{
    device_group_open(&group, 2, 2, F8_PROTO_DYNAMIC);
    device_backend_fail(group.rooms.cuda, DEVICE_FAULT_RESERVE, F8_ENOMEM,
        "device 1 has no 16384 bytes left for the arena");
    device_group_all(&group, ask_sealing);
    device_group_refused(&group, F8_ENOMEM, "device 1 has no 16384 bytes left");
    ck_assert_uint_eq(device_group_info(&group)->arena_bytes, 0);
    rejoin_all();
    ck_assert_uint_eq(device_group_info(&group)->arena_bytes, 2 * group.arena_size);
}
END_TEST

/* ---- deaths ---- */

/* The dead one's memory stays until what reads it has landed; who comes back waits for that. */
START_TEST(a_rank_dies_with_a_landing_open)
{
    start(2, 2, F8_PROTO_DYNAMIC);
    hold(DEVICE_STREAMS, true);
    device_group_write_all(&group, 0, 1);
    device_group_gather(&group, 0);
    client_close(&group.clients[1], true);
    client_refused(
        &group.clients[0], ask_gather(&group.clients[0], 1), F8_EBROKEN, "rank 1 (pid 101) died");
    ck_assert_uint_eq(totals().mappings, 2);
    ck_assert_uint_eq(totals().clients, 2);
    struct client *survivor = &group.clients[0];
    uint64_t rejoin = ask_rejoin(survivor, "dp", 0, 2);
    rooms_land(&group.rooms);
    ck_assert_ptr_null(client_reply(survivor, rejoin));
    hold(DEVICE_STREAMS, false);
    ck_assert_int_eq(client_status(survivor, rejoin), F8_OK);
    rooms_land(&group.rooms);
    ck_assert_uint_eq(totals().mappings, 1);
    ck_assert_uint_eq(totals().clients, 1);
    device_group_enter(&group, 1, 201);
    device_group_seal(&group);
    device_group_write_all(&group, 0, 3);
    device_group_gather(&group, 0);
    rooms_land(&group.rooms);
    device_group_expect(&group, device_group_scale(6), 3);
}
END_TEST

/* A client that has gone is not waited for, though its event was never reached. */
START_TEST(a_rank_dies_before_its_event)
{
    start(2, 1, F8_PROTO_DYNAMIC);
    device_backend_set_event(group.rooms.cuda, 101, 0, false);
    group.ids[0] = ask_gather(&group.clients[0], 0);
    group.ids[1] = ask_gather_ready(&group.clients[1], 0, 1);
    device_group_ok(&group);
    client_close(&group.clients[1], true);
    rooms_land(&group.rooms);
    ck_assert_uint_eq(totals().landings, 1);
    device_backend_set_event(group.rooms.cuda, 101, 0, true); /* as a driver does at its end */
    rooms_land(&group.rooms);
    ck_assert_uint_eq(totals().landings, 0);
    ck_assert_uint_eq(totals().clients, 1);
}
END_TEST

START_TEST(all_leave_with_landings_open)
{
    start(2, 2, F8_PROTO_DYNAMIC);
    hold(DEVICE_STREAMS, true);
    device_group_gather(&group, 0);
    device_group_all(&group, ask_precompute);
    device_group_ok(&group);
    for (int r = 0; r < 2; r++)
        client_close(&group.clients[r], r == 0);
    if (_i)
        fail_landing();
    ck_assert_uint_eq(totals().arenas, 1);
    hold(DEVICE_STREAMS, false);
    rooms_land(&group.rooms);
    ck_assert_uint_eq(totals().arenas + totals().clients + totals().mappings, 0);
}
END_TEST

START_TEST(a_rank_dies_while_the_seal_reserves)
{
    device_group_open(&group, 2, 2, F8_PROTO_DYNAMIC);
    hold(DEVICE_COMMANDS, true);
    device_group_all(&group, ask_sealing);
    client_close(&group.clients[1], true);
    hold(DEVICE_COMMANDS, false);
    rooms_land(&group.rooms);
    client_refused(
        &group.clients[0], ask_gather(&group.clients[0], 0), F8_EBROKEN, "rank 1 (pid 101) died");
}
END_TEST

/* ---- seals ---- */

/* The arena is kept if its ranks are where they were, and not otherwise. */
START_TEST(an_arena_is_kept_where_it_is)
{
    start(2, 2, F8_PROTO_DYNAMIC);
    client_close(&group.clients[1], true);
    device_group_rejoin(&group, 0);
    device_group_enter(&group, 1, 201);
    ck_assert_uint_eq(totals().arenas, 1);
    device_group_seal(&group);
    ck_assert(!device_group_info(&group)->warm);
    ck_assert_uint_eq(totals().arenas, 1);
    client_close(&group.clients[1], true);
    device_group_rejoin(&group, 0);
    group.rooms.num_devices = 1; /* rank 1 comes back on device 0 */
    device_group_enter(&group, 1, 202);
    device_group_seal(&group);
    rooms_land(&group.rooms);
    ck_assert_uint_eq(totals().arenas, 1);
    ck_assert_uint_eq(device_group_info(&group)->arena_bytes, group.arena_size);
    device_group_write_all(&group, 1, 1);
    device_group_gather(&group, 1);
    rooms_land(&group.rooms);
    device_group_expect(&group, device_group_scale(2), 1);
}
END_TEST

/* A group that was on devices comes back on the host, and the other way round. */
START_TEST(a_group_moves_to_the_host_and_back)
{
    start(2, 2, F8_PROTO_DYNAMIC);
    for (uint32_t devices = 0; devices <= 2; devices += 2) {
        group.rooms.num_devices = devices;
        client_close(&group.clients[0], true);
        device_group_enter(&group, 0, 300 + devices);
        device_group_rejoin(&group, 1);
        device_group_all(&group, ask_sealing);
        if (devices == 0)
            device_group_refused(&group, F8_EMISMATCH,
                "rank 1 (pid 101) of group dp works on a device where rank 0 (pid 300) works on "
                "the host");
        else
            device_group_ok(&group);
    }
    for (uint32_t r = 0; r < 2; r++)
        client_close(&group.clients[r], true);
    group.rooms.num_devices = 0;
    for (uint32_t r = 0; r < 2; r++)
        device_group_enter(&group, r, 400 + r);
    device_group_all(&group, ask_sealing);
    device_group_ok(&group);
    rooms_land(&group.rooms);
    ck_assert_uint_eq(totals().arenas, 0);
    ck_assert_uint_eq(device_group_info(&group)->n_devices, 0);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("device_landing");
    TCase *tcase = tcase_create("device_landing");
    tcase_add_checked_fixture(tcase, NULL, close_group);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, quiesces_wait_for_landings);
    tcase_add_test(tcase, quiesces_wait_for_rounds_and_then_landings);
    tcase_add_test(tcase, syncs_wait_for_landings);
    tcase_add_test(tcase, invalidates_wait_for_landings);
    tcase_add_test(tcase, the_deadline_of_a_sync_that_waits);
    tcase_add_test(tcase, counts_are_told_once);
    tcase_add_test(tcase, a_landing_that_fails_breaks_the_group);
    tcase_add_test(tcase, a_precompute_that_fails_to_land);
    tcase_add_test(tcase, a_second_failure_is_not_told);
    tcase_add_test(tcase, a_work_that_is_not_queued);
    tcase_add_test(tcase, amaxes_that_do_not_come);
    tcase_add_test(tcase, an_arena_that_is_not_reserved);
    tcase_add_test(tcase, a_rank_dies_with_a_landing_open);
    tcase_add_test(tcase, a_rank_dies_before_its_event);
    tcase_add_loop_test(tcase, all_leave_with_landings_open, 0, 2);
    tcase_add_test(tcase, a_rank_dies_while_the_seal_reserves);
    tcase_add_test(tcase, an_arena_is_kept_where_it_is);
    tcase_add_test(tcase, a_group_moves_to_the_host_and_back);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return run_cases(make_suite());
}
