/* SPDX-License-Identifier: Apache-2.0 */
/* Misuse: weights and buckets that cannot be, and ranks that cannot be. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "system/misuse.h"

/* Rank 0's lists, for a row to spoil. */
struct lists {
    struct f8_weight_desc weights[RANK_WEIGHTS];
    struct f8_bucket_desc buckets[RANK_BUCKETS];
};

static struct lists make_lists(const struct scene *scene)
{
    struct lists lists;
    rank_weights(&scene->ranks[0], lists.weights);
    rank_buckets(lists.buckets);
    return lists;
}

/* Registers the spoilt lists, and then good ones: of the first nothing stayed registered. */
static void try_lists(struct scene *scene, const struct lists *lists)
{
    scene_note(scene, f8_register(scene->ranks[0].group, lists->weights, RANK_WEIGHTS,
                          lists->buckets, RANK_BUCKETS));
    rank_register(&scene->ranks[0]);
}

static void duplicate_weight(struct scene *scene)
{
    struct lists lists = make_lists(scene);
    lists.weights[3].name = lists.weights[0].name;
    try_lists(scene, &lists);
}

static void duplicate_bucket(struct scene *scene)
{
    struct lists lists = make_lists(scene);
    lists.buckets[2].name = lists.buckets[1].name;
    try_lists(scene, &lists);
}

static void nameless_weight(struct scene *scene)
{
    struct lists lists = make_lists(scene);
    lists.weights[1].name = "";
    try_lists(scene, &lists);
    lists.weights[1].name = NULL;
    scene_note(scene, f8_register(scene->ranks[0].group, lists.weights, RANK_WEIGHTS, NULL, 0));
}

static void long_name(struct scene *scene)
{
    char name[300];
    struct lists lists = make_lists(scene);
    memset(name, 'w', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    lists.weights[1].name = name;
    try_lists(scene, &lists);
}

static void weight_in_two_buckets(struct scene *scene)
{
    struct lists lists = make_lists(scene);
    lists.buckets[1].first = 1;
    try_lists(scene, &lists);
}

static void weight_in_no_bucket(struct scene *scene)
{
    struct lists lists = make_lists(scene);
    for (uint32_t r = 0; r < SCENE_RANKS; r++) {
        rank_weights(&scene->ranks[r], lists.weights);
        ck_assert_int_eq(f8_register(scene->ranks[r].group, lists.weights, RANK_WEIGHTS,
                             lists.buckets, RANK_BUCKETS - 1),
            F8_OK);
    }
    ranks_all(scene->ranks, SCENE_RANKS, rank_seal);
    scene_note_ranks(scene);
}

static void no_bucket_at_all(struct scene *scene)
{
    ranks_all(scene->ranks, SCENE_RANKS, rank_seal);
    scene_note_ranks(scene);
}

static void bucket_out_of_range(struct scene *scene)
{
    struct lists lists = make_lists(scene);
    lists.buckets[3].count = 3;
    try_lists(scene, &lists);
}

static void bucket_that_overflows(struct scene *scene)
{
    struct lists lists = make_lists(scene);
    lists.buckets[3].count = UINT32_MAX;
    try_lists(scene, &lists);
}

static void empty_bucket(struct scene *scene)
{
    struct lists lists = make_lists(scene);
    lists.buckets[3].count = 0;
    try_lists(scene, &lists);
}

static void static_scales(struct scene *scene)
{
    const float scales[] = {0.0F, -0.0F, -1.5F, NAN, INFINITY, -INFINITY};
    struct lists lists = make_lists(scene);
    for (size_t i = 0; i < sizeof(scales) / sizeof(scales[0]); i++) {
        lists.weights[0].static_scale = scales[i];
        scene_note(scene, f8_register(scene->ranks[0].group, lists.weights, RANK_WEIGHTS,
                              lists.buckets, RANK_BUCKETS));
    }
}

static void too_many_dims(struct scene *scene)
{
    struct lists lists = make_lists(scene);
    lists.weights[0].ndim = F8_MAX_DIMS + 1;
    try_lists(scene, &lists);
}

static void no_dims(struct scene *scene)
{
    struct lists lists = make_lists(scene);
    lists.weights[0].ndim = 0;
    try_lists(scene, &lists);
}

static void overflowing_shape(struct scene *scene)
{
    const uint64_t sizes[][2] = {{UINT64_MAX, UINT64_MAX}, {(uint64_t)1 << 32, (uint64_t)1 << 32},
        {((uint64_t)1 << 48) + 1, 1}, {1, ((uint64_t)1 << 48) + 1}, {(uint64_t)1 << 63, 2}};
    struct lists lists = make_lists(scene);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        memcpy(lists.weights[0].shape, sizes[i], sizeof(sizes[i]));
        scene_note(scene, f8_register(scene->ranks[0].group, lists.weights, RANK_WEIGHTS,
                              lists.buckets, RANK_BUCKETS));
    }
}

static void raw_bf16_of_bf16(struct scene *scene)
{
    struct lists lists = make_lists(scene);
    lists.weights[1].dtype = F8_BF16;
    lists.weights[1].flavour = F8_RAW_BF16;
    try_lists(scene, &lists);
}

static void no_such_dtype(struct scene *scene)
{
    struct lists lists = make_lists(scene);
    lists.weights[0].dtype = (enum f8_dtype)9;
    try_lists(scene, &lists);
}

static void no_such_flavour(struct scene *scene)
{
    struct lists lists = make_lists(scene);
    lists.weights[0].flavour = (enum f8_flavour)6;
    try_lists(scene, &lists);
}

static void no_such_format(struct scene *scene)
{
    struct lists lists = make_lists(scene);
    lists.weights[2].format = (enum f8_format)0;
    try_lists(scene, &lists);
}

static void shard_past_the_region(struct scene *scene)
{
    struct lists lists = make_lists(scene);
    lists.weights[7].offset += sizeof(float);
    try_lists(scene, &lists);
}

static void shard_far_away(struct scene *scene)
{
    struct lists lists = make_lists(scene);
    lists.weights[7].offset = UINT64_MAX - 3;
    try_lists(scene, &lists);
}

static void misaligned_shard(struct scene *scene)
{
    struct lists lists = make_lists(scene);
    lists.weights[1].offset = 2;
    try_lists(scene, &lists);
}

static void shard_without_region(struct scene *scene)
{
    struct lists lists = make_lists(scene);
    lists.weights[1].region = NULL;
    try_lists(scene, &lists);
}

static void region_of_another_client(struct scene *scene)
{
    struct lists lists = make_lists(scene);
    lists.weights[1].region = scene->ranks[1].region;
    try_lists(scene, &lists);
}

static void move_past_the_region(struct scene *scene)
{
    struct rank *rank = &scene->ranks[0];
    scene_note(scene, f8_weight_move(rank->group, 1, rank->region, 1 << 20));
}

static void other_world_size(struct scene *scene)
{
    struct rank newcomer;
    rank_connect(&newcomer, scene->daemon.socket);
    scene_note(scene, f8_group_join(newcomer.client, "dp", 2, 3, &newcomer.group));
    rank_close(&newcomer);
}

static void rank_taken(struct scene *scene)
{
    struct rank newcomer;
    rank_connect(&newcomer, scene->daemon.socket);
    scene_note(scene, f8_group_join(newcomer.client, "dp", 1, SCENE_RANKS, &newcomer.group));
    rank_close(&newcomer);
}

static void rank_past_the_world(struct scene *scene)
{
    struct f8_group *group;
    scene_note(scene, f8_group_join(scene->ranks[0].client, "dp", 2, 2, &group));
    scene_note(scene, f8_group_join(scene->ranks[0].client, "dp", 0, 0, &group));
}

static const struct misuse rows[] = {
    {"two weights of one name", JOINED, duplicate_weight, F8_EEXIST,
        "weight embed.weight is registered twice by this rank", {0}},
    {"two buckets of one name", JOINED, duplicate_bucket, F8_EEXIST,
        "bucket layers.0 is registered twice by this rank", {0}},
    {"weight without a name", JOINED, nameless_weight, F8_EINVAL,
        "the weight's name is missing or empty", {0}},
    {"name too long", JOINED, long_name, F8_EINVAL, "is longer than 255 bytes", {0}},
    {"weight in two buckets", JOINED, weight_in_two_buckets, F8_EINVAL,
        "weight 1 is in bucket embed and in bucket layers.0", {0}},
    {"weight in no bucket", JOINED, weight_in_no_bucket, F8_EINVAL,
        "weight layers.2.weight is in no bucket", {0}},
    {"nothing registered", JOINED, no_bucket_at_all, F8_EORDER,
        "no bucket is registered: register weights and buckets before the seal", {0}},
    {"bucket out of range", JOINED, bucket_out_of_range, F8_EINVAL,
        "bucket layers.2 has weights 6 to 9 (not included), but 8 are registered", {0}},
    {"bucket that overflows", JOINED, bucket_that_overflows, F8_EINVAL,
        "bucket layers.2 has weights 6 to 4294967301 (not included), but 8", {0}},
    {"empty bucket", JOINED, empty_bucket, F8_EINVAL, "bucket layers.2 has", {0}},
    {"static scales that are none", JOINED, static_scales, F8_EINVAL,
        "which must be finite and above 0", {0}},
    {"too many dimensions", JOINED, too_many_dims, F8_EINVAL,
        "weight embed.weight has 9 dimensions; 1 to 8 are possible", {0}},
    {"no dimensions", JOINED, no_dims, F8_EINVAL, "weight embed.weight has 0 dimensions", {0}},
    {"shape that overflows", JOINED, overflowing_shape, F8_EINVAL,
        "weight embed.weight has more than 2^48 elements", {0}},
    {"raw-bf16 of bf16", JOINED, raw_bf16_of_bf16, F8_EINVAL,
        "weight embed.norm: flavour raw-bf16 takes float32 sources, not bfloat16", {0}},
    {"no such dtype", JOINED, no_such_dtype, F8_EINVAL, "weight embed.weight: there is no dtype 9",
        {0}},
    {"no such flavour", JOINED, no_such_flavour, F8_EINVAL,
        "weight embed.weight: there is no flavour 6", {0}},
    {"no such format", JOINED, no_such_format, F8_EINVAL,
        "weight layers.0.weight: there is no float8 format 0", {0}},
    {"shard that does not fit", JOINED, shard_past_the_region, F8_EREGION,
        "weight layers.2.norm: its shard of 28 bytes at offset 984 does not fit in region 1 of "
        "1008 bytes",
        {0}},
    {"offset that overflows", JOINED, shard_far_away, F8_EREGION,
        "weight layers.2.norm: its shard of 28 bytes at offset 18446744073709551612 does not fit",
        {0}},
    {"misaligned offset", JOINED, misaligned_shard, F8_EINVAL,
        "weight embed.norm: offset 2 is no multiple of the element size 4", {0}},
    {"shard without a region", JOINED, shard_without_region, F8_ENOENT,
        "weight embed.norm: this client has no region 0", {0}},
    {"region of another client", JOINED, region_of_another_client, F8_EREGION,
        "weight embed.norm lies in a region of another client", {0}},
    {"moved out of its region", SEALED, move_past_the_region, F8_EREGION,
        "weight embed.norm: its shard of 28 bytes at offset 1048576 does not fit in region 1", {0}},
    {"other world size", JOINED, other_world_size, F8_EMISMATCH,
        "rank 2 gave world size 3 for group dp, which rank 0 (pid @) joined with 2", {0}},
    {"rank taken", JOINED, rank_taken, F8_EEXIST, "rank 1 of group dp is held by pid @", {0}},
    {"rank past the world size", CONNECTED, rank_past_the_world, F8_EINVAL,
        "ranks are 0 to world size - 1", {0}},
};

const struct misuse_table misuse_register = MISUSE_TABLE("register", rows);
