/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One use of a bucket and its misuse: which call is refused in which state and with which words,
 * views and their ends, re-joins, and what a step costs in messages.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/lib/one_rank.h"
#include "tests/lib/suite.h"

/* ---- a use of a bucket ---- */

START_TEST(views_say_where_weights_are)
{
    struct one_rank rank;
    struct f8_view v[2];
    one_rank_seal(&rank, 2);
    rank.daemon.offset = 8192;
    float *scales = (float *)(void *)(rank.arena + 8192 + 2 * 4096);
    scales[0] = 2.0F;
    rank.arena[8192 + 7] = 77;
    ck_assert_int_eq(f8_gather(rank.group, LAYER_0, 0, NULL), F8_OK);
    assert_fails(
        f8_post_gather(rank.group, LAYER_0, F8_FOREVER, v, 1, NULL), F8_EINVAL, "has 2 weights");
    assert_fails(
        f8_post_gather(rank.group, LAYER_0, F8_FOREVER, NULL, 1, NULL), F8_EINVAL, "NULL and 0");
    ck_assert_int_eq(f8_post_gather(rank.group, LAYER_0, F8_FOREVER, v, 2, NULL), F8_OK);
    ck_assert_int_eq(((const unsigned char *)v[0].data)[7], 77);
    ck_assert_uint_eq(v[0].size, 8);
    ck_assert_float_eq(*v[0].scale, 2.0F);
    ck_assert_int_eq(v[0].wire, F8_WIRE_E5M2);
    ck_assert_int_eq(v[0].dtype, F8_F32);
    ck_assert_uint_eq(v[0].ndim, 2);
    ck_assert_uint_eq(v[0].shape[0], 4);
    ck_assert_uint_eq(v[0].shape[1], 2);
    ck_assert_uint_eq(v[1].weight, 2);
    ck_assert_uint_eq(v[1].size, 16);
    ck_assert_int_eq(v[1].wire, F8_WIRE_F32);
    ck_assert_ptr_null(v[1].scale);
    ck_assert_ptr_eq(v[1].data, (const char *)v[0].data + 4096);
    ck_assert_uint_eq((uintptr_t)v[0].data % 4096, 0);
    one_rank_stop(&rank);
}
END_TEST

START_TEST(views_end)
{
    struct one_rank rank;
    struct f8_view old[2], new[2];
    one_rank_seal(&rank, 1);
    ck_assert_int_eq(f8_gather(rank.group, LAYER_0, 0, NULL), F8_OK);
    ck_assert_int_eq(f8_post_gather(rank.group, LAYER_0, F8_FOREVER, old, 2, NULL), F8_OK);
    ck_assert_int_eq(f8_view_check(rank.group, &old[1]), F8_OK);
    ck_assert_int_eq(f8_release(rank.group, LAYER_0, NULL), F8_OK);
    assert_fails(f8_view_check(rank.group, &old[1]), F8_ESTALE, "weight 2 (bucket layers.0)");
    ck_assert_int_eq(f8_gather(rank.group, LAYER_0, 0, NULL), F8_OK);
    ck_assert_int_eq(f8_post_gather(rank.group, LAYER_0, F8_FOREVER, new, 2, NULL), F8_OK);
    ck_assert_int_eq(f8_view_check(rank.group, &new[0]), F8_OK);
    assert_fails(f8_view_check(rank.group, &old[0]), F8_ESTALE, "earlier gather");
    assert_fails(f8_view_check(rank.group, NULL), F8_EINVAL, "not a view");
    one_rank_stop(&rank);
}
END_TEST

/* The arena is there to be read only, and is not in a forked child. */
START_TEST(arena_is_read_only)
{
    struct one_rank rank;
    struct f8_view view;
    one_rank_seal(&rank, 1);
    ck_assert_int_eq(f8_gather(rank.group, EMBED, 0, NULL), F8_OK);
    ck_assert_int_eq(f8_post_gather(rank.group, EMBED, F8_FOREVER, &view, 1, NULL), F8_OK);
    int pipes[2];
    ck_assert_int_eq(pipe(pipes), 0);
    ck_assert_int_eq(write(pipes[1], "x", 1), 1);
    ck_assert_int_lt(read(pipes[0], (void *)(uintptr_t)view.data, 1), 0);
    close(pipes[0]);
    close(pipes[1]);
    one_rank_stop(&rank);
}
END_TEST

START_TEST(a_step_costs_three_messages)
{
    struct one_rank rank;
    struct f8_traffic before, after;
    one_rank_seal(&rank, 2);
    ck_assert_int_eq(f8_traffic_read(rank.client, &before), F8_OK);
    for (int i = 0; i < 100; i++) {
        one_rank_hold(&rank, LAYER_0);
        ck_assert_int_eq(f8_release(rank.group, LAYER_0, NULL), F8_OK);
    }
    ck_assert_int_eq(f8_traffic_read(rank.client, &after), F8_OK);
    ck_assert_uint_eq(after.sent - before.sent, 200);
    ck_assert_uint_eq(after.received - before.received, 100);
    ck_assert_uint_eq(after.gathers - before.gathers, 100);
    one_rank_stop(&rank);
}
END_TEST

/* ---- misuse: the state of LAYER_0 or EMBED, the call, and what is said ---- */

START_TEST(misuse_of_an_idle_bucket)
{
    struct one_rank rank;
    int done;
    one_rank_seal(&rank, 2);
    assert_fails(f8_post_gather(rank.group, EMBED, 0, NULL, 0, NULL), F8_EORDER,
        "f8_post_gather of bucket embed without f8_gather");
    assert_fails(f8_gather_test(rank.group, EMBED, &done), F8_EORDER,
        "f8_gather_test of bucket embed without f8_gather");
    assert_fails(
        f8_release(rank.group, EMBED, NULL), F8_EORDER, "released already or never gathered");
    assert_fails(f8_gather(rank.group, 4, 0, NULL), F8_EINVAL, "no bucket 4 in group dp, it has 4");
    assert_fails(f8_gather(rank.group, EMBED, -1, NULL), F8_EINVAL, "deadline of -1 ms");
    assert_fails(f8_changed(rank.group, 5, 3), F8_EINVAL, "weights 5 to 8 (not included)");
    assert_fails(f8_weight_move(rank.group, 7, NULL, 0), F8_EINVAL, "group dp has 7");
    ck_assert_int_eq(f8_changed(rank.group, 7, 0), F8_OK);
    one_rank_stop(&rank);
}
END_TEST

START_TEST(misuse_of_a_requested_bucket)
{
    struct one_rank rank;
    f8_ticket ticket;
    one_rank_seal(&rank, 2);
    ck_assert_int_eq(f8_gather(rank.group, EMBED, 0, NULL), F8_OK);
    assert_fails(f8_gather(rank.group, EMBED, 0, NULL), F8_EBUSY, "bucket embed is being gathered");
    assert_fails(f8_pre_gather(rank.group, EMBED, NULL), F8_EBUSY, "call f8_post_gather first");
    assert_fails(f8_release(rank.group, EMBED, NULL), F8_EORDER, "call f8_post_gather first");
    assert_fails(f8_precompute(rank.group, 0, NULL, &ticket), F8_EBUSY, "while bucket embed");
    assert_fails(f8_changed(rank.group, 0, 7), F8_EBUSY, "weight 0 while its bucket embed");
    assert_fails(f8_weight_move(rank.group, 0, NULL, 0), F8_EBUSY, "f8_weight_move of weight 0");
    ck_assert_int_eq(f8_changed(rank.group, 1, 6), F8_OK);
    ck_assert_int_eq(rank.daemon.counts[F8__REQUEST__BODY_GATHER], 1);
    one_rank_stop(&rank);
}
END_TEST

START_TEST(misuse_of_a_held_bucket)
{
    struct one_rank rank;
    one_rank_seal(&rank, 2);
    one_rank_hold(&rank, EMBED);
    assert_fails(f8_gather(rank.group, EMBED, 0, NULL), F8_EBUSY,
        "bucket embed is held by this rank: call f8_release");
    assert_fails(f8_pre_gather(rank.group, EMBED, NULL), F8_EBUSY, "is held by this rank");
    assert_fails(f8_post_gather(rank.group, EMBED, 0, NULL, 0, NULL), F8_EORDER, "waited for");
    ck_assert_int_eq(f8_changed(rank.group, 0, 7), F8_OK);
    ck_assert_int_eq(f8_release(rank.group, EMBED, NULL), F8_OK);
    assert_fails(f8_release(rank.group, EMBED, NULL), F8_EORDER, "released already");
    ck_assert_int_eq(rank.daemon.counts[F8__REQUEST__BODY_GATHER], 1);
    one_rank_stop(&rank);
}
END_TEST

START_TEST(all_slots_in_use)
{
    struct one_rank rank;
    one_rank_seal(&rank, 2);
    one_rank_hold(&rank, LAYER_1);
    ck_assert_int_eq(f8_gather(rank.group, LAYER_0, 0, NULL), F8_OK);
    assert_fails(f8_gather(rank.group, LAYER_2, 0, NULL), F8_EBUSY,
        "all 2 shared slots are in use by this rank (one by bucket layers.0)");
    one_rank_hold(&rank, EMBED); /* its own place is no slot */
    ck_assert_int_eq(f8_release(rank.group, LAYER_1, NULL), F8_OK);
    ck_assert_int_eq(f8_gather(rank.group, LAYER_2, 0, NULL), F8_OK);
    one_rank_stop(&rank);
}
END_TEST

START_TEST(not_sealed)
{
    struct one_rank rank;
    f8_ticket ticket;
    one_rank_join(&rank, 2);
    assert_fails(f8_gather(rank.group, 0, 0, NULL), F8_EORDER, "group dp is not sealed");
    assert_fails(f8_precompute(rank.group, 0, NULL, &ticket), F8_EORDER, "call f8_seal first");
    one_rank_stop(&rank);
}
END_TEST

/* ---- pre-gather ---- */

START_TEST(pre_gather_precedes_gather)
{
    struct one_rank rank;
    one_rank_seal(&rank, 2);
    ck_assert_int_eq(f8_pre_gather(rank.group, EMBED, NULL), F8_OK);
    assert_fails(f8_pre_gather(rank.group, EMBED, NULL), F8_EBUSY, "call f8_gather first");
    assert_fails(f8_changed(rank.group, 0, 1), F8_EBUSY, "bucket embed");
    assert_fails(
        f8_post_gather(rank.group, EMBED, 0, NULL, 0, NULL), F8_EORDER, "without f8_gather");
    one_rank_hold(&rank, EMBED);
    ck_assert_int_eq(f8_release(rank.group, EMBED, NULL), F8_OK);
    ck_assert_int_eq(f8_changed(rank.group, 0, 1), F8_OK);
    one_rank_stop(&rank);
}
END_TEST

/* Its error comes with the gather, or at the latest with the post-gather; then all is as before. */
START_TEST(pre_gather_error_is_reported)
{
    struct one_rank rank;
    one_rank_seal(&rank, 2);
    rank.daemon.fail_status = F8_EBROKEN;
    rank.daemon.fail_body = F8__REQUEST__BODY_PRE_GATHER;
    ck_assert_int_eq(f8_pre_gather(rank.group, EMBED, NULL), F8_OK);
    if (_i == 0)
        ck_assert_int_eq(f8_quiesce(rank.group, F8_FOREVER), F8_OK); /* reads the reply */
    int status = f8_gather(rank.group, EMBED, 0, NULL);
    ck_assert_int_eq(status, _i == 0 ? F8_EBROKEN : F8_OK);
    if (_i == 1)
        status = f8_post_gather(rank.group, EMBED, F8_FOREVER, NULL, 0, NULL);
    assert_fails(status, F8_EBROKEN, "refused by the test");
    one_rank_hold(&rank, EMBED);
    one_rank_stop(&rank);
}
END_TEST

/* Seals that were never answered leave the group free to be registered and sealed by others. */
START_TEST(one_setup_at_a_time)
{
    struct one_rank rank;
    const struct f8_seal_options options = {.slots = 0};
    one_rank_seal(&rank, 2);
    assert_fails(f8_seal(rank.group, &options), F8_EORDER, "sealed already");
    assert_fails(f8_register(rank.group, NULL, 0, NULL, 0), F8_EORDER, "register before f8_seal");
    ck_assert_int_eq(f8_group_rejoin(rank.group), F8_OK);
    assert_fails(f8_seal(rank.group, &options), F8_EINVAL, "bucket layers.0 takes a shared slot");
    one_rank_stop(&rank);
}
END_TEST

/* ---- re-joining ---- */

START_TEST(rejoin_ends_views_and_requests)
{
    struct one_rank rank;
    struct f8_view view;
    f8_ticket ticket;
    const struct f8_seal_options options = {.slots = 2};
    one_rank_seal(&rank, 2);
    ck_assert_int_eq(f8_precompute(rank.group, 0, NULL, &ticket), F8_OK);
    ck_assert_int_eq(f8_gather(rank.group, EMBED, 0, NULL), F8_OK);
    ck_assert_int_eq(f8_post_gather(rank.group, EMBED, F8_FOREVER, &view, 1, NULL), F8_OK);
    ck_assert_int_eq(f8_gather(rank.group, LAYER_0, 0, NULL), F8_OK);
    ck_assert_int_eq(f8_pre_gather(rank.group, LAYER_1, NULL), F8_OK);
    ck_assert_int_eq(f8_group_rejoin(rank.group), F8_OK);
    assert_fails(f8_view_check(rank.group, &view), F8_ESTALE, "embed");
    assert_fails(f8_wait(rank.group, ticket, 0, NULL), F8_ENOENT, "re-joined");
    assert_fails(f8_gather(rank.group, EMBED, 0, NULL), F8_EORDER, "not sealed");
    rank.daemon.use = 0; /* the new arena counts anew: the old view must not come to life */
    ck_assert_int_eq(f8_seal(rank.group, &options), F8_OK);
    one_rank_hold(&rank, EMBED);
    assert_fails(f8_view_check(rank.group, &view), F8_ESTALE, "embed");
    one_rank_hold(&rank, LAYER_0);
    one_rank_hold(&rank, LAYER_1);
    one_rank_stop(&rank);
}
END_TEST

START_TEST(refused_rejoin_changes_nothing)
{
    struct one_rank rank;
    struct f8_view view;
    one_rank_seal(&rank, 2);
    ck_assert_int_eq(f8_gather(rank.group, EMBED, 0, NULL), F8_OK);
    ck_assert_int_eq(f8_post_gather(rank.group, EMBED, F8_FOREVER, &view, 1, NULL), F8_OK);
    rank.daemon.fail_status = F8_EORDER;
    rank.daemon.fail_body = F8__REQUEST__BODY_JOIN;
    assert_fails(f8_group_rejoin(rank.group), F8_EORDER, "refused by the test");
    ck_assert_int_eq(f8_view_check(rank.group, &view), F8_OK);
    ck_assert_int_eq(f8_release(rank.group, EMBED, NULL), F8_OK);
    one_rank_stop(&rank);
}
END_TEST

/* ---- a daemon that is gone ---- */

START_TEST(release_after_the_daemon_died)
{
    struct one_rank rank;
    one_rank_seal(&rank, 2);
    one_rank_hold(&rank, EMBED);
    ck_assert_int_eq(f8_gather(rank.group, LAYER_0, 0, NULL), F8_OK);
    ck_assert_int_eq(f8_post_gather(rank.group, LAYER_0, F8_FOREVER, NULL, 0, NULL), F8_OK);
    rank.daemon.fail_status = 1; /* a status that no daemon gives: the client hangs up */
    rank.daemon.fail_body = F8__REQUEST__BODY_GATHER;
    ck_assert_int_eq(f8_gather(rank.group, LAYER_1, 0, NULL), F8_OK);
    ck_assert_int_eq(f8_post_gather(rank.group, LAYER_1, F8_FOREVER, NULL, 0, NULL), F8_EPROTO);
    assert_fails(f8_changed(rank.group, 0, 1), F8_EPROTO, "pid 4711");
    ck_assert_int_eq(f8_release(rank.group, EMBED, NULL), F8_OK);
    ck_assert_int_eq(f8_release(rank.group, LAYER_0, NULL), F8_OK);
    assert_fails(f8_release(rank.group, LAYER_0, NULL), F8_EORDER, "released already");
    one_rank_stop(&rank);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("gather");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, views_say_where_weights_are);
    tcase_add_test(tcase, views_end);
    tcase_add_test(tcase, arena_is_read_only);
    tcase_add_test(tcase, a_step_costs_three_messages);
    tcase_add_test(tcase, misuse_of_an_idle_bucket);
    tcase_add_test(tcase, misuse_of_a_requested_bucket);
    tcase_add_test(tcase, misuse_of_a_held_bucket);
    tcase_add_test(tcase, all_slots_in_use);
    tcase_add_test(tcase, not_sealed);
    tcase_add_test(tcase, pre_gather_precedes_gather);
    tcase_add_test(tcase, one_setup_at_a_time);
    tcase_add_test(tcase, rejoin_ends_views_and_requests);
    tcase_add_test(tcase, refused_rejoin_changes_nothing);
    tcase_add_test(tcase, release_after_the_daemon_died);
    tcase_add_loop_test(tcase, pre_gather_error_is_reported, 0, 2);
    return run_suite("gather", tcase);
}
