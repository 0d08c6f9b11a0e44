/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots: what outlives a reboot and what must not, files that are cut or changed at any byte,
 * a disk that is full, and how long the loop is held up. Each test has directories of its own.
 */
#include <check.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/state_private.h"
#include "lib/loop_turn.h"
#include "lib/snapshot_fixture.h"
#include "lib/suite.h"
#include "status.h"

static struct snapshot_fixture fixture;

static void set_up(void)
{
    snapshot_set_up(&fixture);
}

static void tear_down(void)
{
    snapshot_tear_down(&fixture);
}

static void passes(uint32_t states)
{
    struct state_pass pass = snapshot_pass(&fixture);
    ck_assert_msg(pass.status == F8_OK, "%s", pass.reason.text);
    ck_assert_uint_eq(pass.states, states);
}

static bool has(const char *group, uint64_t syncs, const struct scaling *scalings)
{
    return snapshot_has(&fixture, group, syncs, scalings);
}

static void sync_to(const char *group, uint64_t syncs, const struct scaling *scalings)
{
    state_sync(snapshot_find(&fixture, group), syncs, fixture.list, scalings);
}

START_TEST(outlives_a_reboot)
{
    struct stat st;
    (void)snapshot_put(&fixture, "dp");
    sync_to("dp", 2, fixture.after);
    passes(1);
    ck_assert_int_eq(stat(fixture.snapshots, &st), 0);
    ck_assert_uint_eq(st.st_mode & 0777, 0700);
    ck_assert_int_eq(stat(snapshot_path(&fixture, 1, "snapshot"), &st), 0);
    ck_assert_uint_eq(st.st_mode & 0777, 0600);
    snapshot_reboot(&fixture);
    ck_assert(has("dp", 2, fixture.after));
    const struct state *state = snapshot_find(&fixture, "dp");
    ck_assert(state_admits(state, (const uint8_t *)"secret", 6));
    ck_assert(!state_admits(state, NULL, 0));
    sync_to("dp", 3, fixture.before); /* it goes on */
    passes(1);
    snapshot_reboot(&fixture);
    ck_assert(has("dp", 3, fixture.before));
}
END_TEST

START_TEST(only_what_changed_is_written)
{
    (void)snapshot_put(&fixture, "a");
    (void)snapshot_put(&fixture, "b");
    passes(2);
    passes(0);
    sync_to("b", 2, fixture.after);
    passes(1);
    ck_assert_int_eq(state_fixture_files(fixture.snapshots, NULL), 3); /* b has one before, too */
    snapshot_reboot(&fixture);
    passes(0);
    ck_assert(has("a", 1, fixture.before) && has("b", 2, fixture.after));
}
END_TEST

/* The file beside the socket goes on while no snapshot is made; and the other way round. */
START_TEST(the_newer_of_both_counts)
{
    (void)snapshot_put(&fixture, "dp");
    passes(1);
    sync_to("dp", 2, fixture.after);
    snapshot_close(&fixture);
    snapshot_open(&fixture);
    ck_assert(has("dp", 2, fixture.after));
    char kept[256], path[256];
    (void)snprintf(path, sizeof(path), "%s/0000000000000001.state", fixture.states);
    (void)snprintf(kept, sizeof(kept), "%s/0000000000000001.old", fixture.states);
    size_t size;
    const uint8_t *bytes = snapshot_read(path, &size);
    snapshot_overwrite(kept, bytes, size);
    sync_to("dp", 3, fixture.before);
    passes(1);
    snapshot_close(&fixture);
    ck_assert_int_eq(rename(kept, path), 0); /* as of sync 2 */
    snapshot_open(&fixture);
    ck_assert(has("dp", 3, fixture.before));
}
END_TEST

/* A damaged file beside the socket is no state at all; the snapshot is one. */
START_TEST(a_damaged_runtime_file_is_replaced)
{
    char path[256];
    (void)snapshot_put(&fixture, "dp");
    passes(1);
    snapshot_close(&fixture);
    (void)snprintf(path, sizeof(path), "%s/0000000000000001.state", fixture.states);
    ck_assert_int_eq(truncate(path, 60), 0);
    snapshot_open(&fixture);
    ck_assert(has("dp", 1, fixture.before));
}
END_TEST

START_TEST(what_is_dropped_stays_away)
{
    for (int i = 0; i < 2; i++) {
        (void)snapshot_put(&fixture, "dp");
        passes(1);
        sync_to("dp", 2, fixture.after);
        passes(1);
        state_drop(snapshot_find(&fixture, "dp"));
        ck_assert_int_eq(state_fixture_files(fixture.snapshots, NULL), 0);
        snapshot_reboot(&fixture);
        ck_assert_ptr_null(snapshot_find(&fixture, "dp"));
    }
}
END_TEST

/* A seal that is fresh stores anew: neither of the old two comes back. */
START_TEST(what_is_replaced_stays_away)
{
    (void)snapshot_put(&fixture, "dp");
    passes(1);
    sync_to("dp", 2, fixture.after);
    passes(1);
    state_replaced(snapshot_put(&fixture, "dp"));
    ck_assert_int_eq(state_fixture_files(fixture.snapshots, NULL), 0);
    passes(1);
    snapshot_reboot(&fixture);
    ck_assert(has("dp", 1, fixture.before));
}
END_TEST

/* Stored anew by a seal that continues: until the next pass the snapshots are what there is. */
START_TEST(what_is_continued_is_kept)
{
    (void)snapshot_put(&fixture, "dp");
    passes(1);
    (void)snapshot_put(&fixture, "dp");
    ck_assert_int_eq(state_fixture_files(fixture.snapshots, NULL), 1);
    passes(1); /* its counter went on */
    snapshot_reboot(&fixture);
    ck_assert(has("dp", 1, fixture.before));
}
END_TEST

/* The state goes, or is replaced, while a thread writes what it was. */
START_TEST(what_goes_while_it_is_written_stays_away)
{
    for (int i = 0; i < 2; i++) {
        struct state_copy copy;
        (void)snapshot_put(&fixture, "dp");
        ck_assert_int_eq(state_copy_due(fixture.store, 1000 + i, &copy, &fixture.reason), F8_OK);
        ck_assert_int_eq(state_copy_write(&copy, &fixture.reason), F8_OK);
        if (i == 0)
            state_drop(snapshot_find(&fixture, "dp"));
        else
            state_replaced(snapshot_find(&fixture, "dp"));
        ck_assert_int_eq(state_copy_commit(&copy, &fixture.reason), F8_ENOENT);
        ck_assert_int_eq(state_fixture_files(fixture.snapshots, NULL), 0);
        state_copy_done(&copy);
    }
}
END_TEST

/* Each number has a state as of sync 1 and the one before, then as of sync 2. */
static void make_two(void)
{
    (void)snapshot_put(&fixture, "dp");
    passes(1);
    sync_to("dp", 2, fixture.after);
    passes(1);
}

/* Opens after a reboot; what is loaded is the one before, and the other is set aside. */
static void check_set_aside(const uint8_t *sound, size_t size, off_t at)
{
    struct state_saved saved;
    snapshot_reboot(&fixture);
    ck_assert_msg(has("dp", 1, fixture.before), "byte %lld", (long long)at);
    ck_assert_int_eq(access(snapshot_path(&fixture, 1, "snapshot.damaged"), F_OK), 0);
    ck_assert_int_lt(access(snapshot_path(&fixture, 1, "snapshot"), F_OK), 0);
    state_store_saved(fixture.store, &saved);
    ck_assert_uint_eq(saved.damaged->count, 1);
    ck_assert_str_eq(saved.damaged->names[0], "0000000000000001.snapshot.damaged");
    ck_assert_int_eq(unlink(snapshot_path(&fixture, 1, "snapshot.damaged")), 0);
    snapshot_overwrite(snapshot_path(&fixture, 1, "snapshot"), sound, size);
}

START_TEST(every_cut_and_every_flip_is_found)
{
    static uint8_t sound[65536], changed[65536];
    size_t size;
    make_two();
    const char *path = snapshot_path(&fixture, 1, "snapshot");
    memcpy(sound, snapshot_read(path, &size), sizeof(sound));
    for (size_t at = 0; at < size; at++) {
        memcpy(changed, sound, size);
        changed[at] ^= (uint8_t)(1u << at % 8);
        snapshot_overwrite(snapshot_path(&fixture, 1, "snapshot"), changed, size);
        check_set_aside(sound, size, (off_t)at);
        snapshot_overwrite(snapshot_path(&fixture, 1, "snapshot"), sound, at);
        check_set_aside(sound, size, (off_t)at);
    }
    snapshot_reboot(&fixture);
    ck_assert(has("dp", 2, fixture.after));
}
END_TEST

/* Blocks that a disk never wrote are zeros, and some have what was there before. */
START_TEST(mixtures_of_two_are_found)
{
    static uint8_t first[65536], second[65536], mixed[65536];
    size_t size, other;
    make_two();
    memcpy(first, snapshot_read(snapshot_path(&fixture, 1, "previous"), &other), sizeof(first));
    memcpy(second, snapshot_read(snapshot_path(&fixture, 1, "snapshot"), &size), sizeof(second));
    ck_assert_uint_eq(size, other);
    for (size_t at = 1; at < size; at++) {
        memcpy(mixed, second, at);
        memcpy(mixed + at, first + at, size - at);
        bool whole = memcmp(mixed, first, size) == 0 || memcmp(mixed, second, size) == 0;
        if (!whole) {
            snapshot_overwrite(snapshot_path(&fixture, 1, "snapshot"), mixed, size);
            check_set_aside(second, size, (off_t)at);
        }
        memset(mixed + at, 0, size - at);
        if (memcmp(mixed, second, size) == 0)
            continue;
        snapshot_overwrite(snapshot_path(&fixture, 1, "snapshot"), mixed, size);
        check_set_aside(second, size, (off_t)at);
    }
}
END_TEST

START_TEST(both_damaged_is_nothing)
{
    struct state_saved saved;
    make_two();
    ck_assert_int_eq(truncate(snapshot_path(&fixture, 1, "snapshot"), 0), 0);
    ck_assert_int_eq(truncate(snapshot_path(&fixture, 1, "previous"), 100), 0);
    snapshot_reboot(&fixture);
    ck_assert_ptr_null(snapshot_find(&fixture, "dp"));
    state_store_saved(fixture.store, &saved);
    ck_assert_uint_eq(saved.damaged->count, 2);
    (void)snapshot_put(&fixture, "dp");
    passes(1); /* under another number: what is set aside is not written over */
    ck_assert_int_eq(access(snapshot_path(&fixture, 2, "snapshot"), F_OK), 0);
    ck_assert_int_eq(state_fixture_files(fixture.snapshots, NULL), 3);
}
END_TEST

/* Killed between the two renames, and while a third was written. */
START_TEST(what_was_not_committed_does_not_count)
{
    make_two();
    char current[256];
    (void)strcpy(current, snapshot_path(&fixture, 1, "snapshot"));
    ck_assert_int_eq(rename(current, snapshot_path(&fixture, 1, "new")), 0);
    snapshot_reboot(&fixture);
    ck_assert(has("dp", 1, fixture.before));
    ck_assert_int_eq(state_fixture_files(fixture.snapshots, NULL), 1);
}
END_TEST

/* A removal that failed: the later one counts, whatever order the directory has. */
START_TEST(of_two_of_a_group_the_later_counts)
{
    size_t size;
    make_two();
    const uint8_t *bytes = snapshot_read(snapshot_path(&fixture, 1, "previous"), &size);
    snapshot_overwrite(snapshot_path(&fixture, 9, "snapshot"), bytes, size);
    snapshot_reboot(&fixture);
    ck_assert(has("dp", 1, fixture.before));
    ck_assert_int_eq(access(snapshot_path(&fixture, 1, "snapshot.damaged"), F_OK), 0);
}
END_TEST

static struct state_pass pass_with_limit(rlim_t bytes)
{
    struct rlimit old, small;
    (void)signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = old;
    small.rlim_cur = bytes;
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
    struct state_pass pass = snapshot_pass(&fixture);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &old), 0);
    (void)signal(SIGXFSZ, SIG_DFL);
    return pass;
}

START_TEST(a_full_disk_is_said_and_tried_again)
{
    make_two();
    sync_to("dp", 3, fixture.before);
    struct state_pass pass = pass_with_limit(100);
    ck_assert_int_eq(pass.status, F8_EIO);
    ck_assert_ptr_nonnull(strstr(pass.reason.text, "bytes of the snapshot "));
    ck_assert_ptr_nonnull(strstr(pass.reason.text, "/snapshots/0000000000000001.new: "));
    ck_assert_int_eq(state_saver_last(fixture.saver)->status, F8_EIO);
    ck_assert_uint_gt(state_saver_last(fixture.saver)->succeeded, 0);
    struct state_counts counts = state_saver_counts(fixture.saver);
    ck_assert_uint_eq(counts.failed, 1);
    ck_assert_int_eq(state_fixture_files(fixture.snapshots, NULL), 2);
    passes(1);
    ck_assert_uint_eq(state_saver_counts(fixture.saver).failed, 1);
    ck_assert_uint_gt(state_saver_counts(fixture.saver).bytes, counts.bytes);
    snapshot_reboot(&fixture);
    ck_assert(has("dp", 3, fixture.before));
}
END_TEST

/* A directory in the file's place cannot be unlinked, by nobody. */
START_TEST(a_removal_that_fails_is_tried_again)
{
    (void)snapshot_put(&fixture, "dp");
    passes(1);
    ck_assert_int_eq(mkdir(snapshot_path(&fixture, 1, "previous"), 0700), 0);
    state_drop(snapshot_find(&fixture, "dp"));
    struct state_pass pass = snapshot_pass(&fixture);
    ck_assert_int_eq(pass.status, F8_EIO);
    ck_assert_ptr_nonnull(strstr(pass.reason.text, "cannot remove the snapshot "));
    ck_assert_int_eq(rmdir(snapshot_path(&fixture, 1, "previous")), 0);
    passes(0);
    ck_assert_int_eq(state_fixture_files(fixture.snapshots, NULL), 0);
}
END_TEST

/* The disk takes writes again in the middle of a pass: what the pass saves is not what is doomed.
 */
START_TEST(a_removal_tried_later_leaves_what_is_new)
{
    struct state_copy copy;
    (void)snapshot_put(&fixture, "dp");
    passes(1);
    ck_assert_int_eq(mkdir(snapshot_path(&fixture, 1, "previous"), 0700), 0);
    state_replaced(snapshot_put(&fixture, "dp"));
    sync_to("dp", 2, fixture.after);
    ck_assert_int_eq(state_store_retry(fixture.store, &fixture.reason), F8_EIO);
    ck_assert_int_eq(rmdir(snapshot_path(&fixture, 1, "previous")), 0);
    ck_assert_int_eq(state_copy_due(fixture.store, 1000, &copy, &fixture.reason), F8_OK);
    ck_assert_int_eq(state_copy_write(&copy, &fixture.reason), F8_OK);
    ck_assert_int_eq(state_copy_commit(&copy, &fixture.reason), F8_OK);
    state_copy_done(&copy);
    ck_assert_int_eq(state_store_retry(fixture.store, &fixture.reason), F8_OK);
    ck_assert_int_eq(state_fixture_files(fixture.snapshots, NULL), 1);
    snapshot_reboot(&fixture);
    ck_assert(has("dp", 2, fixture.after));
}
END_TEST

/* It could not be removed, and a new state of the group is there: that one is the newer one. */
START_TEST(a_new_state_is_newer_than_any_before)
{
    make_two();
    for (uint64_t n = 3; n < 20; n++)
        sync_to("dp", n, fixture.after);
    passes(1);
    size_t size;
    static uint8_t old[65536];
    memcpy(old, snapshot_read(snapshot_path(&fixture, 1, "snapshot"), &size), sizeof(old));
    state_drop(snapshot_find(&fixture, "dp"));
    (void)snapshot_put(&fixture, "dp");
    snapshot_overwrite(snapshot_path(&fixture, 1, "snapshot"), old, size);
    snapshot_close(&fixture);
    snapshot_open(&fixture);
    ck_assert(has("dp", 1, fixture.before));
}
END_TEST

START_TEST(another_daemon_is_kept_out)
{
    struct state_store *second;
    struct config config = fixture.config;
    (void)strcat(config.socket, "2");
    ck_assert_int_eq(state_store_open(&fixture.loop, &config, &second, &fixture.reason), F8_EBUSY);
    ck_assert_ptr_nonnull(strstr(fixture.reason.text, "another daemon uses it"));
    (void)uv_run(&fixture.loop, UV_RUN_DEFAULT);
}
END_TEST

START_TEST(without_a_directory_there_is_none)
{
    struct state_waiter waiter;
    snapshot_close(&fixture);
    fixture.config.state_dir[0] = '\0';
    snapshot_open(&fixture);
    ck_assert_int_eq(state_saver_ask(fixture.saver, &waiter, &fixture.reason), F8_ENOENT);
    ck_assert_ptr_nonnull(strstr(fixture.reason.text, "keeps no snapshots"));
    state_drop(snapshot_put(&fixture, "dp"));
}
END_TEST

static void never(uv_timer_t *timer)
{
    (void)timer;
    ck_abort_msg("no pass is made");
}

START_TEST(the_clock_makes_passes)
{
    (void)snapshot_put(&fixture, "dp");
    fixture.config.snapshot_interval_ms = 1;
    state_saver_reload(fixture.saver);
    uv_timer_t awake; /* the saver's own clock does not keep the loop running */
    (void)uv_timer_init(&fixture.loop, &awake);
    (void)uv_timer_start(&awake, never, 60000, 0);
    while (state_saver_last(fixture.saver)->states == 0)
        (void)loop_turn(&fixture.loop);
    uv_close((uv_handle_t *)&awake, NULL);
    (void)uv_run(&fixture.loop, UV_RUN_DEFAULT);
}
END_TEST

/* What a model of 10,000 delayed weights costs the loop. */
START_TEST(the_loop_is_not_held_up)
{
    struct weight_list *list = state_fixture_list();
    const struct weight weight = state_fixture_weight();
    for (int w = 0; w < 10000; w++) {
        char name[48];
        (void)snprintf(name, sizeof(name), "model.layers.%d.mlp.gate_proj.weight", w);
        state_fixture_add(list, name, &weight);
    }
    struct scaling *scalings = state_fixture_scalings(list, 7);
    const struct state_owner owner = {.uid = SNAPSHOT_UID, .job = "job", .group = "large"};
    struct state_form form;
    struct state *state;
    ck_assert_int_eq(state_form_make(&owner, list, scalings, 1, &form, &fixture.reason), F8_OK);
    ck_assert_int_eq(state_put(fixture.store, &form, &state, &fixture.reason), F8_OK);
    state_form_done(&form);
    struct state_pass pass = snapshot_pass(&fixture);
    ck_assert_int_eq(pass.status, F8_OK);
    (void)printf("10000 weights: %llu bytes in %.1f ms, of which the loop took %.3f ms\n",
        (unsigned long long)pass.bytes, (double)pass.ns / 1e6, (double)pass.held_up_ns / 1e6);
    ck_assert_double_lt((double)pass.held_up_ns / 1e9, 0.2); /* far less, but for busy machines */
    free(scalings);
    weights_unref(list);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("snapshots");
    tcase_set_timeout(tcase, 240);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, outlives_a_reboot);
    tcase_add_test(tcase, only_what_changed_is_written);
    tcase_add_test(tcase, the_newer_of_both_counts);
    tcase_add_test(tcase, a_damaged_runtime_file_is_replaced);
    tcase_add_test(tcase, what_is_dropped_stays_away);
    tcase_add_test(tcase, what_is_replaced_stays_away);
    tcase_add_test(tcase, what_is_continued_is_kept);
    tcase_add_test(tcase, what_goes_while_it_is_written_stays_away);
    tcase_add_test(tcase, every_cut_and_every_flip_is_found);
    tcase_add_test(tcase, mixtures_of_two_are_found);
    tcase_add_test(tcase, both_damaged_is_nothing);
    tcase_add_test(tcase, what_was_not_committed_does_not_count);
    tcase_add_test(tcase, of_two_of_a_group_the_later_counts);
    tcase_add_test(tcase, a_full_disk_is_said_and_tried_again);
    tcase_add_test(tcase, a_removal_that_fails_is_tried_again);
    tcase_add_test(tcase, a_removal_tried_later_leaves_what_is_new);
    tcase_add_test(tcase, a_new_state_is_newer_than_any_before);
    tcase_add_test(tcase, another_daemon_is_kept_out);
    tcase_add_test(tcase, without_a_directory_there_is_none);
    tcase_add_test(tcase, the_clock_makes_passes);
    tcase_add_test(tcase, the_loop_is_not_held_up);
    return run_suite("state_snapshot", tcase);
}
