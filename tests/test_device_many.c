/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A round on devices that is too large for one work: its scales, bytes and results are those of
 * all.
 */
#include <check.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "protocol.h"
#include "tests/lib/device_group.h"
#include "tests/lib/suite.h"

static struct device_group group;

#define MANY     2500
#define A_PACKET 50

/* Weights of one element each, of which rank 1 has no part: two batches of tasks in each phase. */
static void register_many(struct client *client, uint32_t flavour)
{
    uint64_t shape[] = {1};
    char names[A_PACKET][16];
    F8__Weight weights[A_PACKET];
    F8__Bucket bucket = make_bucket("all", 0, MANY, false);
    for (uint32_t first = 0; first < MANY; first += A_PACKET) {
        for (uint32_t i = 0; i < A_PACKET; i++) {
            (void)snprintf(names[i], sizeof(names[i]), "w%u", first + i);
            weights[i] = make_weight(names[i], flavour, shape, 1, 1, 4 * (first + i));
            weights[i].history_length = flavour == F8_PROTO_DELAYED;
        }
        uint64_t id = ask_register(client, weights, A_PACKET, NULL, 0, true);
        ck_assert_int_eq(client_status(client, id), F8_OK);
    }
    ck_assert_int_eq(
        client_status(client, ask_register(client, NULL, 0, &bucket, 1, false)), F8_OK);
}

static float many_value(uint32_t weight)
{
    return 1 + (float)(weight % 7);
}

static void check_many(uint32_t rank, uint64_t size)
{
    struct client *client = &group.clients[rank];
    const F8__GatherReply *reply = client_await(client, group.ids[rank])->gather;
    const uint8_t *arena = mmap(NULL, size, PROT_READ, MAP_SHARED, client->arena, 0);
    ck_assert_ptr_ne(arena, MAP_FAILED);
    const uint8_t *at = arena + reply->offset, *scales = at + (uint64_t)MANY * 4096;
    for (uint32_t w = 0; w < MANY; w++) {
        float wanted = device_group_scale(many_value(w)), scale;
        memcpy(&scale, scales + w * sizeof(scale), sizeof(scale));
        ck_assert_msg(memcmp(&scale, &wanted, sizeof(scale)) == 0, "scale of w%u", w);
        ck_assert_msg(at[(uint64_t)w * 4096] == 0x7e, "w%u", w); /* 448, as every amax becomes */
    }
    (void)munmap((void *)arena, size);
}

static void run_many(uint32_t flavour, uint64_t works)
{
    memset(&group, 0, sizeof(group));
    group.num_ranks = 2;
    rooms_open_on(&group.rooms, 2);
    for (uint32_t r = 0; r < 2; r++) {
        struct client *client = &group.clients[r];
        client_open(client, &group.rooms, 100 + r);
        int fd = client_enter(client, "train", "dp", r, 2, 16384);
        group.shards[r] = mmap(NULL, 16384, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        ck_assert_ptr_ne(group.shards[r], MAP_FAILED);
        (void)close(fd);
        for (uint32_t w = 0; w < MANY; w++)
            group.shards[r][w] = many_value(w);
        register_many(client, flavour);
    }
    device_group_all(&group, ask_sealing);
    device_group_ok(&group);
    uint64_t size = client_await(&group.clients[0], group.ids[0])->seal->arena_size;
    device_group_all(&group, ask_gather_w0);
    device_group_ok(&group);
    rooms_land(&group.rooms);
    ck_assert_uint_eq(device_backend_totals(group.rooms.cuda).works, works);
    check_many(0, size);
    check_many(1, size);
}

START_TEST(rounds_of_many_works)
{
    run_many(_i ? F8_PROTO_DELAYED : F8_PROTO_DYNAMIC, 4);
}
END_TEST

static void close_many(void)
{
    for (uint32_t r = 0; r < 2; r++) {
        client_close(&group.clients[r], r);
        (void)munmap(group.shards[r], 16384);
    }
    rooms_close(&group.rooms);
}

int main(void)
{
    TCase *tcase = tcase_create("device_many");
    tcase_add_checked_fixture(tcase, NULL, close_many);
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, rounds_of_many_works, 0, 2);
    return run_suite("device_many", tcase);
}
