/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of states that a start does not use: those that cannot be read now, which keep the daemon
 * from starting, as they may be whole; and those of a newer form, which wait for a daemon that
 * reads it. Beside the socket as in the state directory.
 */
#include <check.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "daemon/state_private.h"
#include "lib/snapshot_fixture.h"
#include "lib/suite.h"
#include "status.h"

#define NOBODY 65534

static struct snapshot_fixture fixture;

static void set_up(void)
{
    snapshot_set_up(&fixture);
}

static void tear_down(void)
{
    snapshot_tear_down(&fixture);
}

static void pass(void)
{
    struct state_pass done = snapshot_pass(&fixture);
    ck_assert_msg(done.status == F8_OK, "%s", done.reason.text);
}

/* Two snapshots of dp and one of other, and the files beside the socket; then all is closed. */
static void make_files(void)
{
    (void)snapshot_put(&fixture, "dp");
    pass();
    state_sync(snapshot_find(&fixture, "dp"), 2, fixture.list, fixture.after);
    (void)snapshot_put(&fixture, "other");
    pass();
    snapshot_close(&fixture);
}

/* As snapshot_open, but it may fail, and then all is closed again. */
static int try_open(void)
{
    ck_assert_int_eq(uv_loop_init(&fixture.loop), 0);
    int status = state_store_open(&fixture.loop, &fixture.config, &fixture.store, &fixture.reason);
    if (status == F8_OK)
        state_store_close(fixture.store);
    ck_assert_int_eq(uv_run(&fixture.loop, UV_RUN_DEFAULT), 0);
    ck_assert_int_eq(uv_loop_close(&fixture.loop), 0);
    return status;
}

/* The path of the one file beside the socket that has this number. */
static const char *live_path(uint64_t number, const char *suffix)
{
    static char path[256];
    (void)snprintf(
        path, sizeof(path), "%s/%016llx.%s", fixture.states, (unsigned long long)number, suffix);
    return path;
}

/* Whoever may read anything becomes somebody to whom all belongs but one file, which he may not. */
static void lock_out(const char *path)
{
    ck_assert_int_eq(chmod(path, 0), 0);
    if (geteuid() != 0)
        return;
    ck_assert_int_eq(chmod(fixture.directory, 0755), 0);
    ck_assert_int_eq(chown(fixture.states, NOBODY, (gid_t)-1), 0);
    ck_assert_int_eq(chown(fixture.snapshots, NOBODY, (gid_t)-1), 0);
    for (uint64_t number = 1; number <= 2; number++) {
        (void)chown(live_path(number, "state"), NOBODY, (gid_t)-1);
        (void)chown(snapshot_path(&fixture, number, "snapshot"), NOBODY, (gid_t)-1);
        (void)chown(snapshot_path(&fixture, number, "previous"), NOBODY, (gid_t)-1);
    }
    ck_assert_int_eq(chown(path, 0, (gid_t)-1), 0);
    ck_assert_int_eq(seteuid(NOBODY), 0);
}

static void let_in(const char *path)
{
    if (getuid() == 0) {
        ck_assert_int_eq(seteuid(0), 0);
        (void)chown(fixture.states, 0, (gid_t)-1);
        (void)chown(fixture.snapshots, 0, (gid_t)-1);
    }
    ck_assert_int_eq(chmod(path, 0600), 0);
}

/* A file that the daemon may not read: the start names it, and once it may nothing is lost. */
static void check_denied(const char *path)
{
    char kept[256];
    (void)strcpy(kept, path);
    lock_out(kept);
    int status = try_open();
    let_in(kept);
    ck_assert_int_eq(status, F8_EIO);
    const char *text = fixture.reason.text;
    ck_assert_msg(strstr(text, strrchr(kept, '/') + 1), "%s", text);
    ck_assert_msg(strstr(text, "Permission denied"), "%s", text);
    ck_assert_msg(strstr(text, "start again"), "%s", text);
    ck_assert_int_eq(access(kept, F_OK), 0);
    snapshot_open(&fixture);
    ck_assert(snapshot_has(&fixture, "dp", 2, fixture.after));
    ck_assert(snapshot_has(&fixture, "other", 1, fixture.before));
}

START_TEST(a_snapshot_that_may_not_be_read_stops_the_start)
{
    make_files();
    state_fixture_remove_files(fixture.states);
    check_denied(snapshot_path(&fixture, 1, "snapshot"));
    ck_assert_int_eq(access(snapshot_path(&fixture, 1, "snapshot.damaged"), F_OK), -1);
}
END_TEST

START_TEST(a_live_file_that_may_not_be_read_stops_the_start)
{
    make_files();
    check_denied(live_path(1, "state"));
}
END_TEST

/* With each number of descriptors it opens with all there is, or refuses and leaves all. */
START_TEST(without_descriptors_nothing_is_lost)
{
    struct rlimit old, few;
    make_files();
    if (_i == 0)
        state_fixture_remove_files(fixture.states);
    int files = state_fixture_files(fixture.snapshots, NULL), refused = 0, status = F8_EIO;
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &old), 0);
    few = old;
    ck_assert_int_eq(uv_loop_init(&fixture.loop), 0);
    int lowest = dup(0);
    (void)close(lowest);
    for (few.rlim_cur = (rlim_t)lowest; status < 0; few.rlim_cur++) {
        ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
        status = state_store_open(&fixture.loop, &fixture.config, &fixture.store, &fixture.reason);
        ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &old), 0);
        ck_assert_msg(status == F8_OK || status == F8_EIO, "%s", fixture.reason.text);
        ck_assert_int_eq(state_fixture_files(fixture.snapshots, NULL), files);
        ck_assert_int_eq(access(snapshot_path(&fixture, 1, "snapshot"), F_OK), 0);
        refused += status < 0;
        if (status == F8_OK)
            state_store_close(fixture.store);
        ck_assert_int_eq(uv_run(&fixture.loop, UV_RUN_DEFAULT), 0);
    }
    ck_assert_int_eq(uv_loop_close(&fixture.loop), 0);
    ck_assert_int_ge(refused, 3);
    snapshot_open(&fixture);
    ck_assert(snapshot_has(&fixture, "dp", 2, fixture.after));
    ck_assert(snapshot_has(&fixture, "other", 1, fixture.before));
}
END_TEST

/* A link and a directory in a file's place are what they are: no right makes them a state. */
START_TEST(what_is_no_file_is_set_aside)
{
    char path[256];
    make_files();
    state_fixture_remove_files(fixture.states);
    (void)strcpy(path, snapshot_path(&fixture, 1, "snapshot"));
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(symlink("/none/there", path), 0);
    snapshot_open(&fixture);
    ck_assert(snapshot_has(&fixture, "dp", 1, fixture.before));
    ck_assert_int_eq(unlink(snapshot_path(&fixture, 1, "snapshot.damaged")), 0);
}
END_TEST

/* The form of a file becomes that of another release, which has its own version. */
static void set_version(const char *path, uint32_t version)
{
    uint8_t head[4096];
    uint32_t size, crc = 0;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    ck_assert_int_gt(pread(fd, head, sizeof(head), 0), 48);
    memcpy(&size, head + 16, sizeof(size));
    memcpy(head + 8, &version, sizeof(version));
    memcpy(head + 12, &crc, sizeof(crc));
    crc = (uint32_t)crc32(0, head, size);
    memcpy(head + 12, &crc, sizeof(crc));
    ck_assert_int_eq(pwrite(fd, head, size, 0), (ssize_t)size);
    (void)close(fd);
}

static struct state_saved saved(void)
{
    struct state_saved all;
    state_store_saved(fixture.store, &all);
    return all;
}

/* Back to an older release and forward again; nothing was stored meanwhile. */
START_TEST(a_newer_snapshot_waits)
{
    make_files();
    state_fixture_remove_files(fixture.states);
    set_version(snapshot_path(&fixture, 1, "snapshot"), 2);
    snapshot_open(&fixture);
    ck_assert_ptr_null(snapshot_find(&fixture, "dp")); /* the one before is older than what waits */
    ck_assert(snapshot_has(&fixture, "other", 1, fixture.before));
    ck_assert_uint_eq(saved().damaged->count, 0);
    ck_assert_uint_eq(saved().newer->count, 1);
    ck_assert_str_eq(saved().newer->names[0], "0000000000000001.snapshot");
    pass();
    ck_assert_int_eq(access(snapshot_path(&fixture, 1, "previous"), F_OK), 0);
    set_version(snapshot_path(&fixture, 1, "snapshot"), 1);
    snapshot_reboot(&fixture);
    ck_assert(snapshot_has(&fixture, "dp", 2, fixture.after));
    ck_assert_uint_eq(saved().newer->count, 0);
}
END_TEST

/* The run went on with the older release: that is its state then, and the other is kept aside. */
START_TEST(what_was_stored_meanwhile_counts)
{
    make_files();
    state_fixture_remove_files(fixture.states);
    set_version(snapshot_path(&fixture, 1, "snapshot"), 2);
    snapshot_open(&fixture);
    (void)snapshot_put(&fixture, "dp");
    pass(); /* under a number of its own */
    ck_assert_int_eq(access(snapshot_path(&fixture, 3, "snapshot"), F_OK), 0);
    set_version(snapshot_path(&fixture, 1, "snapshot"), 1);
    snapshot_reboot(&fixture);
    ck_assert(snapshot_has(&fixture, "dp", 1, fixture.before));
    ck_assert_int_eq(access(snapshot_path(&fixture, 1, "snapshot.damaged"), F_OK), 0);
    ck_assert_int_eq(unlink(snapshot_path(&fixture, 1, "snapshot.damaged")), 0);
}
END_TEST

START_TEST(a_newer_live_file_waits)
{
    make_files();
    state_fixture_remove_files(fixture.snapshots);
    set_version(live_path(1, "state"), 2);
    snapshot_open(&fixture);
    ck_assert_ptr_null(snapshot_find(&fixture, "dp"));
    ck_assert_uint_eq(saved().live_damaged->count, 0);
    ck_assert_uint_eq(saved().live_newer->count, 1);
    ck_assert_str_eq(saved().live_newer->names[0], "0000000000000001.state");
    (void)snapshot_put(&fixture, "third"); /* takes another number */
    set_version(live_path(1, "state"), 1);
    snapshot_close(&fixture);
    snapshot_open(&fixture);
    ck_assert(snapshot_has(&fixture, "dp", 2, fixture.after));
    ck_assert(snapshot_has(&fixture, "third", 1, fixture.before));
}
END_TEST

static void damage_version(const char *path)
{
    uint8_t version = 2;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    ck_assert_int_eq(pwrite(fd, &version, 1, 8), 1);
    (void)close(fd);
}

/* Its version says so, but not its checksum: it is damaged. Later starts tell of it, too. */
START_TEST(a_damaged_version_is_not_newer)
{
    make_files();
    damage_version(live_path(1, "state"));
    damage_version(snapshot_path(&fixture, 1, "snapshot"));
    for (int start = 0; start < 2; start++) {
        snapshot_open(&fixture);
        ck_assert(snapshot_has(&fixture, "dp", 1, fixture.before));
        ck_assert_uint_eq(saved().newer->count + saved().live_newer->count, 0);
        ck_assert_str_eq(saved().damaged->names[0], "0000000000000001.snapshot.damaged");
        ck_assert_uint_eq(saved().live_damaged->count, 1);
        ck_assert_str_eq(saved().live_damaged->names[0], "0000000000000001.state.bad");
        if (start == 0)
            snapshot_close(&fixture);
    }
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("set aside");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, a_snapshot_that_may_not_be_read_stops_the_start);
    tcase_add_test(tcase, a_live_file_that_may_not_be_read_stops_the_start);
    tcase_add_loop_test(tcase, without_descriptors_nothing_is_lost, 0, 2);
    tcase_add_test(tcase, what_is_no_file_is_set_aside);
    tcase_add_test(tcase, a_newer_snapshot_waits);
    tcase_add_test(tcase, what_was_stored_meanwhile_counts);
    tcase_add_test(tcase, a_newer_live_file_waits);
    tcase_add_test(tcase, a_damaged_version_is_not_newer);
    return run_suite("state_aside", tcase);
}
