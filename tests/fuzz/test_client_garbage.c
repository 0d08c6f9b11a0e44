/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The library against a daemon of which one reply is spoiled, the same way every time: whatever it
 * is told, it comes to an end, gives a status, and reads nothing but what is mapped. The waits are
 * bounded: a reply to another request than the one that is open is never answered twice.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/f8client.h"
#include "tests/kernel_support.h"
#include "tests/lib/fake_daemon.h"
#include "tests/lib/suite.h"

#ifndef GARBAGE_RUNS
#define GARBAGE_RUNS 600
#endif

#define ARENA     16384
#define REPLIES   12 /* of a run */
#define TIMEOUT_S 20

static uint64_t seed; /* of the script; set before it starts */

static size_t spoil(struct rng *rng, uint8_t *packet, size_t size)
{
    switch (rng_below(rng, 6)) {
    case 0: /* a bit */
        if (size > 0)
            packet[rng_below(rng, size)] ^= (uint8_t)(1 << rng_below(rng, 8));
        return size;
    case 1: /* a byte at the edge */
        if (size > 0)
            packet[rng_below(rng, size)] = rng_below(rng, 2) ? 0xff : 0x7f;
        return size;
    case 2: /* cut */
        return size > 0 ? rng_below(rng, size) : 0;
    case 3: /* all fields twice, the second time with a fault */
        memcpy(packet + size, packet, size);
        if (size > 0)
            packet[size + rng_below(rng, size)] ^= (uint8_t)rng_next(rng);
        return 2 * size;
    case 4: /* the body is that of another reply */
        if (size > 2)
            packet[2] = (uint8_t)(rng_below(rng, 16) << 3 | 2);
        return size;
    default: /* anything */
        size = rng_below(rng, 64);
        for (size_t i = 0; i < size; i++)
            packet[i] = (uint8_t)rng_next(rng);
        return size;
    }
}

/* A willing daemon but for one reply. */
static void script_spoiled(struct fake_daemon *daemon, int fd)
{
    static uint8_t packet[2 * F8_PROTO_MAX_PACKET];
    struct rng rng = {.state = seed};
    size_t spoiled = rng_below(&rng, REPLIES), number = 0;
    F8__Request *request;
    daemon->spoils = true;
    if (!fake_hello(fd))
        return;
    while ((request = fake_receive(fd, NULL))) {
        int memfd = -1;
        fake_note(daemon, request, -1);
        if (request->body_case != F8__REQUEST__BODY_RELEASE) {
            size_t size = fake_pack_answer(daemon, request, packet, &memfd);
            if (number++ == spoiled) {
                size = spoil(&rng, packet, size);
                memfd = rng_below(&rng, 4) == 0 ? daemon->go : memfd; /* no memory at all */
            }
            (void)fake_send_packet(fd, packet, size, memfd);
        }
        fake_free(request);
    }
}

/* Reads all that the views say may be read. */
static void read_views(const struct f8_view *views, uint32_t count)
{
    static volatile uint8_t sum;
    for (uint32_t v = 0; v < count; v++) {
        const uint8_t *data = views[v].data;
        for (uint64_t i = 0; i < views[v].size; i++)
            sum = (uint8_t)(sum + data[i]);
        if (views[v].scale)
            sum = (uint8_t)(sum + (*views[v].scale > 1.0F));
    }
}

static int register_weights(struct f8_client *client, struct f8_group *group)
{
    struct f8_region *region;
    void *address;
    int status = f8_region_alloc(client, 4096, &region, &address);
    if (status < 0)
        return status;
    const struct f8_weight_desc weights[] = {
        {.name = "a",
            .ndim = 2,
            .shape = {5, 3},
            .dtype = F8_BF16,
            .flavour = F8_DYNAMIC,
            .format = F8_E4M3FN,
            .region = region},
        {.name = "b",
            .ndim = 1,
            .shape = {700},
            .dtype = F8_F32,
            .flavour = F8_RAW,
            .region = region},
    };
    const struct f8_bucket_desc bucket = {"all", 0, 2, 0};
    return f8_register(group, weights, 2, &bucket, 1);
}

/* Gives the number of gathers that came through. */
static int use_bucket(struct f8_group *group)
{
    struct f8_view views[2] = {{0}};
    f8_ticket ticket;
    int gathered = 0;
    if (f8_precompute(group, 0, NULL, &ticket) == F8_OK)
        (void)f8_wait(group, ticket, TIMEOUT_S * 1000, NULL);
    for (int i = 0; i < 3; i++) {
        (void)f8_changed(group, 0, 2);
        if (f8_gather(group, 0, 0, NULL) != F8_OK)
            return gathered;
        if (f8_post_gather(group, 0, TIMEOUT_S * 1000, views, 2, NULL) == F8_OK) {
            read_views(views, 2);
            gathered++;
        }
        (void)f8_release(group, 0, NULL);
    }
    return gathered;
}

static int run_client(struct fake_daemon *daemon)
{
    const struct f8_connect_options options = {.socket = daemon->socket, .job = "test"};
    struct f8_client *client;
    struct f8_group *group;
    int gathered = 0;
    if (f8_connect(&options, &client) < 0)
        return 0;
    if (f8_group_join(client, "dp", 0, 1, &group) == F8_OK &&
        register_weights(client, group) == F8_OK && f8_seal(group, NULL) == F8_OK)
        gathered = use_bucket(group);
    f8_close(client);
    return gathered;
}

START_TEST(spoiled_replies_harm_nothing)
{
    int gathered = 0;
    for (uint64_t i = 0; i < GARBAGE_RUNS; i++) {
        struct fake_daemon daemon;
        seed = i << 20;
        int memfd = memfd_create("arena", MFD_CLOEXEC);
        ck_assert_int_eq(ftruncate(memfd, ARENA), 0);
        fake_start(&daemon, script_spoiled);
        daemon.arena = memfd;
        gathered += run_client(&daemon);
        fake_stop(&daemon);
    }
    /* The faults came early and late: some runs got nowhere, some to the end. */
    ck_assert_int_gt(gathered, GARBAGE_RUNS / 2);
    ck_assert_int_lt(gathered, 3 * GARBAGE_RUNS);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("client_garbage");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, spoiled_replies_harm_nothing);
    return run_suite("client_garbage", tcase);
}
