/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What operators do to a daemon at work, in the rooms: amaxes that are reset between two rounds and
 * never within one, on the host, on devices and over an amax group; jobs that are not dead; the end
 * that is asked for; and that trainers may do none of it.
 */
#include <check.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/log.h"
#include "protocol.h"
#include "tests/lib/device_group.h"
#include "tests/lib/mesh.h"
#include "tests/lib/suite.h"

#define REGION 65536
#define COUNT  16

static struct rooms rooms;
static struct client operator_, rank;
static int memory;
static uint64_t shape[] = {4, 4};

static uint64_t ask_reset(struct client *client, const char *job, const char *name)
{
    F8__ResetAmax message = F8__RESET_AMAX__INIT;
    message.job = (char *)job;
    message.name = (char *)name;
    return ask_body(client, F8__REQUEST__BODY_RESET_AMAX, &message.base, NULL, 0);
}

static uint64_t ask_evict(struct client *client, const char *job)
{
    F8__Evict message = F8__EVICT__INIT;
    message.job = (char *)job;
    message.uid = ROOMS_UID;
    return ask_body(client, F8__REQUEST__BODY_EVICT, &message.base, NULL, 0);
}

static uint64_t ask_level(struct client *client, const char *level)
{
    F8__LogLevel message = F8__LOG_LEVEL__INIT;
    message.level = (char *)level;
    return ask_body(client, F8__REQUEST__BODY_LOG_LEVEL, &message.base, NULL, 0);
}

static uint64_t ask_drain(struct client *client, bool wait, bool cancel)
{
    F8__Drain message = F8__DRAIN__INIT;
    message.wait = wait;
    message.cancel = cancel;
    return ask_body(client, F8__REQUEST__BODY_DRAIN, &message.base, NULL, 0);
}

/* The reply says that so many weights of so many groups were reset. */
static void expect_reset(struct client *client, uint64_t id, uint32_t weights, uint32_t groups)
{
    const F8__Reply *reply = client_await(client, id);
    ck_assert_msg(reply->status == F8_OK, "%s", reply->text);
    ck_assert_uint_eq(reply->reset_amax->weights, weights);
    ck_assert_uint_eq(reply->reset_amax->groups, groups);
}

/* ---- one rank, with delayed weights a and b in buckets of their own, and a raw one ---- */

static void set_up(void)
{
    rooms_open(&rooms);
    client_open(&operator_, &rooms, 9);
    client_open(&rank, &rooms, 10);
    client_ok(&operator_, ask_admin(&operator_));
    memory = client_enter(&rank, "train", "dp", 0, 1, REGION);
    F8__Weight weights[] = {make_weight("a", F8_PROTO_DELAYED, shape, 2, 1, 0),
        make_weight("b", F8_PROTO_DELAYED, shape, 2, 1, COUNT * sizeof(float)),
        make_weight("norm", F8_PROTO_RAW, shape, 2, 1, 0)};
    weights[0].history_length = weights[1].history_length = 4;
    F8__Bucket buckets[] = {make_bucket("ba", 0, 1, false), make_bucket("bb", 1, 2, false)};
    client_ok(&rank, ask_register(&rank, weights, 3, buckets, 2, false));
    client_ok(&rank, ask_seal(&rank, 0));
}

static void tear_down(void)
{
    client_close(&operator_, false);
    client_close(&rank, false);
    (void)close(memory);
    rooms_close(&rooms);
}

static void write_values(float value)
{
    for (size_t i = 0; i < 2; i++)
        ck_assert_int_eq(pwrite(memory, &value, sizeof(value), (off_t)(i * COUNT * sizeof(value))),
            sizeof(value));
}

static void step(float amax)
{
    write_values(amax);
    for (uint32_t b = 0; b < 2; b++) {
        client_ok(&rank, ask_gather(&rank, b));
        send_release(&rank, b);
    }
    client_ok(&rank, ask_sync(&rank));
}

static const F8__WeightInfo *weight(const char *name)
{
    client_forget(&operator_);
    const F8__Reply *reply =
        client_await(&operator_, ask_inspect(&operator_, F8__VIEW__AMAX, "", name, 0));
    ck_assert_msg(reply->status == F8_OK, "%s", reply->text);
    ck_assert_uint_eq(reply->inspect->n_weights, 1);
    return reply->inspect->weights[0];
}

static bool has_history(const char *name)
{
    const F8__WeightInfo *info = weight(name);
    bool any = false;
    for (size_t i = 0; i < info->n_history; i++)
        any = any || info->history[i] != 0;
    ck_assert_int_eq(any, info->initialised);
    return any;
}

START_TEST(reset_is_for_what_matches)
{
    step(2);
    step(3);
    expect_reset(&operator_, ask_reset(&operator_, "", "a"), 1, 1);
    ck_assert(!has_history("a"));
    ck_assert(has_history("b"));
    step(8); /* the gather seeds it, and the sync goes on from there */
    const F8__WeightInfo *info = weight("a");
    ck_assert_uint_eq(info->history[0], bits_of(8));
    ck_assert_uint_eq(info->history[1], bits_of(8));
    ck_assert_uint_eq(info->history[2], 0);
    ck_assert_uint_eq(weight("b")->history[2], bits_of(2));
    expect_reset(&operator_, ask_reset(&operator_, "tr*", "*"), 2, 1);
    ck_assert(!has_history("b"));
    client_refused(&operator_, ask_reset(&operator_, "", "norm"), F8_ENOENT,
        "no delayed weight is called norm");
    client_refused(&operator_, ask_reset(&operator_, "other", "a"), F8_ENOENT, "called a");
}
END_TEST

/* The gather that runs has begun with the old state, and ends with it. */
START_TEST(reset_waits_for_the_round)
{
    step(2);
    uint64_t gather = ask_gather(&rank, 0);
    uint64_t reset = ask_reset(&operator_, "", "*");
    ck_assert_ptr_null(client_reply(&operator_, reset));
    client_ok(&rank, gather);
    expect_reset(&operator_, reset, 2, 1);
    ck_assert(!has_history("a"));
}
END_TEST

/* One round begins as the other ends: the reset is between the two, and the second one seeds. */
START_TEST(reset_comes_between_two_rounds)
{
    step(2);
    write_values(5);
    uint64_t first = ask_gather(&rank, 0), second = ask_gather(&rank, 1);
    uint64_t reset = ask_reset(&operator_, "", "*");
    client_ok(&rank, first);
    client_ok(&rank, second);
    expect_reset(&operator_, reset, 2, 1);
    ck_assert(!has_history("a"));
    ck_assert_uint_eq(weight("b")->history[0], bits_of(5));
    ck_assert_uint_eq(weight("b")->history[1], 0);
}
END_TEST

START_TEST(operator_who_leaves_has_nothing_done)
{
    step(2);
    uint64_t gather = ask_gather(&rank, 0);
    (void)ask_reset(&operator_, "", "*");
    client_close(&operator_, true);
    client_ok(&rank, gather);
    client_open(&operator_, &rooms, 9);
    client_ok(&operator_, ask_admin(&operator_));
    ck_assert(has_history("a") && has_history("b"));
}
END_TEST

START_TEST(group_that_goes_is_not_waited_for)
{
    step(2);
    (void)ask_gather(&rank, 0);
    uint64_t reset = ask_reset(&operator_, "", "*");
    client_close(&rank, true);
    ck_assert_int_eq(client_await(&operator_, reset)->status, F8_OK);
}
END_TEST

/* ---- devices, and groups that share amaxes ---- */

START_TEST(reset_waits_for_what_devices_found)
{
    struct device_group group;
    device_group_open(&group, 2, 2, F8_PROTO_DELAYED);
    device_group_seal(&group);
    device_group_write_all(&group, 0, 2);
    device_group_gather(&group, 0);
    device_backend_hold(group.rooms.cuda, DEVICE_LANDINGS, true);
    device_group_gather(&group, 0);
    uint64_t reset = ask_reset(&group.operator_, "", "w0");
    while (device_backend_turn(group.rooms.cuda))
        ;
    ck_assert_ptr_null(client_reply(&group.operator_, reset));
    device_backend_hold(group.rooms.cuda, DEVICE_LANDINGS, false);
    expect_reset(&group.operator_, reset, 1, 1);
    ck_assert(!device_group_weight(&group, 0)->initialised);
    device_group_close(&group);
}
END_TEST

/* The amax group has the history; those who gather follow it. */
START_TEST(reset_of_shared_amaxes)
{
    struct mesh mesh;
    mesh_start(&mesh, F8_PROTO_DELAYED);
    for (uint32_t r = 0; r < MESH_RANKS; r++)
        mesh_write(&mesh, r, 0, 3);
    mesh_gather(&mesh, 0);
    mesh_whole(&mesh, ask_sync);
    ck_assert(mesh_weight(&mesh, "dp0", "w0")->initialised);
    expect_reset(&mesh.operator_, ask_reset(&mesh.operator_, "", "w0"), 1, 1);
    ck_assert(!mesh_weight(&mesh, "dp0", "w0")->initialised);
    ck_assert(!mesh_weight(&mesh, "dp1", "w0")->initialised);
    mesh_gather(&mesh, 0);
    ck_assert(mesh_weight(&mesh, "dp1", "w0")->initialised);
    mesh_close(&mesh);
}
END_TEST

/* ---- evict, log-level, drain ---- */

START_TEST(job_that_lives_is_not_evicted)
{
    struct client other;
    client_open(&other, &rooms, 11);
    client_ok(&other, ask_hello(&other, "train"));
    client_refused(&operator_, ask_evict(&operator_, "train"), F8_EBUSY,
        "is not dead, it has 2 clients: pid 11 10");
    client_close(&other, false);
    client_refused(&operator_, ask_evict(&operator_, "nobody"), F8_ENOENT, "nothing is kept");
    (void)ask_gather(&rank, 0);
    client_close(&rank, true);
    client_refused(&operator_, ask_evict(&operator_, "train"), F8_EBUSY,
        "the last work of its group dp still runs");
}
END_TEST

START_TEST(level_is_shown_and_set)
{
    log_set_level(LOG_LEVEL_ERROR);
    const F8__Reply *reply = client_await(&operator_, ask_level(&operator_, ""));
    ck_assert_str_eq(reply->log_level->level, "error");
    reply = client_await(&operator_, ask_level(&operator_, "debug"));
    ck_assert_str_eq(reply->log_level->level, "debug");
    ck_assert_str_eq(reply->log_level->before, "error");
    ck_assert_int_eq(log_get_level(), LOG_LEVEL_DEBUG);
    client_refused(&operator_, ask_level(&operator_, "loud"), F8_EINVAL, "loud is no log level");
    ck_assert_int_eq(log_get_level(), LOG_LEVEL_DEBUG);
    log_set_level(LOG_LEVEL_ERROR);
}
END_TEST

/* Stands for the server. */
static void begin_drain(void *owner, const char *who)
{
    ck_assert_str_eq(who, "uid 1000, pid 9");
    session_drain(owner);
}

static int cancel_drain(void *owner, const char *who, struct reason *reason)
{
    struct session_context *context = owner;
    struct reason why;
    if (!context->draining)
        return reason_set(reason, F8_EORDER, "there is no drain");
    (void)reason_set(&why, F8_OK, "called off by %s", who);
    session_end_drain(context, &why);
    return F8_OK;
}

START_TEST(drain_is_called_off)
{
    static const struct session_end end = {.drain = begin_drain, .cancel = cancel_drain};
    rooms.context.end = &end;
    rooms.context.end_owner = &rooms.context;
    client_refused(&operator_, ask_drain(&operator_, true, false), F8_ECANCELED, "no drain");
    client_refused(&operator_, ask_drain(&operator_, false, true), F8_EORDER, "no drain");
    uint64_t gather = ask_gather(&rank, 0);
    const F8__Reply *reply = client_await(&operator_, ask_drain(&operator_, false, false));
    ck_assert_uint_eq(reply->drain->groups, 1);
    ck_assert_str_eq(reply->drain->first, "group dp of job train");
    client_refused(&rank, ask_join(&rank, "late", 0, 1), F8_ECONN, "nobody joins any more");
    uint64_t waits = ask_drain(&operator_, true, false);
    ck_assert_ptr_null(client_reply(&operator_, waits));
    client_ok(&operator_, ask_drain(&operator_, false, true));
    client_refused(&operator_, waits, F8_ECANCELED, "called off by uid 1000, pid 9");
    client_ok(&rank, gather);
    client_ok(&rank, ask_join(&rank, "late", 0, 1));
}
END_TEST

/* Who waits may leave; nothing of it is left. */
START_TEST(who_waits_for_the_end_leaves)
{
    static const struct session_end end = {.drain = begin_drain, .cancel = cancel_drain};
    struct reason why = {.text = "it goes on"};
    rooms.context.end = &end;
    rooms.context.end_owner = &rooms.context;
    client_ok(&operator_, ask_drain(&operator_, false, false));
    (void)ask_drain(&operator_, true, false);
    (void)ask_drain(&operator_, true, false);
    client_close(&operator_, true);
    session_end_drain(&rooms.context, &why);
    ck_assert_ptr_null(rooms.context.drain_waits);
}
END_TEST

START_TEST(trainers_may_do_none_of_it)
{
    static const char words[] = "may not inspect, import or administer";
    client_refused(&rank, ask_reset(&rank, "", "a"), F8_EPERM, words);
    client_refused(&rank, ask_evict(&rank, "train"), F8_EPERM, words);
    client_refused(&rank, ask_level(&rank, "debug"), F8_EPERM, words);
    client_refused(&rank, ask_drain(&rank, false, false), F8_EPERM, words);
}
END_TEST

int main(void)
{
    TCase *one = tcase_create("one rank"), *more = tcase_create("more");
    Suite *suite = suite_create("session_admin");
    tcase_add_checked_fixture(one, set_up, tear_down);
    tcase_add_test(one, reset_is_for_what_matches);
    tcase_add_test(one, reset_waits_for_the_round);
    tcase_add_test(one, reset_comes_between_two_rounds);
    tcase_add_test(one, operator_who_leaves_has_nothing_done);
    tcase_add_test(one, group_that_goes_is_not_waited_for);
    tcase_add_test(one, job_that_lives_is_not_evicted);
    tcase_add_test(one, level_is_shown_and_set);
    tcase_add_test(one, drain_is_called_off);
    tcase_add_test(one, who_waits_for_the_end_leaves);
    tcase_add_test(one, trainers_may_do_none_of_it);
    tcase_add_test(more, reset_waits_for_what_devices_found);
    tcase_add_test(more, reset_of_shared_amaxes);
    suite_add_tcase(suite, one);
    suite_add_tcase(suite, more);
    return run_cases(suite);
}
