/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A group over two hosts begins anew, and one of them must wait for its disk until what was stored
 * there is surely gone: the other one waits for it, whatever it does meanwhile. Ranks 0 and 1 are
 * on host0, which keeps no snapshots, ranks 2 and 3 on host1, whose disk the test holds up.
 */
#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/admin_link.h"
#include "lib/host_ranks.h"
#include "lib/slow_disk.h"
#include "lib/suite.h"

#define WORLD 4

static struct test_hosts hosts;
static struct slow_disk disk;
static struct host_ranks ranks, alone;
static char directory[64];
static const char *arguments[] = {"--state-dir", directory, "--snapshot-interval", "0", NULL};

static void save_host1(void)
{
    F8__Request request = F8__REQUEST__INIT;
    F8__Snapshot message = F8__SNAPSHOT__INIT;
    int none, link = admin_link_open(&hosts.daemons[1], F8__ROLE__ADMIN, NULL);
    request.body_case = F8__REQUEST__BODY_SNAPSHOT;
    request.snapshot = &message;
    F8__Reply *reply = admin_link_ask(link, &request, -1, &none);
    ck_assert_int_eq(reply->status, F8_OK);
    ck_assert_uint_eq(reply->snapshot->states, 1);
    f8__reply__free_unpacked(reply, NULL);
    (void)close(link);
}

/* A run has left its state on both hosts, and ranks of the next one are about to seal. */
static void start(void)
{
    (void)strcpy(directory, "/tmp/f8snapshots-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(directory));
    test_hosts_start(&hosts, 2, NULL);
    test_daemon_end(&hosts.daemons[1]);
    slow_disk_open(&disk, F8_SHIM_DISK);
    hosts.arguments = arguments;
    test_hosts_restart(&hosts, 1);
    slow_disk_unload();
    host_ranks_init(&ranks, &host_plan_delayed, &hosts, 2);
    host_ranks_start(&ranks);
    host_ranks_must(&ranks, 0, WORLD, host_rank_step);
    save_host1();
    host_ranks_end(&ranks);
    host_ranks_init(&ranks, &host_plan_delayed, &hosts, 2);
    host_ranks_must(&ranks, 0, WORLD, host_rank_join);
    slow_disk_hold(&disk);
}

static void stop(void)
{
    host_ranks_end(&ranks);
    test_hosts_stop(&hosts);
    DIR *entries = opendir(directory);
    for (struct dirent *entry; entries && (entry = readdir(entries));)
        (void)unlinkat(dirfd(entries), entry->d_name, 0);
    if (entries)
        (void)closedir(entries);
    (void)rmdir(directory);
    slow_disk_close(&disk);
}

/* ---- ranks that go on while the test looks at the disk ---- */

static sem_t sealed[2]; /* by host: as often as one of its ranks was told */

static int seal(struct host_rank *rank)
{
    int status = host_rank_seal(rank);
    (void)sem_post(&sealed[rank->host]);
    return status;
}

static int seal_and_step(struct host_rank *rank)
{
    int status = seal(rank);
    for (int i = 0; i < 3 && status == F8_OK; i++)
        status = host_rank_step(rank);
    return status;
}

static int seal_and_leave(struct host_rank *rank)
{
    int status = seal(rank);
    return status < 0 || rank->host == 1 ? status : host_rank_close(rank);
}

static void *run(void *call)
{
    host_ranks_all(&ranks, 0, WORLD, *(host_rank_call **)call);
    return NULL;
}

/* All ranks begin, and those of host0 are sealed. */
static pthread_t begin(host_rank_call **call)
{
    pthread_t thread;
    for (int h = 0; h < 2; h++)
        ck_assert_int_eq(sem_init(&sealed[h], 0, 0), 0);
    ck_assert_int_eq(pthread_create(&thread, NULL, run, call), 0);
    slow_disk_await_sync(&disk);
    for (int r = 0; r < WORLD / 2; r++)
        while (sem_wait(&sealed[0]) < 0)
            ;
    return thread;
}

/* Nobody on host1 was told yet; now its disk answers. */
static void end(pthread_t thread)
{
    ck_assert_int_ne(sem_trywait(&sealed[1]), 0);
    slow_disk_let_go(&disk);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    for (uint32_t r = 0; r < WORLD; r++)
        ck_assert_msg(sem_trywait(&sealed[1]) == 0 || r >= WORLD / 2, "a rank was not told");
}

static void next_run_is_well(void)
{
    host_ranks_end(&ranks);
    host_ranks_init(&ranks, &host_plan_delayed, &hosts, 2);
    host_ranks_start(&ranks);
    host_ranks_must(&ranks, 0, WORLD, host_rank_step);
}

START_TEST(a_host_that_waits_is_waited_for)
{
    host_rank_call *call = seal_and_step;
    struct host_plan undisturbed = host_plan_delayed;
    end(begin(&call));
    for (uint32_t r = 0; r < WORLD; r++)
        ck_assert_msg(ranks.ranks[r].status == F8_OK, "%s", ranks.ranks[r].text);
    undisturbed.group = "alone";
    host_ranks_init(&alone, &undisturbed, &hosts, 1);
    host_ranks_start(&alone);
    for (int i = 0; i < 3; i++)
        host_ranks_must(&alone, 0, WORLD, host_rank_step);
    host_ranks_same(&ranks, &alone);
    host_ranks_end(&alone);
}
END_TEST

/* Its ranks were told that it is sealed, and find the group broken. */
START_TEST(the_others_leave_meanwhile)
{
    host_rank_call *call = seal_and_leave;
    pthread_t thread = begin(&call);
    test_daemon_await_log(&hosts.daemons[1], ") left");
    end(thread);
    for (uint32_t r = 0; r < WORLD; r++)
        ck_assert_msg(ranks.ranks[r].status == F8_OK, "%s", ranks.ranks[r].text);
    ck_assert_int_lt(host_rank_step(&ranks.ranks[2]), 0);
    next_run_is_well();
}
END_TEST

START_TEST(a_helper_dies_meanwhile)
{
    host_rank_call *call = seal;
    pthread_t thread = begin(&call);
    pid_t helper = test_hosts_engine(&hosts, 1, "dp").pid;
    ck_assert_int_gt(helper, 0);
    ck_assert_int_eq(kill(helper, SIGKILL), 0);
    test_daemon_await_log(&hosts.daemons[1], "was killed by signal 9");
    end(thread);
    ck_assert_int_lt(host_rank_step(&ranks.ranks[2]), 0);
    ck_assert_msg(strstr(f8_error_text(), "f8gather-gloo"), "%s", f8_error_text());
    next_run_is_well();
}
END_TEST

int main(void)
{
    if (!test_hosts_possible())
        return TEST_HOSTS_SKIP;
    TCase *tcase = tcase_create("hosts");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, start, stop);
    tcase_add_test(tcase, a_host_that_waits_is_waited_for);
    tcase_add_test(tcase, the_others_leave_meanwhile);
    tcase_add_test(tcase, a_helper_dies_meanwhile);
    return run_suite("hosts_durable", tcase);
}
