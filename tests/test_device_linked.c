/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups on devices that share amaxes: scales that only the amax group's tables know, the order
 * between the streams of both, and what landings of one do to the other. Four ranks, of which two
 * each gather; rank r is on device r modulo their number.
 */
#include <check.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "protocol.h"
#include "tests/lib/device_backend.h"
#include "tests/lib/mesh.h"
#include "tests/lib/suite.h"

static struct mesh mesh;
static uint64_t ids[MESH_RANKS], others[MESH_RANKS];

static void start(uint32_t num_devices, uint64_t seed, uint32_t flavour)
{
    mesh_use_devices(num_devices, seed);
    mesh_start(&mesh, flavour);
}

static void close_mesh(void)
{
    mesh_close(&mesh);
}

static void hold(enum device_stage stage, bool held)
{
    device_backend_hold(mesh.rooms.cuda, stage, held);
}

/* Rank r's part of w0 is factor times r + 1: the largest is 4 times the factor. */
static void write_all(float factor)
{
    for (uint32_t r = 0; r < MESH_RANKS; r++)
        mesh_write(&mesh, r, 0, factor * (float)(r + 1));
}

static void ask_all(mesh_ask_fn *ask, uint64_t *ret_ids)
{
    mesh_ask_all(&mesh, ask, ret_ids);
}

static void gather_all(void)
{
    mesh_ask_dp(&mesh, 0, MESH_RANKS, ask_gather_b0, ids);
    mesh_ok(&mesh, 0, MESH_RANKS, ids);
}

static void release_all(void)
{
    for (uint32_t r = 0; r < MESH_RANKS; r++)
        send_release(mesh_dp(&mesh, r), 0);
}

/* Each rank reads its group's first part, which is of rank 0 or 2, cast with the scale of the amax.
 */
static void expect(float factor, float amax)
{
    uint32_t wanted = scale_bits(amax), bits;
    for (uint32_t r = 0; r < MESH_RANKS; r++) {
        struct client *client = &mesh.clients[r];
        const F8__GatherReply *reply = client_await(client, ids[r])->gather;
        float value = factor * (float)(r / 2 * 2 + 1), scale;
        uint8_t byte;
        struct f8k_counts counts = {0};
        const uint8_t *arena = mmap(NULL, 4 * 4096, PROT_READ, MAP_SHARED, client->arena, 0);
        ck_assert_ptr_ne(arena, MAP_FAILED);
        memcpy(&bits, arena + reply->offset + 4096, sizeof(bits));
        ck_assert_msg(bits == wanted, "rank %u has scale %08x, not %08x", r, bits, wanted);
        memcpy(&scale, &bits, sizeof(scale));
        f8k_ops()->cast(&(struct f8k_cast){.src = &value,
                            .dst = &byte,
                            .count = 1,
                            .scale = scale,
                            .dtype = F8K_F32,
                            .format = F8K_E4M3FN},
            &counts);
        ck_assert_uint_eq(arena[reply->offset], byte);
        (void)munmap((void *)arena, 4 * 4096);
    }
}

/* With the streams' order drawn, a gather would overtake the precompute that its scales follow
 * from. */
START_TEST(gathers_follow_the_amax_group)
{
    start(_i % 4 + 1, (uint64_t)_i, F8_PROTO_DYNAMIC);
    for (uint32_t step = 1; step < 5; step++) {
        write_all((float)step);
        hold(DEVICE_STREAMS, true);
        hold(DEVICE_LANDINGS, step % 2);
        mesh_whole(&mesh, ask_precompute);
        gather_all();
        hold(DEVICE_STREAMS, false);
        rooms_synchronise(&mesh.rooms);
        expect((float)step, 4 * (float)step);
        release_all();
    }
    hold(DEVICE_LANDINGS, false);
    ck_assert_uint_eq(mesh_weight(&mesh, "dp1", "w0")->scale, scale_bits(16));
}
END_TEST

/* And the other way: the next reduction in the tables waits for the gathers that read them. */
START_TEST(the_amax_group_follows_gathers)
{
    start(2, (uint64_t)_i, F8_PROTO_DYNAMIC);
    write_all(1);
    mesh_whole(&mesh, ask_precompute);
    device_backend_set_event(mesh.rooms.cuda, 100, 1, false);
    mesh_ask_dp(&mesh, 1, MESH_RANKS, ask_gather_b0, ids);
    ids[0] = ask_gather_ready(mesh_dp(&mesh, 0), 0, 2);
    mesh_ok(&mesh, 0, MESH_RANKS, ids);
    mesh_whole(&mesh, ask_precompute);
    rooms_land(&mesh.rooms);
    ck_assert_uint_eq(device_backend_totals(mesh.rooms.cuda).works, 2); /* one of each */
    device_backend_set_event(mesh.rooms.cuda, 100, 1, true);
    rooms_land(&mesh.rooms);
    ck_assert_uint_eq(device_backend_totals(mesh.rooms.cuda).works, 4);
    expect(1, 4);
}
END_TEST

/* A precompute of the amax group reads shards when the events of its own ranks say so. */
static uint64_t ask_precompute_with_event_1(struct client *client)
{
    return ask_precompute_ready(client, 1);
}

START_TEST(precomputes_of_the_amax_group_wait_for_events)
{
    start(2, 0, F8_PROTO_DYNAMIC);
    write_all(9);
    device_backend_set_event(mesh.rooms.cuda, 103, 0, false);
    mesh_whole(&mesh, ask_precompute_with_event_1);
    gather_all();
    rooms_land(&mesh.rooms);
    ck_assert_uint_eq(device_backend_totals(mesh.rooms.cuda).works, 0);
    write_all(1);
    device_backend_set_event(mesh.rooms.cuda, 103, 0, true);
    rooms_land(&mesh.rooms);
    expect(1, 4);
}
END_TEST

START_TEST(syncs_of_the_amax_group_wait_for_the_sources)
{
    start(2, 0, F8_PROTO_DELAYED);
    write_all(1);
    gather_all();
    release_all();
    write_all(2);
    hold(DEVICE_LANDINGS, true);
    gather_all();
    ask_all(ask_sync, others);
    rooms_land(&mesh.rooms);
    for (uint32_t r = 0; r < MESH_RANKS; r++)
        ck_assert_ptr_null(client_reply(&mesh.clients[r], others[r]));
    hold(DEVICE_LANDINGS, false);
    mesh_ok(&mesh, 0, MESH_RANKS, others);
    ck_assert_uint_eq(mesh_weight(&mesh, "dp0", "w0")->scale, scale_bits(8));
    rooms_synchronise(&mesh.rooms);
    expect(2, 4);
}
END_TEST

static void fail_landing(void)
{
    device_backend_fail(mesh.rooms.cuda, DEVICE_FAULT_LANDING, F8_EIO, "device 0 is lost");
}

static void all_broken(const char *text)
{
    for (uint32_t r = 0; r < MESH_RANKS; r++) {
        client_refused(&mesh.clients[r], ask_gather_b1(mesh_dp(&mesh, r)), F8_EBROKEN, text);
        client_refused(&mesh.clients[r], ask_precompute(mesh_all(&mesh, r)), F8_EBROKEN, text);
    }
    mesh_rejoin(&mesh);
    write_all(1);
    gather_all();
    rooms_synchronise(&mesh.rooms);
    expect(1, 4);
}

START_TEST(a_landing_that_fails_breaks_all)
{
    start(2, 0, F8_PROTO_DYNAMIC);
    if (_i)
        gather_all(); /* ends with the landing of its amaxes */
    hold(DEVICE_LANDINGS, true);
    fail_landing();
    if (_i) {
        release_all();
        mesh_ask_dp(&mesh, 0, 2, ask_gather_b0, ids);
    } else {
        mesh_whole(&mesh, ask_precompute);
    }
    hold(DEVICE_LANDINGS, false);
    rooms_land(&mesh.rooms);
    all_broken("device 0 is lost");
}
END_TEST

/* Whoever died: its shards stay as long as either group's works may read them. */
START_TEST(a_rank_dies_with_landings_open_in_both)
{
    start(4, 0, F8_PROTO_DYNAMIC);
    write_all(1);
    hold(DEVICE_STREAMS, true);
    mesh_whole(&mesh, ask_precompute);
    gather_all();
    release_all();
    client_close(&mesh.clients[3], true);
    for (uint32_t r = 0; r < 3; r++)
        client_refused(
            &mesh.clients[r], ask_gather_b0(mesh_dp(&mesh, r)), F8_EBROKEN, "(pid 103) died");
    rooms_land(&mesh.rooms);
    ck_assert_uint_eq(device_backend_totals(mesh.rooms.cuda).mappings, MESH_RANKS);
    uint64_t rejoin = ask_rejoin(&mesh.clients[2], "dp1", 0, 2);
    ck_assert_ptr_null(client_reply(&mesh.clients[2], rejoin));
    hold(DEVICE_STREAMS, false);
    ck_assert_int_eq(client_status(&mesh.clients[2], rejoin), F8_OK);
    rooms_land(&mesh.rooms);
    ck_assert_uint_eq(device_backend_totals(mesh.rooms.cuda).mappings, MESH_RANKS - 1);
}
END_TEST

START_TEST(all_leave_with_landings_open_in_both)
{
    start(2, (uint64_t)_i, F8_PROTO_DYNAMIC);
    hold(DEVICE_STREAMS, true);
    mesh_whole(&mesh, ask_precompute);
    gather_all();
    mesh_whole(&mesh, ask_precompute);
    if (_i % 2)
        fail_landing();
    for (uint32_t r = 0; r < MESH_RANKS; r++)
        client_close(&mesh.clients[(r + (uint32_t)_i) % MESH_RANKS], r == 1);
    hold(DEVICE_STREAMS, false);
    rooms_land(&mesh.rooms);
    struct device_backend_totals totals = device_backend_totals(mesh.rooms.cuda);
    ck_assert_uint_eq(totals.arenas + totals.clients + totals.mappings, 0);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("device_linked");
    tcase_add_checked_fixture(tcase, NULL, close_mesh);
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, gathers_follow_the_amax_group, 0, 16);
    tcase_add_loop_test(tcase, the_amax_group_follows_gathers, 0, 4);
    tcase_add_test(tcase, precomputes_of_the_amax_group_wait_for_events);
    tcase_add_test(tcase, syncs_of_the_amax_group_wait_for_the_sources);
    tcase_add_loop_test(tcase, a_landing_that_fails_breaks_all, 0, 2);
    tcase_add_test(tcase, a_rank_dies_with_landings_open_in_both);
    tcase_add_loop_test(tcase, all_leave_with_landings_open_in_both, 0, 8);
    return run_suite("device_linked", tcase);
}
