/* SPDX-License-Identifier: Apache-2.0 */
/* A mesh of clients in the rooms: see mesh.h. */
#include "tests/lib/mesh.h"

#include <check.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/kernels.h"
#include "protocol.h"
#include "tests/lib/device_backend.h"
#include "tests/lib/loop_turn.h"

#define REGION       65536
#define WEIGHT_AT(w) ((uint64_t)(w)*4096)
#define ROWS         5
#define COLS         10

static const char *const dp_names[] = {"dp0", "dp1"};

static uint64_t shape[] = {ROWS, COLS};

struct seat seat_of(const struct client *client)
{
    return (struct seat){.group = client->group, .generation = client->generation};
}

static struct client *at(struct client *client, struct seat seat)
{
    client->group = seat.group;
    client->generation = seat.generation;
    return client;
}

struct client *mesh_dp(struct mesh *mesh, uint32_t rank)
{
    return at(&mesh->clients[rank], mesh->dp[rank]);
}

struct client *mesh_all(struct mesh *mesh, uint32_t rank)
{
    return at(&mesh->clients[rank], mesh->mesh[rank]);
}

static void ok(struct client *client, uint64_t id)
{
    const F8__Reply *reply = client_await(client, id);
    ck_assert_msg(reply->status == F8_OK, "status %d (%s)", reply->status, reply->text);
}

static uint32_t devices_to_use;
static uint64_t seed_to_use;

void mesh_use_devices(uint32_t num_devices, uint64_t seed)
{
    devices_to_use = num_devices;
    seed_to_use = seed;
}

void mesh_open(struct mesh *mesh, uint32_t flavour)
{
    memset(mesh, 0, sizeof(*mesh));
    rooms_open_on(&mesh->rooms, devices_to_use);
    mesh->on_devices = devices_to_use > 0;
    if (mesh->on_devices)
        device_backend_shuffle(mesh->rooms.cuda, seed_to_use);
    mesh->flavour = flavour;
    client_open(&mesh->operator_, &mesh->rooms, 99);
    ok(&mesh->operator_, ask_admin(&mesh->operator_));
    for (uint32_t r = 0; r < MESH_RANKS; r++) {
        struct client *client = &mesh->clients[r];
        client_open(client, &mesh->rooms, 100 + r);
        int fd = client_enter(client, "train", dp_names[r / 2], r % 2, 2, REGION);
        mesh->shards[r] = mmap(NULL, REGION, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        ck_assert_ptr_ne(mesh->shards[r], MAP_FAILED);
        (void)close(fd);
        mesh->dp[r] = seat_of(client);
        ok(client, ask_join(client, "mesh", r, MESH_RANKS));
        mesh->mesh[r] = seat_of(client);
    }
}

void mesh_close(struct mesh *mesh)
{
    for (uint32_t r = 0; r < MESH_RANKS; r++) {
        client_close(&mesh->clients[r], false);
        (void)munmap(mesh->shards[r], REGION);
    }
    client_close(&mesh->operator_, false);
    rooms_close(&mesh->rooms);
}

void mesh_register(struct mesh *mesh, uint32_t rank, uint32_t amax_group)
{
    struct client *client = mesh_dp(mesh, rank);
    F8__Weight weights[] = {make_weight("w0", mesh->flavour, shape, 2, 1, WEIGHT_AT(0)),
        make_weight("w1", mesh->flavour, shape, 2, 1, WEIGHT_AT(1))};
    F8__Bucket buckets[] = {make_bucket("b0", 0, 1, false), make_bucket("b1", 1, 1, false)};
    for (uint32_t w = 0; w < MESH_WEIGHTS; w++) {
        weights[w].amax_group = amax_group;
        weights[w].history_length = mesh->flavour == F8_PROTO_DELAYED ? 4 : 0;
    }
    ok(client, ask_register(client, weights, MESH_WEIGHTS, buckets, 2, false));
}

uint64_t ask_seal_plain(struct client *client)
{
    return ask_seal(client, 0);
}

uint64_t ask_gather_b0(struct client *client)
{
    return ask_gather(client, 0);
}

uint64_t ask_gather_b1(struct client *client)
{
    return ask_gather(client, 1);
}

void mesh_ask_dp(struct mesh *mesh, uint32_t first, uint32_t end, mesh_ask_fn *ask, uint64_t *ids)
{
    for (uint32_t r = first; r < end; r++)
        ids[r] = ask(mesh_dp(mesh, r));
}

void mesh_ask_all(struct mesh *mesh, mesh_ask_fn *ask, uint64_t *ids)
{
    for (uint32_t r = 0; r < MESH_RANKS; r++)
        ids[r] = ask(mesh_all(mesh, r));
}

void mesh_ok(struct mesh *mesh, uint32_t first, uint32_t end, const uint64_t *ids)
{
    for (uint32_t r = first; r < end; r++)
        ok(&mesh->clients[r], ids[r]);
}

void mesh_seal(struct mesh *mesh)
{
    uint64_t ids[MESH_RANKS];
    mesh_ask_dp(mesh, 0, MESH_RANKS, ask_seal_plain, ids);
    mesh_ok(mesh, 0, MESH_RANKS, ids);
    mesh_whole(mesh, ask_seal_plain);
}

void mesh_start(struct mesh *mesh, uint32_t flavour)
{
    mesh_open(mesh, flavour);
    for (uint32_t r = 0; r < MESH_RANKS; r++)
        mesh_register(mesh, r, mesh->mesh[r].group);
    mesh_seal(mesh);
}

void mesh_rejoin(struct mesh *mesh)
{
    for (uint32_t r = 0; r < MESH_RANKS; r++) {
        struct client *client = &mesh->clients[r];
        ok(client, ask_rejoin(client, dp_names[r / 2], r % 2, 2));
        mesh->dp[r] = seat_of(client);
        ok(client, ask_rejoin(client, "mesh", r, MESH_RANKS));
        mesh->mesh[r] = seat_of(client);
    }
    mesh_seal(mesh);
}

void mesh_write(struct mesh *mesh, uint32_t rank, uint32_t weight, float value)
{
    rooms_synchronise(&mesh->rooms);
    uint64_t count = f8_proto_shard_rows(ROWS, 2, rank % 2) * COLS;
    for (uint64_t i = 0; i < count; i++)
        mesh->shards[rank][WEIGHT_AT(weight) / sizeof(float) + i] = value;
}

void mesh_whole(struct mesh *mesh, mesh_ask_fn *ask)
{
    uint64_t ids[MESH_RANKS];
    mesh_ask_all(mesh, ask, ids);
    mesh_ok(mesh, 0, MESH_RANKS, ids);
}

void mesh_gather(struct mesh *mesh, uint32_t bucket)
{
    uint64_t ids[MESH_RANKS];
    mesh_ask_dp(mesh, 0, MESH_RANKS, bucket == 0 ? ask_gather_b0 : ask_gather_b1, ids);
    mesh_ok(mesh, 0, MESH_RANKS, ids);
    for (uint32_t r = 0; r < MESH_RANKS; r++)
        send_release(mesh_dp(mesh, r), bucket);
}

static uint32_t count_waiting(struct mesh *mesh)
{
    uint32_t count = 0;
    client_forget(&mesh->operator_);
    uint64_t id = ask_inspect(&mesh->operator_, F8__VIEW__ROUNDS, "", "", 0);
    const F8__InspectReply *reply = client_await(&mesh->operator_, id)->inspect;
    for (size_t i = 0; i < reply->n_rounds; i++)
        count += strcmp(reply->rounds[i]->state, "waiting for another group") == 0;
    return count;
}

void mesh_await_waiting(struct mesh *mesh, uint32_t count)
{
    while (count_waiting(mesh) != count)
        (void)loop_turn(&mesh->rooms.loop);
}

const F8__WeightInfo *mesh_weight(struct mesh *mesh, const char *group, const char *weight)
{
    rooms_land(&mesh->rooms);
    client_forget(&mesh->operator_);
    uint64_t id = ask_inspect(&mesh->operator_, F8__VIEW__AMAX, "", weight, 0);
    const F8__InspectReply *reply = client_await(&mesh->operator_, id)->inspect;
    for (size_t i = 0; i < reply->n_weights; i++)
        if (strcmp(reply->weights[i]->group, group) == 0)
            return reply->weights[i];
    ck_abort_msg("group %s shows no weight %s", group, weight);
    return NULL;
}

uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

uint32_t scale_bits(float amax)
{
    return bits_of(f8k_scale(bits_of(amax), F8K_F32, F8K_E4M3FN, F8K_SCALE_DIRECT, false));
}
