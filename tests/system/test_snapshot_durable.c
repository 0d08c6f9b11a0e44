/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a seal, an import or an evict has dropped stays away over a power cut: each is answered when
 * the removal is on the disk. The disk is a slow one that the test holds up and breaks, and those
 * who wait for it are processes of their own.
 */
#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/admin_link.h"
#include "lib/patience.h"
#include "lib/slow_disk.h"
#include "lib/state_rank.h"
#include "lib/suite.h"
#include "status.h"

static struct test_daemon host;
static struct slow_disk disk;
static struct state_rank other; /* of another job */
static int exported;            /* a memfd of the state at sync 3 */
static const char *device;      /* of $F8_TEST_DEVICE: for those who wait; NULL: none */
static char directory[128];
static const char *arguments[] = {"--state-dir", directory, "--snapshot-interval", "0", NULL};

static F8__Reply *ask(F8__Request *request, int fd, int *ret_fd)
{
    int link = admin_link_open(&host, F8__ROLE__ADMIN, NULL);
    F8__Reply *reply = admin_link_ask(link, request, fd, ret_fd);
    (void)close(link);
    return reply;
}

static F8__Reply *ask_snapshot(void)
{
    F8__Request request = F8__REQUEST__INIT;
    F8__Snapshot message = F8__SNAPSHOT__INIT;
    int none;
    request.body_case = F8__REQUEST__BODY_SNAPSHOT;
    request.snapshot = &message;
    return ask(&request, -1, &none);
}

static F8__Reply *inspect(F8__View view)
{
    F8__Request request = F8__REQUEST__INIT;
    F8__Inspect message = F8__INSPECT__INIT;
    int none;
    message.view = view;
    request.body_case = F8__REQUEST__BODY_INSPECT;
    request.inspect = &message;
    F8__Reply *reply = ask(&request, -1, &none);
    ck_assert_int_eq(reply->status, F8_OK);
    return reply;
}

static F8__Reply *ask_status(void)
{
    return inspect(F8__VIEW__STATUS);
}

/* Until so many seals are under way. */
static void await_seals(size_t count)
{
    time_t end = time(NULL) + PATIENCE_S;
    size_t running = 0;
    while (running < count) {
        ck_assert_msg(time(NULL) < end, "%zu seals run, not %zu", running, count);
        F8__Reply *reply = inspect(F8__VIEW__ROUNDS);
        running = 0;
        for (size_t i = 0; i < reply->inspect->n_rounds; i++)
            running += strcmp(reply->inspect->rounds[i]->kind, "seal") == 0 &&
                       strcmp(reply->inspect->rounds[i]->state, "running") == 0;
        f8__reply__free_unpacked(reply, NULL);
    }
}

static F8__Reply *ask_import(void)
{
    F8__Request request = F8__REQUEST__INIT;
    F8__Import message = F8__IMPORT__INIT;
    int none;
    message.job = (char *)"x";
    message.uid = getuid();
    message.group_name = (char *)"dp";
    request.body_case = F8__REQUEST__BODY_IMPORT;
    request.import = &message;
    return ask(&request, exported, &none);
}

static F8__Reply *ask_evict(void)
{
    F8__Request request = F8__REQUEST__INIT;
    F8__Evict message = F8__EVICT__INIT;
    int none;
    message.job = (char *)"x";
    message.uid = getuid();
    request.body_case = F8__REQUEST__BODY_EVICT;
    request.evict = &message;
    return ask(&request, -1, &none);
}

static void export_state(void)
{
    F8__Request request = F8__REQUEST__INIT;
    F8__Export message = F8__EXPORT__INIT;
    message.job = (char *)"x";
    message.uid = getuid();
    message.group_name = (char *)"dp";
    request.body_case = F8__REQUEST__BODY_EXPORT;
    request.export = &message;
    F8__Reply *reply = ask(&request, -1, &exported);
    ck_assert_int_eq(reply->status, F8_OK);
    f8__reply__free_unpacked(reply, NULL);
}

static void expect(F8__Reply *reply, int status, const char *text)
{
    ck_assert_msg(reply->status == status && strstr(reply->text, text) != NULL, "%d: %s",
        reply->status, reply->text);
    f8__reply__free_unpacked(reply, NULL);
}

/* The state of job x at sync 3 has its snapshot, and another job is sealed. */
static void set_up(void)
{
    (void)strcpy(directory, "/tmp/f8snapshots-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(directory));
    slow_disk_open(&disk, F8_SHIM_DISK);
    test_daemon_start(&host, arguments);
    slow_disk_unload();
    state_rank_leave(&host, NULL);
    export_state();
    state_rank_join(&host, &other, &(struct state_setup){.job = "y"});
    state_rank_well(state_rank_seal(&other, F8_STATE_FRESH, 0));
    expect(ask_snapshot(), F8_OK, "");
    slow_disk_hold(&disk);
}

static void tear_down(void)
{
    state_rank_close(&other);
    (void)close(exported);
    test_daemon_end(&host);
    test_daemon_restart(&host, NULL);
    test_daemon_drop_states(&host);
    test_daemon_stop(&host);
    test_remove_directory(directory);
    slow_disk_close(&disk);
}

/* The machine comes up again with an empty runtime directory. */
static void cut_power(void)
{
    test_daemon_kill(&host);
    test_daemon_drop_states(&host);
    slow_disk_cut_power(&disk, directory);
    test_daemon_restart(&host, arguments);
}

/* ---- processes that wait ---- */

static int seal_as(const struct state_setup *setup)
{
    struct state_rank sealing;
    if (device)
        (void)setenv("F8_TEST_DEVICE", device, 1);
    state_rank_join(&host, &sealing, setup);
    int status = state_rank_seal(&sealing, F8_STATE_FRESH, 0);
    state_rank_close(&sealing);
    return status == F8_OK ? 0 : 1;
}

static int seals(void *nothing)
{
    (void)nothing;
    return seal_as(&(struct state_setup){.job = "x"});
}

/* In groups without delayed weights. */
static int seals_without_state(void *nothing)
{
    (void)nothing;
    return seal_as(&(struct state_setup){.job = "z", .flavour = F8_DYNAMIC});
}

static int drops_state(void *nothing)
{
    (void)nothing;
    return seal_as(&(struct state_setup){.job = "x", .flavour = F8_DYNAMIC});
}

static int another_seals(void *nothing)
{
    (void)nothing;
    return seal_as(&(struct state_setup){.job = "z"});
}

static int seals_of_two(void *rank)
{
    return seal_as(
        &(struct state_setup){.job = "x", .rank = *(const uint32_t *)rank, .world_size = 2});
}

static int imports(void *nothing)
{
    (void)nothing;
    F8__Reply *reply = ask_import();
    bool well = reply->status == F8_OK && reply->body_case == F8__REPLY__BODY__NOT_SET;
    f8__reply__free_unpacked(reply, NULL);
    return well ? 0 : 1;
}

/* As operators do: with the reply that belongs to it, or another status. */
static int evicts(void *nothing)
{
    (void)nothing;
    const char *f8ctl = getenv("F8CTL");
    (void)execl(f8ctl, f8ctl, "--socket", host.socket, "--yes", "evict", "x", (char *)NULL);
    return 127;
}

/* Begins, and is at the disk. */
static pid_t begin(int (*body)(void *))
{
    pid_t pid = test_fork(body, NULL);
    slow_disk_await_sync(&disk);
    return pid;
}

/* Others are served: long enough for an answer that does not wait. */
static void others_go_on(void)
{
    for (int i = 0; i < 20; i++)
        state_rank_step(&other, 1);
    f8__reply__free_unpacked(ask_status(), NULL);
}

static bool has_ended(pid_t pid)
{
    siginfo_t info = {0};
    ck_assert_int_eq(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT), 0);
    return info.si_pid == pid;
}

/* Whatever the disk does: once it is answered, no power cut brings the old state back. */
static void stays_away(int (*body)(void *))
{
    pid_t pid = begin(body);
    others_go_on();
    bool told = has_ended(pid);
    if (!told)
        slow_disk_let_go(&disk);
    ck_assert_int_eq(test_wait(pid), 0);
    cut_power();
    slow_disk_let_go(&disk);
    struct state_rank rank;
    state_rank_join(&host, &rank, &(struct state_setup){0});
    ck_assert_int_ne(state_rank_seal(&rank, F8_STATE_CONTINUE, 3), F8_OK);
    state_rank_close(&rank);
    ck_assert(!told);
}

START_TEST(what_a_seal_drops_stays_away)
{
    stays_away(seals);
}
END_TEST

START_TEST(what_an_evict_drops_stays_away)
{
    stays_away(evicts);
}
END_TEST

static void waits(int (*body)(void *))
{
    pid_t pid = begin(body);
    others_go_on();
    ck_assert(!has_ended(pid));
    slow_disk_let_go(&disk);
    ck_assert_int_eq(test_wait(pid), 0);
}

/* What is imported is at sync 3, as is what was there before: only the wait is looked at. */
START_TEST(an_import_waits)
{
    waits(imports);
}
END_TEST

/* ---- what happens meanwhile ---- */

START_TEST(a_rank_dies_meanwhile)
{
    static uint32_t ranks[] = {0, 1};
    pid_t alive = test_fork(seals_of_two, &ranks[0]), dead = test_fork(seals_of_two, &ranks[1]);
    slow_disk_await_sync(&disk);
    ck_assert_int_eq(kill(dead, SIGKILL), 0);
    ck_assert_int_eq(test_wait(dead), -SIGKILL);
    others_go_on();
    ck_assert(!has_ended(alive));
    slow_disk_let_go(&disk);
    ck_assert_int_eq(test_wait(alive), 0); /* it was sealed, and broke right then */
    ck_assert_int_eq(test_wait(test_fork(seals, NULL)), 0);
}
END_TEST

/* What others have removed is nothing to a group that has no state, before or after. */
START_TEST(who_has_no_state_waits_for_nobody)
{
    pid_t evicting = begin(evicts);
    ck_assert_int_eq(test_wait(test_fork(seals_without_state, NULL)), 0);
    ck_assert(!has_ended(evicting));
    slow_disk_let_go(&disk);
    ck_assert_int_eq(test_wait(evicting), 0);
}
END_TEST

/* But one that has dropped its own does wait. */
START_TEST(who_gives_its_state_up_waits)
{
    waits(drops_state);
}
END_TEST

/* The group is empty, and goes when the disk has answered: not before, and who joins waits. */
START_TEST(all_ranks_die_meanwhile)
{
    pid_t dead = begin(seals);
    ck_assert_int_eq(kill(dead, SIGKILL), 0);
    ck_assert_int_eq(test_wait(dead), -SIGKILL);
    pid_t next = test_fork(seals, NULL);
    others_go_on();
    ck_assert(!has_ended(next));
    slow_disk_let_go(&disk);
    ck_assert_int_eq(test_wait(next), 0);
}
END_TEST

START_TEST(an_operator_goes_meanwhile)
{
    pid_t dead = begin(evicts);
    ck_assert_int_eq(kill(dead, SIGKILL), 0);
    ck_assert_int_eq(test_wait(dead), -SIGKILL);
    others_go_on();
    slow_disk_let_go(&disk);
    expect(ask_snapshot(), F8_OK, "");
}
END_TEST

START_TEST(the_daemon_ends_meanwhile)
{
    pid_t first = begin(seals), second = test_fork(another_seals, NULL);
    await_seals(2);
    ck_assert_int_eq(kill(host.pid, SIGTERM), 0);
    test_daemon_await_log(&host, "(--drain) for collectives of 2 groups");
    ck_assert(!has_ended(first) && !has_ended(second));
    slow_disk_let_go(&disk);
    ck_assert_int_eq(test_wait(first), 0);
    ck_assert_int_eq(test_wait(second), 0);
    ck_assert_int_eq(test_wait(host.pid), 0);
    test_daemon_restart(&host, arguments);
}
END_TEST

START_TEST(the_daemon_ends_before_it_has_answered)
{
    pid_t evicting = begin(evicts);
    ck_assert_int_eq(kill(host.pid, SIGTERM), 0);
    ck_assert_int_gt(test_wait(evicting), 0); /* it lost the daemon */
    slow_disk_let_go(&disk);
    ck_assert_int_eq(test_wait(host.pid), 0);
    test_daemon_restart(&host, arguments);
}
END_TEST

/* ---- a disk that fails ---- */

#define MAY_COME_BACK                                                                              \
    "a power cut may still bring back what was stored before: cannot sync the state"

START_TEST(a_disk_that_fails_stops_nobody)
{
    slow_disk_break(&disk, true);
    slow_disk_let_go(&disk);
    ck_assert_int_eq(test_wait(test_fork(seals, NULL)), 0);
    test_daemon_await_log(&host,
        "job x, group dp: is sealed, but a power cut may bring back an earlier state: cannot sync "
        "the state directory");
    expect(ask_import(), F8_EIO, "it is done, but " MAY_COME_BACK);
    expect(ask_evict(), F8_EIO, "it is done, but " MAY_COME_BACK);
    slow_disk_break(&disk, false);
    expect(ask_snapshot(), F8_OK, "");
    expect(ask_import(), F8_OK, "");
    ck_assert_int_eq(test_wait(test_fork(evicts, NULL)), 0);
}
END_TEST

/* It takes the daemon's patience, and not more: also of those who come later, and of its end. */
START_TEST(a_disk_that_hangs_stops_nobody)
{
    ck_assert_int_eq(test_wait(begin(seals)), 0);
    test_daemon_await_log(&host, " has not answered for 10 s; the states are safe");
    test_daemon_await_log(
        &host, "group dp: is sealed, but a power cut may bring back an earlier state: the disk of");
    expect(ask_import(), F8_EIO, " has not answered for 10 s");
    expect(ask_snapshot(), F8_EIO, " has not answered for 10 s");
    F8__Reply *reply = ask_status();
    ck_assert_ptr_nonnull(
        strstr(reply->inspect->status->snapshot_reason, " has not answered for 10 s"));
    f8__reply__free_unpacked(reply, NULL);
    ck_assert_int_eq(kill(host.pid, SIGTERM), 0);
    ck_assert_int_eq(test_wait(host.pid), 1);
    test_daemon_await_log(&host, "ending without the snapshots that it has not taken");
    slow_disk_let_go(&disk);
    test_daemon_restart(&host, arguments);
}
END_TEST

/* What was held up ends well, and the next pass is as any. */
START_TEST(a_disk_that_answers_at_last_is_used_again)
{
    ck_assert_int_eq(test_wait(begin(seals)), 0);
    slow_disk_let_go(&disk);
    test_daemon_await_log(&host, "snapshots are written again");
    expect(ask_snapshot(), F8_OK, "");
    F8__Reply *reply = ask_status();
    ck_assert_str_eq(reply->inspect->status->snapshot_reason, "");
    f8__reply__free_unpacked(reply, NULL);
}
END_TEST

int main(void)
{
    /* A process that has used CUDA cannot fork one that does. */
    device = getenv("F8_TEST_DEVICE");
    device = device ? strdup(device) : NULL;
    (void)unsetenv("F8_TEST_DEVICE");
    TCase *tcase = tcase_create("processes");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, what_a_seal_drops_stays_away);
    tcase_add_test(tcase, what_an_evict_drops_stays_away);
    tcase_add_test(tcase, an_import_waits);
    tcase_add_test(tcase, a_rank_dies_meanwhile);
    tcase_add_test(tcase, who_has_no_state_waits_for_nobody);
    tcase_add_test(tcase, who_gives_its_state_up_waits);
    tcase_add_test(tcase, all_ranks_die_meanwhile);
    tcase_add_test(tcase, an_operator_goes_meanwhile);
    tcase_add_test(tcase, the_daemon_ends_meanwhile);
    tcase_add_test(tcase, the_daemon_ends_before_it_has_answered);
    tcase_add_test(tcase, a_disk_that_fails_stops_nobody);
    tcase_add_test(tcase, a_disk_that_hangs_stops_nobody);
    tcase_add_test(tcase, a_disk_that_answers_at_last_is_used_again);
    return run_suite("snapshot_durable", tcase);
}
