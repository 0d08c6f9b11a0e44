/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators who ask for events and do not read, a hundred of them: what the daemon holds for them
 * is bounded, and whoever reads at last, or comes late, is told what it has lost.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "f8client.h"
#include "lib/admin_link.h"
#include "lib/patience.h"
#include "lib/proc.h"
#include "lib/program.h"
#include "lib/suite.h"
#include "lib/test_daemon.h"
#include "protocol.h"

static struct test_daemon server;

static void setup(void)
{
    test_daemon_start(&server, (const char *[]){"--cuda", "off", NULL});
}

static void teardown(void)
{
    test_daemon_stop(&server);
}

static void must(int status)
{
    ck_assert_msg(status == F8_OK, "%s: %s", f8_status_name(status), f8_error_text());
}

#define WATCHERS 100

/* What the daemon may hold more, with all that it keeps of 2000 events. */
#ifdef F8_SANITIZED
#define MOST_KB 65536 /* a sanitizer keeps what was freed */
#else
#define MOST_KB 8192
#endif

static F8__Request watch_request(F8__Watch *body, uint64_t after, uint32_t wait_ms)
{
    F8__Request request = F8__REQUEST__INIT;
    *body = (F8__Watch)F8__WATCH__INIT;
    body->after = after;
    body->wait_ms = wait_ms;
    request.id = 1;
    request.body_case = F8__REQUEST__BODY_WATCH;
    request.watch = body;
    return request;
}

/* Asks and does not read the answer. */
static void watch_unread(int link, uint64_t after)
{
    uint8_t packet[64];
    F8__Watch body;
    F8__Request request = watch_request(&body, after, 3600000);
    size_t size = f8__request__pack(&request, packet);
    ck_assert_int_eq(send(link, packet, size, MSG_NOSIGNAL), (ssize_t)size);
}

/* The answer that waits in the socket. */
static F8__Reply *read_answer(int link)
{
    static uint8_t packet[F8_PROTO_MAX_PACKET];
    ssize_t size = recv(link, packet, sizeof(packet), 0);
    ck_assert_int_gt(size, 0);
    F8__Reply *reply = f8__reply__unpack(NULL, (size_t)size, packet);
    ck_assert(reply && reply->body_case == F8__REPLY__BODY_WATCH);
    return reply;
}

/* Two events: a rank joins, and leaves. */
static void come_and_go(void)
{
    struct f8_client *client;
    struct f8_group *group;
    const struct f8_connect_options options = {.socket = server.socket, .job = "passing"};
    must(f8_connect(&options, &client));
    must(f8_group_join(client, "dp", 0, 1, &group));
    f8_close(client);
}

/* They hold what one reply is, whatever happens; and who reads at last is told what it has lost. */
START_TEST(slow_readers)
{
    int links[WATCHERS], fd;
    F8__Watch body;
    for (int i = 0; i < WATCHERS; i++)
        links[i] = admin_link_open(&server, F8__ROLE__ADMIN, "");
    uint64_t before = proc_holdings(server.pid).anon_kb;
    for (int i = 0; i < WATCHERS; i++)
        watch_unread(links[i], 0);
    for (int i = 0; i < 1000; i++)
        come_and_go();
    uint64_t held = proc_holdings(server.pid).anon_kb - before;
    ck_assert_msg(held < MOST_KB, "100 watchers hold %llu KiB", (unsigned long long)held);
    F8__Reply *reply = read_answer(links[0]);
    ck_assert_uint_gt(reply->watch->n_events, 0);
    ck_assert_uint_eq(reply->watch->events[0]->sequence, 1);
    F8__Request request = watch_request(&body, reply->watch->seen, 0);
    f8__reply__free_unpacked(reply, NULL);
    reply = admin_link_ask(links[0], &request, -1, &fd);
    ck_assert_uint_gt(reply->watch->lost, 500);
    ck_assert_uint_eq(reply->watch->events[0]->sequence, body.after + reply->watch->lost + 1);
    f8__reply__free_unpacked(reply, NULL);
    for (int i = 0; i < WATCHERS; i++)
        (void)close(links[i]);
}
END_TEST

START_TEST(a_gap_is_told)
{
    struct program ctl;
    for (int i = 0; i < 600; i++)
        come_and_go();
    program_start(
        &ctl, F8_TEST_CTL, NULL, "--socket %s monitor --since 0 --count 1", server.socket);
    program_expect(&ctl, 0);
    ck_assert_ptr_nonnull(strstr(ctl.out, "\"event\":\"lost\",\"value\":"));
    unsigned lost = 0, first = 0;
    (void)sscanf(strstr(ctl.out, "\"value\":"), "\"value\":%u", &lost);
    (void)sscanf(strstr(ctl.out, "\"sequence\":"), "\"sequence\":%u", &first);
    ck_assert_uint_eq(lost + 1, first);
    program_done(&ctl);
    program_start(&ctl, F8_TEST_CTL, NULL, "--socket %s watch --since 0 --count 1", server.socket);
    program_expect(&ctl, 0);
    ck_assert_ptr_nonnull(strstr(ctl.out, "lost "));
    program_done(&ctl);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("watchers");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 2 * PATIENCE_S);
    tcase_add_test(tcase, slow_readers);
    tcase_add_test(tcase, a_gap_is_told);
    return run_suite("watchers", tcase);
}
