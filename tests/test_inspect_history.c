/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What operators see of a run after the fact: buckets with what their weights counted and who
 * holds them, amax histories, and the log of syncs, in pages that have each row exactly once.
 */
#include <check.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "protocol.h"
#include "tests/lib/rooms.h"
#include "tests/lib/suite.h"

#define BUCKETS 9 /* of two weights each: one delayed, one raw */
#define WINDOW  4 /* amaxes that count */
#define LOGGED  1024
#define REGION  65536
#define COUNT   16 /* elements of a weight */

static struct rooms rooms;
static struct client operator, rank;
static int memory;
static uint64_t shape[] = {4, 4};
static char names[2 * BUCKETS][32];
static char bucket_names[BUCKETS][32];

static uint64_t ask(F8__Request__BodyCase what)
{
    F8__Precompute body = F8__PRECOMPUTE__INIT;
    F8__Request request = F8__REQUEST__INIT;
    body.group = rank.group;
    body.generation = rank.generation;
    request.body_case = what;
    request.sync = &body;
    return client_send(&rank, &request, NULL, 0);
}

static void register_all(void)
{
    F8__Weight weights[2 * BUCKETS];
    F8__Bucket buckets[BUCKETS];
    for (uint32_t b = 0; b < BUCKETS; b++) {
        (void)snprintf(names[2 * b], sizeof(names[0]), "layers.%u.weight", b);
        (void)snprintf(names[2 * b + 1], sizeof(names[0]), "layers.%u.norm", b);
        (void)snprintf(bucket_names[b], sizeof(bucket_names[0]), "layers.%u", b);
        uint64_t offset = (uint64_t)b * COUNT * sizeof(float);
        weights[2 * b] = make_weight(names[2 * b], F8_PROTO_DELAYED, shape, 2, 1, offset);
        weights[2 * b].history_length = WINDOW;
        weights[2 * b + 1] = make_weight(names[2 * b + 1], F8_PROTO_RAW, shape, 2, 1, 0);
        buckets[b] = make_bucket(bucket_names[b], 2 * b, 2, b == 0);
    }
    client_ok(&rank, ask_register(&rank, weights, 2 * BUCKETS, buckets, BUCKETS, false));
    client_ok(&rank, ask_seal(&rank, 1));
}

static void set_up(void)
{
    rooms_open(&rooms);
    client_open(&operator, & rooms, 9);
    client_open(&rank, &rooms, 10);
    client_ok(&operator, ask_admin(&operator));
    memory = client_enter(&rank, "train", "dp", 0, 1, REGION);
    register_all();
}

static void tear_down(void)
{
    client_close(&operator, false);
    client_close(&rank, false);
    (void)close(memory);
    rooms_close(&rooms);
}

static const F8__InspectReply *look(F8__View view, const char *name, uint64_t cursor)
{
    client_forget(&operator);
    const F8__Reply *reply =
        client_await(&operator, ask_inspect(&operator,(uint32_t) view, "", name, cursor));
    ck_assert_msg(reply->status == F8_OK, "%s", reply->text);
    return reply->inspect;
}

/* A step in which the largest element of every delayed weight is this. */
static void step(float amax)
{
    client_forget(&rank);
    for (uint32_t b = 0; b < BUCKETS; b++) {
        off_t offset = (off_t)(b * COUNT * sizeof(float));
        ck_assert_int_eq(pwrite(memory, &amax, sizeof(amax), offset), sizeof(amax));
        client_ok(&rank, ask_gather(&rank, b));
        send_release(&rank, b);
    }
    client_ok(&rank, ask(F8__REQUEST__BODY_SYNC));
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

START_TEST(buckets_sum_their_weights)
{
    const F8__InspectReply *reply = look(F8__VIEW__BUCKETS, "", 0);
    ck_assert_uint_eq(reply->n_buckets, BUCKETS);
    ck_assert_str_eq(reply->buckets[3]->name, "layers.3");
    ck_assert(reply->buckets[0]->shared && !reply->buckets[1]->shared);
    step(1);
    step(4096); /* the scale is for 1 still: it saturates once in each delayed weight */
    client_ok(&rank, ask_gather(&rank, 2));
    const F8__BucketInfo *info = look(F8__VIEW__BUCKETS, "layers.2", 0)->buckets[0];
    ck_assert_str_eq(info->job, "train");
    ck_assert_str_eq(info->group, "dp");
    ck_assert_uint_eq(info->uid, ROOMS_UID);
    ck_assert_uint_eq(info->weights, 2);
    ck_assert_uint_eq(info->bytes, COUNT + COUNT * sizeof(float));
    ck_assert_uint_eq(info->gathers, 3);
    ck_assert_uint_eq(info->saturated, 1);
    ck_assert_uint_eq(info->nan + info->stale, 0);
    ck_assert_uint_eq(info->n_holders, 1);
    ck_assert_uint_eq(info->holders[0], 0);
    info = look(F8__VIEW__BUCKETS, "*.1", 0)->buckets[0];
    ck_assert_uint_eq(info->gathers, 2);
    ck_assert_uint_eq(info->n_holders, 0);
}
END_TEST

static void seal_pair(struct client *pair)
{
    F8__Weight weight = make_weight("w", F8_PROTO_RAW, shape, 2, 1, 0);
    F8__Bucket bucket = make_bucket("pair", 0, 1, false);
    for (uint32_t r = 0; r < 2; r++) {
        client_open(&pair[r], &rooms, 20 + r);
        (void)close(client_enter(&pair[r], "train", "pp", r, 2, REGION));
        client_ok(&pair[r], ask_register(&pair[r], &weight, 1, &bucket, 1, false));
    }
    uint64_t id = ask_seal(&pair[0], 0);
    client_ok(&pair[1], ask_seal(&pair[1], 0));
    client_ok(&pair[0], id);
}

/* Whoever holds a bucket is shown until the group breaks; while it forms its lists are known. */
START_TEST(holders_are_shown_by_rank)
{
    struct client pair[2];
    seal_pair(pair);
    uint64_t id = ask_gather(&pair[0], 0);
    client_ok(&pair[1], ask_gather(&pair[1], 0));
    client_ok(&pair[0], id);
    ck_assert_uint_eq(look(F8__VIEW__BUCKETS, "pair", 0)->buckets[0]->n_holders, 2);
    send_release(&pair[0], 0);
    const F8__BucketInfo *info = look(F8__VIEW__BUCKETS, "pair", 0)->buckets[0];
    ck_assert_uint_eq(info->n_holders, 1);
    ck_assert_uint_eq(info->holders[0], 1);
    client_close(&pair[0], true);
    ck_assert_uint_eq(look(F8__VIEW__BUCKETS, "pair", 0)->buckets[0]->n_holders, 0);
    client_ok(&pair[1], ask_rejoin(&pair[1], "pp", 1, 2));
    ck_assert_uint_eq(look(F8__VIEW__BUCKETS, "pair", 0)->buckets[0]->n_holders, 0);
    client_close(&pair[1], true);
}
END_TEST

START_TEST(amaxes_are_shown_newest_first)
{
    step(1);
    step(2);
    step(3);
    const F8__InspectReply *reply = look(F8__VIEW__AMAX, "layers.0.*", 0);
    ck_assert_uint_eq(reply->n_weights, 2);
    const F8__WeightInfo *info = reply->weights[0];
    ck_assert_uint_eq(info->n_history, WINDOW);
    const float window[WINDOW] = {3, 2, 1, 1}; /* the first gather seeded it */
    for (int i = 0; i < WINDOW; i++)
        ck_assert_uint_eq(info->history[i], bits_of(window[i]));
    ck_assert_uint_eq(info->syncs, 3);
    ck_assert_uint_eq(info->since_sync, 0);
    ck_assert(info->initialised);
    ck_assert_uint_eq(reply->weights[1]->n_history, 0);
    ck_assert_uint_eq(look(F8__VIEW__WEIGHTS, "layers.0.weight", 0)->weights[0]->n_history, 0);
}
END_TEST

START_TEST(syncs_are_logged)
{
    const F8__InspectReply *reply = look(F8__VIEW__HISTORY, "", 0);
    ck_assert_uint_eq(reply->n_histories, BUCKETS); /* not those of raw weights */
    ck_assert_uint_eq(reply->histories[0]->newest, 0);
    ck_assert_uint_eq(reply->histories[0]->n_amax, 0);
    client_ok(&rank, ask(F8__REQUEST__BODY_SYNC)); /* before any gather: nothing to log */
    ck_assert_uint_eq(look(F8__VIEW__HISTORY, "", 0)->histories[0]->n_amax, 0);
    step(1);
    step(0); /* keeps the scale */
    client_ok(&rank, ask(F8__REQUEST__BODY_INVALIDATE));
    step(2);
    const F8__HistoryInfo *info = look(F8__VIEW__HISTORY, "layers.4.weight", 0)->histories[0];
    ck_assert_str_eq(info->job, "train");
    ck_assert_str_eq(info->group, "dp");
    ck_assert_str_eq(info->name, "layers.4.weight");
    ck_assert_uint_eq(info->uid, ROOMS_UID);
    ck_assert_uint_eq(info->newest, 3);
    ck_assert_uint_eq(info->n_amax, 3);
    ck_assert_uint_eq(info->n_scale, 3);
    const float amax[] = {2, 0, 1}, scale[] = {224, 448, 448};
    for (int i = 0; i < 3; i++) {
        ck_assert_uint_eq(info->amax[i], bits_of(amax[i]));
        ck_assert_uint_eq(info->scale[i], bits_of(scale[i]));
    }
}
END_TEST

/* Sync n has the amax n; a page ends between two weights. */
START_TEST(full_logs_come_in_pages)
{
    bool seen[BUCKETS] = {false};
    int pages = 0;
    uint64_t cursor = 0;
    rooms.config.memory_per_uid = (uint64_t)1 << 30;
    for (int i = 1; i <= LOGGED + 7; i++)
        step((float)i);
    do {
        const F8__InspectReply *page = look(F8__VIEW__HISTORY, "layers.*", cursor);
        for (size_t h = 0; h < page->n_histories; h++) {
            const F8__HistoryInfo *info = page->histories[h];
            unsigned layer;
            ck_assert_int_eq(sscanf(info->name, "layers.%u.weight", &layer), 1);
            ck_assert(!seen[layer]);
            seen[layer] = true;
            ck_assert_uint_eq(info->newest, LOGGED + 7);
            ck_assert_uint_eq(info->n_amax, LOGGED);
            for (uint32_t i = 0; i < LOGGED; i++)
                ck_assert_uint_eq(info->amax[i], bits_of((float)(LOGGED + 7 - i)));
        }
        cursor = page->cursor;
        pages++;
    } while (cursor != 0);
    for (int layer = 0; layer < BUCKETS; layer++)
        ck_assert_msg(seen[layer], "layer %d is on no page", layer);
    ck_assert_int_ge(pages, BUCKETS * LOGGED * 8 / F8_PROTO_MAX_PACKET + 1);
}
END_TEST

static void add_all(TCase *tcase)
{
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, buckets_sum_their_weights);
    tcase_add_test(tcase, holders_are_shown_by_rank);
    tcase_add_test(tcase, amaxes_are_shown_newest_first);
    tcase_add_test(tcase, syncs_are_logged);
    tcase_add_test(tcase, full_logs_come_in_pages);
}

int main(void)
{
    TCase *tcase = tcase_create("inspect_history");
    add_all(tcase);
    return run_suite("inspect_history", tcase);
}
