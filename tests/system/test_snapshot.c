/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon with a state directory: a run that continues over a reboot, a fresh one after which the
 * old state does not come back, damage and a full disk as operators are told of them. The reboot
 * is an empty runtime directory.
 */
#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "lib/admin_link.h"
#include "lib/state_rank.h"
#include "lib/suite.h"
#include "protocol.h"
#include "status.h"

static struct test_daemon host;
static char directory[128];
static const char *arguments[] = {"--state-dir", directory, "--snapshot-interval", "0", NULL};

static void set_up(void)
{
    (void)strcpy(directory, "/tmp/f8snapshots-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(directory));
    test_daemon_start(&host, arguments);
}

static void tear_down(void)
{
    test_daemon_end(&host);
    test_daemon_restart(&host, NULL);
    test_daemon_drop_states(&host);
    test_daemon_stop(&host);
    test_remove_directory(directory);
}

static void empty_runtime(void)
{
    test_daemon_drop_states(&host);
}

/* An orderly end, the runtime directory is emptied, and a new daemon. */
static void reboot(void)
{
    test_daemon_end(&host);
    empty_runtime();
    test_daemon_restart(&host, arguments);
}

static F8__Reply *ask(F8__Request *request)
{
    int fd, link = admin_link_open(&host, F8__ROLE__ADMIN, NULL);
    F8__Reply *reply = admin_link_ask(link, request, -1, &fd);
    (void)close(link);
    return reply;
}

static F8__Reply *ask_snapshot(void)
{
    F8__Request request = F8__REQUEST__INIT;
    F8__Snapshot message = F8__SNAPSHOT__INIT;
    request.body_case = F8__REQUEST__BODY_SNAPSHOT;
    request.snapshot = &message;
    return ask(&request);
}

static F8__Reply *ask_status(void)
{
    F8__Request request = F8__REQUEST__INIT;
    F8__Inspect message = F8__INSPECT__INIT;
    request.body_case = F8__REQUEST__BODY_INSPECT;
    request.inspect = &message;
    F8__Reply *reply = ask(&request);
    ck_assert_int_eq(reply->status, F8_OK);
    return reply;
}

/* Those who watch are told of it, with these words. */
static void expect_event(enum f8_proto_event kind, const char *text)
{
    F8__Request request = F8__REQUEST__INIT;
    F8__Watch message = F8__WATCH__INIT;
    uint32_t kinds[] = {kind};
    request.body_case = F8__REQUEST__BODY_WATCH;
    request.watch = &message;
    message.kinds = kinds;
    message.n_kinds = 1;
    F8__Reply *reply = ask(&request);
    ck_assert_int_eq(reply->status, F8_OK);
    ck_assert_uint_eq(reply->watch->n_events, 1);
    const F8__Event *event = reply->watch->events[0];
    ck_assert_uint_eq(event->kind, kind);
    ck_assert(kind == F8_PROTO_EVENT_SNAPSHOT ? event->value > 0 : event->value == 0);
    ck_assert_msg(strstr(event->text, text), "%s", event->text);
    f8__reply__free_unpacked(reply, NULL);
}

static void expect_no_log(const char *text)
{
    char log[16384];
    int fd = open(host.log, O_RDONLY | O_CLOEXEC);
    ssize_t size = read(fd, log, sizeof(log) - 1);
    (void)close(fd);
    ck_assert_int_gt(size, 0);
    log[size] = '\0';
    ck_assert_msg(!strstr(log, text), "%s", log);
}

/* A rank that continues at that sync, or is told why not. */
static int continues(uint64_t syncs)
{
    struct state_rank rank;
    state_rank_join(&host, &rank, &(struct state_setup){0});
    int status = state_rank_seal(&rank, F8_STATE_CONTINUE, syncs);
    state_rank_close(&rank);
    return status;
}

START_TEST(a_reboot_loses_nothing)
{
    state_rank_leave(&host, NULL);
    reboot();
    test_daemon_await_log(&host, "is there by its snapshot, at sync 3");
    ck_assert_int_eq(continues(3), F8_OK);
    reboot(); /* what came from a snapshot is in the next one, too */
    ck_assert_int_eq(continues(3), F8_OK);
}
END_TEST

/* A scale that weights with a NaN have given is as good as another to come back. */
START_TEST(a_reboot_loses_no_unsound_scale)
{
    struct state_rank rank;
    void *before, *after;
    size_t size, size_after;
    state_rank_join(&host, &rank, &(struct state_setup){0});
    state_rank_well(state_rank_seal(&rank, F8_STATE_FRESH, 0));
    state_rank_step(&rank, NAN);
    state_rank_well(f8_export(rank.group, &before, &size));
    state_rank_close(&rank);
    reboot();
    state_rank_join(&host, &rank, &(struct state_setup){0});
    state_rank_well(state_rank_seal(&rank, F8_STATE_CONTINUE, 1));
    state_rank_well(f8_export(rank.group, &after, &size_after));
    state_rank_close(&rank);
    ck_assert_uint_eq(size, size_after);
    ck_assert_mem_eq(before, after, size);
    free(before);
    free(after);
}
END_TEST

START_TEST(on_demand_before_a_power_cut)
{
    struct state_rank rank;
    state_rank_join(&host, &rank, &(struct state_setup){0});
    state_rank_well(state_rank_seal(&rank, F8_STATE_FRESH, 0));
    state_rank_step(&rank, 1);
    F8__Reply *reply = ask_snapshot();
    ck_assert_int_eq(reply->status, F8_OK);
    ck_assert_str_eq(reply->snapshot->directory, directory);
    ck_assert_uint_eq(reply->snapshot->written, 1);
    ck_assert_uint_eq(reply->snapshot->states, 1);
    ck_assert_uint_gt(reply->snapshot->written_bytes, 0);
    ck_assert_uint_eq(reply->snapshot->bytes, reply->snapshot->written_bytes);
    f8__reply__free_unpacked(reply, NULL);
    expect_event(F8_PROTO_EVENT_SNAPSHOT, "1 state, ");
    state_rank_step(&rank, 2);
    test_daemon_kill(&host);
    empty_runtime();
    test_daemon_restart(&host, arguments);
    state_rank_close(&rank);
    ck_assert_int_eq(
        continues(2), F8_EMISMATCH); /* the last sync was not saved, and that is said */
    ck_assert_int_eq(continues(1), F8_OK);
}
END_TEST

START_TEST(what_a_fresh_seal_dropped_stays_away)
{
    struct state_rank rank;
    state_rank_leave(&host, NULL);
    f8__reply__free_unpacked(ask_snapshot(), NULL);
    state_rank_join(&host, &rank, &(struct state_setup){0});
    state_rank_well(state_rank_seal(&rank, F8_STATE_FRESH, 0));
    test_daemon_kill(&host);
    empty_runtime();
    test_daemon_restart(&host, arguments);
    state_rank_close(&rank);
    ck_assert_int_ne(continues(3), F8_OK);
}
END_TEST

START_TEST(damage_is_told)
{
    char path[192];
    state_rank_leave(&host, NULL);
    f8__reply__free_unpacked(ask_snapshot(), NULL);
    struct state_rank rank;
    state_rank_join(&host, &rank, &(struct state_setup){0});
    state_rank_well(state_rank_seal(&rank, F8_STATE_CONTINUE, 3));
    state_rank_step(&rank, 9);
    state_rank_close(&rank);
    test_daemon_end(&host);
    empty_runtime();
    (void)snprintf(path, sizeof(path), "%s/0000000000000001.snapshot", directory);
    ck_assert_int_eq(truncate(path, 100), 0);
    test_daemon_restart(&host, arguments);
    test_daemon_await_log(&host, "0000000000000001.snapshot is not used: ");
    test_daemon_await_log(&host, "0000000000000001.previous, is used");
    F8__Reply *reply = ask_status();
    const F8__StatusInfo *status = reply->inspect->status;
    ck_assert_str_eq(status->state_directory, directory);
    ck_assert_uint_eq(status->snapshots, 1);
    ck_assert_uint_eq(status->num_snapshots_damaged, 1);
    ck_assert_str_eq(status->snapshots_damaged[0], "0000000000000001.snapshot.damaged");
    f8__reply__free_unpacked(reply, NULL);
    ck_assert_int_eq(continues(3), F8_OK);
}
END_TEST

/* The file beside the socket is damaged: an older snapshot takes its place, and that is told. */
START_TEST(damage_beside_the_socket_is_told)
{
    char path[192];
    state_rank_leave(&host, NULL);
    test_daemon_end(&host);
    (void)snprintf(path, sizeof(path), "%s.state/0000000000000001.state", host.socket);
    ck_assert_int_eq(truncate(path, 100), 0);
    test_daemon_restart(&host, arguments);
    test_daemon_await_log(&host, "0000000000000001.state is not used: ");
    test_daemon_await_log(&host, "at sync 3: it may be older than a file beside the socket");
    F8__Reply *reply = ask_status();
    const F8__StatusInfo *status = reply->inspect->status;
    ck_assert_uint_eq(status->num_states_damaged, 1);
    ck_assert_str_eq(status->states_damaged[0], "0000000000000001.state.bad");
    ck_assert_uint_eq(status->num_snapshots_damaged, 0);
    f8__reply__free_unpacked(reply, NULL);
    ck_assert_int_eq(continues(3), F8_OK);
}
END_TEST

START_TEST(a_full_disk_is_told_and_passes)
{
    const struct rlimit small = {.rlim_cur = 100, .rlim_max = RLIM_INFINITY};
    struct rlimit old;
    state_rank_leave(&host, NULL);
    ck_assert_int_eq(prlimit(host.pid, RLIMIT_FSIZE, &small, &old), 0);
    F8__Reply *reply = ask_snapshot();
    ck_assert_int_eq(reply->status, F8_EIO);
    ck_assert_ptr_nonnull(strstr(reply->text, "0000000000000001.new: File too large"));
    f8__reply__free_unpacked(reply, NULL);
    expect_event(F8_PROTO_EVENT_SNAPSHOT_FAILED, "File too large");
    reply = ask_status();
    ck_assert_ptr_nonnull(strstr(reply->inspect->status->snapshot_reason, "File too large"));
    ck_assert_uint_eq(reply->inspect->status->snapshots, 0);
    f8__reply__free_unpacked(reply, NULL);
    ck_assert_int_eq(prlimit(host.pid, RLIMIT_FSIZE, &old, NULL), 0);
    reply = ask_snapshot();
    ck_assert_int_eq(reply->status, F8_OK);
    f8__reply__free_unpacked(reply, NULL);
    test_daemon_await_log(&host, "snapshots are written again");
    reply = ask_status();
    ck_assert_str_eq(reply->inspect->status->snapshot_reason, "");
    ck_assert_uint_eq(reply->inspect->status->state_keep_ms, 7 * 24 * 3600000ull);
    ck_assert_uint_eq(reply->inspect->status->snapshots, 1);
    ck_assert(reply->inspect->status->snapshot_done);
    f8__reply__free_unpacked(reply, NULL);
}
END_TEST

/* No later try comes: that is said, and whoever ended the daemon sees it by its status. */
START_TEST(a_last_failure_is_a_failure)
{
    char away[160];
    (void)snprintf(away, sizeof(away), "%s.away", directory);
    state_rank_leave(&host, NULL);
    ck_assert_int_eq(rename(directory, away), 0);
    ck_assert_int_eq(kill(host.pid, SIGTERM), 0);
    ck_assert_int_eq(test_wait(host.pid), 1);
    ck_assert_int_eq(rename(away, directory), 0);
    test_daemon_await_log(&host, "the last snapshots failed: cannot find the state directory ");
    test_daemon_await_log(&host, "the states are safe beside the socket until a reboot");
    expect_no_log("it is tried again");
    test_daemon_restart(&host, arguments);
    ck_assert_int_eq(continues(3), F8_OK);
}
END_TEST

START_TEST(without_a_directory_it_is_said)
{
    test_daemon_end(&host);
    test_daemon_restart(&host, NULL);
    F8__Reply *reply = ask_snapshot();
    ck_assert_int_eq(reply->status, F8_ENOENT);
    ck_assert_str_eq(
        reply->text, "this daemon keeps no snapshots: it was started without --state-dir");
    f8__reply__free_unpacked(reply, NULL);
    reply = ask_status();
    ck_assert_str_eq(reply->inspect->status->state_directory, "");
    ck_assert_uint_eq(reply->inspect->status->state_keep_ms, 600000);
    f8__reply__free_unpacked(reply, NULL);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("processes");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, a_reboot_loses_nothing);
    tcase_add_test(tcase, a_reboot_loses_no_unsound_scale);
    tcase_add_test(tcase, on_demand_before_a_power_cut);
    tcase_add_test(tcase, what_a_fresh_seal_dropped_stays_away);
    tcase_add_test(tcase, damage_is_told);
    tcase_add_test(tcase, damage_beside_the_socket_is_told);
    tcase_add_test(tcase, a_full_disk_is_told_and_passes);
    tcase_add_test(tcase, a_last_failure_is_a_failure);
    tcase_add_test(tcase, without_a_directory_it_is_said);
    return run_suite("snapshot", tcase);
}
