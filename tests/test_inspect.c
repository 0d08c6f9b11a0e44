/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What operators see: every view of a known state, filters, and pages that together have each row
 * exactly once.
 */
#include <check.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "protocol.h"
#include "tests/lib/rooms.h"
#include "tests/lib/suite.h"

#define MANY     2000
#define A_PACKET 50
#define REGION   65536

static struct rooms rooms;
static struct client operator, a, b;
static uint64_t shape[] = {4, 4};

static void set_up(void)
{
    rooms_open(&rooms);
    client_open(&operator, & rooms, 9);
    client_open(&a, &rooms, 10);
    client_open(&b, &rooms, 11);
    ck_assert_int_eq(client_status(&operator, ask_admin(&operator)), F8_OK);
}

static void tear_down(void)
{
    client_close(&operator, false);
    client_close(&a, false);
    client_close(&b, false);
    rooms_close(&rooms);
}

static const F8__InspectReply *look(
    F8__View view, const char *job, const char *name, uint64_t cursor)
{
    const F8__Reply *reply =
        client_await(&operator, ask_inspect(&operator,(uint32_t) view, job, name, cursor));
    ck_assert_msg(reply->status == F8_OK, "%s", reply->text);
    return reply->inspect;
}

/* One rank in a group of its own, with one bucket of `count` weights, in packets. */
static void seal_alone(struct client *client, const char *job, uint32_t count)
{
    char names[A_PACKET][32];
    F8__Weight weights[A_PACKET];
    F8__Bucket bucket = make_bucket("all", 0, count, false);
    (void)close(client_enter(client, job, "dp", 0, 1, REGION));
    for (uint32_t first = 0; first < count; first += A_PACKET) {
        uint32_t n = count - first < A_PACKET ? count - first : A_PACKET;
        for (uint32_t w = 0; w < n; w++) {
            (void)snprintf(names[w], sizeof(names[w]), "%s.%u.weight", job, first + w);
            weights[w] = make_weight(names[w], F8_PROTO_DYNAMIC, shape, 2, 1, 0);
        }
        client_ok(client, ask_register(client, weights, n, NULL, 0, true));
    }
    client_ok(client, ask_register(client, NULL, 0, &bucket, 1, false));
    client_ok(client, ask_seal(client, 0));
}

START_TEST(status_counts_all)
{
    seal_alone(&a, "train", 3);
    client_ok(&a, ask_gather(&a, 0));
    const F8__StatusInfo *info = look(F8__VIEW__STATUS, "", "", 0)->status;
    ck_assert_str_eq(info->version, F8_VERSION);
    ck_assert_str_eq(info->socket, rooms.config.socket);
    ck_assert_str_eq(info->backend, "host");
    ck_assert_uint_eq(info->pid, (uint32_t)getpid());
    ck_assert_uint_eq(info->threads, rooms.config.threads);
    ck_assert_uint_eq(info->connections, 3);
    ck_assert_uint_eq(info->jobs, 1);
    ck_assert_uint_eq(info->groups, 1);
    ck_assert_uint_eq(info->weights, 3);
    ck_assert_uint_eq(info->region_bytes, REGION);
    ck_assert_uint_eq(info->arena_bytes, 4 * 4096);
    ck_assert_uint_eq(info->gathers, 1);
    ck_assert_uint_eq(info->failed_rounds, 0);
    ck_assert_uint_eq(info->memory_limit, rooms.config.memory_per_uid);
    ck_assert_str_ne(info->kernels, "");
}
END_TEST

START_TEST(status_shows_where_hosts_reach_this_one)
{
    (void)strcpy(rooms.config.socket_ifname, "=lo");
    const F8__StatusInfo *info = look(F8__VIEW__STATUS, "", "", 0)->status;
    ck_assert_str_eq(info->hosts_interface, "lo");
    ck_assert_str_eq(info->hosts_address, "127.0.0.1");
    ck_assert_str_eq(info->hosts_reason, "");
    (void)strcpy(rooms.config.socket_ifname, "=nothing0");
    info = look(F8__VIEW__STATUS, "", "", 0)->status;
    ck_assert_str_eq(info->hosts_interface, "");
    ck_assert_str_eq(info->hosts_address, "");
    ck_assert_ptr_nonnull(strstr(info->hosts_reason, "--socket-ifname =nothing0"));
}
END_TEST

START_TEST(nothing_is_seen_of_nothing)
{
    for (int view = F8__VIEW__JOBS; view <= F8__VIEW__ROUNDS; view++) {
        const F8__InspectReply *reply = look((F8__View)view, "", "", 0);
        ck_assert_uint_eq(reply->n_jobs + reply->n_groups + reply->n_weights + reply->n_rounds, 0);
        ck_assert_uint_eq(reply->cursor, 0);
        ck_assert_ptr_null(reply->status);
    }
}
END_TEST

START_TEST(jobs_are_shown_with_their_uid)
{
    struct client stranger;
    seal_alone(&a, "train", 1);
    ck_assert_int_eq(client_try_open(&stranger, &rooms, 4242, 12), F8_OK);
    client_ok(&stranger, ask_hello(&stranger, "train"));
    const F8__InspectReply *reply = look(F8__VIEW__JOBS, "", "", 0);
    ck_assert_uint_eq(reply->n_jobs, 2);
    const F8__JobInfo *newer = reply->jobs[0], *older = reply->jobs[1];
    ck_assert_uint_eq(newer->uid, 4242);
    ck_assert_uint_eq(newer->groups, 0);
    ck_assert_uint_eq(older->uid, ROOMS_UID);
    ck_assert_str_eq(older->name, "train");
    ck_assert_uint_eq(older->clients, 1);
    ck_assert_uint_eq(older->groups, 1);
    ck_assert_uint_eq(older->region_bytes, REGION);
    ck_assert_uint_eq(older->arena_bytes, 2 * 4096);
    client_close(&stranger, false);
}
END_TEST

START_TEST(groups_show_their_state)
{
    (void)close(client_enter(&a, "train", "dp", 0, 2, REGION));
    const F8__GroupInfo *info = look(F8__VIEW__GROUPS, "", "", 0)->groups[0];
    ck_assert_str_eq(info->state, "forming");
    ck_assert_uint_eq(info->world_size, 2);
    ck_assert_uint_eq(info->n_pids, 2);
    ck_assert_uint_eq(info->pids[0], 10);
    ck_assert_uint_eq(info->pids[1], 0);
    ck_assert_uint_eq(info->uid, ROOMS_UID);
    seal_alone(&b, "eval", 2);
    client_ok(&b, ask_gather(&b, 0));
    info = look(F8__VIEW__GROUPS, "eval", "", 0)->groups[0];
    ck_assert_str_eq(info->state, "sealed");
    ck_assert_str_eq(info->cause, "");
    ck_assert_uint_eq(info->weights, 2);
    ck_assert_uint_eq(info->buckets, 1);
    ck_assert_uint_eq(info->arena_bytes, 3 * 4096);
    ck_assert_uint_eq(info->gathers, 1);
    ck_assert_uint_eq(info->collectives, 1);
    ck_assert_uint_eq(info->float8_bytes, 32);
    (void)ask_seal(&a, 0);
    struct client c;
    client_open(&c, &rooms, 12);
    (void)close(client_enter(&c, "train", "dp", 1, 2, REGION));
    client_close(&c, true);
    info = look(F8__VIEW__GROUPS, "train", "", 0)->groups[0];
    ck_assert_str_eq(info->state, "broken");
    ck_assert_ptr_nonnull(strstr(info->cause, "rank 1 (pid 12) died"));
}
END_TEST

START_TEST(weights_show_their_scaling)
{
    seal_alone(&a, "train", 1);
    const F8__WeightInfo *info = look(F8__VIEW__WEIGHTS, "", "", 0)->weights[0];
    ck_assert_str_eq(info->name, "train.0.weight");
    ck_assert_str_eq(info->group, "dp");
    ck_assert_str_eq(info->bucket, "all");
    ck_assert_str_eq(info->wire, "e4m3fn");
    ck_assert_uint_eq(info->n_shape, 2);
    ck_assert_uint_eq(info->shape[1], 4);
    ck_assert(!info->scale_known && !info->amax_known);
    ck_assert_uint_eq(info->bytes, 16);
    client_ok(&a, ask_precompute(&a));
    client_ok(&a, ask_changed(&a, 0, 1));
    client_ok(&a, ask_gather(&a, 0));
    info = look(F8__VIEW__WEIGHTS, "", "", 0)->weights[0];
    ck_assert(info->scale_known && info->amax_known);
    ck_assert_uint_eq(info->amax, 0);
    ck_assert_uint_eq(info->version, 1);
    ck_assert_uint_eq(info->scale_version, 0);
    ck_assert_uint_eq(info->gathers, 1);
    ck_assert_uint_eq(info->stale, 1);
    ck_assert_uint_eq(info->uid, ROOMS_UID);
}
END_TEST

START_TEST(rounds_show_whom_they_wait_for)
{
    (void)close(client_enter(&a, "train", "dp", 0, 3, REGION));
    (void)close(client_enter(&b, "train", "dp", 2, 3, REGION));
    ck_assert_uint_eq(look(F8__VIEW__ROUNDS, "", "", 0)->n_rounds, 0);
    (void)ask_seal(&a, 0);
    const F8__InspectReply *reply = look(F8__VIEW__ROUNDS, "", "", 0);
    ck_assert_uint_eq(reply->n_rounds, 1);
    const F8__RoundInfo *info = reply->rounds[0];
    ck_assert_str_eq(info->kind, "seal");
    ck_assert_str_eq(info->state, "waiting for ranks");
    ck_assert_uint_eq(info->collective, 1);
    ck_assert_uint_eq(info->n_missing_ranks, 2);
    ck_assert_uint_eq(info->missing_ranks[0], 1);
    ck_assert_uint_eq(info->missing_pids[0], 0);
    ck_assert_uint_eq(info->missing_ranks[1], 2);
    ck_assert_uint_eq(info->missing_pids[1], 11);
    ck_assert_uint_le(info->deadline_ms, rooms.config.deadline_ms);
    ck_assert_uint_gt(info->deadline_ms, 0);
}
END_TEST

START_TEST(filters_are_globs)
{
    seal_alone(&a, "train-7b", 20);
    seal_alone(&b, "eval-7b", 5);
    ck_assert_uint_eq(look(F8__VIEW__JOBS, "*-7b", "", 0)->n_jobs, 2);
    ck_assert_uint_eq(look(F8__VIEW__JOBS, "train*", "", 0)->n_jobs, 1);
    ck_assert_uint_eq(look(F8__VIEW__JOBS, "train", "", 0)->n_jobs, 0);
    ck_assert_uint_eq(look(F8__VIEW__GROUPS, "", "dp", 0)->n_groups, 2);
    ck_assert_uint_eq(look(F8__VIEW__GROUPS, "", "tp", 0)->n_groups, 0);
    ck_assert_uint_eq(look(F8__VIEW__WEIGHTS, "", "", 0)->n_weights, 25);
    ck_assert_uint_eq(look(F8__VIEW__WEIGHTS, "", "*.1?.weight", 0)->n_weights, 10);
    ck_assert_uint_eq(look(F8__VIEW__WEIGHTS, "eval*", "*.[0-2].*", 0)->n_weights, 3);
    ck_assert_uint_eq(look(F8__VIEW__WEIGHTS, "", "[", 0)->n_weights, 0);
}
END_TEST

/* Marks what a page shows, and checks that no earlier page did. */
static void mark(const F8__InspectReply *page, bool *seen)
{
    for (size_t i = 0; i < page->n_weights; i++) {
        unsigned number;
        ck_assert_int_eq(sscanf(page->weights[i]->name, "train.%u.", &number), 1);
        ck_assert_uint_lt(number, MANY);
        ck_assert(!seen[number]);
        seen[number] = true;
    }
}

START_TEST(pages_have_each_row_once)
{
    static bool seen[MANY];
    rooms.config.memory_per_uid = (uint64_t)1 << 30;
    seal_alone(&a, "train", MANY);
    uint64_t cursor = 0;
    int pages = 0;
    memset(seen, 0, sizeof(seen));
    do {
        const F8__InspectReply *page = look(F8__VIEW__WEIGHTS, "", "", cursor);
        mark(page, seen);
        ck_assert(page->cursor == 0 || page->cursor == cursor + page->n_weights);
        cursor = page->cursor;
        pages++;
    } while (cursor != 0);
    ck_assert_int_gt(pages, 2);
    for (int w = 0; w < MANY; w++)
        ck_assert_msg(seen[w], "weight %d is on no page", w);
    ck_assert_uint_eq(look(F8__VIEW__WEIGHTS, "", "", MANY)->n_weights, 0);
    ck_assert_uint_eq(look(F8__VIEW__WEIGHTS, "", "", UINT64_MAX)->n_weights, 0);
}
END_TEST

static void add_all(TCase *tcase)
{
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, status_counts_all);
    tcase_add_test(tcase, status_shows_where_hosts_reach_this_one);
    tcase_add_test(tcase, nothing_is_seen_of_nothing);
    tcase_add_test(tcase, jobs_are_shown_with_their_uid);
    tcase_add_test(tcase, groups_show_their_state);
    tcase_add_test(tcase, weights_show_their_scaling);
    tcase_add_test(tcase, rounds_show_whom_they_wait_for);
    tcase_add_test(tcase, filters_are_globs);
    tcase_add_test(tcase, pages_have_each_row_once);
}

int main(void)
{
    TCase *tcase = tcase_create("inspect");
    add_all(tcase);
    return run_suite("inspect", tcase);
}
