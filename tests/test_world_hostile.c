/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who has no business at a root, and what is no root: garbage, port scans, idle connections, wrong
 * tokens, replays, frames that lie. Each is refused, and the world forms beside it as ever.
 */
#include <check.h>
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

/* A root that is half there. */
static void begin(void)
{
    worlds_set_up();
    host_up(&root, "root", AF_INET);
    host_up(&other, "other", AF_INET);
    host_unique_id(&root, id);
    host_join_ok(&root, id, 2, 0, 1);
    worlds_await(root.worlds->roots->num_joined == 1);
}

/* Whatever has happened: it fills. */
static void finish(void)
{
    host_join_ok(&other, id, 2, 1, 1);
    worlds_await(root.formed && other.formed);
    world_send(root.world, (const uint8_t *)"hello", 5);
    worlds_await(other.messages == 1);
    ck_assert_uint_eq(root.ended + other.ended + root.lost + other.lost, 0);
    host_down(&other);
    host_down(&root);
    worlds_tear_down();
}

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Bytes of all kinds and lengths, before the proof: never more than a fixed number is looked at. */
START_TEST(garbage_is_refused)
{
    static uint8_t bytes[4096];
    uint64_t state = 88172645463325252u;
    for (int n = 0; n < 60; n++) {
        struct peer peer;
        size_t size = next_random(&state) % (n % 2 ? 200 : sizeof(bytes));
        for (size_t i = 0; i < size; i++)
            bytes[i] = (uint8_t)next_random(&state);
        peer_open(&peer, id);
        (void)peer_send(&peer, bytes, size);
        if (size >= 64)
            ck_assert(peer_is_closed(&peer));
        peer_close(&peer);
    }
}
END_TEST

START_TEST(port_scans_are_nothing)
{
    for (int n = 0; n < 200; n++) {
        struct peer peer;
        peer_open(&peer, id);
        if (n % 3 == 0) { /* as a scanner that resets */
            struct linger linger = {.l_onoff = 1};
            (void)setsockopt(peer.fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
        }
        if (n % 5 == 0)
            (void)peer_send(&peer, "GET / HTTP/1.0\r\n\r\n", 18);
        peer_close(&peer);
    }
    worlds_await(root.worlds->roots->num_unproved == 0);
}
END_TEST

/* The oldest are dropped for the newest: whoever proves the token at once comes in. */
START_TEST(idle_connections_are_dropped)
{
    static struct peer idle[300];
    for (int n = 0; n < 300; n++) {
        peer_open(&idle[n], id);
        worlds_turn();
    }
    ck_assert(peer_is_closed(&idle[0]));
    ck_assert_uint_le(root.worlds->roots->num_unproved, WORLD_MAX_UNPROVED);
    host_join_ok(&other, id, 2, 1, 1);
    worlds_await(root.formed && other.formed);
    for (int n = 0; n < 300; n++) { /* those that are left go when the world has formed */
        ck_assert(peer_is_closed(&idle[n]));
        peer_close(&idle[n]);
    }
    host_leave(&other);
    worlds_await(root.lost);
    host_leave(&root);
    other.formed = root.formed = root.lost = 0;
    host_unique_id(&root, id);
    host_join_ok(&root, id, 2, 0, 1);
}
END_TEST

/* Whoever has proved the token has its place, whatever crowd comes after it. */
START_TEST(a_crowd_drops_nobody_who_has_proved)
{
    static struct peer crowd[WORLD_MAX_UNPROVED + 10];
    struct peer peer;
    peer_open(&peer, id);
    peer_prove(&peer);
    for (size_t n = 0; n < sizeof(crowd) / sizeof(crowd[0]); n++)
        peer_open(&crowd[n], id);
    worlds_await(root.worlds->roots->num_unproved == WORLD_MAX_UNPROVED);
    peer_join(&peer, 2, 1);
    F8__WorldMessage *table = peer_receive(&peer);
    ck_assert_ptr_nonnull(table);
    ck_assert_int_eq(table->body_case, F8__WORLD_MESSAGE__BODY_TABLE);
    f8__world_message__free_unpacked(table, NULL);
    for (size_t n = 0; n < sizeof(crowd) / sizeof(crowd[0]); n++)
        peer_close(&crowd[n]);
    peer_close(&peer);
    worlds_await(root.lost);
    host_leave(&root);
    root.formed = root.lost = 0;
    host_unique_id(&root, id);
    host_join_ok(&root, id, 2, 0, 1);
}
END_TEST

/* Also one alone is not waited for for ever. */
START_TEST(an_idle_connection_ends)
{
    struct peer silent, half;
    uint8_t byte = 0;
    peer_open(&silent, id);
    peer_open(&half, id);
    ck_assert(peer_send(&half, &byte, 1));
    ck_assert(peer_is_closed(&silent));
    ck_assert(peer_is_closed(&half));
    peer_close(&silent);
    peer_close(&half);
}
END_TEST

/* Of one who has proved the token, and then says nothing. */
START_TEST(a_proved_connection_must_join)
{
    struct peer peer;
    peer_open(&peer, id);
    peer_prove(&peer);
    ck_assert(peer_is_closed(&peer));
    peer_close(&peer);
}
END_TEST

START_TEST(a_wrong_token_is_refused)
{
    struct peer peer;
    uint8_t verdict[1 + WORLD_MAC_SIZE];
    for (int bit = 0; bit < 8; bit++) {
        peer_open(&peer, id);
        peer.id.token[bit * 4] ^= (uint8_t)(1 << bit);
        peer_answer(&peer);
        ck_assert(peer_read(&peer, verdict, sizeof(verdict)));
        ck_assert_uint_eq(verdict[0], 1);
        for (size_t i = 1; i < sizeof(verdict); i++)
            ck_assert_uint_eq(verdict[i], 0); /* no proof for one who has given none */
        ck_assert(peer_is_closed(&peer));
        peer_close(&peer);
    }
}
END_TEST

/* As a host sees it: an id of another world at the same place. */
START_TEST(a_wrong_id_is_told)
{
    struct world_id wrong;
    struct reason reason;
    uint8_t packed[F8_PROTO_UNIQUE_ID_SIZE];
    ck_assert_int_eq(world_id_unpack(id, &wrong, &reason), F8_OK);
    if (_i)
        wrong.token[0] ^= 1;
    else
        wrong.number ^= 1;
    world_id_pack(&wrong, packed);
    host_join_ok(&other, packed, 2, 1, 1);
    worlds_await(other.ended);
    ck_assert_int_eq(other.status, F8_EPERM);
    ck_assert_ptr_nonnull(strstr(other.reason.text, "it refuses this unique id"));
    host_leave(&other);
    other.ended = 0;
}
END_TEST

/* What proved the token once proves nothing again, neither the host's nor the root's. */
START_TEST(a_replay_is_refused)
{
    struct peer first, second;
    uint8_t challenge[8 + WORLD_NONCE_SIZE], answer[WORLD_NONCE_SIZE + WORLD_MAC_SIZE];
    uint8_t verdict[1 + WORLD_MAC_SIZE];
    peer_open(&first, id);
    peer_prove(&first);
    memcpy(answer, first.host_nonce, WORLD_NONCE_SIZE);
    world_proof(&first.id, WORLD_PROVER_HOST, first.root_nonce, first.host_nonce,
        answer + WORLD_NONCE_SIZE);
    peer_open(&second, id);
    ck_assert(peer_read(&second, challenge, sizeof(challenge)));
    ck_assert(peer_send(&second, answer, sizeof(answer)));
    ck_assert(peer_read(&second, verdict, sizeof(verdict)));
    ck_assert_uint_eq(verdict[0], 1);
    ck_assert(peer_is_closed(&second));
    peer_close(&second);
    peer_close(&first);
}
END_TEST

/* The root's own proof, sent back to it, is none of a host's. */
START_TEST(a_reflection_is_refused)
{
    struct peer peer;
    uint8_t challenge[8 + WORLD_NONCE_SIZE], answer[WORLD_NONCE_SIZE + WORLD_MAC_SIZE];
    uint8_t verdict[1 + WORLD_MAC_SIZE];
    peer_open(&peer, id);
    ck_assert(peer_read(&peer, challenge, sizeof(challenge)));
    memcpy(answer, challenge + 8, WORLD_NONCE_SIZE);
    world_proof(
        &peer.id, WORLD_PROVER_ROOT, challenge + 8, challenge + 8, answer + WORLD_NONCE_SIZE);
    ck_assert(peer_send(&peer, answer, sizeof(answer)));
    ck_assert(peer_read(&peer, verdict, sizeof(verdict)));
    ck_assert_uint_eq(verdict[0], 1);
    peer_close(&peer);
}
END_TEST

/* After the proof: frames that lie, messages that are none, joins that cannot be. */
static const struct {
    uint32_t size, tag;
    const char *bytes;
} frames[] = {
    {UINT32_MAX, WORLD_TAG_MESSAGE, ""}, {(1 << 20) + 1, WORLD_TAG_MESSAGE, ""},
    {8, WORLD_TAG_MESSAGE, "\xff\xff\xff\xff\xff\xff\xff\xff"},
    {2, WORLD_TAG_MESSAGE, "\x0a\x7f"}, /* a join that is longer than its frame */
    {2, WORLD_TAG_MESSAGE, "\x0a\x00"}, /* an empty join: refused with a sentence */
    {2, WORLD_TAG_MESSAGE, "\x32\x00"}, /* a goodbye of one who has not come */
};

START_TEST(lying_frames_end_their_connection)
{
    struct peer peer;
    uint8_t head[WORLD_HEAD_SIZE];
    for (int i = 0; i < 4; i++) {
        head[i] = (uint8_t)(frames[_i].size >> (8 * i));
        head[4 + i] = (uint8_t)(frames[_i].tag >> (8 * i));
    }
    peer_open(&peer, id);
    peer_prove(&peer);
    ck_assert(peer_send(&peer, head, sizeof(head)));
    if (frames[_i].size < 100)
        ck_assert(peer_send(&peer, frames[_i].bytes, frames[_i].size));
    ck_assert(peer_is_closed(&peer));
    peer_close(&peer);
}
END_TEST

/* Of one who has the id: frames of random bytes, and random changes of a good join. */
START_TEST(garbage_after_the_proof)
{
    static uint8_t bytes[512];
    uint64_t state = 1 + (uint64_t)_i;
    for (int n = 0; n < 100; n++) {
        struct peer peer;
        uint32_t size = (uint32_t)(next_random(&state) % (sizeof(bytes) - WORLD_HEAD_SIZE));
        for (size_t i = 0; i < sizeof(bytes); i++)
            bytes[i] = (uint8_t)next_random(&state);
        memset(bytes, 0, WORLD_HEAD_SIZE);
        bytes[0] = (uint8_t)size;
        bytes[1] = (uint8_t)(size >> 8);
        memset(bytes + 4, n % 3 ? 0xff : 0, 4);
        if (n % 3 == 1) /* the tag and type of a join, and then anything */
            bytes[WORLD_HEAD_SIZE] = 0x0a;
        peer_open(&peer, id);
        peer_prove(&peer);
        (void)peer_send(&peer, bytes, WORLD_HEAD_SIZE + size);
        worlds_turn();
        peer_close(&peer);
    }
    worlds_await(root.worlds->roots->num_unproved == 0);
    ck_assert_uint_eq(root.worlds->roots->num_joined, 1);
}
END_TEST

/* ---- what is no root ---- */

/* Listens at a port of loopback, for an id that leads there. */
static int fake_root(uint8_t fake[F8_PROTO_UNIQUE_ID_SIZE], struct world_id *made)
{
    struct sockaddr_in *in = (struct sockaddr_in *)&made->address;
    socklen_t size = sizeof(*in);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    memset(made, 0, sizeof(*made));
    in->sin_family = AF_INET;
    in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ck_assert_int_eq(bind(fd, (const struct sockaddr *)in, size), 0);
    ck_assert_int_eq(listen(fd, 8), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)in, &size), 0);
    world_id_pack(made, fake);
    return fd;
}

static void accept_at(int listener, struct peer *peer)
{
    worlds_await((peer->fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0);
}

static const struct {
    const char *challenge;
    int status;
    const char *text;
} impostors[] = {
    {"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n", F8_EPROTO, "what listens there is no f8gath"},
    {"F8WORLD\x02________________________________", F8_EVERSION, "it speaks version 2 of"},
    {"F8WORLD\x01________________________________", F8_EPERM, "does not hold the unique id itself"},
};

/* The token is not given away to one who does not have it, and its word is not taken. */
START_TEST(an_impostor_is_no_root)
{
    struct world_id made;
    struct peer peer;
    uint8_t fake[F8_PROTO_UNIQUE_ID_SIZE], verdict[1 + WORLD_MAC_SIZE] = {0};
    int listener = fake_root(fake, &made);
    host_join_ok(&other, fake, 2, 1, 1);
    accept_at(listener, &peer);
    ck_assert(peer_send(&peer, impostors[_i].challenge, 8 + WORLD_NONCE_SIZE));
    if (impostors[_i].status == F8_EPERM)
        ck_assert(peer_send(&peer, verdict, sizeof(verdict)));
    worlds_await(other.ended);
    ck_assert_int_eq(other.status, impostors[_i].status);
    ck_assert_msg(strstr(other.reason.text, impostors[_i].text), "%s", other.reason.text);
    peer_close(&peer);
    (void)close(listener);
    host_leave(&other);
    other.ended = 0;
}
END_TEST

/* A table that does not have this host in it, or ranks that are not there. */
START_TEST(a_wrong_table_is_refused)
{
    struct world_id made;
    struct peer peer;
    uint8_t fake[F8_PROTO_UNIQUE_ID_SIZE], bytes[8 + WORLD_NONCE_SIZE] = "F8WORLD\x01";
    uint8_t answer[WORLD_NONCE_SIZE + WORLD_MAC_SIZE], verdict[1 + WORLD_MAC_SIZE] = {0};
    uint32_t rank = _i ? 1 : 5, pid = 1;
    int listener = fake_root(fake, &made);
    host_join_ok(&other, fake, 2, 1, 1);
    accept_at(listener, &peer);
    ck_assert(peer_send(&peer, bytes, sizeof(bytes)));
    ck_assert(peer_read(&peer, answer, sizeof(answer)));
    world_proof(&made, WORLD_PROVER_ROOT, bytes + 8, answer, verdict + 1);
    ck_assert(peer_send(&peer, verdict, sizeof(verdict)));
    F8__WorldMessage *join = peer_receive(&peer);
    ck_assert_int_eq(join->body_case, F8__WORLD_MESSAGE__BODY_JOIN);
    ck_assert_str_eq(join->join->name, "other");
    f8__world_message__free_unpacked(join, NULL);

    F8__WorldTableHost host = F8__WORLD_TABLE_HOST__INIT, *hosts[] = {&host};
    F8__WorldTable table = F8__WORLD_TABLE__INIT;
    F8__WorldMessage message = F8__WORLD_MESSAGE__INIT;
    host.n_ranks = host.n_pids = 1;
    host.ranks = &rank;
    host.pids = &pid;
    table.hosts = hosts;
    table.n_hosts = 1;
    message.body_case = F8__WORLD_MESSAGE__BODY_TABLE;
    message.table = &table;
    ck_assert(peer_send_message(&peer, &message));
    worlds_await(other.ended);
    ck_assert_int_eq(other.status, F8_EPROTO);
    ck_assert_uint_eq(other.formed, 0);
    peer_close(&peer);
    (void)close(listener);
    host_leave(&other);
    other.ended = 0;
}
END_TEST

/* A connection that ends before the proof is tried again: the root may have had too many. */
START_TEST(a_dropped_host_tries_again)
{
    struct world_id made;
    struct peer peer;
    uint8_t fake[F8_PROTO_UNIQUE_ID_SIZE];
    int listener = fake_root(fake, &made);
    host_join_ok(&other, fake, 2, 1, 1);
    for (int n = 0; n < 3; n++) {
        accept_at(listener, &peer);
        peer_close(&peer);
    }
    ck_assert_uint_eq(other.ended, 0);
    (void)close(listener);
    worlds_await(other.ended);
    ck_assert_int_eq(other.status, F8_ECONN);
    host_leave(&other);
    other.ended = 0;
}
END_TEST

#define COUNT(list) ((int)(sizeof(list) / sizeof((list)[0])))

int main(void)
{
    TCase *tcase = tcase_create("world_hostile");
    tcase_set_timeout(tcase, 4 * PATIENCE_S);
    tcase_add_checked_fixture(tcase, begin, finish);
    tcase_add_test(tcase, garbage_is_refused);
    tcase_add_test(tcase, port_scans_are_nothing);
    tcase_add_test(tcase, idle_connections_are_dropped);
    tcase_add_test(tcase, a_crowd_drops_nobody_who_has_proved);
    tcase_add_test(tcase, an_idle_connection_ends);
    tcase_add_test(tcase, a_proved_connection_must_join);
    tcase_add_test(tcase, a_wrong_token_is_refused);
    tcase_add_loop_test(tcase, a_wrong_id_is_told, 0, 2);
    tcase_add_test(tcase, a_replay_is_refused);
    tcase_add_test(tcase, a_reflection_is_refused);
    tcase_add_loop_test(tcase, lying_frames_end_their_connection, 0, COUNT(frames));
    tcase_add_loop_test(tcase, garbage_after_the_proof, 0, 3);
    tcase_add_loop_test(tcase, an_impostor_is_no_root, 0, COUNT(impostors));
    tcase_add_loop_test(tcase, a_wrong_table_is_refused, 0, 2);
    tcase_add_test(tcase, a_dropped_host_tries_again);
    return run_suite("world_hostile", tcase);
}
