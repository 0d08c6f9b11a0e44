/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a seal takes the state from, every refusal by name, and that a refusal drops nothing. A
 * real daemon, one rank or two.
 */
#include <check.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "lib/device_memory.h"
#include "lib/state_rank.h"
#include "lib/suite.h"

static struct test_daemon host;

/* Re-joins after a refusal, and is refused again. */
static void refused_again(struct state_rank *rank, uint64_t syncs, int status, const char *text)
{
    state_rank_well(f8_group_rejoin(rank->group));
    ck_assert_int_eq(state_rank_seal(rank, F8_STATE_CONTINUE, syncs), status);
    ck_assert_msg(strstr(f8_error_text(), text) != NULL, "%s", f8_error_text());
}

static void set_up(void)
{
    test_daemon_start(&host, NULL);
}

static void tear_down(void)
{
    test_daemon_drop_states(&host);
    test_daemon_stop(&host);
}

START_TEST(continues_where_it_was)
{
    struct state_rank rank;
    state_rank_leave(&host, NULL);
    state_rank_join(&host, &rank, &(struct state_setup){0});
    ck_assert_int_eq(state_rank_seal(&rank, F8_STATE_CONTINUE, 2), F8_EMISMATCH);
    ck_assert_str_eq(f8_error_text(),
        "the stored state of job x, group dp has seen 3 syncs, where the seal continues at sync 2");
    refused_again(&rank, 0, F8_EMISMATCH, "has seen 3 syncs, where the seal continues at sync 0");
    state_rank_well(f8_group_rejoin(rank.group));
    state_rank_well(state_rank_seal(&rank, F8_STATE_CONTINUE, 3));
    ck_assert_uint_eq(state_rank_syncs(&rank), 3);
    state_rank_step(&rank, 4);
    ck_assert_uint_eq(state_rank_syncs(&rank), 4);
    state_rank_close(&rank);
    state_rank_join(&host, &rank, &(struct state_setup){0});
    state_rank_well(state_rank_seal(&rank, F8_STATE_CONTINUE, F8_ANY_SYNCS));
    ck_assert_uint_eq(state_rank_syncs(&rank), 4);
    state_rank_close(&rank);
    state_rank_join(&host, &rank, &(struct state_setup){0});
    state_rank_well(f8_seal(rank.group, NULL)); /* fresh: what was stored is gone */
    ck_assert_uint_eq(state_rank_syncs(&rank), 0);
    state_rank_close(&rank);
}
END_TEST

START_TEST(nothing_stored_is_said)
{
    struct state_rank rank;
    state_rank_join(&host, &rank, &(struct state_setup){0});
    ck_assert_int_eq(state_rank_seal(&rank, F8_STATE_CONTINUE, 5), F8_ENOENT);
    ck_assert_str_eq(f8_error_text(),
        "nothing is stored for job x, group dp, where the seal continues at sync 5");
    refused_again(&rank, F8_ANY_SYNCS, F8_ENOENT, "nothing is stored for job x, group dp");
    state_rank_close(&rank);
}
END_TEST

START_TEST(other_weights_are_named_and_drop_nothing)
{
    struct state_rank rank;
    state_rank_leave(&host, NULL);
    state_rank_join(&host, &rank, &(struct state_setup){.dtype = F8_BF16});
    ck_assert_int_eq(state_rank_seal(&rank, F8_STATE_CONTINUE, 3), F8_EMISMATCH);
    ck_assert_str_eq(f8_error_text(),
        "the stored state of group dp has weight layers.0.wq as float32 e4m3fn, history 16 max; "
        "the group registers bfloat16 e4m3fn, history 16 max");
    state_rank_close(&rank);
    state_rank_join(&host, &rank, &(struct state_setup){.history = 4});
    ck_assert_int_eq(state_rank_seal(&rank, F8_STATE_CONTINUE, 3), F8_EMISMATCH);
    state_rank_close(&rank);
    state_rank_join(&host, &rank, &(struct state_setup){.name = "embed"});
    ck_assert_int_eq(state_rank_seal(&rank, F8_STATE_CONTINUE, 3), F8_EMISMATCH);
    ck_assert_str_eq(f8_error_text(),
        "the stored state of group dp does not fit what the group registers: it lacks embed; it "
        "has layers.0.wq, no delayed weights here");
    state_rank_close(&rank);
    state_rank_join(&host, &rank, &(struct state_setup){0});
    state_rank_well(state_rank_seal(&rank, F8_STATE_CONTINUE, 3));
    state_rank_close(&rank);
}
END_TEST

START_TEST(another_token_cannot_continue)
{
    struct state_rank rank;
    state_rank_leave(&host, "secret");
    state_rank_join(&host, &rank, &(struct state_setup){.token = "other"});
    ck_assert_int_eq(state_rank_seal(&rank, F8_STATE_CONTINUE, 3), F8_EPERM);
    ck_assert_str_eq(
        f8_error_text(), "the stored state of job x, group dp is of a run with another token");
    state_rank_close(&rank);
    state_rank_join(&host, &rank, &(struct state_setup){.token = "secret"});
    state_rank_well(state_rank_seal(&rank, F8_STATE_CONTINUE, 3));
    state_rank_close(&rank);
}
END_TEST

START_TEST(survives_a_kill_and_an_orderly_end)
{
    struct state_rank rank;
    state_rank_leave(&host, NULL);
    test_daemon_kill(&host);
    test_daemon_restart(&host, NULL);
    state_rank_join(&host, &rank, &(struct state_setup){0});
    state_rank_well(state_rank_seal(&rank, F8_STATE_CONTINUE, 3));
    state_rank_step(&rank, 5);
    test_daemon_end(&host);
    state_rank_close(&rank);
    test_daemon_restart(&host, NULL);
    state_rank_join(&host, &rank, &(struct state_setup){0});
    state_rank_well(state_rank_seal(&rank, F8_STATE_CONTINUE, 4));
    state_rank_close(&rank);
}
END_TEST

/* The group's own daemon has newer values in memory: those of the file count. */
START_TEST(continue_forgets_what_was_not_synced)
{
    struct state_rank rank;
    void *before, *after;
    size_t size, size_after;
    state_rank_leave(&host, NULL);
    state_rank_join(&host, &rank, &(struct state_setup){0});
    state_rank_well(state_rank_seal(&rank, F8_STATE_CONTINUE, 3));
    state_rank_well(f8_export(rank.group, &before, &size));
    rank.memory[0] = 100;
    state_rank_well(device_memory_put(rank.device_memory, rank.memory, sizeof(float)));
    state_rank_well(f8_gather(rank.group, 0, F8_DEFAULT_DEADLINE, rank.stream));
    state_rank_well(f8_post_gather(rank.group, 0, F8_FOREVER, NULL, 0, rank.stream));
    state_rank_close(&rank);
    state_rank_join(&host, &rank, &(struct state_setup){0});
    state_rank_well(state_rank_seal(&rank, F8_STATE_CONTINUE, 3));
    state_rank_well(f8_export(rank.group, &after, &size_after));
    ck_assert_uint_eq(size, size_after);
    ck_assert_mem_eq(before, after, size);
    state_rank_close(&rank);
    free(before);
    free(after);
}
END_TEST

/* A rank of a gather group whose amaxes are taken over another group; its first scale is given. */
static void run_linked(enum f8_state state, uint64_t syncs, float amax, float *ret_scale)
{
    const struct f8_connect_options options = {.socket = host.socket, .job = "x"};
    const struct f8_seal_options seal_of_both = {.state = state, .syncs = syncs};
    struct state_rank rank;
    struct f8_group *mesh;
    struct f8_region *region;
    struct f8_view view = {0};
    void *address, *none;
    size_t size;
    f8_ticket ticket;
    uint64_t seen;
    state_rank_well(f8_connect(&options, &rank.client));
    state_rank_well(device_memory_open(rank.client, 0, &rank.device_memory));
    rank.stream = device_memory_stream(rank.device_memory);
    state_rank_well(f8_group_join(rank.client, "mesh", 0, 1, &mesh));
    state_rank_well(f8_group_join(rank.client, "dp", 0, 1, &rank.group));
    state_rank_well(device_memory_alloc(rank.device_memory, rank.client, 4096, &region, &address));
    *(float *)address = amax;
    state_rank_well(device_memory_put(rank.device_memory, address, sizeof(float)));
    const struct f8_weight_desc weight = {.name = "w",
        .ndim = 1,
        .shape = {STATE_RANK_COUNT},
        .dtype = F8_F32,
        .flavour = F8_DELAYED,
        .format = F8_E4M3FN,
        .amax_group = mesh,
        .region = region};
    const struct f8_bucket_desc bucket = {.name = "b", .count = 1};
    state_rank_well(f8_register(rank.group, &weight, 1, &bucket, 1));
    state_rank_well(f8_seal(rank.group, &seal_of_both));
    state_rank_well(f8_seal(mesh, &seal_of_both));
    state_rank_well(f8_syncs(mesh, &seen));
    ck_assert_uint_eq(seen, syncs);
    state_rank_well(f8_gather(rank.group, 0, F8_DEFAULT_DEADLINE, rank.stream));
    state_rank_well(f8_post_gather(rank.group, 0, F8_FOREVER, &view, 1, rank.stream));
    state_rank_well(device_memory_see(rank.device_memory, &view, 0, &view));
    *ret_scale = *view.scale;
    state_rank_well(f8_release(rank.group, 0, rank.stream));
    state_rank_well(f8_sync(mesh, F8_DEFAULT_DEADLINE, &ticket));
    state_rank_well(f8_wait(mesh, ticket, F8_FOREVER, rank.stream));
    ck_assert_int_eq(f8_export(rank.group, &none, &size), F8_ENOENT);
    state_rank_close(&rank);
}

/* The state is the amax group's, and its sources follow it. */
START_TEST(amax_groups_continue)
{
    float scale;
    run_linked(F8_STATE_CONTINUE, 0, 7, &scale);
    ck_assert_float_eq(scale, 448.0f / 7);
    run_linked(F8_STATE_CONTINUE, 1, 2, &scale);
    ck_assert_float_eq(scale, 448.0f / 7);
    run_linked(F8_STATE_FRESH, 0, 2, &scale);
    ck_assert_float_eq(scale, 448.0f / 2);
}
END_TEST

/* A second rank, in a thread of its own. */
struct second {
    struct state_rank rank;
    struct f8_seal_options options;
    int status;
};

static void *seal_second(void *argument)
{
    struct second *second = argument;
    second->status = f8_seal(second->rank.group, &second->options);
    return NULL;
}

static void seal_differently(
    const struct f8_seal_options *a, const struct f8_seal_options *b, const char *text)
{
    struct state_rank first;
    struct second second = {.options = *b};
    pthread_t thread;
    state_rank_join(&host, &first, &(struct state_setup){.world_size = 2});
    state_rank_join(&host, &second.rank, &(struct state_setup){.world_size = 2, .rank = 1});
    ck_assert_int_eq(pthread_create(&thread, NULL, seal_second, &second), 0);
    ck_assert_int_eq(f8_seal(first.group, a), F8_EMISMATCH);
    ck_assert_msg(strstr(f8_error_text(), text) != NULL, "%s", f8_error_text());
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_int_eq(second.status, F8_EMISMATCH);
    state_rank_close(&first);
    state_rank_close(&second.rank);
}

START_TEST(ranks_must_agree)
{
    const struct f8_seal_options fresh = {0}, third = {.state = F8_STATE_CONTINUE, .syncs = 3},
                                 any = {.state = F8_STATE_CONTINUE, .syncs = F8_ANY_SYNCS};
    const struct f8_seal_options x = {.state = F8_STATE_IMPORT, .import = "x", .import_size = 1},
                                 y = {.state = F8_STATE_IMPORT, .import = "y", .import_size = 1};
    seal_differently(&fresh, &third, ") sealed with the stored state of sync 3 where rank 0 (pid ");
    seal_differently(&third, &any, ") sealed with the stored state where rank 0 (pid ");
    seal_differently(&x, &y, ") sealed with an import of 1 bytes, checksum 0x");
}
END_TEST

START_TEST(without_linger_nothing_stays)
{
    static const char *const arguments[] = {"--linger", "0", NULL};
    struct state_rank rank;
    test_daemon_stop(&host);
    test_daemon_start(&host, arguments);
    state_rank_leave(&host, NULL);
    state_rank_join(&host, &rank, &(struct state_setup){0});
    ck_assert_int_eq(state_rank_seal(&rank, F8_STATE_CONTINUE, 3), F8_ENOENT);
    state_rank_close(&rank);
    state_rank_leave(&host, NULL);
    test_daemon_stop(&host); /* which finds no state left */
    test_daemon_start(&host, NULL);
}
END_TEST

/* The daemon may make files as large as the arena, and the state is larger: that seal fails. */
START_TEST(full_disk_fails_the_seal_by_name)
{
    struct state_rank rank;
    struct rlimit old, small;
    if (device_memory_used()) /* simulated, it is of files too */
        return;
    state_rank_leave(&host, NULL);
    ck_assert_int_eq(prlimit(host.pid, RLIMIT_FSIZE, NULL, &old), 0);
    small = (struct rlimit){.rlim_cur = 8300, .rlim_max = old.rlim_max};
    ck_assert_int_eq(prlimit(host.pid, RLIMIT_FSIZE, &small, NULL), 0);
    state_rank_join(&host, &rank, &(struct state_setup){.history = 1024});
    ck_assert_int_eq(f8_seal(rank.group, NULL), F8_EIO);
    ck_assert_ptr_eq(
        strstr(f8_error_text(), "cannot store the state of group dp: the file takes 8440 bytes: "),
        f8_error_text());
    state_rank_close(&rank);
    ck_assert_int_eq(prlimit(host.pid, RLIMIT_FSIZE, &old, NULL), 0);
    state_rank_join(&host, &rank, &(struct state_setup){0});
    state_rank_well(state_rank_seal(&rank, F8_STATE_CONTINUE, 3)); /* what was stored still is */
    state_rank_close(&rank);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("processes");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, continues_where_it_was);
    tcase_add_test(tcase, nothing_stored_is_said);
    tcase_add_test(tcase, other_weights_are_named_and_drop_nothing);
    tcase_add_test(tcase, another_token_cannot_continue);
    tcase_add_test(tcase, survives_a_kill_and_an_orderly_end);
    tcase_add_test(tcase, continue_forgets_what_was_not_synced);
    tcase_add_test(tcase, amax_groups_continue);
    tcase_add_test(tcase, ranks_must_agree);
    tcase_add_test(tcase, without_linger_nothing_stays);
    tcase_add_test(tcase, full_disk_fails_the_seal_by_name);
    return run_suite("state_seal", tcase);
}
