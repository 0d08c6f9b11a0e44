/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A whole run of two ranks, in a group and in the amax group of a part of its weights, in which the
 * n-th allocation fails, for every n until none is left to fail: what it hits is refused with
 * F8_ENOMEM and works when asked again, or needed no memory after all; and when the clients are
 * gone nothing is left. Sanitizers see leaks. On the host, and on devices.
 */
#include <check.h>
#include <string.h>
#include <unistd.h>

#include "daemon/conn.h"
#include "daemon/outq.h"
#include "protocol.h"
#include "tests/lib/fail_alloc.h"
#include "tests/lib/rooms.h"
#include "tests/lib/suite.h"

#define RANKS 2
/* More than the first rooms of names and weights, so that all of them grow. */
#define WEIGHTS 40
#define REGION  65536

static struct rooms rooms;
static struct client clients[RANKS], operator;

/* Where the clients are: their groups, the first for weights, the second for amaxes. */
static const char *const group_names[] = {"dp", "mesh"};
static struct seat {
    uint32_t group;
    uint64_t generation;
} seats[RANKS][2];

static struct client *at(uint32_t rank, int which)
{
    clients[rank].group = seats[rank][which].group;
    clients[rank].generation = seats[rank][which].generation;
    return &clients[rank];
}

static void note_seat(uint32_t rank, int which)
{
    seats[rank][which] = (struct seat){clients[rank].group, clients[rank].generation};
}

/* A request that may have met the failure: then it is asked again, unless all of them fail. */
static bool onwards;

static bool on_devices;

static bool short_of_memory(struct client *client, uint64_t id)
{
    const F8__Reply *reply = client_await(client, id);
    if (reply->status == F8_OK)
        return false;
    ck_assert_msg(reply->status == F8_ENOMEM, "status %d (%s)", reply->status, reply->text);
    ck_assert(fail_alloc_hit());
    ck_assert_ptr_nonnull(strstr(reply->text, "memory"));
    return true;
}

static bool done(struct client *client, uint64_t id)
{
    const F8__Reply *reply = client_await(client, id);
    if (onwards)
        return !short_of_memory(client, id);
    ck_assert_msg(reply->status == F8_OK, "status %d (%s)", reply->status, reply->text);
    return true;
}

/* Whether it was done, at the first or the second attempt; `ask` may be evaluated twice. */
#define DONE(client, ask) (!short_of_memory(client, ask) || (!onwards && done(client, ask)))

static bool enter(uint32_t rank, int fd)
{
    struct client *client = &clients[rank];
    bool all = DONE(client, ask_hello(client, "train"));
    if (on_devices)
        all = all && DONE(client, ask_device(client, rank, 2)) &&
              DONE(client, ask_device_region(client, fd, REGION));
    else
        all = all && DONE(client, ask_region(client, fd));
    for (int g = 0; g < 2 && all; g++) {
        all = DONE(client, ask_join(client, group_names[g], rank, RANKS));
        note_seat(rank, g);
    }
    return all;
}

static bool register_all(uint32_t rank)
{
    struct client *client = at(rank, 0);
    static uint64_t shape[] = {6, 10};
    char names[WEIGHTS][16];
    F8__Weight weights[WEIGHTS];
    F8__Bucket buckets[WEIGHTS];
    for (uint32_t w = 0; w < WEIGHTS; w++) {
        (void)snprintf(names[w], sizeof(names[w]), "w%u", w);
        weights[w] = make_weight(names[w], F8_PROTO_DYNAMIC, shape, 2, 1, 64 * w);
        weights[w].amax_group = w % 3 == 0 ? seats[rank][1].group : 0;
        buckets[w] = make_bucket(names[w], w, 1, w % 2);
    }
    return DONE(client, ask_register(client, weights, WEIGHTS / 2, NULL, 0, false)) &&
           DONE(client, ask_register(client, weights + WEIGHTS / 2, WEIGHTS - WEIGHTS / 2, buckets,
                            WEIGHTS, false));
}

/* A collective of all ranks in one of their groups: one outcome for all. */
static bool all_done(
    int which, uint64_t (*ask)(struct client *client, uint32_t argument), uint32_t argument)
{
    uint64_t ids[RANKS];
    for (int r = 0; r < RANKS; r++)
        ids[r] = ask(at(r, which), argument);
    bool failed = short_of_memory(&clients[0], ids[0]);
    for (int r = 1; r < RANKS; r++)
        ck_assert_int_eq(short_of_memory(&clients[r], ids[r]), failed);
    return !failed;
}

static uint64_t ask_for_precompute(struct client *client, uint32_t unused)
{
    (void)unused;
    return ask_precompute(client);
}

static bool seal_once(void)
{
    return all_done(0, ask_seal_poisoned, 2) && all_done(1, ask_seal_poisoned, 0);
}

/* A rejoin of a group that a failed seal broke; the amax group only if its own was asked for. */
static void come_back(uint32_t rank, int which)
{
    struct client *client = &clients[rank];
    uint64_t id = ask_rejoin(client, group_names[which], rank, RANKS);
    const F8__Reply *reply = client_await(client, id);
    bool whole = which == 1 && reply->status == F8_EORDER && strstr(reply->text, "is not broken");
    ck_assert_msg(reply->status == F8_OK || whole, "status %d (%s)", reply->status, reply->text);
    if (!whole)
        note_seat(rank, which);
}

/* A seal without memory breaks both groups: all come back, and it is asked for again. */
static bool seal_all(void)
{
    if (seal_once())
        return true;
    for (uint32_t r = 0; r < RANKS && !onwards; r++)
        for (int g = 0; g < 2; g++)
            come_back(r, g);
    return !onwards && seal_once();
}

static bool gather_all(void)
{
    bool all = all_done(0, ask_for_precompute, 0);
    for (uint32_t b = 0; b < 4 && all; b++) {
        all = all_done(0, ask_pre_gather, b) && all_done(0, ask_gather, b);
        for (uint32_t r = 0; r < RANKS; r++)
            send_release(at(r, 0), b);
    }
    return all && all_done(1, ask_for_precompute, 0);
}

static bool inspect(void)
{
    return DONE(&operator, ask_admin(&operator)) &&
           DONE(&operator, ask_inspect(&operator, F8__VIEW__WEIGHTS, "", "", 0));
}

static bool run(int fd)
{
    bool all = true;
    for (uint32_t r = 0; r < RANKS && all; r++)
        all = enter(r, fd) && register_all(r);
    return all && seal_all() && gather_all() && inspect();
}

/* The clients; one that gets no session is as if it had never connected. */
static bool open_all(void)
{
    bool all = client_try_open(&operator, & rooms, ROOMS_UID, 9) == F8_OK;
    for (uint32_t r = 0; r < RANKS; r++)
        all = client_try_open(&clients[r], &rooms, ROOMS_UID, 10 + r) == F8_OK && all;
    return all;
}

static void close_all(void)
{
    client_close(&operator, false);
    for (int r = 0; r < RANKS; r++)
        client_close(&clients[r], r);
    rooms_close(&rooms);
}

/* Plays a run with that failure; gives whether there was one. */
static bool play(uint64_t n, int fd)
{
    fail_alloc_at(n, onwards);
    if (rooms_try_open(&rooms) < 0)
        return fail_alloc_end();
    if (on_devices)
        rooms_add_devices(&rooms, RANKS); /* its own memory does not fail */
    bool all = open_all() && run(fd);
    ck_assert_msg(all || fail_alloc_hit(), "the run failed without a failure");
    close_all(); /* which must need no memory */
    return fail_alloc_end();
}

START_TEST(every_allocation_fails_once)
{
    int fd = make_memfd(REGION);
    uint64_t n = 1;
    onwards = _i % 2;
    on_devices = _i / 2;
    while (play(n, fd))
        n++;
    ck_assert_uint_gt(n, 100); /* else nothing was wrapped */
    (void)close(fd);
}
END_TEST

START_TEST(connections_fail_to_be_set_up)
{
    struct conn_context context;
    struct session_context session = {0};
    uv_loop_t loop;
    uint64_t n = 0;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    do {
        fail_alloc_at(++n, false);
        int status = conn_context_init(&context, &loop, &rooms.config, &session);
        ck_assert_int_eq(status, fail_alloc_hit() ? F8_ENOMEM : F8_OK);
        if (status == F8_OK)
            conn_context_done(&context);
    } while (fail_alloc_end());
    ck_assert_uint_eq(n, 3);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}
END_TEST

START_TEST(queues_keep_what_they_have)
{
    static uint8_t large[8192];
    struct outq queue = {0};
    fail_alloc_at(1, true);
    ck_assert_int_eq(outq_push(&queue, "a", 1, -1), F8_ENOMEM);
    ck_assert(fail_alloc_end());
    ck_assert_int_eq(outq_push(&queue, "b", 1, -1), F8_OK);
    fail_alloc_at(1, true);
    ck_assert_int_eq(outq_push(&queue, large, sizeof(large), -1), F8_ENOMEM);
    ck_assert(fail_alloc_end());
    ck_assert_uint_eq(queue.count, 1);
    ck_assert_int_eq(outq_first(&queue).data[0], 'b');
    outq_done(&queue);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("fail_alloc");
    tcase_set_timeout(tcase, 0);
    tcase_add_loop_test(tcase, every_allocation_fails_once, 0, 4);
    tcase_add_test(tcase, connections_fail_to_be_set_up);
    tcase_add_test(tcase, queues_keep_what_they_have);
    return run_suite("fail_alloc", tcase);
}
