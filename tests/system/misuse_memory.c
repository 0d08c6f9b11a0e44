/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Misuse: memory that the daemon cannot trust, and more of it than is allowed. What the library
 * refuses itself is tried a second time with raw packets, since other clients may not ask first.
 */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/device_memory.h"
#include "system/misuse.h"

#define KIB ((size_t)1 << 10)

/* ---- regions ---- */

static int unsealed_memfd(void)
{
    int fd = memfd_create("f8-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(ftruncate(fd, 4096), 0);
    return fd;
}

static int regular_file(const struct scene *scene)
{
    int fd = open(scene->daemon.log, O_RDWR | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    return fd;
}

static int pipe_end(void)
{
    int fds[2];
    ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
    (void)close(fds[1]);
    return fds[0];
}

static int write_only_memfd(void)
{
    char path[64];
    int memfd = raw_memfd(4096);
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", memfd);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    (void)close(memfd);
    ck_assert_int_ge(fd, 0);
    return fd;
}

/* Gives a descriptor to the library, and ends it. */
static void share(struct scene *scene, int fd)
{
    struct f8_region *region;
    scene_note(scene, f8_region_share(scene->ranks[0].client, fd, &region));
    (void)close(fd);
}

/* Puts descriptors on a RegionAdd, and ends them. */
static void add_raw(struct scene *scene, const int *fds, size_t num_fds)
{
    struct raw_client raw;
    F8__RegionAdd add = F8__REGION_ADD__INIT;
    F8__Request request = F8__REQUEST__INIT;
    request.body_case = F8__REQUEST__BODY_REGION_ADD;
    request.region_add = &add;
    raw_greet(&raw, &scene->daemon, "raw");
    scene->outcomes[scene->num_outcomes++] = raw_try(&raw, &request, fds, num_fds);
    raw_close(&raw);
    for (size_t i = 0; i < num_fds; i++)
        (void)close(fds[i]);
}

static void share_unsealed(struct scene *scene)
{
    share(scene, unsealed_memfd());
}

static void add_unsealed(struct scene *scene)
{
    const int fd = unsealed_memfd();
    add_raw(scene, &fd, 1);
}

static void share_pipe(struct scene *scene)
{
    share(scene, pipe_end());
}

static void add_pipe(struct scene *scene)
{
    const int fd = pipe_end();
    add_raw(scene, &fd, 1);
}

static void share_file(struct scene *scene)
{
    share(scene, regular_file(scene));
}

static void add_file(struct scene *scene)
{
    const int fd = regular_file(scene);
    add_raw(scene, &fd, 1);
}

static void share_empty(struct scene *scene)
{
    share(scene, raw_memfd(0));
}

static void add_empty(struct scene *scene)
{
    const int fd = raw_memfd(0);
    add_raw(scene, &fd, 1);
}

static void share_write_only(struct scene *scene)
{
    share(scene, write_only_memfd());
}

static void add_write_only(struct scene *scene)
{
    const int fd = write_only_memfd();
    add_raw(scene, &fd, 1);
}

static void add_hugetlb(struct scene *scene)
{
    const int fd = memfd_create("f8-test", MFD_CLOEXEC | MFD_HUGETLB | MFD_ALLOW_SEALING);
    if (fd < 0)
        scene->skipped = "the kernel has no hugetlb memfds";
    else
        add_raw(scene, &fd, 1);
}

static void share_nothing(struct scene *scene)
{
    share(scene, -1);
}

static void add_nothing(struct scene *scene)
{
    add_raw(scene, NULL, 0);
}

static void add_two(struct scene *scene)
{
    const int fds[] = {raw_memfd(4096), raw_memfd(4096)};
    add_raw(scene, fds, 2);
}

static void too_small(struct scene *scene)
{
    struct rank *rank = &scene->ranks[0];
    struct f8_weight_desc weights[RANK_WEIGHTS];
    struct f8_region *region;
    if (device_memory_used()) {
        void *shards;
        ck_assert_int_eq(
            device_memory_alloc(rank->device_memory, rank->client, 100, &region, &shards), F8_OK);
    } else {
        int fd = raw_memfd(100);
        ck_assert_int_eq(f8_region_share(rank->client, fd, &region), F8_OK);
        (void)close(fd);
    }
    rank_weights(rank, weights);
    weights[0].region = region;
    scene_note(scene, f8_register(rank->group, weights, 1, NULL, 0));
}

static void alloc_nothing(struct scene *scene)
{
    struct f8_region *region;
    void *memory;
    scene_note(scene, f8_region_alloc(scene->ranks[0].client, 0, &region, &memory));
}

/* ---- the quota of a uid, 1 MiB here ---- */

static struct f8_region *alloc(struct rank *rank, size_t size)
{
    struct f8_region *region;
    void *memory;
    int status = f8_region_alloc(rank->client, size, &region, &memory);
    ck_assert_msg(status == F8_OK, "%s", f8_error_text());
    return region;
}

static void full_at_a_region(struct scene *scene)
{
    struct f8_region *held = alloc(&scene->ranks[0], 768 * KIB), *region;
    void *memory;
    scene_note(scene, f8_region_alloc(scene->ranks[1].client, 512 * KIB, &region, &memory));
    /* What is given back is there for others at once. */
    ck_assert_int_eq(f8_region_free(held), F8_OK);
    (void)alloc(&scene->ranks[1], 512 * KIB);
}

/* A raw weight of which each of two ranks has 320 KiB. */
static void register_big(struct rank *rank, uint32_t number)
{
    ck_assert_int_eq(f8_group_join(rank->client, "dp", number, SCENE_RANKS, &rank->group), F8_OK);
    const struct f8_weight_desc weight = {.name = "big",
        .ndim = 1,
        .shape = {160 * KIB},
        .dtype = F8_F32,
        .flavour = F8_RAW,
        .region = alloc(rank, 320 * KIB)};
    const struct f8_bucket_desc bucket = {.name = "big", .first = 0, .count = 1};
    ck_assert_int_eq(f8_register(rank->group, &weight, 1, &bucket, 1), F8_OK);
}

static void full_at_the_seal(struct scene *scene)
{
    for (uint32_t r = 0; r < SCENE_RANKS; r++)
        register_big(&scene->ranks[r], r);
    ranks_all(scene->ranks, SCENE_RANKS, rank_seal);
    scene_note_ranks(scene);
}

#define ONE_MIB                                                                                    \
    {                                                                                              \
        "--memory-per-uid", "1M"                                                                   \
    }

static const struct misuse rows[] = {
    {"share: unsealed", CONNECTED, share_unsealed, F8_EREGION, "is not sealed against shrinking",
        {0}},
    {"add: unsealed", DAEMON_ONLY, add_unsealed, F8_EREGION,
        "the memory descriptor may still shrink (its seals are 0x0); seal it with F_SEAL_SHRINK",
        {0}},
    {"share: pipe", CONNECTED, share_pipe, F8_EREGION, "is not a memfd", {0}},
    {"add: pipe", DAEMON_ONLY, add_pipe, F8_EREGION,
        "the memory descriptor is a pipe, not shared memory; use a memfd", {0}},
    {"share: file", CONNECTED, share_file, F8_EREGION, "is not a", {0}},
    {"add: file", DAEMON_ONLY, add_file, F8_EREGION, "the memory descriptor ", {0}},
    {"share: empty", CONNECTED, share_empty, F8_EREGION,
        "is empty: give it its size with ftruncate", {0}},
    {"add: empty", DAEMON_ONLY, add_empty, F8_EREGION,
        "the memory descriptor is empty (0 bytes); give it its size with ftruncate", {0}},
    {"share: write-only", CONNECTED, share_write_only, F8_EREGION,
        "is open for writing only, it must be readable", {0}},
    {"add: write-only", DAEMON_ONLY, add_write_only, F8_EREGION,
        "the memory descriptor is opened O_WRONLY, so it cannot be read", {0}},
    {"add: hugetlb", DAEMON_ONLY, add_hugetlb, F8_EREGION,
        "the memory descriptor is on hugetlbfs, which a reader cannot trust", {0}},
    {"share: no descriptor", CONNECTED, share_nothing, F8_EREGION,
        "descriptor -1 cannot be a "
        "region",
        {0}},
    {"add: no descriptor", DAEMON_ONLY, add_nothing, F8_EREGION,
        "the region came with 0 descriptors, it takes exactly one", {0}},
    {"add: two descriptors", DAEMON_ONLY, add_two, F8_EREGION,
        "the region came with 2 descriptors, it takes exactly one", {0}},
    {"region too small", JOINED, too_small, F8_EREGION,
        "weight embed.weight: its shard of 224 bytes at offset 0 does not fit in region 2 of 100 "
        "bytes",
        {0}},
    {"region of no bytes", CONNECTED, alloc_nothing, F8_EINVAL,
        "a region of 0 bytes: give a size above 0", {0}},
    {"quota full at a region", CONNECTED, full_at_a_region, F8_ELIMIT,
        "holds 0.8 MiB of its 1.0 MiB (--memory-per-uid); job run holds regions of 0.8 MiB and "
        "arenas of 0.0 MiB",
        ONE_MIB},
    {"quota full at the seal", CONNECTED, full_at_the_seal, F8_ELIMIT,
        "holds 0.6 MiB of its 1.0 MiB (--memory-per-uid); job run holds regions of 0.6 MiB and "
        "arenas of 0.0 MiB",
        ONE_MIB},
};

const struct misuse_table misuse_memory = MISUSE_TABLE("memory", rows);
