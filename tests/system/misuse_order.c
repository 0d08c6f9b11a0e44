/* SPDX-License-Identifier: Apache-2.0 */
/* Misuse: right calls in the wrong order. */
#include <check.h>

#include "system/misuse.h"

static void gather_before_seal(struct scene *scene)
{
    scene_note(scene, f8_gather(scene->ranks[0].group, EMBED, 0, scene->ranks[0].stream));
}

static void precompute_before_seal(struct scene *scene)
{
    f8_ticket ticket;
    scene_note(scene, f8_precompute(scene->ranks[0].group, 0, scene->ranks[0].stream, &ticket));
}

static void changed_before_seal(struct scene *scene)
{
    scene_note(scene, f8_changed(scene->ranks[0].group, 0, 1));
}

static void register_late(struct scene *scene)
{
    const struct f8_weight_desc weight = {.name = "late",
        .ndim = 1,
        .shape = {2},
        .dtype = F8_F32,
        .flavour = F8_RAW,
        .region = scene->ranks[0].region};
    const struct f8_bucket_desc bucket = {.name = "late", .first = RANK_WEIGHTS, .count = 1};
    scene_note(scene, f8_register(scene->ranks[0].group, &weight, 1, &bucket, 1));
}

static void register_after_rejoin(struct scene *scene)
{
    struct rank *rank = &scene->ranks[0];
    ck_assert_int_eq(rank_gather(rank, EMBED, 20), F8_EDEADLINE);
    ck_assert_int_eq(f8_group_rejoin(rank->group), F8_OK);
    register_late(scene);
}

static void seal_twice(struct scene *scene)
{
    scene_note(scene, rank_seal(&scene->ranks[1]));
}

static void post_gather_without_gather(struct scene *scene)
{
    scene_note(scene,
        f8_post_gather(scene->ranks[0].group, EMBED, F8_FOREVER, NULL, 0, scene->ranks[0].stream));
}

static void release_without_gather(struct scene *scene)
{
    scene_note(scene, f8_release(scene->ranks[0].group, LAYER_1, scene->ranks[0].stream));
}

static void release_before_wait(struct scene *scene)
{
    struct rank *rank = &scene->ranks[0];
    ck_assert_int_eq(f8_gather(rank->group, LAYER_1, 0, rank->stream), F8_OK);
    scene_note(scene, f8_release(rank->group, LAYER_1, rank->stream));
}

static void double_release(struct scene *scene)
{
    ck_assert_int_eq(f8_release(scene->ranks[0].group, EMBED, scene->ranks[0].stream), F8_OK);
    scene_note(scene, f8_release(scene->ranks[0].group, EMBED, scene->ranks[0].stream));
}

static void release_after_break(struct scene *scene)
{
    rank_close(&scene->ranks[1]);
    ck_assert_int_ne(rank_gather(&scene->ranks[0], LAYER_1, 0), F8_OK); /* it is broken */
    scene_note(scene, f8_release(scene->ranks[0].group, EMBED, scene->ranks[0].stream));
    scene_note(scene, f8_release(scene->ranks[0].group, LAYER_0, scene->ranks[0].stream));
}

static void late_for_a_broken_group(struct scene *scene)
{
    struct rank *rank = &scene->ranks[0];
    ck_assert_int_eq(f8_gather(rank->group, LAYER_1, 0, rank->stream), F8_OK);
    rank_close(&scene->ranks[1]);
    ck_assert_int_ne(
        f8_post_gather(rank->group, LAYER_1, F8_FOREVER, NULL, 0, rank->stream), F8_OK);
    scene_note(scene, rank_gather(rank, LAYER_2, 0));
}

/* Whether the client has heard of it or not. */
static void seal_of_a_broken_group(struct scene *scene)
{
    struct rank *rank = &scene->ranks[0];
    rank_close(&scene->ranks[1]);
    scene_note(scene, f8_seal(rank->group, NULL));
    ck_assert_int_eq(rank_gather(rank, LAYER_2, 0), F8_EBROKEN);
    scene_note(scene, f8_seal(rank->group, NULL));
}

static void seal_after_a_seal_that_failed(struct scene *scene)
{
    const struct f8_seal_options soon = {.slots = 2, .deadline_ms = 1};
    struct rank *rank = &scene->ranks[0];
    ck_assert_int_eq(f8_seal(rank->group, &soon), F8_EDEADLINE);
    scene_note(scene, f8_seal(rank->group, &soon));
}

static void rejoin_of_a_whole_group(struct scene *scene)
{
    scene_note(scene, f8_group_rejoin(scene->ranks[0].group));
}

static void same_group_again(struct scene *scene)
{
    struct f8_group *group;
    scene_note(scene, f8_group_join(scene->ranks[0].client, "dp", 0, 2, &group));
    scene_note(scene, f8_group_join(scene->ranks[1].client, "dp", 0, 3, &group));
}

static void gather_of_a_held_bucket(struct scene *scene)
{
    scene_note(scene, f8_gather(scene->ranks[0].group, EMBED, 0, scene->ranks[0].stream));
}

static void gather_past_the_slots(struct scene *scene)
{
    ck_assert_int_eq(f8_gather(scene->ranks[0].group, LAYER_1, 0, scene->ranks[0].stream), F8_OK);
    scene_note(scene, f8_gather(scene->ranks[0].group, LAYER_2, 0, scene->ranks[0].stream));
}

static void gather_twice(struct scene *scene)
{
    ck_assert_int_eq(f8_gather(scene->ranks[0].group, LAYER_1, 0, scene->ranks[0].stream), F8_OK);
    scene_note(scene, f8_gather(scene->ranks[0].group, LAYER_1, 0, scene->ranks[0].stream));
}

static void pre_gather_of_a_held_bucket(struct scene *scene)
{
    scene_note(scene, f8_pre_gather(scene->ranks[0].group, EMBED, scene->ranks[0].stream));
}

static void changed_while_open(struct scene *scene)
{
    struct rank *rank = &scene->ranks[0];
    ck_assert_int_eq(f8_gather(rank->group, LAYER_1, 0, rank->stream), F8_OK);
    scene_note(scene, f8_changed(rank->group, LAYER_1 * BUCKET_WEIGHTS, 1));
}

static void move_while_open(struct scene *scene)
{
    struct rank *rank = &scene->ranks[0];
    ck_assert_int_eq(f8_gather(rank->group, LAYER_1, 0, rank->stream), F8_OK);
    scene_note(scene, f8_weight_move(rank->group, LAYER_1 * BUCKET_WEIGHTS, rank->region, 0));
}

static void changed_while_precomputing(struct scene *scene)
{
    f8_ticket ticket;
    ck_assert_int_eq(
        f8_precompute(scene->ranks[0].group, 0, scene->ranks[0].stream, &ticket), F8_OK);
    scene_note(scene, f8_changed(scene->ranks[0].group, LAYER_0 * BUCKET_WEIGHTS, 1));
}

static void precompute_while_gathering(struct scene *scene)
{
    f8_ticket ticket;
    ck_assert_int_eq(f8_gather(scene->ranks[0].group, LAYER_1, 0, scene->ranks[0].stream), F8_OK);
    scene_note(scene, f8_precompute(scene->ranks[0].group, 0, scene->ranks[0].stream, &ticket));
}

static void no_such_bucket(struct scene *scene)
{
    scene_note(scene, f8_gather(scene->ranks[0].group, RANK_BUCKETS, 0, scene->ranks[0].stream));
}

static void no_such_weight(struct scene *scene)
{
    scene_note(scene, f8_changed(scene->ranks[0].group, RANK_WEIGHTS, 1));
    scene_note(scene, f8_changed(scene->ranks[0].group, 1, UINT32_MAX));
}

static void stale_view(struct scene *scene)
{
    struct rank *rank = &scene->ranks[0];
    ck_assert_int_eq(f8_view_check(rank->group, &rank->views[EMBED][0]), F8_OK);
    ck_assert_int_eq(f8_release(rank->group, EMBED, rank->stream), F8_OK);
    scene_note(scene, f8_view_check(rank->group, &rank->views[EMBED][0]));
}

static void ticket_twice(struct scene *scene)
{
    f8_ticket ticket, other;
    ck_assert_int_eq(
        f8_precompute(scene->ranks[0].group, 0, scene->ranks[0].stream, &ticket), F8_OK);
    ck_assert_int_eq(
        f8_precompute(scene->ranks[1].group, 0, scene->ranks[1].stream, &other), F8_OK);
    ck_assert_int_eq(
        f8_wait(scene->ranks[0].group, ticket, F8_FOREVER, scene->ranks[0].stream), F8_OK);
    scene_note(scene, f8_wait(scene->ranks[0].group, ticket, F8_FOREVER, scene->ranks[0].stream));
}

static void free_of_a_used_region(struct scene *scene)
{
    scene_note(scene, f8_region_free(scene->ranks[0].region));
}

static const struct misuse rows[] = {
    {"gather before seal", REGISTERED, gather_before_seal, F8_EORDER,
        "group dp is not sealed: call f8_seal first", {0}},
    {"precompute before seal", REGISTERED, precompute_before_seal, F8_EORDER,
        "group dp is not sealed", {0}},
    {"changed before seal", REGISTERED, changed_before_seal, F8_EORDER, "group dp is not sealed",
        {0}},
    {"register after seal", SEALED, register_late, F8_EORDER,
        "group dp is sealed: register before f8_seal", {0}},
    {"register after a re-join", SEALED, register_after_rejoin, F8_EORDER,
        "group dp was sealed: no weights can be added to what rank 0 registered", {0}},
    {"seal twice", SEALED, seal_twice, F8_EORDER, "group dp is sealed already", {0}},
    {"post-gather without gather", SEALED, post_gather_without_gather, F8_EORDER,
        "f8_post_gather of bucket embed without f8_gather", {0}},
    {"release without gather", SEALED, release_without_gather, F8_EORDER,
        "f8_release of bucket layers.1, which this rank does not hold: it was released already or "
        "never gathered",
        {0}},
    {"release before the wait", SEALED, release_before_wait, F8_EORDER,
        "f8_release of bucket layers.1, which this rank does not hold: call f8_post_gather first",
        {0}},
    {"double release", HOLDING, double_release, F8_EORDER,
        "f8_release of bucket embed, which this rank does not hold: it was released already", {0}},
    {"release after a break", HOLDING, release_after_break, F8_OK, "", {0}},
    {"gather in a broken group", SEALED, late_for_a_broken_group, F8_EBROKEN,
        "group dp is broken: rank 1 (pid @) left", {0}},
    {"seal of a broken group", SEALED, seal_of_a_broken_group, F8_EBROKEN,
        "group dp is broken: rank 1 (pid @) left; group dp is broken from collective 2 on; call "
        "f8_group_rejoin before f8_seal",
        {0}},
    {"seal after a seal that failed", REGISTERED, seal_after_a_seal_that_failed, F8_EBROKEN,
        "rank 1 (pid @) did not ask for it; call f8_group_rejoin before f8_seal", {0}},
    {"re-join of a group that is whole", SEALED, rejoin_of_a_whole_group, F8_EORDER,
        "group dp is not broken: it need not be rejoined", {0}},
    {"same group again in one client", JOINED, same_group_again, F8_EEXIST,
        "this client joined group dp already", {0}},
    {"gather while holding the own place", HOLDING, gather_of_a_held_bucket, F8_EBUSY,
        "bucket embed is held by this rank: call f8_release before it is gathered again", {0}},
    {"gather while using all slots", HOLDING, gather_past_the_slots, F8_EBUSY,
        "all 2 shared slots are in use by this rank (one by bucket layers.0): release one before "
        "bucket layers.2 is gathered",
        {0}},
    {"gather twice", SEALED, gather_twice, F8_EBUSY,
        "bucket layers.1 is being gathered already: call f8_post_gather first", {0}},
    {"pre-gather of a held bucket", HOLDING, pre_gather_of_a_held_bucket, F8_EBUSY,
        "bucket embed is held by this rank", {0}},
    {"changed while a gather is open", SEALED, changed_while_open, F8_EBUSY,
        "f8_changed of weight 4 while its bucket layers.1 is being gathered", {0}},
    {"moved while a gather is open", SEALED, move_while_open, F8_EBUSY,
        "f8_weight_move of weight 4 while its bucket layers.1 is being gathered", {0}},
    {"changed while a precompute is open", SEALED, changed_while_precomputing, F8_EBUSY,
        "f8_changed of weight 2 of bucket layers.0 while a precompute of group dp is open: call "
        "f8_wait "
        "first",
        {0}},
    {"precompute while a gather is open", SEALED, precompute_while_gathering, F8_EBUSY,
        "f8_precompute of group dp while bucket layers.1 of group dp is being gathered: call "
        "f8_post_gather first",
        {0}},
    {"bucket that is not there", SEALED, no_such_bucket, F8_EINVAL,
        "there is no bucket 4 in group dp, it has 4", {0}},
    {"weight that is not there", SEALED, no_such_weight, F8_EINVAL, "group dp has 8", {0}},
    {"view after its release", HOLDING, stale_view, F8_ESTALE,
        "the view of weight 0 (bucket embed) was released", {0}},
    {"ticket used twice", SEALED, ticket_twice, F8_ENOENT, "it was waited for", {0}},
    {"free of a region in use", REGISTERED, free_of_a_used_region, F8_EBUSY,
        "still has the shard of weight embed.weight in it: move it first", {0}},
};

const struct misuse_table misuse_order = MISUSE_TABLE("order", rows);
