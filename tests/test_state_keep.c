/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long states are kept that no group uses, where there are snapshots: a run may be started
 * again long after a reboot. Times are read, not waited for, but where a few milliseconds must
 * pass.
 */
#include <check.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "daemon/state_private.h"
#include "lib/loop_turn.h"
#include "lib/snapshot_fixture.h"
#include "lib/suite.h"
#include "status.h"

#define HOUR_MS ((uint64_t)3600000)

static struct snapshot_fixture fixture;

static void set_up(void)
{
    snapshot_set_up(&fixture);
}

static void tear_down(void)
{
    snapshot_tear_down(&fixture);
}

static void keep(uint64_t linger_ms, uint64_t keep_ms)
{
    fixture.config.linger_ms = linger_ms;
    fixture.config.snapshot_keep_ms = keep_ms;
}

static void put_and_leave(const char *group)
{
    struct state *state = snapshot_put(&fixture, group);
    state_hold(state);
    ck_assert_uint_eq(state_left_ms(state), 0);
    state_release(state);
}

static void pass(void)
{
    struct state_pass done = snapshot_pass(&fixture);
    ck_assert_msg(done.status == F8_OK, "%s", done.reason.text);
}

static uint64_t left_of(const char *group)
{
    const struct state *state = snapshot_find(&fixture, group);
    ck_assert_ptr_nonnull(state);
    return state_left_ms(state);
}

static void never(uv_timer_t *timer)
{
    (void)timer;
    ck_abort_msg("what awaits its end does not end");
}

/* The store's own clock does not keep the loop running. */
static void await_drop(const char *group)
{
    uv_timer_t patience;
    (void)uv_timer_init(&fixture.loop, &patience);
    (void)uv_timer_start(&patience, never, 60000, 0);
    while (snapshot_find(&fixture, group))
        (void)loop_turn(&fixture.loop);
    uv_close((uv_handle_t *)&patience, NULL);
    (void)uv_run(&fixture.loop, UV_RUN_DEFAULT);
}

/* The scheduler may restart the run when the linger is long over. */
START_TEST(a_state_outlives_the_linger_after_a_reboot)
{
    keep(1, 2 * HOUR_MS);
    put_and_leave("dp");
    pass();
    snapshot_reboot(&fixture);
    ck_assert_uint_gt(left_of("dp"), HOUR_MS);
    ck_assert_uint_le(left_of("dp"), 2 * HOUR_MS);
    ck_assert(snapshot_has(&fixture, "dp", 1, fixture.before));
}
END_TEST

START_TEST(the_longer_of_both_counts)
{
    keep(3 * HOUR_MS, HOUR_MS);
    put_and_leave("linger");
    ck_assert_uint_gt(left_of("linger"), 2 * HOUR_MS);
    keep(0, 3 * HOUR_MS); /* without linger it is kept all the same */
    put_and_leave("keep");
    ck_assert_uint_gt(left_of("keep"), 2 * HOUR_MS);
    keep(0, 0);
    put_and_leave("gone");
    ck_assert_ptr_null(snapshot_find(&fixture, "gone"));
}
END_TEST

START_TEST(without_a_directory_it_does_not_count)
{
    snapshot_close(&fixture);
    fixture.config.state_dir[0] = '\0';
    snapshot_open(&fixture);
    keep(HOUR_MS, 24 * HOUR_MS);
    put_and_leave("dp");
    ck_assert_uint_le(left_of("dp"), HOUR_MS);
    keep(0, 24 * HOUR_MS);
    put_and_leave("dp");
    ck_assert_ptr_null(snapshot_find(&fixture, "dp"));
}
END_TEST

START_TEST(when_its_time_is_up_both_files_go)
{
    keep(0, HOUR_MS);
    put_and_leave("dp");
    pass();
    ck_assert_int_eq(state_fixture_files(fixture.snapshots, NULL), 1);
    keep(1, 3);
    snapshot_close(&fixture);
    snapshot_open(&fixture);
    await_drop("dp");
    ck_assert_int_eq(state_fixture_files(fixture.snapshots, NULL), 0);
    ck_assert_int_eq(state_fixture_files(fixture.states, NULL), 0);
}
END_TEST

/* What lingers is given more time, and none is taken from it. */
START_TEST(a_reload_gives_more_time)
{
    keep(0, HOUR_MS);
    put_and_leave("dp");
    keep(0, 5 * HOUR_MS);
    state_store_reload(fixture.store);
    ck_assert_uint_gt(left_of("dp"), 4 * HOUR_MS);
    keep(0, 1);
    state_store_reload(fixture.store);
    ck_assert_uint_gt(left_of("dp"), 4 * HOUR_MS);
}
END_TEST

START_TEST(the_oldest_still_makes_way)
{
    keep(0, HOUR_MS);
    fixture.config.max_states = 2;
    put_and_leave("a");
    put_and_leave("b");
    pass();
    put_and_leave("c");
    pass();
    ck_assert_ptr_null(snapshot_find(&fixture, "a"));
    snapshot_reboot(&fixture);
    ck_assert_ptr_null(snapshot_find(&fixture, "a"));
    ck_assert(left_of("b") > 0 && left_of("c") > 0);
}
END_TEST

static void write_time(const char *path, time_t seconds)
{
    const struct timespec times[2] = {{.tv_sec = seconds}, {.tv_sec = seconds}};
    ck_assert_int_eq(utimensat(AT_FDCWD, path, times, 0), 0);
}

/*
 * By when it was written, whatever its number, after a reboot (0) and after a restart (1), and the
 * limit alone takes nothing.
 */
START_TEST(the_one_written_first_makes_way)
{
    static const time_t seconds[] = {3000000, 1000000, 2000000};
    static const char *const groups[] = {"a", "b", "c"};
    keep(0, HOUR_MS);
    for (int i = 0; i < 3; i++) {
        put_and_leave(groups[i]);
        pass();
        write_time(snapshot_path(&fixture, (uint64_t)i + 1, "snapshot"), seconds[i]);
    }
    fixture.config.max_states = 2;
    snapshot_close(&fixture);
    if (_i == 0)
        state_fixture_remove_files(fixture.states);
    snapshot_open(&fixture);
    ck_assert(left_of("a") > 0 && left_of("b") > 0 && left_of("c") > 0);
    put_and_leave("d");
    ck_assert_ptr_null(snapshot_find(&fixture, "b"));
    ck_assert_ptr_null(snapshot_find(&fixture, "c"));
    ck_assert(left_of("a") > 0);
    put_and_leave("e");
    ck_assert_ptr_null(snapshot_find(&fixture, "a"));
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("kept");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, a_state_outlives_the_linger_after_a_reboot);
    tcase_add_test(tcase, the_longer_of_both_counts);
    tcase_add_test(tcase, without_a_directory_it_does_not_count);
    tcase_add_test(tcase, when_its_time_is_up_both_files_go);
    tcase_add_test(tcase, a_reload_gives_more_time);
    tcase_add_test(tcase, the_oldest_still_makes_way);
    tcase_add_loop_test(tcase, the_one_written_first_makes_way, 0, 2);
    return run_suite("state_keep", tcase);
}
