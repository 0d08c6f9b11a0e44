/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Much at once: a client that asks thousands of times and does not read is stopped, alone, and
 * later gets every reply once; a thousand buckets are gathered before the first is waited for; and
 * garbage without end leaves few lines in the log.
 */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "lib/ranks.h"
#include "lib/raw_client.h"
#include "lib/suite.h"
#include "lib/test_daemon.h"

#define REQUESTS (2000 * F8_TEST_SCALE)
#define BUCKETS  1000

/* ---- credit ---- */

/* Sends the next ping if there is room for it. */
static bool send_ping(struct raw_client *raw)
{
    uint8_t packet[32];
    F8__Ping ping = F8__PING__INIT;
    F8__Request request = F8__REQUEST__INIT;
    request.id = raw->last_id + 1;
    request.body_case = F8__REQUEST__BODY_PING;
    request.ping = &ping;
    size_t size = f8__request__pack(&request, packet);
    ssize_t n = send(raw->fd, packet, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    ck_assert_msg(n >= 0 || errno == EAGAIN, "send: %s", strerror(errno));
    raw->last_id += n >= 0;
    return n >= 0;
}

/* Takes the next reply, which must be that to request `id`. */
static void take_pong(struct raw_client *raw, uint64_t id)
{
    F8__Reply *reply = raw_receive(raw, NULL);
    ck_assert_ptr_nonnull(reply);
    ck_assert_uint_eq(reply->id, id);
    ck_assert_int_eq(reply->status, F8_OK);
    raw_free(reply);
}

START_TEST(credit_exceeded)
{
    static const char *const arguments[] = {"--credit", "64", NULL};
    struct test_daemon daemon;
    struct raw_client raw;
    struct rank ranks[2];
    char byte;
    test_daemon_start(&daemon, arguments);
    raw_greet(&raw, &daemon, "flood");
    uint64_t first = raw.last_id + 1;
    /* The daemon takes some while this goes on, so "no room" must be said twice in a row. */
    while (send_ping(&raw) || send_ping(&raw))
        ck_assert_uint_lt(raw.last_id, 100000); /* else it is never stopped */
    ranks_start(ranks, 2, daemon.socket);
    for (int step = 0; step < 3; step++)
        ranks_must(ranks, 2, rank_step);
    for (uint64_t id = first; id < first + REQUESTS; id++) {
        while (raw.last_id < first + REQUESTS - 1 && send_ping(&raw))
            continue;
        take_pong(&raw, id);
    }
    ck_assert_int_lt(recv(raw.fd, &byte, 1, MSG_DONTWAIT), 0); /* none came twice */
    raw_close(&raw);
    rank_close(&ranks[0]);
    rank_close(&ranks[1]);
    test_daemon_stop(&daemon);
}
END_TEST

/* ---- a thousand buckets ---- */

/* Each of two ranks has one of each raw weight's two elements. */
static void start_many(struct rank *rank, const char *socket, uint32_t number)
{
    static struct f8_weight_desc weights[BUCKETS];
    static struct f8_bucket_desc buckets[BUCKETS];
    static char names[BUCKETS][16];
    void *memory;
    rank_connect(rank, socket);
    rank->number = number;
    ck_assert_int_eq(f8_group_join(rank->client, "dp", number, 2, &rank->group), F8_OK);
    ck_assert_int_eq(
        f8_region_alloc(rank->client, BUCKETS * sizeof(float), &rank->region, &memory), F8_OK);
    rank->memory = memory;
    for (uint32_t b = 0; b < BUCKETS; b++) {
        (void)snprintf(names[b], sizeof(names[b]), "layers.%u", b);
        rank->memory[b] = (float)(2 * b + number);
        weights[b] = (struct f8_weight_desc){.name = names[b],
            .ndim = 1,
            .shape = {2},
            .dtype = F8_F32,
            .flavour = F8_RAW,
            .region = rank->region,
            .offset = b * sizeof(float)};
        buckets[b] = (struct f8_bucket_desc){.name = names[b], .first = b, .count = 1};
    }
    ck_assert_int_eq(f8_register(rank->group, weights, BUCKETS, buckets, BUCKETS), F8_OK);
}

static int gather_many(struct rank *rank)
{
    int status = F8_OK;
    for (uint32_t b = 0; b < BUCKETS && status == F8_OK; b++)
        status = f8_gather(rank->group, b, F8_DEFAULT_DEADLINE, NULL);
    return status;
}

/* Waits in the order that is the worst for who keeps replies in a queue: the last comes first. */
static int wait_many(struct rank *rank)
{
    int status = F8_OK;
    for (uint32_t b = BUCKETS; b-- > 0 && status == F8_OK;) {
        struct f8_view view;
        status = f8_post_gather(rank->group, b, F8_FOREVER, &view, 1, NULL);
        const float *values = status == F8_OK ? view.data : NULL;
        if (values && (values[0] != (float)(2 * b) || values[1] != (float)(2 * b + 1)))
            status = WRONG_BYTES;
        if (status == F8_OK)
            status = f8_release(rank->group, b, NULL);
    }
    return status;
}

static int gather_and_wait_many(struct rank *rank)
{
    int status = gather_many(rank);
    return status == F8_OK ? wait_many(rank) : status;
}

static void stop_many(struct test_daemon *daemon, struct rank *ranks)
{
    rank_close(&ranks[0]);
    rank_close(&ranks[1]);
    test_daemon_stop(daemon);
}

START_TEST(many_by_one_thread)
{
    struct test_daemon daemon;
    struct rank ranks[2];
    test_daemon_start(&daemon, NULL);
    for (uint32_t r = 0; r < 2; r++)
        start_many(&ranks[r], daemon.socket, r);
    ranks_must(ranks, 2, rank_seal);
    for (uint32_t r = 0; r < 2; r++)
        ck_assert_int_eq(gather_many(&ranks[r]), F8_OK);
    for (uint32_t r = 0; r < 2; r++)
        ck_assert_int_eq(wait_many(&ranks[r]), F8_OK);
    stop_many(&daemon, ranks);
}
END_TEST

/* Far more than the credit: senders read replies while they wait for room. */
START_TEST(many_with_little_credit)
{
    static const char *const arguments[] = {"--credit", "16", NULL};
    struct test_daemon daemon;
    struct rank ranks[2];
    test_daemon_start(&daemon, arguments);
    for (uint32_t r = 0; r < 2; r++)
        start_many(&ranks[r], daemon.socket, r);
    ranks_must(ranks, 2, rank_seal);
    ranks_must(ranks, 2, gather_and_wait_many);
    ranks_must(ranks, 2, gather_and_wait_many);
    stop_many(&daemon, ranks);
}
END_TEST

/* ---- log ---- */

/* Lines of the log that have the text. */
static int count_lines(const struct test_daemon *daemon, const char *text)
{
    char line[2048];
    int count = 0;
    FILE *log = fopen(daemon->log, "re");
    ck_assert_ptr_nonnull(log);
    while (fgets(line, sizeof(line), log))
        count += strstr(line, text) != NULL;
    (void)fclose(log);
    return count;
}

START_TEST(log_is_not_flooded)
{
    struct test_daemon daemon;
    struct raw_client raw;
    test_daemon_start(&daemon, NULL);
    for (int i = 0; i < 200; i++) {
        raw_open(&raw, &daemon);
        (void)raw_send_bytes(&raw, "\xff", 1, NULL, 0);
        ck_assert_ptr_null(raw_receive(&raw, NULL));
        raw_close(&raw);
    }
    int lines = count_lines(&daemon, "a packet that is not of the protocol");
    ck_assert_int_ge(lines, 1);
    ck_assert_int_lt(lines, 150); /* ten in any ten seconds, on any machine */
    test_daemon_stop(&daemon);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("flood");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, credit_exceeded);
    tcase_add_test(tcase, log_is_not_flooded);
    tcase_add_test(tcase, many_by_one_thread);
    tcase_add_test(tcase, many_with_little_credit);
    return run_suite("flood", tcase);
}
