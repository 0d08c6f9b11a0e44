/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many requests over one channel: replies that find their threads in any order, sockets that are
 * full, releases that must go out nevertheless.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "client/channel_private.h"
#include "tests/lib/pings.h"
#include "tests/lib/suite.h"

#define THREADS     4
#define BATCHES     250
#define BATCH       8
#define MOST_PIGGED 16

/* Answers pings in bunches, each bunch in reverse. */
static void script_reverse(struct fake_daemon *daemon, int fd)
{
    (void)daemon;
    uint64_t ids[MOST_PIGGED];
    bool open = fake_hello(fd);
    while (open) {
        int count = 0;
        do {
            F8__Request *request = fake_receive(fd, NULL);
            open = request != NULL;
            if (open)
                ids[count++] = request->id;
            fake_free(request);
        } while (open && count < MOST_PIGGED && recv(fd, NULL, 0, MSG_PEEK | MSG_DONTWAIT) == 0);
        while (count > 0)
            reply_ping(fd, ids[--count], "");
    }
}

static void *ping_in_batches(void *argument)
{
    struct channel *channel = argument;
    for (int i = 0; i < BATCHES; i++) {
        uint64_t ids[BATCH];
        for (int k = 0; k < BATCH; k++)
            ids[k] = send_ping(channel);
        for (int k = 0; k < BATCH; k++)
            await_ping(channel, ids[i % 2 ? k : BATCH - 1 - k]);
    }
    return NULL;
}

/* ---- routing ---- */

START_TEST(replies_find_their_threads)
{
    struct fake_daemon daemon;
    struct channel *channel = open_channel(&daemon, script_reverse);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, ping_in_batches, channel), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    struct channel_traffic traffic;
    channel_traffic(channel, &traffic);
    ck_assert_uint_eq(traffic.sent, 1 + THREADS * BATCHES * BATCH);
    ck_assert_uint_eq(traffic.received, traffic.sent);
    ck_assert_uint_gt(traffic.sent_bytes, traffic.sent);
    finish(&daemon, channel);
}
END_TEST

/* More requests at once than the credit said: the table grows. */
START_TEST(table_grows)
{
    struct fake_daemon daemon;
    struct channel *channel = open_channel(&daemon, script_reverse);
    uint64_t ids[10 * FAKE_CREDIT];
    const int count = 10 * FAKE_CREDIT;
    for (int i = 0; i < count; i++) {
        ids[i] = send_ping(channel);
        ck_assert(i == 0 || ids[i] > ids[i - 1]);
    }
    for (int i = 0; i < count; i++)
        await_ping(channel, ids[i]);
    struct channel_reply reply;
    ck_assert_int_eq(channel_wait(channel, ids[0], 0, &reply), F8_ENOENT);
    finish(&daemon, channel);
}
END_TEST

/* ---- full sockets ---- */

#define WEDGE 3000

/* Reads no further request until its reply to the last one is in the socket: 4 KiB each. */
static void script_bulky(struct fake_daemon *daemon, int fd)
{
    (void)daemon;
    static char text[4096];
    memset(text, 'x', sizeof(text) - 1);
    F8__Request *request;
    fake_hello(fd);
    while ((request = fake_receive(fd, NULL))) {
        reply_ping(fd, request->id, text);
        fake_free(request);
    }
}

START_TEST(full_socket_does_not_wedge)
{
    struct fake_daemon daemon;
    struct channel *channel = open_channel(&daemon, script_bulky);
    static uint64_t ids[WEDGE];
    for (int i = 0; i < WEDGE; i++)
        ids[i] = send_ping(channel);
    for (int i = 0; i < WEDGE; i++)
        await_ping(channel, ids[i]);
    finish(&daemon, channel);
}
END_TEST

static void *send_many(void *argument)
{
    for (int i = 0; i < WEDGE; i++)
        channel_abandon(argument, send_ping(argument));
    return NULL;
}

/* The same, while other threads lead: the sender must not miss the room, nor they their replies. */
START_TEST(full_socket_with_a_leader)
{
    struct fake_daemon daemon;
    struct channel *channel = open_channel(&daemon, script_bulky);
    pthread_t sender, waiter;
    ck_assert_int_eq(pthread_create(&sender, NULL, send_many, channel), 0);
    ck_assert_int_eq(pthread_create(&waiter, NULL, ping_in_batches, channel), 0);
    ping_in_batches(channel);
    pthread_join(sender, NULL);
    pthread_join(waiter, NULL);
    await_ping(channel, send_ping(channel));
    finish(&daemon, channel);
}
END_TEST

/* Fills the way out with releases of bucket 0 that the script does not read yet. */
static void fill_socket(struct channel *channel)
{
    F8__Release release = F8__RELEASE__INIT;
    F8__Request request = F8__REQUEST__INIT;
    request.body_case = F8__REQUEST__BODY_RELEASE;
    request.release = &release;
    uint8_t packet[F8_PROTO_MAX_PACKET];
    size_t length = 0;
    int status = wire_pack(&request, packet, &length);
    while (status == F8_OK)
        status = wire_send(channel->fd, packet, length, NULL);
    ck_assert_int_eq(status, WIRE_AGAIN);
}

/* Takes a ping, lets the test fill the socket, and answers the ping after bucket 9's release. */
static void script_release_first(struct fake_daemon *daemon, int fd)
{
    fake_hello(fd);
    F8__Request *request = fake_receive(fd, NULL);
    uint64_t first = request->id;
    fake_free(request);
    fake_loaded(daemon);
    fake_await_go(daemon);
    bool answered = false;
    while ((request = fake_receive(fd, NULL))) {
        if (request->body_case == F8__REQUEST__BODY_RELEASE && request->release->bucket == 9)
            answered = reply_ping(fd, first, "");
        else if (request->body_case == F8__REQUEST__BODY_PING)
            reply_ping(fd, answered ? request->id : 0, "");
        fake_free(request);
    }
}

/* Others may wait for a release while this rank only waits: it must go out without a request. */
START_TEST(posts_go_out_while_waiting)
{
    struct fake_daemon daemon;
    struct channel *channel = open_channel(&daemon, script_release_first);
    ck_assert_int_eq(channel_reserve_posts(channel, 1), F8_OK);
    uint64_t ping = send_ping(channel);
    fake_await_loaded(&daemon);
    fill_socket(channel);
    post_release(channel, 9);
    ck_assert_uint_eq(channel->num_posts, 1);
    fake_go(&daemon);
    await_ping(channel, ping);
    ck_assert_uint_eq(channel->num_posts, 0);
    finish(&daemon, channel);
}
END_TEST

START_TEST(posts_go_out_before_requests)
{
    struct fake_daemon daemon;
    struct channel *channel = open_channel(&daemon, script_release_first);
    ck_assert_int_eq(channel_reserve_posts(channel, 1), F8_OK);
    uint64_t ping = send_ping(channel);
    fake_await_loaded(&daemon);
    fill_socket(channel);
    post_release(channel, 9);
    ck_assert_int_eq(channel_reserve_posts(channel, 5), F8_OK);
    fake_go(&daemon);
    await_ping(channel, send_ping(channel)); /* id 0 if the release did not come first */
    await_ping(channel, ping);
    finish(&daemon, channel);
}
END_TEST

static void *await_forever(void *argument)
{
    uint64_t *id = argument;
    struct channel *channel = (struct channel *)(uintptr_t)id[0];
    await_ping(channel, id[1]);
    return NULL;
}

/* The release comes while another thread sleeps in poll, waiting for replies only. */
START_TEST(posts_wake_the_leader)
{
    struct fake_daemon daemon;
    struct channel *channel = open_channel(&daemon, script_release_first);
    ck_assert_int_eq(channel_reserve_posts(channel, 1), F8_OK);
    uint64_t argument[2] = {(uintptr_t)channel, send_ping(channel)};
    fake_await_loaded(&daemon);
    fill_socket(channel);
    pthread_t waiter;
    ck_assert_int_eq(pthread_create(&waiter, NULL, await_forever, argument), 0);
    bool led = false;
    while (!led) {
        pthread_mutex_lock(&channel->lock);
        led = channel->led;
        pthread_mutex_unlock(&channel->lock);
    }
    post_release(channel, 9);
    fake_go(&daemon);
    pthread_join(waiter, NULL);
    finish(&daemon, channel);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("channel_flow");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, replies_find_their_threads);
    tcase_add_test(tcase, table_grows);
    tcase_add_test(tcase, full_socket_does_not_wedge);
    tcase_add_test(tcase, full_socket_with_a_leader);
    tcase_add_test(tcase, posts_go_out_while_waiting);
    tcase_add_test(tcase, posts_go_out_before_requests);
    tcase_add_test(tcase, posts_wake_the_leader);
    return run_suite("channel_flow", tcase);
}
