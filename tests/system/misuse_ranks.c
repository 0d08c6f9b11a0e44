/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Misuse: ranks that do not do the same. Every rank must be told, and in the same words, which
 * name both.
 */
#include <check.h>

#include "system/misuse.h"

/* ---- lists that differ ---- */

/* Rank 1 registers these instead of what rank 0 did; both seal and are refused. */
static void seal_lists(struct scene *scene, const struct f8_weight_desc *weights,
    uint32_t num_weights, const struct f8_bucket_desc *buckets, uint32_t num_buckets)
{
    rank_register(&scene->ranks[0]);
    ck_assert_int_eq(
        f8_register(scene->ranks[1].group, weights, num_weights, buckets, num_buckets), F8_OK);
    ranks_all(scene->ranks, SCENE_RANKS, rank_seal);
    scene_note_ranks(scene);
}

static void seal_weights(struct scene *scene, const struct f8_weight_desc weights[RANK_WEIGHTS])
{
    struct f8_bucket_desc buckets[RANK_BUCKETS];
    rank_buckets(buckets);
    seal_lists(scene, weights, RANK_WEIGHTS, buckets, RANK_BUCKETS);
}

static void seal_buckets(
    struct scene *scene, const struct f8_bucket_desc *buckets, uint32_t num_buckets)
{
    struct f8_weight_desc weights[RANK_WEIGHTS];
    rank_weights(&scene->ranks[1], weights);
    seal_lists(scene, weights, RANK_WEIGHTS, buckets, num_buckets);
}

static void other_shape(struct scene *scene)
{
    struct f8_weight_desc weights[RANK_WEIGHTS];
    rank_weights(&scene->ranks[1], weights);
    weights[2].shape[1] = 7;
    seal_weights(scene, weights);
}

static void other_name(struct scene *scene)
{
    struct f8_weight_desc weights[RANK_WEIGHTS];
    rank_weights(&scene->ranks[1], weights);
    weights[2].name = "layers.0.proj";
    seal_weights(scene, weights);
}

static void other_dtype(struct scene *scene)
{
    struct f8_weight_desc weights[RANK_WEIGHTS];
    rank_weights(&scene->ranks[1], weights);
    weights[2].dtype = F8_BF16;
    seal_weights(scene, weights);
}

static void other_flavour(struct scene *scene)
{
    struct f8_weight_desc weights[RANK_WEIGHTS];
    rank_weights(&scene->ranks[1], weights);
    weights[2].flavour = F8_RAW;
    seal_weights(scene, weights);
}

static void other_format(struct scene *scene)
{
    struct f8_weight_desc weights[RANK_WEIGHTS];
    rank_weights(&scene->ranks[1], weights);
    weights[2].format = F8_E5M2;
    seal_weights(scene, weights);
}

static void other_power_of_two(struct scene *scene)
{
    struct f8_weight_desc weights[RANK_WEIGHTS];
    rank_weights(&scene->ranks[1], weights);
    weights[2].power_of_two = 1;
    seal_weights(scene, weights);
}

static void other_static_scale(struct scene *scene)
{
    struct f8_weight_desc weights[RANK_WEIGHTS];
    rank_weights(&scene->ranks[1], weights);
    weights[0].static_scale = 2.5F;
    seal_weights(scene, weights);
}

static void fewer_weights(struct scene *scene)
{
    struct f8_weight_desc weights[RANK_WEIGHTS];
    struct f8_bucket_desc buckets[RANK_BUCKETS];
    rank_weights(&scene->ranks[1], weights);
    rank_buckets(buckets);
    seal_lists(scene, weights, RANK_WEIGHTS - BUCKET_WEIGHTS, buckets, RANK_BUCKETS - 1);
}

static void other_order_of_buckets(struct scene *scene)
{
    struct f8_bucket_desc buckets[RANK_BUCKETS];
    rank_buckets(buckets);
    struct f8_bucket_desc layer = buckets[LAYER_0];
    buckets[LAYER_0] = buckets[LAYER_1];
    buckets[LAYER_1] = layer;
    seal_buckets(scene, buckets, RANK_BUCKETS);
}

static void other_cut_of_buckets(struct scene *scene)
{
    struct f8_bucket_desc buckets[RANK_BUCKETS];
    rank_buckets(buckets);
    buckets[EMBED].shared = 1;
    seal_buckets(scene, buckets, RANK_BUCKETS);
}

/* ---- options of the seal that differ ---- */

static int seal_with_its_slots(struct rank *rank)
{
    return f8_seal(rank->group, &(struct f8_seal_options){.slots = 1 + rank->number});
}

static void other_slots(struct scene *scene)
{
    ranks_all(scene->ranks, SCENE_RANKS, seal_with_its_slots);
    scene_note_ranks(scene);
}

static int seal_with_its_poison(struct rank *rank)
{
    return f8_seal(
        rank->group, &(struct f8_seal_options){.slots = RANK_SLOTS, .poison = rank->number == 1});
}

static void other_poison(struct scene *scene)
{
    ranks_all(scene->ranks, SCENE_RANKS, seal_with_its_poison);
    scene_note_ranks(scene);
}

static int seal_without_slots(struct rank *rank)
{
    return f8_seal(rank->group, NULL);
}

static void no_slots(struct scene *scene)
{
    ranks_all(scene->ranks, SCENE_RANKS, seal_without_slots);
    scene_note_ranks(scene);
}

/* ---- collectives that differ ---- */

/* Rank 0 asks first, so that the words are always the same. */
static void other_bucket(struct scene *scene)
{
    struct rank *ranks = scene->ranks;
    ck_assert_int_eq(f8_gather(ranks[0].group, LAYER_0, 0, NULL), F8_OK);
    rank_settle(&ranks[0]);
    scene_note(scene, rank_gather(&ranks[1], LAYER_1, 0));
    scene_note(scene, f8_post_gather(ranks[0].group, LAYER_0, F8_FOREVER, NULL, 0, NULL));
}

static void gather_against_precompute(struct scene *scene)
{
    f8_ticket ticket;
    struct rank *ranks = scene->ranks;
    ck_assert_int_eq(f8_precompute(ranks[0].group, 0, NULL, &ticket), F8_OK);
    rank_settle(&ranks[0]);
    scene_note(scene, rank_gather(&ranks[1], EMBED, 0));
    scene_note(scene, f8_wait(ranks[0].group, ticket, F8_FOREVER, NULL));
}

/* What is queued behind the mismatch fails with it. */
static void queued_behind_a_mismatch(struct scene *scene)
{
    struct rank *ranks = scene->ranks;
    ck_assert_int_eq(f8_gather(ranks[0].group, EMBED, 0, NULL), F8_OK);
    ck_assert_int_eq(f8_gather(ranks[0].group, LAYER_0, 0, NULL), F8_OK);
    ck_assert_int_eq(f8_gather(ranks[0].group, LAYER_1, 0, NULL), F8_OK);
    rank_settle(&ranks[0]);
    scene_note(scene, rank_gather(&ranks[1], LAYER_0, 0));
    for (uint32_t b = EMBED; b <= LAYER_1; b++)
        scene_note(scene, f8_post_gather(ranks[0].group, b, F8_FOREVER, NULL, 0, NULL));
}

static int gather_layer(struct rank *rank)
{
    return rank_gather(rank, LAYER_0, 0);
}

static void other_version(struct scene *scene)
{
    struct rank *ranks = scene->ranks;
    ck_assert_int_eq(f8_changed(ranks[0].group, 2, 2), F8_OK);
    ck_assert_int_eq(f8_changed(ranks[1].group, 2, 2), F8_OK);
    ck_assert_int_eq(f8_changed(ranks[1].group, 3, 1), F8_OK);
    ranks_all(ranks, SCENE_RANKS, gather_layer);
    scene_note_ranks(scene);
}

/* ---- deadlines ---- */

static void missing_rank(struct scene *scene)
{
    scene_note(scene, rank_gather(&scene->ranks[0], LAYER_0, 50));
}

/* The rank that was late reads the same, under a status of its own. */
static void late_rank(struct scene *scene)
{
    ck_assert_int_eq(rank_gather(&scene->ranks[0], LAYER_0, 50), F8_EDEADLINE);
    scene_note(scene, rank_gather(&scene->ranks[1], LAYER_0, 0));
}

static void missing_at_the_seal(struct scene *scene)
{
    const struct f8_seal_options options = {.slots = RANK_SLOTS, .deadline_ms = 50};
    scene_note(scene, f8_seal(scene->ranks[0].group, &options));
}

static void nobody_at_the_seal(struct scene *scene)
{
    rank_join(&scene->ranks[0], 0, SCENE_RANKS);
    rank_register(&scene->ranks[0]);
    missing_at_the_seal(scene);
}

/* After a break one rank re-joins, the other does not: it is there, but not in the generation. */
static void missing_after_a_break(struct scene *scene)
{
    ck_assert_int_eq(rank_gather(&scene->ranks[0], LAYER_0, 50), F8_EDEADLINE);
    ck_assert_int_eq(f8_group_rejoin(scene->ranks[0].group), F8_OK);
    missing_at_the_seal(scene);
}

/* Each rank holds what the other has released: nobody uses all slots, and yet none is free. */
static void held_places(struct scene *scene)
{
    struct rank *ranks = scene->ranks;
    for (uint32_t r = 0; r < SCENE_RANKS; r++)
        ck_assert_int_eq(f8_gather(ranks[r].group, LAYER_1, 0, NULL), F8_OK);
    for (uint32_t r = 0; r < SCENE_RANKS; r++)
        ck_assert_int_eq(f8_post_gather(ranks[r].group, LAYER_1, F8_FOREVER, NULL, 0, NULL), F8_OK);
    ck_assert_int_eq(f8_release(ranks[0].group, LAYER_0, NULL), F8_OK);
    ck_assert_int_eq(f8_release(ranks[1].group, LAYER_1, NULL), F8_OK);
    ck_assert_int_eq(f8_gather(ranks[0].group, LAYER_2, 0, NULL), F8_OK);
    rank_settle(&ranks[0]);
    scene_note(scene, rank_gather(&ranks[1], LAYER_2, 50)); /* now all have asked */
    scene_note(scene, f8_post_gather(ranks[0].group, LAYER_2, F8_FOREVER, NULL, 0, NULL));
}

static void held_own_place(struct scene *scene)
{
    struct rank *ranks = scene->ranks;
    ck_assert_int_eq(f8_release(ranks[0].group, EMBED, NULL), F8_OK);
    scene_note(scene, rank_gather(&ranks[0], EMBED, 50));
}

#define WEIGHT_AS "rank 1 (pid @) registered weight layers.0.weight as "
#define WEIGHT_IS " where rank 0 (pid @) registered float32 [13, 8] dynamic e4m3fn"

static const struct misuse rows[] = {
    {"shapes differ", JOINED, other_shape, F8_EMISMATCH,
        WEIGHT_AS "float32 [13, 7] dynamic e4m3fn" WEIGHT_IS, {0}},
    {"names differ", JOINED, other_name, F8_EMISMATCH,
        "rank 1 (pid @) registered layers.0.proj as weight 2 where rank 0 (pid @) registered "
        "layers.0.weight",
        {0}},
    {"dtypes differ", JOINED, other_dtype, F8_EMISMATCH,
        WEIGHT_AS "bfloat16 [13, 8] dynamic e4m3fn" WEIGHT_IS, {0}},
    {"flavours differ", JOINED, other_flavour, F8_EMISMATCH,
        WEIGHT_AS "float32 [13, 8] raw float32" WEIGHT_IS, {0}},
    {"formats differ", JOINED, other_format, F8_EMISMATCH,
        WEIGHT_AS "float32 [13, 8] dynamic e5m2" WEIGHT_IS, {0}},
    {"powers of two differ", JOINED, other_power_of_two, F8_EMISMATCH,
        WEIGHT_AS "float32 [13, 8] dynamic e4m3fn power-of-two" WEIGHT_IS, {0}},
    {"static scales differ", JOINED, other_static_scale, F8_EMISMATCH,
        "rank 1 (pid @) gave weight embed.weight the static scale 2.5 (0x40200000) where rank 0 "
        "(pid @) gave 2 (0x40000000)",
        {0}},
    {"numbers of weights differ", JOINED, fewer_weights, F8_EMISMATCH,
        "rank 1 (pid @) registered 6 weights where rank 0 (pid @) registered 8", {0}},
    {"orders of buckets differ", JOINED, other_order_of_buckets, F8_EMISMATCH,
        "rank 1 (pid @) registered layers.1 as bucket 1 where rank 0 (pid @) registered layers.0",
        {0}},
    {"buckets differ", JOINED, other_cut_of_buckets, F8_EMISMATCH,
        "rank 1 (pid @) registered bucket embed as 2 shared weights from 0 on where rank 0 (pid @) "
        "registered 2 from 0 on",
        {0}},
    {"slots differ", REGISTERED, other_slots, F8_EMISMATCH,
        "rank 1 (pid @) sealed with 2 slots where rank 0 (pid @) gave 1", {0}},
    {"poison differs", REGISTERED, other_poison, F8_EMISMATCH,
        "rank 1 (pid @) sealed with poison where rank 0 (pid @) sealed without", {0}},
    {"no slots for shared buckets", REGISTERED, no_slots, F8_EINVAL,
        "bucket layers.0 takes a shared slot, but f8_seal was given none: set slots", {0}},
    {"gathers differ", SEALED, other_bucket, F8_EMISMATCH,
        "rank 1 (pid @) asked for gather of layers.1 where rank 0 (pid @) asked for gather of "
        "layers.0, collective 2 of group dp",
        {0}},
    {"kinds differ", SEALED, gather_against_precompute, F8_EMISMATCH,
        "rank 1 (pid @) asked for gather of embed where rank 0 (pid @) asked for precompute, "
        "collective 2 of group dp",
        {0}},
    {"queued behind a mismatch", SEALED, queued_behind_a_mismatch, F8_EMISMATCH,
        "rank 1 (pid @) asked for gather of layers.0 where rank 0 (pid @) asked for gather of "
        "embed, collective 2 of group dp",
        {0}},
    {"versions differ", SEALED, other_version, F8_EMISMATCH,
        "weight layers.0.norm: rank 1 (pid @) is at version 2 where rank 0 (pid @) is at version "
        "1, gather of layers.0, collective 2 of group dp",
        {0}},
    {"rank missing in a gather", SEALED, missing_rank, F8_EDEADLINE,
        "the deadline of gather of layers.0, collective 2 of group dp, passed: rank 1 (pid @) did "
        "not ask for it",
        {0}},
    {"rank late for a gather", SEALED, late_rank, F8_EBROKEN,
        "the deadline of gather of layers.0, collective 2 of group dp, passed: rank 1 (pid @) did "
        "not ask for it",
        {0}},
    {"rank missing at the seal", REGISTERED, missing_at_the_seal, F8_EDEADLINE,
        "the deadline of the seal, collective 1 of group dp, passed: rank 1 (pid @) did not ask "
        "for it",
        {0}},
    {"nobody is the rank", CONNECTED, nobody_at_the_seal, F8_EDEADLINE,
        "the seal, collective 1 of group dp, passed: rank 1 (not there) did not ask for it", {0}},
    {"rank did not re-join", SEALED, missing_after_a_break, F8_EDEADLINE,
        "the seal, collective 3 of group dp, passed: rank 1 (pid @, not re-joined) did not ask for "
        "it",
        {0}},
    {"place never freed", HOLDING, held_places, F8_EDEADLINE,
        "the deadline of gather of layers.2, collective 5 of group dp, passed: no place became "
        "free, rank 1 (pid @) holds layers.0, rank 0 (pid @) holds layers.1",
        {0}},
    {"own place never freed", HOLDING, held_own_place, F8_EDEADLINE,
        "gather of embed, collective 4 of group dp, passed: rank 1 (pid @) still holding it did "
        "not ask for it",
        {0}},
};

const struct misuse_table misuse_ranks = MISUSE_TABLE("ranks", rows);
