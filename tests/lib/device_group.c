/* SPDX-License-Identifier: Apache-2.0 */
/* A group of ranks on devices: see device_group.h. */
#include "tests/lib/device_group.h"

#include <check.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "protocol.h"

#define REGION       16384
#define WEIGHT_AT(w) ((uint64_t)(w)*4096)
#define ROWS         5
#define COLS         10
#define NUM_WEIGHTS  2

static void ok(struct client *client, uint64_t id)
{
    const F8__Reply *reply = client_await(client, id);
    ck_assert_msg(reply->status == F8_OK, "status %d (%s)", reply->status, reply->text);
}

static void register_all(struct device_group *group, struct client *client)
{
    uint64_t shape[] = {ROWS, COLS};
    F8__Weight weights[] = {make_weight("w0", group->flavour, shape, 2, 1, WEIGHT_AT(0)),
        make_weight("w1", group->flavour, shape, 2, 1, WEIGHT_AT(1))};
    F8__Bucket buckets[] = {
        make_bucket("b0", 0, 1, group->slots > 0), make_bucket("b1", 1, 1, group->slots > 0)};
    for (uint32_t w = 0; w < NUM_WEIGHTS && group->flavour == F8_PROTO_DELAYED; w++)
        weights[w].history_length = 4;
    ok(client, ask_register(client, weights, NUM_WEIGHTS, buckets, 2, false));
}

void device_group_enter(struct device_group *group, uint32_t rank, uint32_t pid)
{
    struct client *client = &group->clients[rank];
    client_open(client, &group->rooms, pid);
    int fd = client_enter(client, "train", "dp", rank, group->num_ranks, REGION);
    if (group->shards[rank])
        (void)munmap(group->shards[rank], REGION);
    group->shards[rank] = mmap(NULL, REGION, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(group->shards[rank], MAP_FAILED);
    (void)close(fd);
    register_all(group, client);
}

void device_group_rejoin(struct device_group *group, uint32_t rank)
{
    struct client *client = &group->clients[rank];
    ok(client, ask_rejoin(client, "dp", rank, group->num_ranks));
}

void device_group_open(
    struct device_group *group, uint32_t num_ranks, uint32_t num_devices, uint32_t flavour)
{
    device_group_open_shared(group, num_ranks, num_devices, flavour, 0);
}

void device_group_open_shared(struct device_group *group, uint32_t num_ranks, uint32_t num_devices,
    uint32_t flavour, uint32_t slots)
{
    memset(group, 0, sizeof(*group));
    group->slots = slots;
    group->num_ranks = num_ranks;
    group->flavour = flavour;
    rooms_open_on(&group->rooms, num_devices);
    client_open(&group->operator_, &group->rooms, 99);
    ok(&group->operator_, ask_admin(&group->operator_));
    for (uint32_t r = 0; r < num_ranks; r++)
        device_group_enter(group, r, 100 + r);
}

static void unmap_arenas(struct device_group *group)
{
    for (uint32_t r = 0; r < group->num_ranks; r++)
        if (group->arenas[r])
            (void)munmap((void *)group->arenas[r], group->arena_size);
    memset(group->arenas, 0, sizeof(group->arenas));
}

void device_group_close(struct device_group *group)
{
    for (uint32_t r = 0; r < group->num_ranks; r++)
        client_close(&group->clients[r], false);
    for (uint32_t r = 0; r < group->num_ranks; r++)
        (void)munmap(group->shards[r], REGION);
    unmap_arenas(group);
    client_close(&group->operator_, false);
    rooms_close(&group->rooms);
}

uint64_t ask_sealing(struct client *client)
{
    return ask_seal(client, 0);
}

void device_group_seal(struct device_group *group)
{
    for (uint32_t r = 0; r < group->num_ranks; r++)
        group->ids[r] = ask_seal(&group->clients[r], group->slots);
    device_group_ok(group);
    unmap_arenas(group);
    for (uint32_t r = 0; r < group->num_ranks; r++) {
        const F8__SealReply *reply = client_await(&group->clients[r], group->ids[r])->seal;
        group->arena_size = reply->arena_size;
        ck_assert_uint_eq(reply->n_done, BACKEND_NUM_DONE);
        group->arenas[r] =
            mmap(NULL, group->arena_size, PROT_READ, MAP_SHARED, group->clients[r].arena, 0);
        ck_assert_ptr_ne(group->arenas[r], MAP_FAILED);
    }
}

void device_group_write(struct device_group *group, uint32_t rank, uint32_t weight, float value)
{
    uint64_t count = f8_proto_shard_rows(ROWS, group->num_ranks, rank) * COLS;
    for (uint64_t i = 0; i < count; i++)
        group->shards[rank][WEIGHT_AT(weight) / sizeof(float) + i] = value;
}

void device_group_write_all(struct device_group *group, uint32_t weight, float value)
{
    for (uint32_t r = 0; r < group->num_ranks; r++)
        device_group_write(group, r, weight, value * (float)(r + 1));
}

void device_group_all(struct device_group *group, device_group_ask *ask)
{
    for (uint32_t r = 0; r < group->num_ranks; r++)
        group->ids[r] = ask(&group->clients[r]);
}

void device_group_ok(struct device_group *group)
{
    for (uint32_t r = 0; r < group->num_ranks; r++)
        ok(&group->clients[r], group->ids[r]);
}

void device_group_refused(struct device_group *group, int status, const char *part)
{
    for (uint32_t r = 0; r < group->num_ranks; r++)
        client_refused(&group->clients[r], group->ids[r], status, part);
}

void device_group_unanswered(struct device_group *group)
{
    rooms_land(&group->rooms);
    (void)uv_run(&group->rooms.loop, UV_RUN_NOWAIT);
    rooms_land(&group->rooms);
    for (uint32_t r = 0; r < group->num_ranks; r++)
        ck_assert_ptr_null(client_reply(&group->clients[r], group->ids[r]));
}

uint64_t ask_gather_w0(struct client *client)
{
    return ask_gather(client, 0);
}

uint64_t ask_gather_w1(struct client *client)
{
    return ask_gather(client, 1);
}

void device_group_release(struct device_group *group, uint32_t weight)
{
    for (uint32_t r = 0; r < group->num_ranks; r++)
        send_release(&group->clients[r], weight);
}

void device_group_gather(struct device_group *group, uint32_t weight)
{
    device_group_all(group, weight == 0 ? ask_gather_w0 : ask_gather_w1);
    device_group_ok(group);
    device_group_release(group, weight);
}

static bool part_reads(const uint8_t *at, uint64_t count, float scale, float value)
{
    uint8_t wanted;
    struct f8k_counts counts = {0};
    f8k_ops()->cast(&(struct f8k_cast){.src = &value,
                        .dst = &wanted,
                        .count = 1,
                        .scale = scale,
                        .dtype = F8K_F32,
                        .format = F8K_E4M3FN},
        &counts);
    for (uint64_t i = 0; i < count; i++)
        if (at[i] != wanted)
            return false;
    return true;
}

bool device_group_reads(struct device_group *group, float scale, float value)
{
    uint64_t chunk = f8_proto_chunk_rows(ROWS, group->num_ranks) * COLS;
    uint64_t span = f8_proto_weight_span(ROWS, COLS, group->num_ranks, 1);
    bool all = true;
    for (uint32_t r = 0; r < group->num_ranks; r++) {
        const F8__GatherReply *reply = client_await(&group->clients[r], group->ids[r])->gather;
        ck_assert_ptr_nonnull(reply);
        const uint8_t *at = group->arenas[r] + reply->offset;
        all = all && memcmp(at + span, &scale, sizeof(scale)) == 0;
        for (uint32_t part = 0; part < group->num_ranks; part++)
            all = all && part_reads(at + part * chunk,
                             f8_proto_shard_rows(ROWS, group->num_ranks, part) * COLS, scale,
                             value * (float)(part + 1));
    }
    return all;
}

void device_group_expect(struct device_group *group, float scale, float value)
{
    ck_assert_msg(device_group_reads(group, scale, value),
        "it was not gathered as %g with the scale %g", (double)value, (double)scale);
}

float device_group_scale(float amax)
{
    uint32_t bits;
    memcpy(&bits, &amax, sizeof(bits));
    return f8k_scale(bits, F8K_F32, F8K_E4M3FN, F8K_SCALE_DIRECT, false);
}

static const F8__InspectReply *look(struct device_group *group, uint32_t view, const char *name)
{
    client_forget(&group->operator_);
    uint64_t id = ask_inspect(&group->operator_, view, "", name, 0);
    return client_await(&group->operator_, id)->inspect;
}

const F8__WeightInfo *device_group_weight(struct device_group *group, uint32_t weight)
{
    const F8__InspectReply *reply = look(group, F8__VIEW__AMAX, weight == 0 ? "w0" : "w1");
    ck_assert_uint_eq(reply->n_weights, 1);
    return reply->weights[0];
}

const F8__GroupInfo *device_group_info(struct device_group *group)
{
    const F8__InspectReply *reply = look(group, F8__VIEW__GROUPS, "");
    ck_assert_uint_eq(reply->n_groups, 1);
    return reply->groups[0];
}
