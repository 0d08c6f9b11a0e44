/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fixture of the client's tests, on the test's thread.
 */
#include "tests/lib/one_rank.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void assert_text(const char *part)
{
    ck_assert_msg(strstr(f8_error_text(), part), "\"%s\" lacks \"%s\"", f8_error_text(), part);
}

void assert_fails(int status, int expected, const char *part)
{
    ck_assert_msg(status == expected, "%s (%s) instead of %s", f8_status_name(status),
        f8_error_text(), f8_status_name(expected));
    assert_text(part);
}

static void must(int status)
{
    ck_assert_msg(status == F8_OK, "%s: %s", f8_status_name(status), f8_error_text());
}

static void join(struct one_rank *rank, uint32_t world_size, fake_script *script, int reconnect_ms)
{
    memset(rank, 0, sizeof(*rank));
    fake_start(&rank->daemon, script);
    const struct f8_connect_options options = {
        .socket = rank->daemon.socket, .job = "test", .reconnect_ms = reconnect_ms};
    must(f8_connect(&options, &rank->client));
    must(f8_group_join(rank->client, "dp", 0, world_size, &rank->group));
}

void one_rank_join(struct one_rank *rank, uint32_t world_size)
{
    join(rank, world_size, fake_serve, 0);
}

static void register_buckets(struct one_rank *rank)
{
    static const char *const names[] = {"embed", "layers.0.w", "layers.0.norm", "layers.1.w",
        "layers.1.norm", "layers.2.w", "layers.2.norm"};
    struct f8_weight_desc weights[7] = {{.name = names[0],
        .ndim = 2,
        .shape = {5, 3},
        .dtype = F8_BF16,
        .flavour = F8_DYNAMIC,
        .format = F8_E4M3FN}};
    for (int i = 1; i < 7; i += 2) {
        weights[i] = (struct f8_weight_desc){.name = names[i],
            .ndim = 2,
            .shape = {4, 2},
            .dtype = F8_F32,
            .flavour = F8_STATIC,
            .format = F8_E5M2,
            .static_scale = 2.0F};
        weights[i + 1] = (struct f8_weight_desc){
            .name = names[i + 1], .ndim = 1, .shape = {4}, .dtype = F8_F32, .flavour = F8_RAW};
    }
    const struct f8_bucket_desc buckets[] = {
        {"embed", 0, 1, 0}, {"layers.0", 1, 2, 1}, {"layers.1", 3, 2, 1}, {"layers.2", 5, 2, 1}};
    must(f8_register(rank->group, weights, 7, buckets, 4));
}

int one_rank_seal_again(struct one_rank *rank)
{
    const struct f8_seal_options options = {.slots = 2};
    return f8_seal(rank->group, &options);
}

static void seal(struct one_rank *rank)
{
    register_buckets(rank);
    int memfd = memfd_create("arena", MFD_CLOEXEC);
    ck_assert_int_eq(ftruncate(memfd, (off_t)ONE_RANK_ARENA), 0);
    rank->arena = mmap(NULL, ONE_RANK_ARENA, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
    ck_assert_ptr_ne(rank->arena, MAP_FAILED);
    rank->daemon.arena = memfd; /* read by the script at the Seal that follows */
    must(one_rank_seal_again(rank));
}

void one_rank_seal(struct one_rank *rank, uint32_t world_size)
{
    one_rank_join(rank, world_size);
    seal(rank);
}

void one_rank_seal_as(struct one_rank *rank, fake_script *script, int reconnect_ms)
{
    join(rank, 2, script, reconnect_ms);
    seal(rank);
}

void one_rank_hold(struct one_rank *rank, uint32_t bucket)
{
    must(f8_gather(rank->group, bucket, F8_DEFAULT_DEADLINE, NULL));
    must(f8_post_gather(rank->group, bucket, F8_FOREVER, NULL, 0, NULL));
}

void one_rank_stop(struct one_rank *rank)
{
    f8_close(rank->client);
    fake_stop(&rank->daemon);
    if (rank->arena)
        munmap(rank->arena, ONE_RANK_ARENA);
}
