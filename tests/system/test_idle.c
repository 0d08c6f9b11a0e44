/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon with nothing to do does nothing: with 100 clients connected, a fifth of them in sealed
 * groups that have gathered, it uses no clock tick and at most 5 context switches in 10 s. This
 * one test waits those 10 s, as it cannot be told otherwise.
 */
#include <check.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "lib/crew.h"
#include "lib/proc.h"
#include "lib/suite.h"
#include "lib/test_daemon.h"
#include "lib/toy_rank.h"

#define PROCESSES    20
#define RANKS        4 /* PROCESSES / RANKS jobs */
#define CLIENTS      5 /* of each process */
#define SECONDS      10
#define MAX_SWITCHES 5

/* Clients that have only connected, or have joined a group that is not sealed. */
static int connect_idlers(const struct toy_job *job, uint32_t index, struct f8_client **clients)
{
    for (uint32_t i = 0; i < CLIENTS - 1; i++) {
        struct f8_group *group;
        const struct f8_connect_options options = {.socket = job->socket, .job = "idlers"};
        int status = f8_connect(&options, &clients[i]);
        if (status == F8_OK && i == 0)
            status = f8_group_join(clients[i], "forming", index, PROCESSES + 1, &group);
        if (status != F8_OK) {
            (void)fprintf(stderr, "idler: %s\n", f8_error_text());
            return status;
        }
    }
    return F8_OK;
}

static int process(struct crew_member *member, const void *argument)
{
    struct toy_job job = *(const struct toy_job *)argument;
    struct f8_client *idlers[CLIENTS - 1] = {NULL};
    struct toy_rank toy;
    char name[32];
    (void)snprintf(name, sizeof(name), "idle-%u", member->index / RANKS);
    job.name = name;
    int status = toy_rank_join(&toy, &job, member->index % RANKS);
    if (status == 0)
        status = toy_rank_seal(&toy);
    for (int i = 0; status == 0 && i < 3; i++)
        status = toy_rank_step(&toy);
    if (status == 0)
        status = toy_rank_hold(&toy, 0); /* some hold a bucket while they idle */
    if (status == 0)
        status = connect_idlers(&job, member->index, idlers);
    if (status == 0)
        status = toy_rank_settle(&toy);
    if (status == 0)
        crew_mark(member);
    for (uint32_t i = 0; i < CLIENTS - 1; i++)
        f8_close(idlers[i]);
    toy_rank_close(&toy);
    return status != 0;
}

static void wait_seconds(int seconds)
{
    struct itimerspec after = {.it_value = {.tv_sec = seconds}};
    struct pollfd fd = {.fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC), .events = POLLIN};
    ck_assert_int_ge(fd.fd, 0);
    ck_assert_int_eq(timerfd_settime(fd.fd, 0, &after, NULL), 0);
    ck_assert_int_eq(poll(&fd, 1, -1), 1);
    (void)close(fd.fd);
}

START_TEST(idle_with_100_clients)
{
    struct test_daemon daemon;
    test_daemon_start(&daemon, NULL);
    const struct toy_job job = {.socket = daemon.socket,
        .ranks = RANKS,
        .buckets = 3,
        .weights = 2,
        .rows = 61,
        .cols = 64,
        .flavour = F8_DYNAMIC,
        .precompute = true};
    struct crew crew;
    crew_start(&crew, PROCESSES, process, &job);
    crew_await(&crew);
    proc_await_sleep(daemon.pid);
    uint64_t ticks = proc_ticks(daemon.pid), switches = proc_switches(daemon.pid);
    ck_assert_uint_gt(switches, PROCESSES); /* what is read here is counted at all */
    wait_seconds(SECONDS);
    ticks = proc_ticks(daemon.pid) - ticks;
    switches = proc_switches(daemon.pid) - switches;
    uint32_t descriptors = proc_holdings(daemon.pid).descriptors;
    printf("%d clients (%u descriptors of the daemon) idle for %d s: %llu ticks, %llu context "
           "switches\n",
        PROCESSES * CLIENTS, descriptors, SECONDS, (unsigned long long)ticks,
        (unsigned long long)switches);
    ck_assert_uint_ge(descriptors, PROCESSES * CLIENTS); /* they are there */
    ck_assert_uint_le(switches, MAX_SWITCHES);
    ck_assert_uint_le(ticks, switches); /* each time that it woke up may have met one */
    crew_go(&crew);
    crew_end(&crew, 0);
    test_daemon_stop(&daemon);
}
END_TEST

int main(void)
{
#ifdef F8_SANITIZED
    if (strstr(F8_SANITIZED, "thread")) {
        printf("skipped: the thread sanitizer has a thread of its own, which wakes up\n");
        return 77;
    }
#endif
    TCase *tcase = tcase_create("daemon");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, idle_with_100_clients);
    return run_suite("idle", tcase);
}
