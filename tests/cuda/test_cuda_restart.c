/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trainers on devices that are all killed, and start again: the daemon has their scales and warm
 * communicators. Then the daemon is killed with them: the scales are still there, and the
 * communicators are new. Real processes; rank r on device r.
 */
#include <check.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>

#include "lib/crew.h"
#include "lib/device_memory.h"
#include "lib/patience.h"
#include "lib/program.h"
#include "lib/state_rank.h"
#include "lib/suite.h"
#include "lib/test_daemon.h"

#define RANKS 2
#define SYNCS 3

/* What the ranks of a life are to do, and what they have found. */
struct life {
    const struct test_daemon *daemon; /* borrowed: from the test */
    uint64_t syncs;                   /* that are stored */
    float amax;                       /* of each step */
    float *scales;                    /* borrowed: by rank, shared with the ranks */
};

/* The scale of a gather, of the last one that was synced. */
static float scale_now(struct state_rank *rank)
{
    struct f8_view view, seen;
    state_rank_well(f8_gather(rank->group, 0, F8_DEFAULT_DEADLINE, rank->stream));
    state_rank_well(f8_post_gather(rank->group, 0, F8_FOREVER, &view, 1, rank->stream));
    state_rank_well(device_memory_see(rank->device_memory, &view, 0, &seen));
    state_rank_well(f8_release(rank->group, 0, rank->stream));
    return *seen.scale;
}

/* Continues what is stored, takes SYNCS steps, and waits to be killed. */
static int live(struct crew_member *member, const void *argument)
{
    const struct life *life = argument;
    struct state_rank rank;
    state_rank_join(
        life->daemon, &rank, &(struct state_setup){.rank = member->index, .world_size = RANKS});
    state_rank_well(state_rank_seal(&rank, F8_STATE_CONTINUE, life->syncs));
    if (life->syncs > 0)
        life->scales[member->index] = scale_now(&rank);
    crew_mark(member);
    for (int i = 0; i < SYNCS; i++)
        state_rank_step(&rank, life->amax + (float)member->index);
    crew_mark(member);
    return 0;
}

/* What f8ctl shows of the one group. */
static void check_group(const struct test_daemon *daemon, bool warm)
{
    json_t *groups = program_ask_ctl(daemon->socket, "groups", "groups");
    ck_assert_uint_eq(json_array_size(groups), 1);
    const json_t *group = json_array_get(groups, 0);
    ck_assert_str_eq(json_string_value(json_object_get(group, "name")), "dp");
    ck_assert_uint_eq(json_array_size(json_object_get(group, "devices")), RANKS);
    ck_assert_msg(json_is_boolean(json_object_get(group, "warm")), "it does not say");
    ck_assert_int_eq(json_is_true(json_object_get(group, "warm")), warm);
    json_decref(groups);
}

/* A life that ends by SIGKILL of all ranks after its steps, without a word to the daemon. */
static void run_life(struct life *life, bool warm)
{
    struct crew crew;
    crew_start(&crew, RANKS, live, life);
    crew_await(&crew);
    check_group(life->daemon, warm);
    crew_go(&crew);
    crew_await(&crew);
    for (uint32_t r = 0; r < RANKS; r++)
        crew_kill(&crew, r);
    life->syncs += SYNCS;
}

static void check_scales(const struct life *life, float scale)
{
    for (uint32_t r = 0; r < RANKS; r++)
        ck_assert_float_eq(life->scales[r], scale);
}

START_TEST(restarted_trainers_find_what_they_left)
{
    struct test_daemon daemon;
    struct life life = {.daemon = &daemon, .amax = 6};
    life.scales = mmap(NULL, RANKS * sizeof(*life.scales), PROT_READ | PROT_WRITE,
        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(life.scales, MAP_FAILED);
    test_daemon_start(&daemon, NULL);
    run_life(&life, false);
    life.amax = 13; /* what the next life finds is of the one before */
    run_life(&life, true);
    check_scales(&life, 448.0F / 7);
    run_life(&life, true);
    check_scales(&life, 448.0F / 14);
    test_daemon_kill(&daemon);
    test_daemon_restart(&daemon, NULL);
    run_life(&life, false);
    check_scales(&life, 448.0F / 14);
    run_life(&life, true);
    check_scales(&life, 448.0F / 14);
    (void)munmap(life.scales, RANKS * sizeof(*life.scales));
    test_daemon_drop_states(&daemon);
    test_daemon_stop(&daemon);
}
END_TEST

/* Waits until as many communicators are kept warm. */
static void await_warm(const struct test_daemon *daemon, int count)
{
    int64_t warm = -1;
    for (int i = 0; i < PATIENCE_MS && warm != count; i++) {
        json_t *status = program_ask_ctl(daemon->socket, "status", "status");
        warm = json_integer_value(json_object_get(status, "warm_communicators"));
        json_decref(status);
        if (warm != count)
            (void)poll(NULL, 0, 1);
    }
    ck_assert_int_eq(warm, count);
}

START_TEST(evict_leaves_nothing_warm)
{
    struct test_daemon daemon;
    struct life life = {.daemon = &daemon, .amax = 6};
    test_daemon_start(&daemon, NULL);
    run_life(&life, false);
    await_warm(&daemon, RANKS);
    json_t *evicted = program_ask_ctl(daemon.socket, "evict x --yes", "evict");
    ck_assert_int_eq(json_integer_value(json_object_get(evicted, "states")), 1);
    ck_assert_int_eq(json_integer_value(json_object_get(evicted, "communicators")), RANKS);
    json_decref(evicted);
    await_warm(&daemon, 0);
    life.syncs = 0;
    run_life(&life, false);
    await_warm(&daemon, RANKS);
    test_daemon_drop_states(&daemon);
    test_daemon_stop(&daemon);
}
END_TEST

/* Without linger nothing is kept for those who come back. */
START_TEST(without_linger_nothing_is_warm)
{
    static const char *const arguments[] = {"--linger", "0", NULL};
    struct test_daemon daemon;
    struct life life = {.daemon = &daemon, .amax = 6};
    test_daemon_start(&daemon, arguments);
    run_life(&life, false);
    life.syncs = 0;
    run_life(&life, false);
    test_daemon_stop(&daemon);
}
END_TEST

int main(void)
{
    if (!device_memory_used()) {
        printf("skipped: F8_TEST_DEVICE names no device\n");
        return 77;
    }
    TCase *tcase = tcase_create("processes");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, restarted_trainers_find_what_they_left);
    tcase_add_test(tcase, evict_leaves_nothing_warm);
    tcase_add_test(tcase, without_linger_nothing_is_warm);
    return run_suite("restart", tcase);
}
