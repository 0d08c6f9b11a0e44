/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a broken group over hosts answers. Whoever waits as it breaks gets the status of the first
 * cause, on every host; each call after that F8_EBROKEN; and every text names that cause, whether
 * it came from this host or another. Ranks 0 and 1 are on host0, ranks 2 and 3 on host1.
 */
#include <check.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/host_ranks.h"
#include "lib/suite.h"

#define WORLD 4

static struct test_hosts hosts;
static struct host_ranks ranks;

static void start(void)
{
    static const char *const arguments[] = {"--linger", "0", NULL};
    test_hosts_start(&hosts, 2, arguments);
    host_ranks_init(&ranks, &host_plan_small, &hosts, 2);
    host_ranks_start(&ranks);
    host_ranks_must(&ranks, 0, WORLD, host_rank_step);
}

static void stop(void)
{
    host_ranks_end(&ranks);
    test_hosts_stop(&hosts);
}

/* ---- calls that come late ---- */

static int call_sync(struct host_rank *rank)
{
    f8_ticket ticket;
    int status = f8_sync(rank->group, 0, &ticket);
    return status == F8_OK ? f8_wait(rank->group, ticket, F8_FOREVER, NULL) : status;
}

static int call_changed(struct host_rank *rank)
{
    return f8_changed(rank->group, 0, 1);
}

/* Its error comes with what is asked for next. */
static int call_pre_gather(struct host_rank *rank)
{
    int status = f8_pre_gather(rank->group, 1, NULL);
    return status == F8_OK ? host_rank_gather(rank) : status;
}

static host_rank_call *const late_calls[] = {
    host_rank_gather, host_rank_precompute, call_sync, call_changed, call_pre_gather};

/* By every rank but the last `left`. */
static void all_come_late(uint32_t left, const char *cause)
{
    for (size_t c = 0; c < sizeof(late_calls) / sizeof(*late_calls); c++) {
        host_ranks_all(&ranks, 0, WORLD - left, late_calls[c]);
        host_ranks_failed(&ranks, 0, WORLD - left, F8_EBROKEN, "group dp is broken: ");
        host_ranks_failed(&ranks, 0, WORLD - left, F8_EBROKEN, cause);
    }
}

/* One that asked as the group was broken already is late. */
static void waited(uint32_t left, int status, const char *cause)
{
    for (uint32_t r = 0; r < WORLD - left; r++)
        host_ranks_failed(
            &ranks, r, r + 1, ranks.ranks[r].status == F8_EBROKEN ? F8_EBROKEN : status, cause);
}

/* ---- causes ---- */

static int gather_or_sync(struct host_rank *rank)
{
    return rank->number < 2 ? host_rank_gather(rank) : call_sync(rank);
}

START_TEST(a_mismatch)
{
    host_ranks_all(&ranks, 0, WORLD, gather_or_sync);
    waited(0, F8_EMISMATCH, " asked for gather of layers.0");
    all_come_late(0, " asked for gather of layers.0");
    host_ranks_all(&ranks, 0, WORLD, host_rank_seal);
    host_ranks_failed(&ranks, 0, WORLD, F8_EBROKEN, " asked for gather of layers.0");
    host_ranks_failed(&ranks, 0, WORLD, F8_EBROKEN,
        "call f8_group_rejoin (or f8_group_rejoin_hosts, if a host was lost) before f8_seal");
}
END_TEST

static int gather_but_rank_3(struct host_rank *rank)
{
    return rank->number == 3 ? F8_OK : host_rank_gather(rank);
}

START_TEST(a_deadline)
{
    for (uint32_t r = 0; r < WORLD; r++)
        ranks.ranks[r].deadline_ms = 300;
    host_ranks_all(&ranks, 0, WORLD, gather_but_rank_3);
    waited(1, F8_EDEADLINE, "rank 3 (pid ");
    all_come_late(0, "the deadline of gather of layers.0");
}
END_TEST

static int gather_or_leave(struct host_rank *rank)
{
    return rank->number == 3 ? host_rank_close(rank) : host_rank_gather(rank);
}

START_TEST(a_rank_that_left)
{
    char who[64];
    (void)snprintf(who, sizeof(who), "rank 3 (pid %d", (int)getpid());
    host_ranks_all(&ranks, 0, WORLD, gather_or_leave);
    waited(1, F8_ERANKDEAD, who);
    all_come_late(1, who);
}
END_TEST

/* Of its peers the helpers know as well that it is gone: which of the two comes first is open. */
START_TEST(a_helper_that_died)
{
    pid_t helper = test_hosts_engine(&hosts, (uint32_t)_i, "dp").pid;
    const char *cause = _i == 0 ? "host host0" : "host host1";
    ck_assert_int_gt(helper, 0);
    ck_assert_int_eq(kill(helper, SIGKILL), 0);
    host_ranks_all(&ranks, 0, WORLD, host_rank_gather);
    uint32_t far = _i == 0 ? 2 : 0, near = 2 - far;
    for (uint32_t r = 0; r < WORLD; r++)
        ck_assert_msg(ranks.ranks[r].status == F8_EIO || ranks.ranks[r].status == F8_EBROKEN,
            "rank %u: %s: %s", r, f8_status_name(ranks.ranks[r].status), ranks.ranks[r].text);
    for (uint32_t r = far; r < far + 2; r++)
        ck_assert_msg(strstr(ranks.ranks[r].text, cause), "%s", ranks.ranks[r].text);
    host_ranks_all(&ranks, far, far + 2, host_rank_gather);
    host_ranks_failed(&ranks, far, far + 2, F8_EBROKEN, cause);
    host_ranks_all(&ranks, near, near + 2, host_rank_gather);
    host_ranks_failed(&ranks, near, near + 2, F8_EBROKEN, "f8gather-gloo");
}
END_TEST

static atomic_bool seen, over;

/* Looks at the round of host 0 until it is where nobody but the engines can say who is missing. */
static void *look(void *unused)
{
    while (!atomic_load(&seen) && !atomic_load(&over)) {
        atomic_store(&seen, test_hosts_round_is(&hosts, 0, "in the engine between hosts"));
        (void)poll(NULL, 0, 10);
    }
    return unused;
}

/* All hosts are told of it what the others found: neither they nor their helpers are named. */
START_TEST(a_helper_that_stands_still)
{
    static const int64_t deadlines[] = {200, 4000}; /* less than an engine is given, and more */
    pthread_t operator;
    char who[64];
    pid_t healthy = test_hosts_engine(&hosts, 0, "dp").pid;
    pid_t helper = test_hosts_engine(&hosts, 1, "dp").pid;
    ck_assert_int_eq(kill(helper, SIGSTOP), 0);
    atomic_store(&seen, false);
    atomic_store(&over, false);
    ck_assert_int_eq(pthread_create(&operator, NULL, look, NULL), 0);
    for (uint32_t r = 0; r < WORLD; r++)
        ranks.ranks[r].deadline_ms = deadlines[_i];
    host_ranks_all(&ranks, 0, WORLD, host_rank_gather);
    atomic_store(&over, true);
    ck_assert_int_eq(pthread_join(operator, NULL), 0);
    ck_assert(atomic_load(&seen));
    (void)snprintf(who, sizeof(who), "whose engine is pid %d", (int)helper);
    waited(0, F8_EDEADLINE, who);
    waited(0, F8_EDEADLINE, "for host host1 (");
    (void)snprintf(who, sizeof(who), "pid %d", (int)healthy);
    for (uint32_t r = 0; r < WORLD; r++)
        ck_assert_msg(!strstr(ranks.ranks[r].text, who), "%s", ranks.ranks[r].text);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("hosts_cause");
    TCase *cases = tcase_create("hosts_cause");
    tcase_add_checked_fixture(cases, start, stop);
    tcase_add_test(cases, a_mismatch);
    tcase_add_test(cases, a_deadline);
    tcase_add_test(cases, a_rank_that_left);
    tcase_add_loop_test(cases, a_helper_that_died, 0, 2);
    tcase_add_loop_test(cases, a_helper_that_stands_still, 0, 2);
    suite_add_tcase(suite, cases);
    return suite;
}

int main(void)
{
    return test_hosts_possible() ? run_cases(make_suite()) : TEST_HOSTS_SKIP;
}
