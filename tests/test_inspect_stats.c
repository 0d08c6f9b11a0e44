/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The STATS view over real rooms: the daemon's counts, which outlive groups, those of jobs, which
 * are sums over the groups that are there, and views that there are none of.
 */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "protocol.h"
#include "tests/lib/rooms.h"
#include "tests/lib/suite.h"

#define REGION 65536

static struct rooms rooms;
static struct client operator, a, b;
static uint64_t shape[] = {4, 4};

static void set_up(void)
{
    rooms_open(&rooms);
    client_open(&operator, & rooms, 9);
    client_open(&a, &rooms, 10);
    client_open(&b, &rooms, 11);
    client_ok(&operator, ask_admin(&operator));
}

static void tear_down(void)
{
    client_close(&operator, false);
    client_close(&a, false);
    client_close(&b, false);
    rooms_close(&rooms);
}

/* The rows for a glob of jobs; "" is the daemon. */
static const F8__InspectReply *look(const char *job)
{
    client_forget(&operator);
    const F8__Reply *reply =
        client_await(&operator, ask_inspect(&operator, F8__VIEW__STATS, job, "", 0));
    ck_assert_msg(reply->status == F8_OK, "%s", reply->text);
    return reply->inspect;
}

static uint64_t count_of(F8__CountInfo *const *list, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(list[i]->name, name) == 0)
            return list[i]->count;
    ck_abort_msg("no count is called %s", name);
    return 0;
}

static uint64_t sum_of(const F8__HistogramInfo *histogram)
{
    uint64_t sum = 0;
    ck_assert_uint_eq(histogram->n_counts, histogram->n_bounds + 1);
    for (size_t i = 0; i < histogram->n_counts; i++)
        sum += histogram->counts[i];
    return sum;
}

/* One rank that has a static weight of float8, with two elements too large and a NaN, and a raw
 * one; gathered so often. */
static void run(struct client *client, const char *job, int gathers)
{
    float values[32] = {1000, -1000, NAN};
    int fd = client_enter(client, job, "dp", 0, 1, REGION);
    ck_assert_int_eq(pwrite(fd, values, sizeof(values), 0), sizeof(values));
    (void)close(fd);
    F8__Weight weights[] = {make_weight("cast", F8_PROTO_STATIC, shape, 2, 1, 0),
        make_weight("raw", F8_PROTO_RAW, shape, 2, 1, 64)};
    F8__Bucket bucket = make_bucket("all", 0, 2, false);
    client_ok(client, ask_register(client, weights, 2, &bucket, 1, false));
    client_ok(client, ask_seal(client, 0));
    for (int i = 0; i < gathers; i++) {
        client_ok(client, ask_gather(client, 0));
        send_release(client, 0);
    }
}

static void assert_counts(const F8__StatsInfo *info, uint64_t gathers)
{
    ck_assert_uint_eq(info->gathers, gathers);
    ck_assert_uint_eq(count_of(info->bytes, info->n_bytes, "e4m3fn"), 16 * gathers);
    ck_assert_uint_eq(count_of(info->bytes, info->n_bytes, "float32"), 64 * gathers);
    ck_assert_uint_eq(count_of(info->bytes, info->n_bytes, "e5m2"), 0);
    ck_assert_uint_eq(info->saturated, 2 * gathers);
    ck_assert_uint_eq(info->nan, gathers);
    ck_assert_uint_eq(info->stale, 0);
}

START_TEST(daemon_and_jobs_count)
{
    run(&a, "train", 3);
    run(&b, "tune", 2);
    const F8__InspectReply *reply = look("");
    ck_assert_uint_eq(reply->n_stats, 1);
    ck_assert_uint_eq(reply->cursor, 0);
    ck_assert_str_eq(reply->stats[0]->job, "");
    assert_counts(reply->stats[0], 5);
    ck_assert_uint_eq(sum_of(reply->stats[0]->gather), 5);
    ck_assert_uint_eq(sum_of(reply->stats[0]->wait), 5);
    ck_assert_uint_gt(sum_of(reply->stats[0]->rpc), 0);
    reply = look("t*");
    ck_assert_uint_eq(reply->n_stats, 2);
    reply = look("train");
    ck_assert_uint_eq(reply->n_stats, 1);
    ck_assert_str_eq(reply->stats[0]->job, "train");
    ck_assert_uint_eq(reply->stats[0]->uid, ROOMS_UID);
    ck_assert_ptr_null(reply->stats[0]->gather);
    assert_counts(reply->stats[0], 3);
    ck_assert_uint_eq(count_of(reply->stats[0]->failed, reply->stats[0]->n_failed, "any"), 0);
    ck_assert_uint_eq(look("none")->n_stats, 0);
}
END_TEST

START_TEST(totals_outlive_jobs)
{
    run(&a, "train", 4);
    client_close(&a, false);
    rooms_settle(&rooms);
    client_open(&a, &rooms, 10);
    assert_counts(look("")->stats[0], 4);
    ck_assert_uint_eq(look("*")->n_stats, 0);
}
END_TEST

START_TEST(failed_rounds_have_causes)
{
    (void)close(client_enter(&a, "train", "dp", 0, 2, REGION));
    (void)close(client_enter(&b, "train", "dp", 1, 2, REGION));
    F8__Weight weight = make_weight("raw", F8_PROTO_RAW, shape, 2, 1, 64);
    F8__Bucket bucket = make_bucket("all", 0, 1, false);
    client_ok(&a, ask_register(&a, &weight, 1, &bucket, 1, false));
    client_ok(&b, ask_register(&b, &weight, 1, &bucket, 1, false));
    uint64_t id = ask_seal(&a, 0);
    client_ok(&b, ask_seal(&b, 0));
    client_ok(&a, id);
    id = ask_gather(&a, 0);
    client_close(&b, true);
    (void)client_await(&a, id);
    const F8__StatsInfo *info = look("")->stats[0];
    ck_assert_uint_eq(count_of(info->failed, info->n_failed, "rank_died"), 1);
    ck_assert_uint_eq(count_of(info->failed, info->n_failed, "deadline"), 0);
    info = look("train")->stats[0];
    ck_assert_uint_eq(count_of(info->failed, info->n_failed, "any"), 1);
    client_open(&b, &rooms, 11);
}
END_TEST

START_TEST(other_views_are_refused)
{
    client_refused(&operator, ask_inspect(&operator, 99, "", "", 0), F8_EUNKNOWN,
        "view 99 is not known to f8gatherd");
    client_refused(&operator, ask_inspect(&operator, 4000000000u, "", "", 0), F8_EUNKNOWN,
        "is not known to f8gatherd");
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("inspect_stats");
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_test(cases, daemon_and_jobs_count);
    tcase_add_test(cases, totals_outlive_jobs);
    tcase_add_test(cases, failed_rounds_have_causes);
    tcase_add_test(cases, other_views_are_refused);
    return run_suite("inspect_stats", cases);
}
