/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is refused where groups share amaxes: seals in the wrong order or with lists that do not go
 * together, requests of the wrong group, gathers in opposite order; and requests that no library
 * sends, which must harm nothing.
 */
#include <check.h>
#include <string.h>

#include "protocol.h"
#include "tests/lib/mesh.h"
#include "tests/lib/suite.h"

static struct mesh mesh;
static uint64_t ids[MESH_RANKS];
static uint64_t shape[] = {5, 10};

static void close_mesh(void)
{
    mesh_close(&mesh);
}

static void refused_everywhere(uint32_t first, uint32_t end, int status, const char *text)
{
    for (uint32_t r = first; r < end; r++)
        client_refused(&mesh.clients[r], ids[r], status, text);
}

static void register_everywhere(void)
{
    for (uint32_t r = 0; r < MESH_RANKS; r++)
        mesh_register(&mesh, r, mesh.mesh[r].group);
}

/* ---- Requests of the wrong group ---- */

START_TEST(amax_group_has_no_weights_or_buckets_to_ask_for)
{
    mesh_start(&mesh, F8_PROTO_DYNAMIC);
    for (uint32_t r = 0; r < MESH_RANKS; r++) {
        struct client *client = mesh_all(&mesh, r);
        const char *text = "group mesh gathers nothing: it is the amax group of others";
        client_refused(client, ask_gather(client, 0), F8_EINVAL, text);
        client_refused(client, ask_pre_gather(client, 0), F8_EINVAL, text);
        client_refused(client, ask_changed(client, 0, 2), F8_EINVAL, text);
        client_refused(client, ask_move(client, 1, 1, 0), F8_EINVAL, text);
        send_release(client, 0);
        send_release(client, 7);
    }
    mesh_whole(&mesh, ask_precompute);
    mesh_gather(&mesh, 1);
}
END_TEST

START_TEST(scales_are_asked_of_the_amax_group)
{
    const char *text = "the weights of group dp0 have their amaxes taken over group mesh";
    mesh_start(&mesh, F8_PROTO_DELAYED);
    for (uint32_t r = 0; r < 2; r++) {
        struct client *client = mesh_dp(&mesh, r);
        client_refused(client, ask_precompute(client), F8_EINVAL, text);
        client_refused(client, ask_sync(client), F8_EINVAL, text);
        client_refused(client, ask_invalidate(client), F8_EINVAL, text);
    }
}
END_TEST

START_TEST(whole_group_waits_for_gathers)
{
    const char *text = "rank 0 has an open gather in group dp0, whose amaxes are taken over group "
                       "mesh: wait for it first";
    mesh_start(&mesh, F8_PROTO_DYNAMIC);
    mesh_ask_dp(&mesh, 0, 1, ask_gather_b0, ids);
    client_refused(&mesh.clients[0], ask_precompute(mesh_all(&mesh, 0)), F8_EBUSY, text);
    client_refused(&mesh.clients[0], ask_sync(mesh_all(&mesh, 0)), F8_EBUSY, text);
    client_refused(&mesh.clients[0], ask_invalidate(mesh_all(&mesh, 0)), F8_EBUSY, text);
    mesh_ask_dp(&mesh, 1, MESH_RANKS, ask_gather_b0, ids);
    mesh_ok(&mesh, 0, MESH_RANKS, ids);
}
END_TEST

/* A gather that is asked for after a precompute comes after it. */
START_TEST(gathers_wait_for_the_whole_group)
{
    uint64_t gathers[MESH_RANKS];
    mesh_start(&mesh, F8_PROTO_DYNAMIC);
    for (uint32_t r = 0; r < MESH_RANKS; r++)
        mesh_write(&mesh, r, 0, (float)(r + 1));
    for (uint32_t r = 0; r < 2; r++)
        ids[r] = ask_precompute(mesh_all(&mesh, r));
    mesh_ask_dp(&mesh, 0, 2, ask_gather_b0, gathers);
    mesh_await_waiting(&mesh, 1);
    ck_assert_ptr_null(client_reply(&mesh.clients[0], gathers[0]));
    for (uint32_t r = 2; r < MESH_RANKS; r++)
        ids[r] = ask_precompute(mesh_all(&mesh, r));
    mesh_ok(&mesh, 0, MESH_RANKS, ids);
    mesh_ok(&mesh, 0, 2, gathers); /* with the precomputed scale: no exchange with dp1 */
    ck_assert_uint_eq(mesh_weight(&mesh, "dp0", "w0")->scale, scale_bits(4));
}
END_TEST

/* ---- Seals ---- */

START_TEST(amax_group_is_sealed_last)
{
    mesh_open(&mesh, F8_PROTO_DYNAMIC);
    register_everywhere();
    mesh_ask_dp(&mesh, 0, 2, ask_seal_plain, ids);
    mesh_ok(&mesh, 0, 2, ids);
    client_refused(&mesh.clients[0], ask_gather_b0(mesh_dp(&mesh, 0)), F8_EORDER,
        "amax group mesh, which weights of group dp0 name, is not sealed yet");
    mesh_ask_all(&mesh, ask_seal_plain, ids); /* dp1 is not sealed yet: none of it is in the list */
    refused_everywhere(0, MESH_RANKS, F8_EMISMATCH,
        "amax group mesh: rank 0 (pid 100) has weight w0, which names it, and rank 2 (pid 102) has "
        "none such");
    client_refused(&mesh.clients[0], ask_gather_b0(mesh_dp(&mesh, 0)), F8_EBROKEN,
        "group mesh, which shares amaxes with group dp0, broke: amax group mesh: rank 0");
}
END_TEST

START_TEST(amax_group_without_sources_cannot_be_sealed)
{
    mesh_open(&mesh, F8_PROTO_DYNAMIC);
    register_everywhere();
    mesh_ask_all(&mesh, ask_seal_plain, ids);
    refused_everywhere(0, MESH_RANKS, F8_EORDER,
        "no bucket is registered: register weights and buckets before the seal, or seal the groups "
        "first whose weights name this one as their amax group");
}
END_TEST

START_TEST(ranks_of_a_source_name_the_same_amax_group)
{
    struct client *client;
    mesh_open(&mesh, F8_PROTO_DYNAMIC);
    for (uint32_t r = 0; r < 2; r++) {
        client = &mesh.clients[r];
        ck_assert_int_eq(client_status(client, ask_join(client, "pair", r, 2)), F8_OK);
        struct seat pair = seat_of(client);
        if (r == 0)
            mesh_register(&mesh, r, pair.group);
        else
            mesh_register(&mesh, r, mesh.mesh[r].group);
    }
    mesh_ask_dp(&mesh, 0, 2, ask_seal_plain, ids);
    refused_everywhere(0, 2, F8_EMISMATCH, "gave weight w0 the amax group");
}
END_TEST

/* A weight names a group that this client is not in, or two of a group name two others. */
START_TEST(names_are_checked_at_registration)
{
    mesh_open(&mesh, F8_PROTO_DYNAMIC);
    struct client *client = &mesh.clients[0];
    ck_assert_int_eq(client_status(client, ask_join(client, "other", 0, 1)), F8_OK);
    uint32_t other = client->group;
    F8__Weight weights[] = {make_weight("w0", F8_PROTO_DYNAMIC, shape, 2, 1, 0),
        make_weight("w1", F8_PROTO_DYNAMIC, shape, 2, 1, 4096)};
    weights[0].amax_group = 999;
    client = mesh_dp(&mesh, 0);
    client_refused(client, ask_register(client, weights, 2, NULL, 0, false), F8_ENOENT,
        "weight w0: this client has not joined its amax group 999");
    weights[0].amax_group = mesh.mesh[0].group;
    weights[1].amax_group = other;
    client_refused(client, ask_register(client, weights, 2, NULL, 0, false), F8_EINVAL,
        "weight w1 names amax group other, but another of group dp0 names mesh: it may be one");
    /* What is undone leaves no name behind, whatever was registered before. */
    weights[0].amax_group = 0;
    ck_assert_int_eq(
        client_status(client, ask_register(client, weights, 1, NULL, 0, false)), F8_OK);
    weights[0].name = (char *)"w2";
    weights[0].amax_group = mesh.mesh[0].group;
    client_refused(
        client, ask_register(client, weights, 2, NULL, 0, false), F8_EINVAL, "it may be one");
    ck_assert_int_eq(
        client_status(client, ask_register(client, weights + 1, 1, NULL, 0, false)), F8_OK);
}
END_TEST

/* An amax group takes its amaxes over no third one. */
START_TEST(chains_are_refused)
{
    mesh_open(&mesh, F8_PROTO_DYNAMIC);
    register_everywhere();
    F8__Weight weight = make_weight("v", F8_PROTO_DYNAMIC, shape, 2, 1, 0);
    F8__Bucket bucket = make_bucket("b", 0, 1, false);
    for (uint32_t r = 0; r < MESH_RANKS; r++) {
        struct client *client = mesh_all(&mesh, r);
        weight.amax_group = mesh.dp[r].group;
        ck_assert_int_eq(
            client_status(client, ask_register(client, &weight, 1, &bucket, 1, false)), F8_OK);
    }
    mesh_ask_dp(&mesh, 0, MESH_RANKS, ask_seal_plain, ids);
    mesh_ok(&mesh, 0, MESH_RANKS, ids);
    mesh_ask_all(&mesh, ask_seal_plain, ids);
    refused_everywhere(0, MESH_RANKS, F8_EINVAL,
        "group mesh is the amax group of others, but rank 0 (pid 100) registered weights in it");
}
END_TEST

static void register_as(uint32_t rank, const char *first, const char *second, uint32_t flavour)
{
    F8__Weight weights[] = {make_weight(first, F8_PROTO_DYNAMIC, shape, 2, 1, 0),
        make_weight(second, flavour, shape, 2, 1, 4096)};
    F8__Bucket buckets[] = {make_bucket("b0", 0, 1, false), make_bucket("b1", 1, 1, false)};
    struct client *client = mesh_dp(&mesh, rank);
    weights[0].amax_group = weights[1].amax_group = mesh.mesh[rank].group;
    ck_assert_int_eq(
        client_status(client, ask_register(client, weights, 2, buckets, 2, false)), F8_OK);
}

static const struct {
    const char *first, *second;
    uint32_t flavour;
    const char *text;
} other_lists[] = {
    {"w0", "v1", F8_PROTO_DYNAMIC,
        "amax group mesh: rank 2 (pid 102) has weight v1 (bucket b1) where rank 0 (pid 100) has w1 "
        "(bucket b1)"},
    {"w1", "w0", F8_PROTO_DYNAMIC, "has weight w1 (bucket b0) where rank 0 (pid 100) has w0"},
    {"w0", "w1", F8_PROTO_STATIC,
        "rank 0 (pid 100) has weight w1, which names it, and rank 2 (pid 102) has none such"},
};

START_TEST(lists_that_differ_are_named)
{
    mesh_open(&mesh, F8_PROTO_DYNAMIC);
    for (uint32_t r = 0; r < 2; r++)
        mesh_register(&mesh, r, mesh.mesh[r].group);
    for (uint32_t r = 2; r < MESH_RANKS; r++)
        register_as(r, other_lists[_i].first, other_lists[_i].second, other_lists[_i].flavour);
    mesh_ask_dp(&mesh, 0, MESH_RANKS, ask_seal_plain, ids);
    mesh_ok(&mesh, 0, MESH_RANKS, ids);
    mesh_ask_all(&mesh, ask_seal_plain, ids);
    refused_everywhere(0, MESH_RANKS, F8_EMISMATCH, other_lists[_i].text);
}
END_TEST

/* ---- Two stages a rank, as in interleaved pipelines: four sources of one amax group ---- */

static struct seat stages[MESH_RANKS];

static void open_stages(const char *bucket, const char *weight_name)
{
    mesh_open(&mesh, F8_PROTO_DYNAMIC);
    register_everywhere();
    for (uint32_t r = 0; r < MESH_RANKS; r++) {
        struct client *client = &mesh.clients[r];
        F8__Weight weight = make_weight(weight_name, F8_PROTO_DYNAMIC, shape, 2, 1, 8192);
        F8__Bucket of_weight = make_bucket(bucket, 0, 1, false);
        weight.amax_group = mesh.mesh[r].group;
        uint64_t id = ask_join(client, r < 2 ? "stage0" : "stage1", r % 2, 2);
        ck_assert_int_eq(client_status(client, id), F8_OK);
        stages[r] = seat_of(client);
        id = ask_register(client, &weight, 1, &of_weight, 1, false);
        ck_assert_int_eq(client_status(client, id), F8_OK);
    }
    mesh_ask_dp(&mesh, 0, MESH_RANKS, ask_seal_plain, ids);
    mesh_ok(&mesh, 0, MESH_RANKS, ids);
}

static void ask_stages(uint32_t first, uint32_t end, mesh_ask_fn *ask)
{
    for (uint32_t r = first; r < end; r++) {
        mesh.clients[r].group = stages[r].group;
        mesh.clients[r].generation = stages[r].generation;
        ids[r] = ask(&mesh.clients[r]);
    }
}

/* Sources that wait for different buckets do not cross if they do not share them. */
START_TEST(stages_run_side_by_side)
{
    uint64_t gathers[MESH_RANKS];
    open_stages("s0", "v");
    ask_stages(0, MESH_RANKS, ask_seal_plain);
    mesh_ok(&mesh, 0, MESH_RANKS, ids);
    mesh_whole(&mesh, ask_seal_plain);
    mesh_ask_dp(&mesh, 0, 2, ask_gather_b0, gathers);
    ask_stages(2, MESH_RANKS, ask_gather_b0);
    mesh_await_waiting(&mesh, 2);
    mesh_ask_dp(&mesh, 2, MESH_RANKS, ask_gather_b0, gathers);
    ask_stages(0, 2, ask_gather_b0);
    mesh_ok(&mesh, 0, MESH_RANKS, gathers);
    mesh_ok(&mesh, 0, MESH_RANKS, ids);
}
END_TEST

/* Two buckets of one name would be one in the amax group, whose exchange counts by bucket. */
START_TEST(names_are_unique_in_the_amax_group)
{
    open_stages(_i == 0 ? "b1" : "s0", _i == 0 ? "v" : "w1");
    ask_stages(0, MESH_RANKS, ask_seal_plain);
    mesh_ok(&mesh, 0, MESH_RANKS, ids);
    mesh_ask_all(&mesh, ask_seal_plain, ids);
    refused_everywhere(
        0, MESH_RANKS, _i == 0 ? F8_EINVAL : F8_EEXIST, _i == 0 ? "bucket b1" : "w1");
}
END_TEST

/* A source whose seal is under way is one already: the amax group does not go without it. */
START_TEST(seal_during_the_seal_of_a_source)
{
    uint64_t of_mesh[MESH_RANKS];
    const char *text =
        "group stage0, whose weights name amax group mesh, is not sealed: seal it first";
    open_stages("s0", "v");
    ask_stages(0, MESH_RANKS, ask_seal_plain);
    mesh_ask_all(&mesh, ask_seal_plain, of_mesh);
    for (uint32_t r = 0; r < MESH_RANKS; r++) {
        client_refused(&mesh.clients[r], of_mesh[r], F8_EORDER, text);
        client_refused(&mesh.clients[r], ask_gather_b0(mesh_dp(&mesh, r)), F8_EBROKEN, text);
    }
    rooms_settle(&mesh.rooms);
}
END_TEST

/* ---- Order of gathers ---- */

START_TEST(opposite_order_is_a_mismatch)
{
    const char *text = "group dp1 gathers b1 where group dp0 gathers b0, and both need amaxes over "
                       "group mesh";
    mesh_start(&mesh, F8_PROTO_DYNAMIC);
    mesh_ask_dp(&mesh, 0, 2, ask_gather_b0, ids);
    mesh_await_waiting(&mesh, 1);
    mesh_ask_dp(&mesh, 2, MESH_RANKS, ask_gather_b1, ids);
    refused_everywhere(0, MESH_RANKS, F8_EMISMATCH, text);
    mesh_rejoin(&mesh);
    mesh_gather(&mesh, 0);
    mesh_gather(&mesh, 1);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("session_mesh_misuse");
    TCase *tcase = tcase_create("session_mesh_misuse");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, NULL, close_mesh);
    tcase_add_test(tcase, amax_group_has_no_weights_or_buckets_to_ask_for);
    tcase_add_test(tcase, scales_are_asked_of_the_amax_group);
    tcase_add_test(tcase, whole_group_waits_for_gathers);
    tcase_add_test(tcase, gathers_wait_for_the_whole_group);
    tcase_add_test(tcase, amax_group_is_sealed_last);
    tcase_add_test(tcase, amax_group_without_sources_cannot_be_sealed);
    tcase_add_test(tcase, ranks_of_a_source_name_the_same_amax_group);
    tcase_add_test(tcase, names_are_checked_at_registration);
    tcase_add_test(tcase, chains_are_refused);
    tcase_add_loop_test(tcase, lists_that_differ_are_named, 0, 3);
    tcase_add_test(tcase, stages_run_side_by_side);
    tcase_add_loop_test(tcase, names_are_unique_in_the_amax_group, 0, 2);
    tcase_add_test(tcase, seal_during_the_seal_of_a_source);
    tcase_add_test(tcase, opposite_order_is_a_mismatch);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return run_cases(make_suite());
}
