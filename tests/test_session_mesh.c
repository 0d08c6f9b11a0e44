/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Amaxes over the ranks of several gather groups: what scales follow from them by precompute, in
 * gathers and at syncs, and what a break does to groups that share them. Shards hold one value
 * each, so amaxes are plain to see. On the host, and on devices.
 */
#include <check.h>
#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "protocol.h"
#include "tests/lib/mesh.h"
#include "tests/lib/suite.h"

static struct mesh mesh;

static void close_mesh(void)
{
    mesh_close(&mesh);
}

/* Every rank's part of w0 is its rank + 1, of w1 ten times that. */
static void write_all(float factor)
{
    for (uint32_t r = 0; r < MESH_RANKS; r++) {
        mesh_write(&mesh, r, 0, factor * (float)(r + 1));
        mesh_write(&mesh, r, 1, factor * 10 * (float)(r + 1));
    }
}

static void assert_scale(const char *group, const char *weight, uint32_t bits)
{
    const F8__WeightInfo *info = mesh_weight(&mesh, group, weight);
    ck_assert_msg(
        info->scale == bits, "%s of %s: scale %08x, not %08x", weight, group, info->scale, bits);
}

static void assert_scales(const char *weight, float amax)
{
    assert_scale("dp0", weight, scale_bits(amax));
    assert_scale("dp1", weight, scale_bits(amax));
}

START_TEST(precompute_goes_over_all_parts)
{
    mesh_start(&mesh, F8_PROTO_DYNAMIC);
    write_all(-1);
    mesh_whole(&mesh, ask_precompute);
    assert_scales("w0", 4);
    assert_scales("w1", 40);
    write_all(2); /* the precomputed scale is used, though it is too large by now */
    mesh_gather(&mesh, 0);
    assert_scales("w0", 4);
    ck_assert_uint_gt(mesh_weight(&mesh, "dp1", "w0")->saturated, 0);
    ck_assert_uint_eq(mesh_weight(&mesh, "dp0", "w0")->saturated, 0);
    mesh_whole(&mesh, ask_invalidate);
    mesh_gather(&mesh, 0);
    assert_scales("w0", 8);
}
END_TEST

START_TEST(gathers_exchange_their_amaxes)
{
    uint64_t ids[MESH_RANKS];
    mesh_start(&mesh, F8_PROTO_DYNAMIC);
    write_all(1);
    mesh_ask_dp(&mesh, 0, 2, ask_gather_b0, ids);
    mesh_await_waiting(&mesh, 1);
    ck_assert_ptr_null(client_reply(&mesh.clients[0], ids[0])); /* it waits for dp1 */
    mesh_ask_dp(&mesh, 2, 4, ask_gather_b0, ids);
    mesh_ok(&mesh, 0, MESH_RANKS, ids);
    assert_scales("w0", 4);
    for (uint32_t r = 0; r < MESH_RANKS; r++)
        send_release(mesh_dp(&mesh, r), 0);
    write_all(0.5f); /* nothing of the first exchange is left */
    mesh_gather(&mesh, 0);
    assert_scales("w0", 2);
}
END_TEST

START_TEST(syncs_go_over_all_parts)
{
    mesh_start(&mesh, F8_PROTO_DELAYED);
    write_all(1);
    mesh_gather(&mesh, 0);
    assert_scales("w0", 4);
    write_all(4);
    mesh_gather(&mesh, 0); /* the seed holds */
    assert_scales("w0", 4);
    ck_assert_uint_eq(mesh_weight(&mesh, "dp1", "w0")->since_sync, 2);
    mesh_whole(&mesh, ask_sync);
    assert_scales("w0", 16);
    for (int g = 0; g < 2; g++) {
        const F8__WeightInfo *info = mesh_weight(&mesh, g ? "dp1" : "dp0", "w0");
        ck_assert_uint_eq(info->n_history, 4);
        ck_assert_uint_eq(info->history[0], bits_of(16));
        ck_assert_uint_eq(info->history[1], bits_of(4));
        ck_assert_uint_eq(info->history[2], 0);
        ck_assert_uint_eq(info->amax, bits_of(16)); /* what the sync took, on all alike */
        ck_assert_uint_eq(info->syncs, 1);
        ck_assert_uint_eq(info->since_sync, 0);
    }
    /* w1 was never gathered: it has no seed, and the sync passed it over. */
    ck_assert_uint_eq(mesh_weight(&mesh, "dp0", "w1")->syncs, 0);
    ck_assert(!mesh_weight(&mesh, "dp0", "w1")->initialised);
}
END_TEST

/* A part that was not gathered since a sync counts with its own amax of before, no other part's. */
START_TEST(each_source_keeps_its_own_amax)
{
    uint64_t ids[MESH_RANKS];
    mesh_start(&mesh, F8_PROTO_DELAYED);
    write_all(1);
    mesh_gather(&mesh, 0);
    mesh_whole(&mesh, ask_sync);
    mesh_write(&mesh, 2, 0, 3);
    mesh_write(&mesh, 3, 0, 1);
    mesh_ask_dp(&mesh, 2, 4, ask_gather_b0, ids); /* dp1 alone */
    mesh_ok(&mesh, 2, 4, ids);
    mesh_whole(&mesh, ask_sync); /* dp0 still has 2, dp1 has 3; the 4 is history */
    ck_assert_uint_eq(mesh_weight(&mesh, "dp0", "w0")->history[0], bits_of(3));
    mesh_write(&mesh, 2, 0, 1);
    for (uint32_t r = 2; r < 4; r++)
        send_release(mesh_dp(&mesh, r), 0);
    mesh_ask_dp(&mesh, 2, 4, ask_gather_b0, ids);
    mesh_ok(&mesh, 2, 4, ids);
    mesh_whole(&mesh, ask_sync);
    ck_assert_uint_eq(mesh_weight(&mesh, "dp1", "w0")->history[0], bits_of(2));
}
END_TEST

/* An early cast with the scale of before a sync is not used after it; its amax is taken. */
START_TEST(early_casts_meet_a_sync)
{
    uint64_t ids[MESH_RANKS];
    mesh_start(&mesh, F8_PROTO_DELAYED);
    write_all(1);
    mesh_gather(&mesh, 0);
    write_all(8);
    mesh_gather(&mesh, 0);
    for (uint32_t r = 0; r < MESH_RANKS; r++)
        ids[r] = ask_pre_gather(mesh_dp(&mesh, r), 0);
    mesh_ok(&mesh, 0, MESH_RANKS, ids);
    rooms_settle(&mesh.rooms);
    uint64_t saturated = mesh_weight(&mesh, "dp1", "w0")->saturated;
    mesh_whole(&mesh, ask_sync);
    mesh_gather(&mesh, 0);
    assert_scales("w0", 32);
    ck_assert_uint_eq(mesh_weight(&mesh, "dp1", "w0")->saturated, saturated);
    mesh_whole(&mesh, ask_sync);
    ck_assert_uint_eq(mesh_weight(&mesh, "dp0", "w0")->history[0], bits_of(32));
    if (mesh.on_devices)
        return; /* there events tell when shards are final, and nothing is cast early */
    for (uint32_t r = 0; r < MESH_RANKS; r++) /* and now with the scale that holds */
        ids[r] = ask_pre_gather(mesh_dp(&mesh, r), 0);
    mesh_ok(&mesh, 0, MESH_RANKS, ids);
    rooms_settle(&mesh.rooms);
    write_all(1000); /* against the rules; but it shows whether the early casts are used */
    mesh_gather(&mesh, 0);
    mesh_whole(&mesh, ask_sync);
    ck_assert_uint_eq(mesh_weight(&mesh, "dp1", "w0")->history[0], bits_of(32));
}
END_TEST

START_TEST(amaxes_that_are_none_keep_the_scale)
{
    static const float values[] = {NAN, INFINITY, -INFINITY, 0, -0.0f};
    mesh_start(&mesh, F8_PROTO_DELAYED);
    write_all(1);
    mesh_gather(&mesh, 0);
    mesh_whole(&mesh, ask_sync);
    for (uint32_t i = 0; i < 5; i++) {
        write_all(0);
        mesh_write(&mesh, i % MESH_RANKS, 0, values[i]);
        mesh_gather(&mesh, 0);
        mesh_whole(&mesh, ask_sync);
        assert_scales("w0", 4);
        ck_assert_uint_eq(mesh_weight(&mesh, "dp0", "w0")->kept, i + 1);
        ck_assert_uint_eq(mesh_weight(&mesh, "dp1", "w0")->kept, i + 1);
    }
    write_all(0.5f);
    mesh_gather(&mesh, 0);
    mesh_whole(&mesh, ask_sync);
    assert_scales("w0", 2); /* Inf and NaN are in the window, and weigh nothing */
}
END_TEST

START_TEST(invalidate_seeds_anew)
{
    mesh_start(&mesh, F8_PROTO_DELAYED);
    write_all(8);
    mesh_gather(&mesh, 0);
    mesh_whole(&mesh, ask_sync);
    mesh_whole(&mesh, ask_invalidate);
    ck_assert(!mesh_weight(&mesh, "dp1", "w0")->initialised);
    ck_assert_uint_eq(mesh_weight(&mesh, "dp0", "w0")->history[0], 0);
    mesh_whole(&mesh, ask_sync); /* nothing to go by */
    ck_assert_uint_eq(mesh_weight(&mesh, "dp0", "w0")->history[0], 0);
    write_all(1);
    mesh_gather(&mesh, 0);
    assert_scales("w0", 4);
    ck_assert_uint_eq(mesh_weight(&mesh, "dp1", "w0")->history[0], bits_of(4));
    ck_assert_uint_eq(mesh_weight(&mesh, "dp1", "w0")->history[1], 0);
}
END_TEST

/* Delayed scales are never stale: they follow from the past by design. */
START_TEST(delayed_weights_are_not_stale)
{
    uint64_t ids[MESH_RANKS];
    mesh_start(&mesh, F8_PROTO_DELAYED);
    write_all(1);
    for (int step = 0; step < 3; step++) {
        for (uint32_t r = 0; r < MESH_RANKS; r++)
            ids[r] = ask_changed(mesh_dp(&mesh, r), 0, 2);
        mesh_ok(&mesh, 0, MESH_RANKS, ids);
        mesh_gather(&mesh, 0);
        mesh_whole(&mesh, ask_sync);
        mesh_gather(&mesh, 0);
    }
    ck_assert_uint_eq(mesh_weight(&mesh, "dp0", "w0")->stale, 0);
    ck_assert_uint_eq(mesh_weight(&mesh, "dp0", "w0")->version, 3);
}
END_TEST

/* A rank dies: all three groups break, every open request of the living is told of it. */
static void kill_rank_three(uint64_t *ids, const uint64_t *of_mesh)
{
    client_close(&mesh.clients[3], true);
    for (uint32_t r = 0; r < 3; r++) {
        if (ids)
            client_refused(&mesh.clients[r], ids[r], F8_ERANKDEAD, "rank");
        if (of_mesh)
            client_refused(&mesh.clients[r], of_mesh[r], F8_ERANKDEAD, "rank 3 (pid 103) died");
    }
    for (uint32_t r = 0; r < 3; r++)
        client_refused(
            &mesh.clients[r], ask_gather_b0(mesh_dp(&mesh, r)), F8_EBROKEN, "(pid 103) died");
}

static void come_back(void)
{
    struct client *client = &mesh.clients[3];
    client_open(client, &mesh.rooms, 104);
    int fd = client_enter(client, "train", "dp1", 1, 2, 65536);
    (void)munmap(mesh.shards[3], 65536);
    mesh.shards[3] = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(mesh.shards[3], MAP_FAILED);
    (void)close(fd);
    mesh.dp[3] = seat_of(client);
    ck_assert_int_eq(client_status(client, ask_join(client, "mesh", 3, 4)), F8_OK);
    mesh.mesh[3] = seat_of(client);
    mesh_register(&mesh, 3, mesh.mesh[3].group);
    for (uint32_t r = 0; r < 3; r++) {
        client = &mesh.clients[r];
        ck_assert_int_eq(
            client_status(client, ask_rejoin(client, r < 2 ? "dp0" : "dp1", r % 2, 2)), F8_OK);
        mesh.dp[r] = seat_of(client);
        ck_assert_int_eq(client_status(client, ask_rejoin(client, "mesh", r, 4)), F8_OK);
        mesh.mesh[r] = seat_of(client);
    }
    mesh_seal(&mesh);
    write_all(1);
    mesh_gather(&mesh, 0);
    mesh_gather(&mesh, 1);
    assert_scales("w1", 40);
}

START_TEST(death_at_rest_breaks_all)
{
    mesh_start(&mesh, F8_PROTO_DYNAMIC);
    kill_rank_three(NULL, NULL);
    come_back();
}
END_TEST

START_TEST(death_while_a_source_waits_in_the_exchange)
{
    uint64_t ids[MESH_RANKS];
    mesh_start(&mesh, F8_PROTO_DYNAMIC);
    mesh_ask_dp(&mesh, 0, 2, ask_gather_b0, ids);
    mesh_await_waiting(&mesh, 1);
    mesh_ask_dp(&mesh, 2, 3, ask_gather_b0, ids);
    kill_rank_three(ids, NULL);
    come_back();
}
END_TEST

/* The dead one had asked of several groups itself: nobody answers it any more. */
START_TEST(death_of_one_who_waits_in_several_groups)
{
    uint64_t ids[MESH_RANKS], quiesces[MESH_RANKS];
    mesh_start(&mesh, F8_PROTO_DYNAMIC);
    for (uint32_t r = 1; r < MESH_RANKS; r++)
        ids[r] = ask_precompute(mesh_all(&mesh, r));
    for (uint32_t r = 1; r < MESH_RANKS; r++)
        quiesces[r] = ask_quiesce(mesh_all(&mesh, r));
    mesh_ask_dp(&mesh, 3, 4, ask_gather_b0, ids);
    client_close(&mesh.clients[3], true);
    for (uint32_t r = 1; r < 3; r++) {
        client_refused(&mesh.clients[r], ids[r], F8_ERANKDEAD, "rank 3 (pid 103) died");
        ck_assert_int_eq(client_status(&mesh.clients[r], quiesces[r]), F8_OK);
    }
    come_back();
}
END_TEST

START_TEST(deadline_in_the_exchange_names_the_amax_group)
{
    uint64_t ids[MESH_RANKS];
    mesh_open(&mesh, F8_PROTO_DYNAMIC);
    mesh.rooms.config.deadline_ms = 30;
    for (uint32_t r = 0; r < MESH_RANKS; r++)
        mesh_register(&mesh, r, mesh.mesh[r].group);
    mesh.rooms.config.deadline_ms = 600000;
    mesh_seal(&mesh);
    mesh.rooms.config.deadline_ms = 30;
    mesh_ask_dp(&mesh, 0, 2, ask_gather_b0, ids);
    for (uint32_t r = 0; r < 2; r++)
        client_refused(&mesh.clients[r], ids[r], F8_EDEADLINE,
            "the deadline of gather of b0, collective 2 of group dp0, passed: it waited for the "
            "ranks of amax group mesh");
    client_refused(&mesh.clients[2], ask_gather_b0(mesh_dp(&mesh, 2)), F8_EBROKEN,
        "group mesh, which shares amaxes with group dp1, broke: group dp0, which shares amaxes "
        "with group mesh, broke: the deadline of gather of b0");
    mesh.rooms.config.deadline_ms = 600000;
    mesh_rejoin(&mesh);
    write_all(1);
    mesh_gather(&mesh, 0);
    assert_scales("w0", 4);
}
END_TEST

/* The end of a run: all leave when nothing is open, and that is no failure. */
START_TEST(leaving_at_rest_is_no_failure)
{
    mesh_start(&mesh, F8_PROTO_DYNAMIC);
    mesh_gather(&mesh, 0);
    for (uint32_t r = 0; r < MESH_RANKS; r++)
        client_close(&mesh.clients[r], false);
    ck_assert_uint_eq(mesh.rooms.context.collective.failed, 0);
}
END_TEST

static void use_host(void)
{
    mesh_use_devices(0, 0);
}

static void use_one_device(void)
{
    mesh_use_devices(1, 0);
}

static void use_two_devices(void)
{
    mesh_use_devices(2, 0);
}

static void use_devices_shuffled(void)
{
    mesh_use_devices(4, 7);
}

static void add_case(Suite *suite, const char *name, void (*set_up)(void))
{
    TCase *tcase = tcase_create(name);
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, set_up, close_mesh);
    tcase_add_test(tcase, precompute_goes_over_all_parts);
    tcase_add_test(tcase, gathers_exchange_their_amaxes);
    tcase_add_test(tcase, syncs_go_over_all_parts);
    tcase_add_test(tcase, each_source_keeps_its_own_amax);
    tcase_add_test(tcase, early_casts_meet_a_sync);
    tcase_add_test(tcase, amaxes_that_are_none_keep_the_scale);
    tcase_add_test(tcase, invalidate_seeds_anew);
    tcase_add_test(tcase, delayed_weights_are_not_stale);
    tcase_add_test(tcase, death_at_rest_breaks_all);
    tcase_add_test(tcase, death_while_a_source_waits_in_the_exchange);
    tcase_add_test(tcase, death_of_one_who_waits_in_several_groups);
    tcase_add_test(tcase, deadline_in_the_exchange_names_the_amax_group);
    tcase_add_test(tcase, leaving_at_rest_is_no_failure);
    suite_add_tcase(suite, tcase);
}

int main(void)
{
    Suite *suite = suite_create("session_mesh");
    add_case(suite, "on the host", use_host);
    add_case(suite, "on one device", use_one_device);
    add_case(suite, "on two devices", use_two_devices);
    add_case(suite, "on four devices, shuffled", use_devices_shuffled);
    return run_cases(suite);
}
