/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client in several groups, and weights whose amax is taken over another group than the one
 * that gathers them, as on a mesh of data and tensor parallel ranks.
 */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/lib/one_rank.h"
#include "tests/lib/suite.h"

/* The groups beside one_rank's dp (FAKE_GROUP), in the order of joining. */
#define MESH_ID  (FAKE_GROUP + 1)
#define STAGE_ID (FAKE_GROUP + 2)

static const struct f8_weight_desc dynamic = {.name = "w",
    .ndim = 1,
    .shape = {8},
    .dtype = F8_F32,
    .flavour = F8_DYNAMIC,
    .format = F8_E4M3FN};
static const struct f8_bucket_desc bucket = {.name = "layer", .first = 0, .count = 1};

/* A rank of a mesh: `stage` gathers, `mesh` takes the amaxes, and dp has nothing to do with it. */
struct mesh {
    struct one_rank rank;
    struct f8_group *mesh, *stage;
};

static void must(int status)
{
    ck_assert_msg(status == F8_OK, "%s: %s", f8_status_name(status), f8_error_text());
}

static void mesh_join(struct mesh *m)
{
    one_rank_seal(&m->rank, 2);
    must(f8_group_join(m->rank.client, "mesh", 1, 4, &m->mesh));
    must(f8_group_join(m->rank.client, "stage", 0, 2, &m->stage));
}

/* One bucket of two weights: a dynamic one over the mesh and one over the stage itself. */
static void mesh_seal(struct mesh *m)
{
    struct f8_weight_desc weights[2] = {dynamic, dynamic};
    const struct f8_bucket_desc both = {.name = "layer", .first = 0, .count = 2};
    mesh_join(m);
    weights[0].amax_group = m->mesh;
    weights[1].name = "own";
    must(f8_register(m->stage, weights, 2, &both, 1));
    must(f8_seal(m->stage, NULL));
    must(f8_seal(m->mesh, NULL));
}

static void await_count(struct mesh *m, int body, int count)
{
    while (m->rank.daemon.counts[body] < count)
        usleep(100);
}

/* ---- several groups ---- */

START_TEST(groups_are_apart)
{
    struct mesh m;
    mesh_seal(&m);
    one_rank_hold(&m.rank, EMBED);
    ck_assert_uint_eq(m.rank.daemon.group, FAKE_GROUP);
    must(f8_gather(m.stage, 0, 0, NULL));
    must(f8_post_gather(m.stage, 0, F8_FOREVER, NULL, 0, NULL));
    ck_assert_uint_eq(m.rank.daemon.group, STAGE_ID);
    must(f8_release(m.rank.group, EMBED, NULL));
    assert_fails(f8_release(m.rank.group, EMBED, NULL), F8_EORDER, "does not hold");
    must(f8_release(m.stage, 0, NULL));
    one_rank_stop(&m.rank);
}
END_TEST

START_TEST(same_name_twice)
{
    struct one_rank rank;
    struct f8_group *other = NULL;
    one_rank_join(&rank, 2);
    assert_fails(f8_group_join(rank.client, "dp", 1, 2, &other), F8_EEXIST,
        "this client joined group dp already");
    ck_assert_ptr_null(other);
    ck_assert_int_eq(rank.daemon.counts[F8__REQUEST__BODY_JOIN], 1);
    one_rank_stop(&rank);
}
END_TEST

/* The daemon's refusal, such as of one group too many, leaves the name free. */
START_TEST(refused_join_is_forgotten)
{
    struct one_rank rank;
    struct f8_group *other = NULL;
    one_rank_join(&rank, 2);
    rank.daemon.fail_status = F8_ELIMIT;
    rank.daemon.fail_body = F8__REQUEST__BODY_JOIN;
    assert_fails(f8_group_join(rank.client, "tp", 0, 2, &other), F8_ELIMIT, "refused by the test");
    ck_assert_ptr_null(other);
    rank.daemon.fail_body = 0;
    must(f8_group_join(rank.client, "tp", 0, 2, &other));
    one_rank_stop(&rank);
}
END_TEST

struct joiner {
    struct f8_client *client;
    const char *name;
    int status;
    struct f8_group *group;
};

static void *join_thread(void *argument)
{
    struct joiner *joiner = argument;
    joiner->status = f8_group_join(joiner->client, joiner->name, 0, 2, &joiner->group);
    return NULL;
}

/* A join that waits for the daemon holds up no join of another group. */
START_TEST(joins_side_by_side)
{
    struct one_rank rank;
    one_rank_join(&rank, 2);
    rank.daemon.withhold = F8__REQUEST__BODY_JOIN;
    struct joiner joiners[2] = {{rank.client, "a", 1, NULL}, {rank.client, "b", 1, NULL}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, join_thread, &joiners[i]);
    while (rank.daemon.counts[F8__REQUEST__BODY_JOIN] < 3)
        usleep(100);
    struct f8_group *again = NULL;
    assert_fails(f8_group_join(rank.client, "a", 1, 2, &again), F8_EEXIST, "another thread");
    fake_go(&rank.daemon);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        ck_assert_int_eq(joiners[i].status, F8_OK);
        ck_assert_ptr_nonnull(joiners[i].group);
    }
    ck_assert_ptr_ne(joiners[0].group, joiners[1].group);
    one_rank_stop(&rank);
}
END_TEST

/* ---- amax groups ---- */

START_TEST(amax_group_is_sent)
{
    struct mesh m;
    static const enum f8_flavour flavours[] = {
        F8_DYNAMIC, F8_DELAYED, F8_STATIC, F8_RAW, F8_RAW_BF16, F8_DYNAMIC, F8_DYNAMIC};
    static const uint32_t expected[] = {MESH_ID, MESH_ID, 0, 0, 0, 0, 0};
    static const char *const names[] = {"0", "1", "2", "3", "4", "5", "6"};
    struct f8_weight_desc weights[7];
    mesh_join(&m);
    for (int i = 0; i < 7; i++) {
        weights[i] = dynamic;
        weights[i].name = names[i];
        weights[i].flavour = flavours[i];
        weights[i].static_scale = 1;
        weights[i].amax_group = m.mesh;
    }
    weights[2].amax_group = m.rank.group; /* not used by the flavour */
    weights[5].amax_group = NULL;
    weights[6].amax_group = m.stage; /* its own */
    must(f8_register(m.stage, weights, 7, NULL, 0));
    ck_assert_uint_eq(m.rank.daemon.group, STAGE_ID);
    for (int i = 0; i < 7; i++)
        ck_assert_uint_eq(m.rank.daemon.amax_groups[i], expected[i]);
    one_rank_stop(&m.rank);
}
END_TEST

START_TEST(bad_amax_groups)
{
    struct mesh m;
    struct one_rank other;
    struct f8_weight_desc weights[2] = {dynamic, dynamic};
    mesh_join(&m);
    one_rank_join(&other, 2);
    int before = m.rank.daemon.counts[F8__REQUEST__BODY_REGISTER];
    weights[1].name = "v";
    weights[1].amax_group = other.group;
    assert_fails(f8_register(m.stage, weights, 2, NULL, 0), F8_EINVAL,
        "weight v names amax group dp of another client");
    weights[0].amax_group = m.mesh;
    weights[1].amax_group = m.rank.group;
    assert_fails(f8_register(m.stage, weights, 2, NULL, 0), F8_EINVAL,
        "weight v names amax group dp, but other weights of group stage name mesh");
    ck_assert_int_eq(m.rank.daemon.counts[F8__REQUEST__BODY_REGISTER], before);
    /* What was refused does not bind; what was registered does, over calls. */
    weights[0].amax_group = m.rank.group;
    must(f8_register(m.stage, weights, 1, NULL, 0));
    weights[1].amax_group = m.mesh;
    assert_fails(
        f8_register(m.stage, weights + 1, 1, NULL, 0), F8_EINVAL, "of group stage name dp");
    one_rank_stop(&other);
    one_rank_stop(&m.rank);
}
END_TEST

/* A group that only takes amaxes has no arena; one that gathers must get one. */
START_TEST(seal_without_an_arena)
{
    struct mesh m;
    mesh_join(&m);
    must(f8_seal(m.mesh, NULL));
    ck_assert_uint_eq(m.rank.daemon.group, MESH_ID);
    assert_fails(f8_gather(m.mesh, 0, 0, NULL), F8_EINVAL, "no bucket 0 in group mesh, it has 0");
    must(f8_register(m.stage, &dynamic, 1, &bucket, 1));
    int arena = m.rank.daemon.arena;
    m.rank.daemon.arena = -1;
    assert_fails(f8_seal(m.stage, NULL), F8_EPROTO, "sent no arena");
    m.rank.daemon.arena = arena;
    one_rank_stop(&m.rank);
}
END_TEST

/* Scaled flavours have a scale beside their data, whichever group it is from. */
START_TEST(views_of_scaled_weights)
{
    struct mesh m;
    struct f8_weight_desc weights[2] = {dynamic, dynamic};
    const struct f8_bucket_desc both = {.name = "layer", .first = 0, .count = 2};
    struct f8_view views[2];
    mesh_join(&m);
    weights[0].amax_group = m.mesh;
    weights[1].name = "delayed";
    weights[1].flavour = F8_DELAYED;
    must(f8_register(m.stage, weights, 2, &both, 1));
    must(f8_seal(m.stage, NULL));
    must(f8_gather(m.stage, 0, 0, NULL));
    must(f8_post_gather(m.stage, 0, F8_FOREVER, views, 2, NULL));
    ck_assert_ptr_nonnull(views[0].scale);
    ck_assert_ptr_eq(views[1].scale, views[0].scale + 1);
    one_rank_stop(&m.rank);
}
END_TEST

/* ---- the order of requests ---- */

typedef int start_call(struct f8_group *group, int64_t deadline_ms, f8_ticket *ret_ticket);

static int precompute(struct f8_group *group, int64_t deadline_ms, f8_ticket *ret_ticket)
{
    return f8_precompute(group, deadline_ms, NULL, ret_ticket);
}

static start_call *const calls[] = {precompute, f8_sync, f8_invalidate};
static const char *const call_names[] = {"f8_precompute", "f8_sync", "f8_invalidate"};

/* No collective of the amax group overtakes a gather of a group whose weights name it. */
START_TEST(amax_group_waits_for_gathers)
{
    struct mesh m;
    f8_ticket ticket;
    char text[128];
    mesh_seal(&m);
    snprintf(text, sizeof(text),
        "%s of group mesh while bucket layer of group stage is being gathered", call_names[_i]);
    must(f8_gather(m.rank.group, EMBED, 0, NULL)); /* dp does not name the mesh */
    must(calls[_i](m.mesh, 0, &ticket));
    must(f8_wait(m.mesh, ticket, F8_FOREVER, NULL));
    must(f8_pre_gather(m.stage, 0, NULL));
    assert_fails(calls[_i](m.mesh, 0, &ticket), F8_EBUSY, text);
    must(f8_gather(m.stage, 0, 0, NULL));
    assert_fails(calls[_i](m.mesh, 0, &ticket), F8_EBUSY, text);
    assert_fails(calls[_i](m.stage, 0, &ticket), F8_EBUSY, "of group stage while bucket layer");
    must(f8_post_gather(m.stage, 0, F8_FOREVER, NULL, 0, NULL));
    must(calls[_i](m.mesh, 0, &ticket)); /* held is not open */
    must(f8_wait(m.mesh, ticket, F8_FOREVER, NULL));
    ck_assert_uint_eq(m.rank.daemon.group, MESH_ID);
    one_rank_stop(&m.rank);
}
END_TEST

/* A shard is the daemon's while its own amax group is being precomputed, no other. */
START_TEST(shards_belong_to_their_amax_group)
{
    struct mesh m;
    f8_ticket ticket;
    mesh_seal(&m);
    m.rank.daemon.withhold = F8__REQUEST__BODY_PRECOMPUTE;
    must(f8_precompute(m.mesh, 0, NULL, &ticket));
    assert_fails(f8_changed(m.stage, 0, 2), F8_EBUSY,
        "f8_changed of weight 0 of bucket layer while a precompute of group mesh is open");
    assert_fails(f8_weight_move(m.stage, 0, NULL, 0), F8_EBUSY, "of group mesh is open");
    must(f8_changed(m.stage, 1, 1)); /* its amax is the stage's */
    must(f8_changed(m.rank.group, 0, 7));
    await_count(&m, F8__REQUEST__BODY_PRECOMPUTE, 1);
    fake_go(&m.rank.daemon);
    must(f8_wait(m.mesh, ticket, F8_FOREVER, NULL));
    must(f8_changed(m.stage, 0, 2));
    must(f8_precompute(m.stage, 0, NULL, &ticket));
    assert_fails(f8_changed(m.stage, 0, 2), F8_EBUSY, "weight 1 of bucket layer");
    must(f8_weight_move(m.stage, 0, NULL, 0));
    one_rank_stop(&m.rank);
}
END_TEST

/* A sync reads no shards. */
START_TEST(sync_leaves_shards_alone)
{
    struct mesh m;
    f8_ticket ticket;
    mesh_seal(&m);
    m.rank.daemon.withhold = F8__REQUEST__BODY_SYNC;
    must(f8_sync(m.mesh, 0, &ticket));
    must(f8_changed(m.stage, 0, 2));
    one_rank_stop(&m.rank);
}
END_TEST

/* Re-joining keeps what the weights name, and gives up the tickets. */
START_TEST(links_outlive_a_rejoin)
{
    struct mesh m;
    f8_ticket ticket;
    mesh_seal(&m);
    m.rank.daemon.withhold = F8__REQUEST__BODY_PRECOMPUTE;
    must(f8_precompute(m.mesh, 0, NULL, &ticket));
    must(f8_group_rejoin(m.mesh));
    must(f8_group_rejoin(m.stage));
    must(f8_changed(m.stage, 0, 2));
    must(f8_seal(m.stage, NULL));
    must(f8_seal(m.mesh, NULL));
    must(f8_gather(m.stage, 0, 0, NULL));
    assert_fails(f8_precompute(m.mesh, 0, NULL, &ticket), F8_EBUSY, "bucket layer of group stage");
    must(f8_post_gather(m.stage, 0, F8_FOREVER, NULL, 0, NULL));
    must(f8_precompute(m.mesh, 0, NULL, &ticket));
    assert_fails(f8_changed(m.stage, 0, 2), F8_EBUSY, "precompute of group mesh");
    one_rank_stop(&m.rank);
}
END_TEST

/* ---- threads ---- */

#define TURNS 200

struct worker {
    struct mesh *mesh;
    bool amaxes; /* precomputes on the mesh, or gathers of the stage */
};

static void *work(void *argument)
{
    const struct worker *worker = argument;
    struct mesh *m = worker->mesh;
    for (int i = 0; i < TURNS; i++) {
        f8_ticket ticket;
        int status = worker->amaxes ? f8_precompute(m->mesh, 0, NULL, &ticket)
                                    : f8_gather(m->stage, 0, 0, NULL);
        if (status == F8_OK && worker->amaxes)
            must(f8_wait(m->mesh, ticket, F8_FOREVER, NULL));
        if (status == F8_OK && !worker->amaxes) {
            must(f8_post_gather(m->stage, 0, F8_FOREVER, NULL, 0, NULL));
            must(f8_release(m->stage, 0, NULL));
        }
        ck_assert(status == F8_OK || (worker->amaxes && status == F8_EBUSY));
        if (!worker->amaxes && (status = f8_changed(m->stage, 0, 2)) != F8_OK)
            assert_fails(status, F8_EBUSY, "a precompute of group mesh is open");
    }
    return NULL;
}

/* Threads at work in linked groups meet each other's fences, and never block on them. */
START_TEST(linked_groups_on_two_threads)
{
    struct mesh m;
    pthread_t thread;
    mesh_seal(&m);
    struct worker here = {&m, false}, there = {&m, true};
    pthread_create(&thread, NULL, work, &there);
    work(&here);
    pthread_join(thread, NULL);
    ck_assert_int_eq(m.rank.daemon.counts[F8__REQUEST__BODY_GATHER], TURNS);
    one_rank_stop(&m.rank);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("client_groups");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, groups_are_apart);
    tcase_add_test(tcase, same_name_twice);
    tcase_add_test(tcase, refused_join_is_forgotten);
    tcase_add_test(tcase, joins_side_by_side);
    tcase_add_test(tcase, amax_group_is_sent);
    tcase_add_test(tcase, bad_amax_groups);
    tcase_add_test(tcase, seal_without_an_arena);
    tcase_add_test(tcase, views_of_scaled_weights);
    tcase_add_loop_test(tcase, amax_group_waits_for_gathers, 0, 3);
    tcase_add_test(tcase, shards_belong_to_their_amax_group);
    tcase_add_test(tcase, sync_leaves_shards_alone);
    tcase_add_test(tcase, links_outlive_a_rejoin);
    tcase_add_test(tcase, linked_groups_on_two_threads);
    return run_suite("client_groups", tcase);
}
