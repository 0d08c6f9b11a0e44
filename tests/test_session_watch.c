/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An operator's Watch over the daemon's rooms: who may, what is refused, when it is answered, and
 * which events collectives tell of, with what in them. Ranks are clients without sockets.
 */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "protocol.h"
#include "tests/lib/loop_turn.h"
#include "tests/lib/rooms.h"
#include "tests/lib/suite.h"

#define REGION 4096

static struct rooms rooms;
static struct client a, b, admin;
static uint64_t shape[] = {2, 8};

static void set_up(void)
{
    rooms_open(&rooms);
    client_open(&a, &rooms, 10);
    client_open(&b, &rooms, 11);
    client_open(&admin, &rooms, 20);
    client_ok(&admin, ask_admin(&admin));
}

static void tear_down(void)
{
    client_close(&admin, false);
    client_close(&b, false);
    client_close(&a, false);
    rooms_close(&rooms);
}

static uint64_t ask_watch(struct client *client, const F8__Watch *watch)
{
    F8__Watch copy = *watch;
    return ask_body(client, F8__REQUEST__BODY_WATCH, &copy.base, NULL, 0);
}

static uint64_t watch_after(uint64_t after, uint32_t wait_ms)
{
    F8__Watch watch = F8__WATCH__INIT;
    watch.after = after;
    watch.wait_ms = wait_ms;
    return ask_watch(&admin, &watch);
}

/* All events so far; good until the next call. */
static const F8__WatchReply *all(void)
{
    client_forget(&admin);
    uint64_t id = watch_after(0, 0);
    client_ok(&admin, id);
    return client_reply(&admin, id)->watch;
}

/* The n-th event of the kind, from 0 on; NULL. */
static const F8__Event *find(enum f8_proto_event kind, int n)
{
    const F8__WatchReply *reply = all();
    for (size_t i = 0; i < reply->n_events; i++)
        if (reply->events[i]->kind == kind && n-- == 0)
            return reply->events[i];
    return NULL;
}

static int count_of(enum f8_proto_event kind)
{
    int count = 0;
    while (find(kind, count))
        count++;
    return count;
}

/* A rank registers a static, a dynamic and a raw weight in one bucket, with the values at the
 * beginning of the first two; and asks for the seal. */
static uint64_t begin(struct client *client, uint32_t rank, uint32_t ranks, const float values[4])
{
    int fd = client_enter(client, "train", "dp", rank, ranks, REGION);
    ck_assert_int_eq(pwrite(fd, values, 4 * sizeof(float), 0), 4 * sizeof(float));
    ck_assert_int_eq(pwrite(fd, &(float){1}, sizeof(float), 64), sizeof(float));
    (void)close(fd);
    F8__Weight weights[] = {make_weight("cast", F8_PROTO_STATIC, shape, 2, 1, 0),
        make_weight("scaled", F8_PROTO_DYNAMIC, shape, 2, 1, 64),
        make_weight("raw", F8_PROTO_RAW, shape, 2, 1, 128)};
    F8__Bucket bucket = make_bucket("layer", 0, 3, false);
    client_ok(client, ask_register(client, weights, 3, &bucket, 1, false));
    return ask_seal(client, 0);
}

static const float plain[4] = {1, 2, 3, 4};

static void gather(struct client *client)
{
    client_ok(client, ask_gather(client, 0));
    send_release(client, 0);
}

START_TEST(operators_only)
{
    F8__Watch watch = F8__WATCH__INIT;
    client_ok(&a, ask_hello(&a, "train"));
    client_refused(&a, ask_watch(&a, &watch), F8_EPERM, "may not inspect");
}
END_TEST

START_TEST(refusals)
{
    F8__Watch watch = F8__WATCH__INIT;
    char glob[F8_PROTO_MAX_NAME + 2];
    uint32_t kinds[] = {F8_PROTO_EVENT_DRAIN, 31};
    watch.kinds = kinds;
    watch.n_kinds = 2;
    client_refused(&admin, ask_watch(&admin, &watch), F8_EINVAL, "events of kind 31 are not known");
    kinds[1] = UINT32_MAX;
    client_refused(&admin, ask_watch(&admin, &watch), F8_EINVAL, "4294967295");
    watch.n_kinds = 0;
    memset(glob, 'x', sizeof(glob) - 1);
    glob[sizeof(glob) - 1] = '\0';
    watch.job = glob;
    client_refused(&admin, ask_watch(&admin, &watch), F8_EINVAL, "has 256 bytes");
    uint64_t waits = watch_after(0, 3600000);
    client_refused(&admin, watch_after(0, 0), F8_EBUSY, "waits already");
    ck_assert_ptr_null(client_reply(&admin, waits));
}
END_TEST

START_TEST(waits_for_the_next_event)
{
    uint64_t id = watch_after(F8_PROTO_FROM_NOW, 3600000);
    (void)loop_turn(&rooms.loop);
    ck_assert_ptr_null(client_reply(&admin, id));
    client_ok(&a, begin(&a, 0, 1, plain));
    client_ok(&admin, id);
    const F8__WatchReply *reply = client_reply(&admin, id)->watch;
    ck_assert_uint_eq(reply->n_events, 1);
    ck_assert_int_eq(reply->events[0]->kind, F8_PROTO_EVENT_RANK_JOINED);
    ck_assert_uint_eq(reply->seen, 1);
    ck_assert(!reply->ending && !reply->restarted && reply->lost == 0);
    uint64_t seen = reply->seen;
    id = watch_after(seen, 3600000);
    client_ok(&admin, id);
    reply = client_reply(&admin, id)->watch;
    ck_assert_int_eq(reply->events[0]->kind, F8_PROTO_EVENT_GROUP_SEALED);
    ck_assert(reply->events[0]->value == 3);
}
END_TEST

START_TEST(a_time_ends_with_nothing)
{
    uint64_t id = watch_after(0, 1);
    client_ok(&admin, id);
    ck_assert_uint_eq(client_reply(&admin, id)->watch->n_events, 0);
}
END_TEST

/* Who goes while it waits is forgotten: rooms_close finds nothing left. */
START_TEST(a_watcher_goes)
{
    (void)watch_after(F8_PROTO_FROM_NOW, 3600000);
    client_close(&admin, true);
    client_ok(&a, begin(&a, 0, 1, plain));
}
END_TEST

START_TEST(few_at_a_time)
{
    F8__Watch watch = F8__WATCH__INIT;
    client_ok(&a, begin(&a, 0, 1, plain));
    watch.max = 1;
    for (int i = 0; i < 2; i++) {
        uint64_t id = ask_watch(&admin, &watch);
        client_ok(&admin, id);
        ck_assert_uint_eq(client_reply(&admin, id)->watch->n_events, 1);
        watch.after = client_reply(&admin, id)->watch->seen;
        ck_assert_uint_eq(watch.after, i + 1);
    }
}
END_TEST

/* More than a packet holds comes in several, and none is missed. */
START_TEST(many_long_ones)
{
    char text[REASON_SIZE];
    struct events *events = rooms.context.collective.events;
    uint64_t after = 0, count = 0;
    memset(text, 't', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    for (int i = 0; i < 500; i++)
        events_tell(events, &(struct event){.kind = F8_PROTO_EVENT_ROUND_FAILED,
                                .job = text,
                                .group = text,
                                .weight = text,
                                .text = text});
    while (after < 500) {
        uint64_t id = watch_after(after, 0);
        client_ok(&admin, id); /* the fixture holds its size to a packet's */
        const F8__WatchReply *reply = client_reply(&admin, id)->watch;
        ck_assert_uint_gt(reply->n_events, 1);
        ck_assert_uint_eq(reply->events[0]->sequence, after + 1);
        count += reply->n_events;
        after = reply->seen;
        client_forget(&admin);
    }
    ck_assert_uint_eq(count, 500);
}
END_TEST

START_TEST(joins_seals_and_ends)
{
    client_ok(&a, begin(&a, 0, 1, plain));
    const F8__Event *event = find(F8_PROTO_EVENT_RANK_JOINED, 0);
    ck_assert_str_eq(event->job, "train");
    ck_assert_str_eq(event->group, "dp");
    ck_assert_uint_eq(event->uid, ROOMS_UID);
    ck_assert(event->has_rank && event->rank == 0 && event->pid == 10);
    ck_assert_int_eq(count_of(F8_PROTO_EVENT_GROUP_SEALED), 1);
    client_close(&a, false);
    ck_assert_uint_eq(find(F8_PROTO_EVENT_RANK_LEFT, 0)->pid, 10);
    ck_assert_int_eq(count_of(F8_PROTO_EVENT_GROUP_BROKEN), 1);
    ck_assert_int_eq(count_of(F8_PROTO_EVENT_ROUND_FAILED), 0);
    ck_assert_int_eq(count_of(F8_PROTO_EVENT_RANK_DIED), 0);
}
END_TEST

START_TEST(a_death_in_a_gather)
{
    uint64_t seals[] = {begin(&a, 0, 2, plain), begin(&b, 1, 2, plain)};
    client_ok(&a, seals[0]);
    client_ok(&b, seals[1]);
    (void)ask_gather(&a, 0);
    client_close(&b, true);
    const F8__Event *event = find(F8_PROTO_EVENT_RANK_DIED, 0);
    uint64_t sequence = event->sequence;
    ck_assert(event->rank == 1 && event->pid == 11);
    event = find(F8_PROTO_EVENT_ROUND_FAILED, 0);
    ck_assert_uint_gt(event->sequence, sequence);
    ck_assert(event->has_rank && event->rank == 1 && event->pid == 11);
    ck_assert_str_eq(event->bucket, "layer");
    ck_assert_ptr_nonnull(strstr(event->text, "rank 1 (pid 11) died"));
}
END_TEST

START_TEST(a_mismatch_names_the_rank)
{
    uint64_t seals[] = {begin(&a, 0, 2, plain), begin(&b, 1, 2, plain)};
    client_ok(&a, seals[0]);
    client_ok(&b, seals[1]);
    (void)ask_gather(&a, 0);
    (void)ask_precompute(&b);
    const F8__Event *event = find(F8_PROTO_EVENT_ROUND_FAILED, 0);
    ck_assert(event->has_rank && event->rank == 1 && event->pid == 11);
    ck_assert(event->value == 2); /* the seal was collective 1 */
    ck_assert_ptr_nonnull(strstr(event->text, "where rank 0 (pid 10) asked for"));
}
END_TEST

/* Two of sixteen elements: at the threshold, and over it. */
START_TEST(saturation)
{
    const float values[4] = {1000, -1000, NAN, 1};
    client_ok(&a, begin(&a, 0, 1, values));
    rooms.config.saturation_ppm = 125000;
    gather(&a);
    ck_assert_int_eq(count_of(F8_PROTO_EVENT_SATURATION), 0);
    rooms.config.saturation_ppm = 124999;
    gather(&a);
    gather(&a); /* told once in a while */
    const F8__Event *event = find(F8_PROTO_EVENT_SATURATION, 0);
    ck_assert_str_eq(event->weight, "cast");
    ck_assert_str_eq(event->bucket, "layer");
    ck_assert(event->value == 0.125);
    ck_assert_ptr_nonnull(strstr(event->text, "12.5 % of its elements"));
    ck_assert_int_eq(count_of(F8_PROTO_EVENT_SATURATION), 1);
    event = find(F8_PROTO_EVENT_NAN_FOUND, 0);
    ck_assert_str_eq(event->weight, "cast");
    ck_assert(event->value == 1);
    ck_assert_int_eq(count_of(F8_PROTO_EVENT_NAN_FOUND), 1);
}
END_TEST

START_TEST(stale_scales)
{
    client_ok(&a, begin(&a, 0, 1, plain));
    client_ok(&a, ask_changed(&a, 0, 3));
    client_ok(&a, ask_precompute(&a));
    gather(&a);
    ck_assert_int_eq(count_of(F8_PROTO_EVENT_STALE_SCALE), 0);
    client_ok(&a, ask_changed(&a, 0, 3));
    gather(&a);
    gather(&a);
    const F8__Event *event = find(F8_PROTO_EVENT_STALE_SCALE, 0);
    ck_assert_str_eq(event->weight, "scaled");
    ck_assert(event->value == 1);
    ck_assert_ptr_nonnull(strstr(event->text, "version 2 with the scale of version 1"));
    ck_assert_int_eq(count_of(F8_PROTO_EVENT_STALE_SCALE), 1);
}
END_TEST

START_TEST(the_drain_answers)
{
    uint64_t seals[] = {begin(&a, 0, 2, plain), begin(&b, 1, 2, plain)};
    client_ok(&a, seals[0]);
    client_ok(&b, seals[1]);
    uint64_t gathers = ask_gather(&a, 0);
    F8__Watch watch = F8__WATCH__INIT;
    uint32_t lost = F8_PROTO_EVENT_HOST_LOST;
    watch.kinds = &lost;
    watch.n_kinds = 1;
    watch.wait_ms = 3600000;
    uint64_t id = ask_watch(&admin, &watch);
    session_drain(&rooms.context);
    const F8__Reply *reply = client_reply(&admin, id);
    ck_assert_ptr_nonnull(reply);
    ck_assert(reply->watch->ending && reply->watch->n_events == 0);
    const F8__Event *event = find(F8_PROTO_EVENT_DRAIN, 0);
    ck_assert(event->value == 1);
    ck_assert_str_eq(event->job, "");
    ck_assert_ptr_nonnull(strstr(event->text, "group dp of job train"));
    client_ok(&b, ask_gather(&b, 0));
    client_ok(&a, gathers);
}
END_TEST

/* What f8ctl top makes rates of. */
START_TEST(groups_have_counters)
{
    const float values[4] = {1000, NAN, 1, 1};
    client_ok(&a, begin(&a, 0, 1, values));
    gather(&a);
    gather(&a);
    uint64_t id = ask_inspect(&admin, F8__VIEW__GROUPS, "", "", 0);
    client_ok(&admin, id);
    const F8__GroupInfo *group = client_reply(&admin, id)->inspect->groups[0];
    ck_assert_uint_eq(group->gathers, 2);
    ck_assert_uint_eq(group->gathered_bytes, 2 * (16 + 16 + 64));
    ck_assert_uint_eq(group->saturated, 2);
    ck_assert_uint_eq(group->nan, 2);
    ck_assert_uint_eq(group->stale + group->failed, 0);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("session_watch");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, operators_only);
    tcase_add_test(tcase, refusals);
    tcase_add_test(tcase, waits_for_the_next_event);
    tcase_add_test(tcase, a_time_ends_with_nothing);
    tcase_add_test(tcase, a_watcher_goes);
    tcase_add_test(tcase, few_at_a_time);
    tcase_add_test(tcase, many_long_ones);
    tcase_add_test(tcase, joins_seals_and_ends);
    tcase_add_test(tcase, a_death_in_a_gather);
    tcase_add_test(tcase, a_mismatch_names_the_rank);
    tcase_add_test(tcase, saturation);
    tcase_add_test(tcase, stale_scales);
    tcase_add_test(tcase, the_drain_answers);
    tcase_add_test(tcase, groups_have_counters);
    return run_suite("session_watch", tcase);
}
