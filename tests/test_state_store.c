/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stored states: files that survive their daemon, damage that is set aside, a death between the
 * halves, lingering and eviction, a full disk. Each test has a directory and a loop of its own.
 */
#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uv.h>

#include "daemon/registry.h"
#include "daemon/state.h"
#include "daemon/state_file.h"
#include "lib/loop_turn.h"
#include "lib/state_fixture.h"
#include "lib/suite.h"
#include "status.h"

#define UID 1000

static uv_loop_t loop;
static struct config config;
static struct state_store *store;
static struct reason reason;
static struct weight_list *list;
static struct scaling *before, *after; /* two sets of values */
static char directory[64], states[128];

static void open_store(void)
{
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    int status = state_store_open(&loop, &config, &store, &reason);
    ck_assert_msg(status == F8_OK, "%s", reason.text);
}

static void close_store(void)
{
    state_store_close(store);
    store = NULL;
    ck_assert_int_eq(uv_run(&loop, UV_RUN_DEFAULT), 0);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}

static void set_up(void)
{
    config = (struct config){.max_states = 8, .linger_ms = 3600000};
    (void)strcpy(directory, "/tmp/f8state-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(directory));
    (void)snprintf(config.socket, sizeof(config.socket), "%s/s", directory);
    (void)snprintf(states, sizeof(states), "%s.state", config.socket);
    list = state_fixture_model();
    before = state_fixture_scalings(list, 3);
    after = state_fixture_scalings(list, 5);
    log_set_level(LOG_LEVEL_ERROR);
    open_store();
}

static void tear_down(void)
{
    close_store();
    state_fixture_remove_files(states);
    (void)rmdir(states);
    ck_assert_int_eq(rmdir(directory), 0);
    free(before);
    free(after);
    weights_unref(list);
}

/* Stores `before` as sync 1 of a group. */
static struct state *put(const char *group)
{
    const struct state_owner owner = {.uid = UID, .job = "job", .group = group};
    struct state_form form;
    struct state *state = NULL;
    int status = state_form_make(&owner, list, before, 1, &form, &reason);
    if (status == F8_OK)
        status = state_put(store, &form, &state, &reason);
    ck_assert_msg(status == F8_OK, "%s", reason.text);
    state_form_done(&form);
    return state;
}

static bool holds(const struct state *state, const struct scaling *scalings)
{
    struct scaling *read = state_fixture_scalings(list, 0);
    state_values_read(state_values(state), list, read);
    bool same = state_fixture_same(list, scalings, read);
    free(read);
    return same;
}

static uint64_t syncs(const struct state *state)
{
    return state_values_syncs(state_values(state));
}

static void reopen(void)
{
    close_store();
    open_store();
}

/* The path of the only file. */
static char only[512];

static void note_file(const char *path)
{
    (void)strcpy(only, path);
}

static const char *the_file(void)
{
    ck_assert_int_eq(state_fixture_files(states, note_file), 1);
    return only;
}

START_TEST(nothing_is_made_before_it_is_needed)
{
    ck_assert_int_lt(access(states, F_OK), 0);
    struct state *state = put("dp");
    struct stat st;
    ck_assert_int_eq(stat(states, &st), 0);
    ck_assert_uint_eq(st.st_mode & 0777, 0700);
    ck_assert_int_eq(stat(the_file(), &st), 0);
    ck_assert_uint_eq(st.st_mode & 0777, 0600);
    ck_assert_uint_eq(state_store_held(store, UID), (uint64_t)st.st_size);
    ck_assert_uint_eq(state_store_held(store, UID + 1), 0);
    state_drop(state);
    ck_assert_int_eq(state_fixture_files(states, NULL), 0);
    reopen(); /* an empty directory goes */
    ck_assert_int_lt(access(states, F_OK), 0);
}
END_TEST

START_TEST(syncs_outlive_the_daemon)
{
    struct state *state = put("dp");
    state_hold(state);
    for (uint64_t n = 2; n <= 9; n++) {
        state_sync(state, n, list, n % 2 ? before : after);
        reopen();
        state = state_find(store, UID, "job", "dp");
        ck_assert_ptr_nonnull(state);
        ck_assert_uint_eq(syncs(state), n);
        ck_assert(holds(state, n % 2 ? before : after));
    }
    ck_assert_ptr_null(state_find(store, UID + 1, "job", "dp"));
    ck_assert_ptr_null(state_find(store, UID, "job", "dp2"));
}
END_TEST

/* As a SIGKILL would leave it: new values in the other half, whole or not, and no flip. */
START_TEST(death_before_the_flip_changes_nothing)
{
    (void)put("dp");
    for (size_t torn = 0; torn < 3; torn++) {
        struct state_file file;
        const char *name = strrchr(the_file(), '/') + 1;
        int fd = open(states, O_RDONLY | O_DIRECTORY);
        ck_assert_int_eq(state_file_open(fd, name, &file, &reason), F8_OK);
        state_file_write(&file, 2, list, after);
        /* The half that does not hold is the last of the file: a part of it was never written. */
        memset(file.data + file.size - torn * 50, 0xa5, torn * 50);
        state_file_close(&file);
        (void)close(fd);
        reopen();
        const struct state *state = state_find(store, UID, "job", "dp");
        ck_assert_ptr_nonnull(state);
        ck_assert_uint_eq(syncs(state), 1);
        ck_assert(holds(state, before));
    }
}
END_TEST

static void flip(const char *path, off_t at, uint8_t mask)
{
    uint8_t byte;
    int fd = open(path, O_RDWR);
    ck_assert_int_eq(pread(fd, &byte, 1, at), 1);
    byte ^= mask;
    ck_assert_int_eq(pwrite(fd, &byte, 1, at), 1);
    (void)close(fd);
}

/* Any byte: either it is of the half that does not hold, or the file is set aside as a whole. */
START_TEST(every_flipped_byte_is_found)
{
    state_sync(put("dp"), 2, list, after);
    close_store();
    char path[512], bad[520];
    (void)strcpy(path, the_file());
    (void)snprintf(bad, sizeof(bad), "%s.bad", path);
    struct stat st;
    ck_assert_int_eq(stat(path, &st), 0);
    off_t unused = 0;
    log_set_level((enum log_level)(LOG_LEVEL_ERROR - 1)); /* each is logged */
    for (off_t at = 0; at < st.st_size; at++) {
        uint8_t mask = (uint8_t)(1u << at % 8);
        flip(path, at, mask);
        open_store();
        const struct state *state = state_find(store, UID, "job", "dp");
        unused += state != NULL;
        ck_assert(!state || (syncs(state) == 2 && holds(state, after)));
        ck_assert(state ? access(bad, F_OK) < 0 : rename(bad, path) == 0);
        close_store();
        flip(path, at, mask);
    }
    struct state_form form = state_fixture_form(list, before, 0);
    ck_assert_int_eq(unused, (off_t)form.head.values_size);
    state_form_done(&form);
    open_store();
    ck_assert_ptr_nonnull(state_find(store, UID, "job", "dp"));
}
END_TEST

START_TEST(cut_and_newer_files_are_set_aside)
{
    (void)put("dp");
    close_store();
    struct stat st;
    char path[512];
    (void)strcpy(path, the_file());
    ck_assert_int_eq(stat(path, &st), 0);
    log_set_level((enum log_level)(LOG_LEVEL_ERROR - 1));
    for (off_t size = st.st_size - 1; size >= 0; size--) {
        ck_assert_int_eq(truncate(path, size), 0);
        open_store();
        ck_assert_ptr_null(state_find(store, UID, "job", "dp"));
        close_store();
        char bad[520];
        (void)snprintf(bad, sizeof(bad), "%s.bad", path);
        ck_assert_int_eq(rename(bad, path), 0);
    }
    open_store();
}
END_TEST

/* What is set aside is not written over: its number is not given out again. */
START_TEST(damaged_files_stay)
{
    (void)put("dp");
    close_store();
    flip(the_file(), 8, 2); /* the version */
    log_set_level((enum log_level)(LOG_LEVEL_ERROR - 1));
    open_store();
    (void)put("dp");
    ck_assert_int_eq(state_fixture_files(states, NULL), 2);
    reopen();
    ck_assert_int_eq(state_fixture_files(states, NULL), 2);
    ck_assert_ptr_nonnull(state_find(store, UID, "job", "dp"));
}
END_TEST

START_TEST(hostile_names_stay_in_the_directory)
{
    static const char *const names[] = {"../../../tmp/x", "/etc/passwd", "..", ".", "a b", "%s%n"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        (void)put(names[i]);
    ck_assert_int_eq(state_fixture_files(states, NULL), (int)(sizeof(names) / sizeof(names[0])));
    reopen();
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        ck_assert_ptr_nonnull(state_find(store, UID, "job", names[i]));
}
END_TEST

START_TEST(only_the_token_opens)
{
    struct state_form form = state_fixture_form(list, before, 1);
    struct state *state;
    ck_assert_int_eq(state_put(store, &form, &state, &reason), F8_OK);
    state_form_done(&form);
    reopen();
    state = state_find(store, 1000, "../job", "dp/../x");
    ck_assert(state_admits(state, (const uint8_t *)"secret", 6));
    ck_assert(!state_admits(state, (const uint8_t *)"secreT", 6));
    ck_assert(!state_admits(state, (const uint8_t *)"secre", 5));
    ck_assert(!state_admits(state, NULL, 0));
    ck_assert(state_admits(put("open"), NULL, 0));
    ck_assert(!state_admits(put("open"), (const uint8_t *)"secret", 6));
}
END_TEST

static void never(uv_timer_t *timer)
{
    (void)timer;
    ck_abort_msg("the state is still there");
}

/* Runs the loop until the state is gone. */
static void await_drop(const char *group)
{
    uv_timer_t patience; /* the store's own clock does not keep the loop running */
    (void)uv_timer_init(&loop, &patience);
    (void)uv_timer_start(&patience, never, 60000, 0);
    while (state_find(store, UID, "job", group))
        (void)loop_turn(&loop);
    uv_close((uv_handle_t *)&patience, NULL);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
}

START_TEST(what_lingers_is_dropped)
{
    config.linger_ms = 3;
    struct state *held = put("held");
    state_hold(held);
    state_release(put("gone"));
    await_drop("gone");
    ck_assert_int_eq(state_fixture_files(states, NULL), 1);
    ck_assert(state_is_held(held));
    reopen(); /* nobody holds it now */
    await_drop("held");
    ck_assert_int_eq(state_fixture_files(states, NULL), 0);
}
END_TEST

START_TEST(no_clock_runs_while_nothing_lingers)
{
    state_hold(put("dp"));
    uv_timer_t other;
    (void)uv_timer_init(&loop, &other);
    (void)uv_timer_start(&other, never, 7200000, 0);
    (void)uv_run(&loop, UV_RUN_NOWAIT);
    ck_assert_int_gt(uv_backend_timeout(&loop), 3600000);
    state_release(state_find(store, UID, "job", "dp"));
    ck_assert_int_le(uv_backend_timeout(&loop), 3600000);
    uv_close((uv_handle_t *)&other, NULL);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
}
END_TEST

START_TEST(without_linger_it_goes_with_its_group)
{
    config.linger_ms = 0;
    struct state *state = put("dp");
    state_hold(state);
    state_release(state);
    ck_assert_ptr_null(state_find(store, UID, "job", "dp"));
    ck_assert_int_eq(state_fixture_files(states, NULL), 0);
}
END_TEST

START_TEST(the_oldest_of_the_uid_makes_way)
{
    config.max_states = 3;
    struct state_form other = state_fixture_form(list, before, 1); /* "../job" counts too */
    struct state *state;
    ck_assert_int_eq(state_put(store, &other, &state, &reason), F8_OK);
    state_form_done(&other);
    state_hold(state);
    (void)put("a");
    (void)put("b");
    (void)put("a"); /* anew: b is the oldest now */
    (void)put("c");
    ck_assert_ptr_null(state_find(store, UID, "job", "b"));
    ck_assert_ptr_nonnull(state_find(store, UID, "job", "a"));
    state_hold(state_find(store, UID, "job", "a"));
    state_hold(state_find(store, UID, "job", "c"));
    const struct state_owner owner = {.uid = UID, .job = "job", .group = "d"};
    struct state_form form;
    ck_assert_int_eq(state_form_make(&owner, list, before, 1, &form, &reason), F8_OK);
    ck_assert_int_eq(state_put(store, &form, &state, &reason), F8_ELIMIT);
    ck_assert_ptr_nonnull(strstr(reason.text, "group d is one more than the 3 of uid 1000"));
    state_form_done(&form);
    /* Another uid is not concerned. */
    const struct state_owner stranger = {.uid = UID + 1, .job = "job", .group = "d"};
    ck_assert_int_eq(state_form_make(&stranger, list, before, 1, &form, &reason), F8_OK);
    ck_assert_int_eq(state_put(store, &form, &state, &reason), F8_OK);
    state_form_done(&form);
    ck_assert_int_eq(state_fixture_files(states, NULL), 4);
}
END_TEST

START_TEST(states_count_as_memory)
{
    struct registry *registry = registry_new(&config);
    ck_assert_ptr_nonnull(registry);
    registry_count_also(registry, state_store_held, store);
    (void)put("dp");
    config.memory_per_uid = state_store_held(store, UID) + 10;
    ck_assert_int_eq(registry_check_room(registry, UID, "it", 10, &reason), F8_OK);
    ck_assert_int_eq(registry_check_room(registry, UID, "it", 11, &reason), F8_ELIMIT);
    ck_assert_ptr_nonnull(strstr(reason.text, "; stored states have 0.0 MiB"));
    ck_assert_int_eq(registry_check_room(registry, UID + 1, "it", 11, &reason), F8_OK);
    registry_free(registry);
}
END_TEST

START_TEST(a_full_disk_leaves_what_was_there)
{
    struct rlimit old, small;
    struct state *state = put("dp");
    const struct state_owner owner = {.uid = UID, .job = "job", .group = "dp"};
    struct state_form form;
    ck_assert_int_eq(state_form_make(&owner, list, after, 7, &form, &reason), F8_OK);
    (void)signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = old;
    small.rlim_cur = 100;
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
    int status = state_put(store, &form, &state, &reason);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &old), 0);
    (void)signal(SIGXFSZ, SIG_DFL);
    ck_assert_int_eq(status, F8_EIO);
    ck_assert_ptr_eq(
        strstr(reason.text, "cannot store the state of group dp: the file takes "), reason.text);
    ck_assert_int_eq(state_fixture_files(states, NULL), 1);
    ck_assert(syncs(state) == 1 && holds(state, before));
    state_form_done(&form);
}
END_TEST

START_TEST(another_daemon_is_kept_out)
{
    (void)put("dp");
    struct state_store *second;
    ck_assert_int_eq(state_store_open(&loop, &config, &second, &reason), F8_EBUSY);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_ptr_nonnull(strstr(reason.text, "another daemon uses it"));
    close_store();
    ck_assert_int_eq(chmod(states, 0755), 0);
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert_int_eq(state_store_open(&loop, &config, &second, &reason), F8_EPERM);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&loop);
    ck_assert_int_eq(chmod(states, 0700), 0);
    open_store();
    ck_assert_ptr_nonnull(state_find(store, UID, "job", "dp"));
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("stores");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, nothing_is_made_before_it_is_needed);
    tcase_add_test(tcase, syncs_outlive_the_daemon);
    tcase_add_test(tcase, death_before_the_flip_changes_nothing);
    tcase_add_test(tcase, every_flipped_byte_is_found);
    tcase_add_test(tcase, cut_and_newer_files_are_set_aside);
    tcase_add_test(tcase, damaged_files_stay);
    tcase_add_test(tcase, hostile_names_stay_in_the_directory);
    tcase_add_test(tcase, only_the_token_opens);
    tcase_add_test(tcase, what_lingers_is_dropped);
    tcase_add_test(tcase, no_clock_runs_while_nothing_lingers);
    tcase_add_test(tcase, without_linger_it_goes_with_its_group);
    tcase_add_test(tcase, the_oldest_of_the_uid_makes_way);
    tcase_add_test(tcase, states_count_as_memory);
    tcase_add_test(tcase, a_full_disk_leaves_what_was_there);
    tcase_add_test(tcase, another_daemon_is_kept_out);
    return run_suite("state_store", tcase);
}
