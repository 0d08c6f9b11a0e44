/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hosts that are lost: killed, stopped, or that do not read; and the root. Each loss is told to all
 * others, with the host's name, and those go on.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/lib/patience.h"
#include "tests/lib/suite.h"
#include "tests/lib/world_peer.h"
#include "tests/lib/worlds.h"

static struct host root, other;
static uint8_t id[F8_PROTO_UNIQUE_ID_SIZE];

/* Quick to notice, but not so quick that a busy machine is taken for a dead host: what is to be
 * found is silent for ever. */
static void up(uint64_t timeout_ms, uv_loop_t *of_root)
{
    host_up_on(&root, "root", AF_INET, of_root);
    host_up(&other, "other", AF_INET);
    root.config.heartbeat_ms = other.config.heartbeat_ms = 20;
    root.config.host_timeout_ms = timeout_ms;
    host_unique_id(&root, id);
}

static void down(void)
{
    host_down(&other);
    host_down(&root);
}

/* Root, other, and a third that is a peer by hand: rank 2. */
static void form_with(struct peer *peer)
{
    host_join_ok(&root, id, 3, 0, 1);
    host_join_ok(&other, id, 3, 1, 1);
    peer_open(peer, id);
    peer_prove(peer);
    peer_join(peer, 3, 2);
    F8__WorldMessage *table = peer_receive(peer);
    ck_assert_ptr_nonnull(table);
    ck_assert_int_eq(table->body_case, F8__WORLD_MESSAGE__BODY_TABLE);
    f8__world_message__free_unpacked(table, NULL);
    worlds_await(root.formed && other.formed);
}

static void assert_lost(const struct host *host, const char *text)
{
    ck_assert_uint_eq(host->lost, 1);
    ck_assert_uint_eq(host->lost_host, 2);
    ck_assert(!host->in_order);
    ck_assert_uint_eq(host->ended, 0);
    ck_assert_ptr_eq(strstr(host->reason.text, "host peer (127.0.0.1:"), host->reason.text);
    ck_assert_msg(strstr(host->reason.text, text), "%s", host->reason.text);
}

static void assert_goes_on(void)
{
    uint32_t count;
    uint64_t before = other.messages;
    ck_assert(world_hosts(other.world, &count)[2].lost);
    world_send(root.world, (const uint8_t *)"on", 2);
    worlds_await(other.messages == before + 1);
}

/* The end of its socket says so at once: no deadline is waited for. */
START_TEST(a_killed_host_is_seen_at_once)
{
    struct peer peer;
    up(PATIENCE_MS, &worlds_loop);
    form_with(&peer);
    if (_i == 1) { /* as where the daemon had not read all */
        struct linger linger = {.l_onoff = 1};
        (void)setsockopt(peer.fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
    }
    peer_close(&peer);
    worlds_await(root.lost && other.lost);
    assert_lost(&root, _i ? "its connection failed" : "its connection ended");
    assert_lost(&other, _i ? "its connection failed" : "its connection ended");
    assert_goes_on();
    down();
}
END_TEST

/* What it had sent is received before its loss. */
START_TEST(last_words_of_a_killed_host)
{
    struct peer peer;
    up(PATIENCE_MS, &worlds_loop);
    form_with(&peer);
    for (int n = 0; n < 50; n++) {
        struct world_frame *frame = world_frame_data(0, (const uint8_t *)"words", 5);
        ck_assert(peer_send(&peer, frame->bytes, frame->size));
        world_frame_drop(frame);
    }
    ck_assert(peer_send(&peer, "\x40\0\0\0\0\0\0\0half", 12)); /* and a frame that is cut */
    peer_close(&peer);
    worlds_await(root.lost && other.lost);
    ck_assert_uint_eq(root.messages, 50);
    ck_assert_uint_eq(other.messages, 50);
    ck_assert_uint_eq(other.last_from, 2);
    down();
}
END_TEST

/* Its socket is open, its kernel acknowledges: only its silence tells. */
START_TEST(a_stopped_host_is_found)
{
    struct peer peer;
    up(1000, &worlds_loop);
    form_with(&peer);
    worlds_await(root.lost && other.lost);
    assert_lost(&root, "nothing was heard of it for 1 s");
    assert_lost(&other, "nothing was heard of it for 1 s");
    assert_goes_on();
    ck_assert(peer_is_closed(&peer));
    peer_close(&peer);
    down();
}
END_TEST

/* How long it has been silent is known to all before it is lost. */
START_TEST(silence_is_told)
{
    struct peer peer;
    uint32_t count;
    up(PATIENCE_MS, &worlds_loop);
    form_with(&peer);
    const struct world_host *table = world_hosts(other.world, &count);
    worlds_await(uv_now(&worlds_loop) - table[2].heard_ms >= 200);
    worlds_await(uv_now(&worlds_loop) - table[0].heard_ms < 200);
    ck_assert_uint_eq(root.lost + other.lost, 0);
    F8__WorldHeartbeat heartbeat = F8__WORLD_HEARTBEAT__INIT;
    F8__WorldMessage message = F8__WORLD_MESSAGE__INIT;
    message.body_case = F8__WORLD_MESSAGE__BODY_HEARTBEAT;
    message.heartbeat = &heartbeat;
    ck_assert(peer_send_message(&peer, &message));
    worlds_await(uv_now(&worlds_loop) - table[2].heard_ms < 200);
    peer_close(&peer);
    down();
}
END_TEST

/* Of `count` hosts in a loop that turns and one that says nothing: nobody shows it as younger than
 * it is, however many there are. */
START_TEST(silence_is_as_long_as_it_is)
{
    enum { BEAT = 200, MOST = 40 };
    static struct host hosts[MOST];
    const uint32_t count = _i == 0 ? 2 : MOST;
    struct peer peer;
    uint32_t unused;
    for (uint32_t h = 0; h < count; h++) {
        host_up(&hosts[h], "host", AF_INET);
        (void)snprintf(hosts[h].config.host_name, sizeof(hosts[h].config.host_name), "host%u", h);
        hosts[h].config.heartbeat_ms = BEAT;
    }
    host_unique_id(&hosts[0], id);
    for (uint32_t h = 0; h < count; h++)
        host_join_ok(&hosts[h], id, count + 1, h, 1);
    peer_open(&peer, id);
    peer_prove(&peer);
    peer_join(&peer, count + 1, count);
    for (uint32_t h = 0; h < count; h++)
        worlds_await(hosts[h].formed);
    uint64_t began = uv_now(&worlds_loop);
    for (uint32_t h = 0; h < count; h += count - 1) { /* the root, and the last */
        const struct world_host *table = world_hosts(hosts[h].world, &unused);
        worlds_await(uv_now(&worlds_loop) - began >= (uint64_t)4 * BEAT &&
                     table[count].heard_ms <= began + BEAT / 2);
        worlds_await(uv_now(&worlds_loop) - table[0].heard_ms < (uint64_t)3 * BEAT);
    }
    peer_close(&peer);
    for (uint32_t h = 0; h < count; h++)
        host_down(&hosts[h]);
}
END_TEST

/* It says that it lives, and takes nothing: the others wait for it, but not for ever. */
START_TEST(a_host_that_does_not_read_is_lost)
{
    struct peer peer;
    F8__WorldHeartbeat heartbeat = F8__WORLD_HEARTBEAT__INIT;
    F8__WorldMessage message = F8__WORLD_MESSAGE__INIT;
    size_t size = (size_t)12 << 20;
    uint8_t *data = calloc(1, size);
    ck_assert_ptr_nonnull(data);
    up(1000, &worlds_loop);
    form_with(&peer);
    message.body_case = F8__WORLD_MESSAGE__BODY_HEARTBEAT;
    message.heartbeat = &heartbeat;
    for (int n = 0; n < 10; n++)
        world_send(other.world, data, size);
    free(data);
    while (!root.lost || !other.lost) {
        (void)peer_send_message(&peer, &message);
        worlds_turn();
    }
    assert_lost(&other, "it took nothing of ");
    worlds_await(root.messages == 10);
    assert_goes_on();
    peer_close(&peer);
    down();
}
END_TEST

/* The root's daemon is stopped, as by SIGSTOP: the world is over for the others. */
START_TEST(a_stopped_root_is_found)
{
    up(PATIENCE_MS, &worlds_other_loop);
    other.config.host_timeout_ms = 1000;
    host_join_ok(&root, id, 2, 0, 1);
    host_join_ok(&other, id, 2, 1, 1);
    worlds_await(root.formed && other.formed);
    worlds_other_stopped = true;
    worlds_await(other.ended);
    ck_assert_int_eq(other.status, F8_ECONN);
    ck_assert_ptr_nonnull(strstr(other.reason.text, "its root host root (127.0.0.1:"));
    ck_assert_ptr_nonnull(strstr(other.reason.text, "nothing was heard of it for 1 s"));
    worlds_other_stopped = false; /* it goes on, and finds that the other is gone */
    worlds_await(root.lost);
    ck_assert(!root.in_order);
    down();
}
END_TEST

/* A host that was stopped for too long learns that it is lost, when it goes on. */
START_TEST(a_host_that_wakes_up_is_told)
{
    up(1000, &worlds_loop);
    struct host stopped;
    host_up_on(&stopped, "stopped", AF_INET, &worlds_other_loop);
    stopped.config.heartbeat_ms = 20;
    host_join_ok(&root, id, 2, 0, 1);
    host_join_ok(&stopped, id, 2, 1, 1);
    worlds_await(root.formed && stopped.formed);
    worlds_other_stopped = true;
    worlds_await(root.lost);
    ck_assert_ptr_nonnull(strstr(root.reason.text, "host stopped (127.0.0.1:"));
    worlds_other_stopped = false;
    worlds_await(stopped.ended);
    ck_assert_int_eq(stopped.status, F8_ECONN);
    host_down(&stopped);
    down();
}
END_TEST

/* A root that was stopped itself for longer than its limit takes nobody else for lost. */
START_TEST(a_root_that_wakes_up_knows_that_it_slept)
{
    up(200, &worlds_other_loop);
    host_join_ok(&root, id, 2, 0, 1);
    host_join_ok(&other, id, 2, 1, 1);
    worlds_await(root.formed && other.formed);
    worlds_other_stopped = true;
    worlds_pass(1000);
    worlds_other_stopped = false;
    world_send(root.world, (const uint8_t *)"awake", 5);
    worlds_await(other.messages == 1);
    ck_assert_uint_eq(root.lost + root.ended + other.lost + other.ended, 0);
    down();
}
END_TEST

/* The root tells why it drops a host that speaks nonsense; the others go on. */
START_TEST(a_host_that_lies_is_lost)
{
    struct peer peer;
    up(PATIENCE_MS, &worlds_loop);
    form_with(&peer);
    ck_assert(peer_send(&peer, "\xff\xff\xff\x7f\0\0\0\0", 8));
    worlds_await(root.lost && other.lost);
    assert_lost(&other, "it sent a frame of 2147483647 bytes, allowed are 16777216");
    assert_goes_on();
    peer_close(&peer);
    down();
}
END_TEST

/* A goodbye, and then more: it has left. */
START_TEST(nothing_comes_after_goodbye)
{
    struct peer peer;
    F8__WorldGoodbye goodbye = F8__WORLD_GOODBYE__INIT;
    F8__WorldMessage message = F8__WORLD_MESSAGE__INIT;
    up(PATIENCE_MS, &worlds_loop);
    form_with(&peer);
    message.body_case = F8__WORLD_MESSAGE__BODY_GOODBYE;
    message.goodbye = &goodbye;
    ck_assert(peer_send_message(&peer, &message));
    (void)peer_send(&peer, "\x01\0\0\0\0\0\0\0x", 9);
    worlds_await(root.lost && other.lost);
    ck_assert(other.in_order && root.in_order);
    peer_close(&peer);
    assert_goes_on();
    ck_assert_uint_eq(root.messages, 0);
    down();
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("world_lost");
    tcase_set_timeout(tcase, 4 * PATIENCE_S);
    tcase_add_checked_fixture(tcase, worlds_set_up, worlds_tear_down);
    tcase_add_loop_test(tcase, a_killed_host_is_seen_at_once, 0, 2);
    tcase_add_test(tcase, last_words_of_a_killed_host);
    tcase_add_test(tcase, a_stopped_host_is_found);
    tcase_add_test(tcase, silence_is_told);
    tcase_add_loop_test(tcase, silence_is_as_long_as_it_is, 0, 2);
    tcase_add_test(tcase, a_host_that_does_not_read_is_lost);
    tcase_add_test(tcase, a_stopped_root_is_found);
    tcase_add_test(tcase, a_host_that_wakes_up_is_told);
    tcase_add_test(tcase, a_root_that_wakes_up_knows_that_it_slept);
    tcase_add_test(tcase, a_host_that_lies_is_lost);
    tcase_add_test(tcase, nothing_comes_after_goodbye);
    return run_suite("world_lost", tcase);
}
