/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Garbage: packets of all kinds, valid ones and what is left of them after flips, cuts and
 * joins, with and without descriptors, from clients at every stage. It may end their own
 * connections; two ranks of another job train on beside it, and the daemon keeps nothing.
 * Seeded, so that a failure comes again.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/ranks.h"
#include "lib/raw_client.h"
#include "lib/suite.h"
#include "lib/test_daemon.h"
#include "protocol.h"

#define CONNECTIONS (40 * F8_TEST_SCALE)
#define PACKETS     8 /* of a connection, at most */
#define KINDS       15
#define ROOM        (F8_PROTO_MAX_PACKET + 4096)

struct packet {
    size_t size;
    uint8_t bytes[ROOM];
};

/* xorshift64*: the same numbers everywhere. */
static uint64_t state;

static uint32_t pick(uint32_t below)
{
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (uint32_t)((state * 0x2545F4914F6CDD1DULL) >> 33) % below;
}

/* ---- valid packets of every kind ---- */

static void pack(struct packet *packet, F8__Request *request)
{
    request->id = 1 + pick(1000);
    packet->size = f8__request__pack(request, packet->bytes);
}

static void pack_joining(struct packet *packet, F8__Request *request)
{
    F8__Hello hello = F8__HELLO__INIT;
    F8__Join join = F8__JOIN__INIT;
    hello.major = F8_PROTO_MAJOR;
    hello.job = (char *)(uintptr_t) "garbage";
    hello.role = pick(4) == 0 ? F8__ROLE__ADMIN : F8__ROLE__TRAINER;
    join.group = (char *)(uintptr_t) "dp";
    join.world_size = 1 + pick(3);
    join.rank = pick(3);
    join.rejoin = pick(2);
    if (request->body_case == F8__REQUEST__BODY_HELLO)
        request->hello = &hello;
    else
        request->join = &join;
    pack(packet, request);
}

static void pack_register(struct packet *packet, F8__Request *request, uint32_t group)
{
    uint64_t shape[] = {1 + pick(64), 1 + pick(64)};
    F8__Weight weight = F8__WEIGHT__INIT, *weights = &weight;
    F8__Bucket bucket = F8__BUCKET__INIT, *buckets = &bucket;
    F8__Register message = F8__REGISTER__INIT;
    weight.name = bucket.name = (char *)(uintptr_t) "garbage";
    weight.n_shape = 1 + pick(2);
    weight.shape = shape;
    weight.dtype = 1 + pick(3);
    weight.flavour = 1 + pick(5);
    weight.format = 1 + pick(2);
    weight.static_scale = pick(UINT32_MAX);
    weight.region = pick(3);
    bucket.count = 1;
    bucket.shared = pick(2);
    message.group = group;
    message.n_weights = message.n_buckets = 1;
    message.weights = &weights;
    message.buckets = &buckets;
    message.more = pick(2);
    request->register_ = &message;
    pack(packet, request);
}

static void pack_collective(struct packet *packet, F8__Request *request, uint32_t group)
{
    F8__Seal seal = F8__SEAL__INIT;
    F8__Precompute precompute = F8__PRECOMPUTE__INIT;
    F8__PreGather pre_gather = F8__PRE_GATHER__INIT;
    F8__Gather gather = F8__GATHER__INIT;
    seal.group = precompute.group = pre_gather.group = gather.group = group;
    seal.generation = precompute.generation = pre_gather.generation = gather.generation = 1;
    seal.slots = pick(4);
    if (request->body_case == F8__REQUEST__BODY_SEAL)
        request->seal = &seal;
    else if (request->body_case == F8__REQUEST__BODY_PRECOMPUTE)
        request->precompute = &precompute;
    else if (request->body_case == F8__REQUEST__BODY_PRE_GATHER)
        request->pre_gather = &pre_gather;
    else
        request->gather = &gather;
    pack(packet, request);
}

static void pack_weights(struct packet *packet, F8__Request *request, uint32_t group)
{
    F8__Release release = F8__RELEASE__INIT;
    F8__Changed changed = F8__CHANGED__INIT;
    F8__Quiesce quiesce = F8__QUIESCE__INIT;
    F8__WeightMove move = F8__WEIGHT_MOVE__INIT;
    release.group = changed.group = quiesce.group = move.group = group;
    release.generation = changed.generation = quiesce.generation = move.generation = 1;
    changed.count = pick(2);
    move.region = pick(3);
    if (request->body_case == F8__REQUEST__BODY_RELEASE)
        request->release = &release;
    else if (request->body_case == F8__REQUEST__BODY_CHANGED)
        request->changed = &changed;
    else if (request->body_case == F8__REQUEST__BODY_QUIESCE)
        request->quiesce = &quiesce;
    else
        request->weight_move = &move;
    pack(packet, request);
}

static void pack_rest(struct packet *packet, F8__Request *request)
{
    F8__Ping ping = F8__PING__INIT;
    F8__RegionAdd add = F8__REGION_ADD__INIT;
    F8__RegionDrop drop = F8__REGION_DROP__INIT;
    F8__Inspect inspect = F8__INSPECT__INIT;
    drop.region = pick(3);
    inspect.view = (F8__View)pick(5);
    if (request->body_case == F8__REQUEST__BODY_REGION_ADD)
        request->region_add = &add;
    else if (request->body_case == F8__REQUEST__BODY_REGION_DROP)
        request->region_drop = &drop;
    else if (request->body_case == F8__REQUEST__BODY_INSPECT)
        request->inspect = &inspect;
    else
        request->ping = &ping;
    pack(packet, request);
}

static void make_valid(struct packet *packet, uint32_t group)
{
    F8__Request request = F8__REQUEST__INIT;
    request.body_case = (F8__Request__BodyCase)(F8__REQUEST__BODY_HELLO + pick(KINDS));
    switch (request.body_case) {
    case F8__REQUEST__BODY_HELLO:
    case F8__REQUEST__BODY_JOIN:
        pack_joining(packet, &request);
        break;
    case F8__REQUEST__BODY_REGISTER:
        pack_register(packet, &request, group);
        break;
    case F8__REQUEST__BODY_SEAL:
    case F8__REQUEST__BODY_PRECOMPUTE:
    case F8__REQUEST__BODY_PRE_GATHER:
    case F8__REQUEST__BODY_GATHER:
        pack_collective(packet, &request, group);
        break;
    case F8__REQUEST__BODY_RELEASE:
    case F8__REQUEST__BODY_CHANGED:
    case F8__REQUEST__BODY_QUIESCE:
    case F8__REQUEST__BODY_WEIGHT_MOVE:
        pack_weights(packet, &request, group);
        break;
    default:
        pack_rest(packet, &request);
        break;
    }
}

/* ---- and what becomes of them ---- */

static void flip_bits(struct packet *packet)
{
    for (uint32_t i = pick(8); packet->size > 0 && i < 8; i++)
        packet->bytes[pick((uint32_t)packet->size)] ^= (uint8_t)(1U << pick(8));
}

static void randomise(struct packet *packet, uint32_t size)
{
    packet->size = size;
    for (size_t i = 0; i < packet->size; i++)
        packet->bytes[i] = (uint8_t)pick(256);
}

/* Protobuf takes two messages in a row as one, with the fields of both. */
static void join_another(struct packet *packet, uint32_t group)
{
    static struct packet other;
    make_valid(&other, group);
    memcpy(packet->bytes + packet->size, other.bytes, other.size);
    packet->size += other.size;
}

static void make_garbage(struct packet *packet, uint32_t group)
{
    make_valid(packet, group);
    switch (pick(8)) {
    case 0:
        packet->size = pick((uint32_t)packet->size + 1);
        break;
    case 1:
    case 2:
        flip_bits(packet);
        break;
    case 3:
        randomise(packet, 1 + pick(200));
        break;
    case 4:
        join_another(packet, group);
        break;
    case 5:
        if (pick(4) == 0)
            randomise(packet, F8_PROTO_MAX_PACKET - 2 + pick(4));
        break;
    default:
        break; /* as it is */
    }
}

static void send_garbage(struct raw_client *raw, uint32_t group, const int some_fds[2])
{
    static struct packet packet;
    static const size_t counts[] = {0, 0, 0, 0, 1, 1, 2, 4, 5, 100};
    int fds[100];
    for (size_t i = 0; i < 100; i++)
        fds[i] = some_fds[pick(2)];
    make_garbage(&packet, group);
    (void)raw_send_bytes(
        raw, packet.bytes, packet.size, fds, counts[pick(sizeof(counts) / sizeof(counts[0]))]);
}

/* One client: opened, greeted or sealed, then garbage. Replies are read now and then. */
static void run_connection(const struct test_daemon *daemon, const int some_fds[2])
{
    struct raw_client raw;
    uint32_t group = 0, stage = pick(4);
    char byte;
    if (stage == 0)
        raw_open(&raw, daemon);
    else if (stage == 1)
        raw_greet(&raw, daemon, "garbage");
    else
        (void)close(raw_sealed(&raw, daemon, &group));
    for (uint32_t i = 1 + pick(PACKETS); i > 0; i--) {
        send_garbage(&raw, group, some_fds);
        while (pick(2) && recv(raw.fd, &byte, 1, MSG_DONTWAIT) > 0)
            continue;
    }
    raw_close(&raw);
}

START_TEST(garbage)
{
    struct test_daemon daemon;
    struct rank ranks[2];
    int pipe_fds[2];
    state = 0x9E3779B97F4A7C15ULL + (uint64_t)_i;
    /* A flipped bit may ask for a unique id, whose port is then open for so long. */
    static const char *const arguments[] = {"--world-deadline", "1", NULL};
    test_daemon_start(&daemon, arguments);
    int before = daemon_descriptors(&daemon);
    ranks_start(ranks, 2, daemon.socket);
    ck_assert_int_eq(pipe(pipe_fds), 0);
    const int some_fds[] = {raw_memfd(4096), pipe_fds[0]};
    for (int i = 0; i < CONNECTIONS; i++) {
        run_connection(&daemon, some_fds);
        if (i % 8 == 0)
            ranks_must(ranks, 2, rank_step);
    }
    rank_close(&ranks[0]);
    rank_close(&ranks[1]);
    daemon_await_empty(&daemon, before);
    (void)close(pipe_fds[0]);
    (void)close(pipe_fds[1]);
    (void)close(some_fds[0]);
    test_daemon_stop(&daemon);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("packets");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, garbage, 0, 3);
    return run_suite("garbage", tcase);
}
