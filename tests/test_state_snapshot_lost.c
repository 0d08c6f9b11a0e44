/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Passes that have nothing to save, or whose state goes meanwhile, tell no lie: the directory may
 * be gone, replaced or read-only. Each test has directories of its own.
 */
#include <check.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/state_private.h"
#include "lib/loop_turn.h"
#include "lib/snapshot_fixture.h"
#include "lib/suite.h"
#include "status.h"

static struct snapshot_fixture fixture;
static char away[300];

static void set_up(void)
{
    snapshot_set_up(&fixture);
    (void)snprintf(away, sizeof(away), "%s/away", fixture.directory);
    (void)snapshot_put(&fixture, "dp");
    ck_assert_int_eq(snapshot_pass(&fixture).status, F8_OK);
}

static void tear_down(void)
{
    snapshot_tear_down(&fixture);
}

/* A pass with nothing due. */
static void fails(const char *text)
{
    struct state_pass pass = snapshot_pass(&fixture);
    ck_assert_int_eq(pass.status, F8_EIO);
    ck_assert_uint_eq(pass.states, 0);
    ck_assert_msg(strstr(pass.reason.text, fixture.snapshots), "%s", pass.reason.text);
    ck_assert_msg(strstr(pass.reason.text, text), "%s", pass.reason.text);
    ck_assert_int_eq(state_saver_last(fixture.saver)->status, F8_EIO);
}

START_TEST(a_directory_that_is_gone_is_named)
{
    ck_assert_int_eq(rename(fixture.snapshots, away), 0);
    fails("cannot find the state directory ");
    ck_assert_int_eq(mkdir(fixture.snapshots, 0700), 0);
    fails(" is another one than this daemon opened");
    ck_assert_int_eq(rmdir(fixture.snapshots), 0);
    ck_assert_int_eq(rename(away, fixture.snapshots), 0);
    ck_assert_int_eq(snapshot_pass(&fixture).status, F8_OK);
    ck_assert_int_eq(
        state_fixture_files(fixture.snapshots, NULL), 1); /* nothing is left of trials */
}
END_TEST

/* Opened while it was writable. Mounts are of this process alone. */
START_TEST(a_directory_that_is_read_only_is_named)
{
    const char *path = fixture.snapshots;
    snapshot_close(&fixture);
    if (mount("none", path, "tmpfs", 0, "mode=700") < 0)
        ck_abort_msg("cannot mount a tmpfs on %s: %s", path, strerror(errno));
    snapshot_open(&fixture);
    ck_assert_int_eq(snapshot_pass(&fixture).status, F8_OK);
    ck_assert_int_eq(mount("none", path, "tmpfs", MS_REMOUNT | MS_RDONLY, "mode=700"), 0);
    fails("cannot write to the state directory ");
    ck_assert_int_eq(mount("none", path, "tmpfs", MS_REMOUNT, "mode=700"), 0);
    ck_assert_int_eq(snapshot_pass(&fixture).status, F8_OK);
    snapshot_close(&fixture);
    ck_assert_int_eq(umount(path), 0);
    snapshot_open(&fixture);
}
END_TEST

static void drop(uv_timer_t *timer)
{
    state_drop(snapshot_find(&fixture, "dp"));
    uv_close((uv_handle_t *)timer, NULL);
}

static void keep(struct state_waiter *waiter, const struct state_pass *pass)
{
    (void)waiter;
    ck_assert_int_eq(pass->status, F8_OK);
    ck_assert_uint_eq(pass->states, 0);
    ck_assert_uint_eq(pass->bytes, 0);
    away[0] = '\0';
}

/* Of two timers that are due, the one that was started first is called first: the pass begins. */
START_TEST(what_goes_meanwhile_is_not_counted)
{
    struct state_waiter waiter = {.done = keep};
    uv_timer_t timer;
    state_sync(snapshot_find(&fixture, "dp"), 2, fixture.list, fixture.after);
    ck_assert_int_eq(state_saver_ask(fixture.saver, &waiter, &fixture.reason), F8_OK);
    (void)uv_timer_init(&fixture.loop, &timer);
    (void)uv_timer_start(&timer, drop, 0, 0);
    while (away[0] != '\0')
        (void)loop_turn(&fixture.loop);
    ck_assert_int_eq(state_fixture_files(fixture.snapshots, NULL), 0);
    (void)uv_run(&fixture.loop, UV_RUN_DEFAULT);
}
END_TEST

/* Whether mounts can be had that nobody else sees. */
static bool has_mounts(void)
{
    if (unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0)
        return true;
    (void)printf("left out: a_directory_that_is_read_only_is_named: %s\n", strerror(errno));
    return false;
}

int main(void)
{
    TCase *tcase = tcase_create("lost");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, a_directory_that_is_gone_is_named);
    if (has_mounts())
        tcase_add_test(tcase, a_directory_that_is_read_only_is_named);
    tcase_add_test(tcase, what_goes_meanwhile_is_not_counted);
    return run_suite("state_snapshot_lost", tcase);
}
