/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What goes wrong with real helpers: killed, stopped and at odds, each in the middle of its work.
 * All hosts must be told, and nothing be left.
 */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/fabric_hosts.h"
#include "lib/proc.h"
#include "proto/status.h"

#define MIB     ((uint64_t)1 << 20)
#define SOON_MS 300 /* a deadline that is to pass */

static struct fabric_hosts hosts;

/* More than sockets take. */
static const struct fabric_span large[] = {
    {.offset = 0, .size = 32 * MIB, .host = 0},
    {.offset = 32 * MIB, .size = 32 * MIB, .host = 1},
    {.offset = 64 * MIB, .size = 32 * MIB, .host = 2},
};

static pid_t pid_of(uint32_t host)
{
    return fabric_pid(hosts.host[host].fabric);
}

static void send_signal(uint32_t host, int number)
{
    ck_assert_int_eq(kill(pid_of(host), number), 0);
}

static void assert_reason(uint32_t host, const char *part)
{
    const char *text = hosts.host[host].reason.text;
    ck_assert_msg(strstr(text, part) != NULL, "host %u: \"%s\" has no \"%s\"", host, text, part);
}

/* Host `host` has begun, and stands still before anything has reached it. */
static void begin_and_stop(uint32_t host)
{
    fabric_host_exchange(&hosts, host, large, 3, PATIENCE_MS);
    proc_await_sleep(pid_of(host));
    send_signal(host, SIGSTOP);
}

static void begin_others(uint32_t host)
{
    for (uint32_t i = 0; i < hosts.num; i++)
        if (i != host)
            fabric_host_exchange(&hosts, i, large, 3, PATIENCE_MS);
    for (uint32_t i = 0; i < hosts.num; i++)
        if (i != host)
            proc_await_sleep(pid_of(i));
}

/* ---- killed ---- */

START_TEST(death_while_others_send_to_it_fails_all)
{
    fabric_hosts_start(&hosts, 3, 96 * MIB);
    begin_and_stop(2);
    begin_others(2);
    send_signal(2, SIGKILL);
    fabric_hosts_await_lost(&hosts);
    assert_reason(2, "(f8gather-gloo, pid ");
    assert_reason(2, "was killed by signal 9 (Killed) when it was to exchange");
    /* Either hears of the death, or of the other's, which heard first and is killed. */
    assert_reason(0, "the engine lost its connection to host ");
    assert_reason(1, "the engine lost its connection to host ");
    fabric_hosts_close(&hosts);
}
END_TEST

START_TEST(death_while_it_sends_to_others_fails_all)
{
    fabric_hosts_start(&hosts, 3, 96 * MIB);
    begin_and_stop(0);
    begin_others(0);
    send_signal(2, SIGKILL);
    fabric_host_await(&hosts, 2);
    send_signal(0, SIGCONT);
    fabric_hosts_await_lost(&hosts);
    assert_reason(0, "the engine lost its connection to host ");
    fabric_hosts_close(&hosts);
}
END_TEST

START_TEST(death_in_a_reduction_fails_all)
{
    uint32_t values[2][100000] = {{0}};
    fabric_hosts_start(&hosts, 3, MIB);
    for (uint32_t i = 0; i < 2; i++)
        fabric_reduce(hosts.host[i].fabric, 7, values[i], (uint32_t)_i, PATIENCE_MS);
    proc_await_sleep(pid_of(0));
    send_signal(2, SIGKILL);
    fabric_hosts_await_lost(&hosts);
    assert_reason(2, "was killed by signal 9 (Killed)");
    fabric_hosts_close(&hosts);
}
END_TEST

START_TEST(death_of_one_that_idles_is_told)
{
    fabric_hosts_start(&hosts, 2, 32 * MIB);
    send_signal(1, SIGKILL);
    fabric_host_await(&hosts, 1);
    ck_assert_int_eq(hosts.host[1].status, F8_EIO);
    ck_assert_ptr_null(strstr(hosts.host[1].reason.text, "when it was to"));
    /* The other hears of it with its next command. */
    ck_assert(!hosts.host[0].answered);
    fabric_host_exchange(&hosts, 0, large, 1, PATIENCE_MS);
    fabric_host_await(&hosts, 0);
    ck_assert_int_eq(hosts.host[0].status, F8_ECONN);
    assert_reason(0, "the engine lost its connection to host beta (127.0.0.1): ");
    fabric_hosts_close(&hosts);
}
END_TEST

/* It may have started before the signal reaches it. */
START_TEST(death_while_it_starts_is_told)
{
    fabric_hosts_ask_open(&hosts, 1, "lo", "127.0.0.1");
    send_signal(0, SIGKILL);
    fabric_host_await(&hosts, 0);
    bool started = hosts.host[0].status == F8_OK;
    hosts.host[0].answered = !started;
    fabric_host_await(&hosts, 0);
    ck_assert_int_eq(hosts.host[0].status, F8_EIO);
    assert_reason(0, "was killed by signal 9 (Killed)");
    if (!started)
        assert_reason(0, "when it was to start");
    fabric_hosts_close(&hosts);
}
END_TEST

/* ---- deadlines ---- */

static const char *const names[] = {"alpha", "beta", "gamma"};

/* What `host` says: that it waits for `other`, and that one's helper. */
static void assert_waits_for(uint32_t host, uint32_t other)
{
    char text[128];
    ck_assert_int_eq(hosts.host[host].status, F8_EDEADLINE);
    (void)snprintf(text, sizeof(text), "ms in vain for host %s (127.0.0.1), whose engine is pid %d",
        names[other], (int)pid_of(other));
    assert_reason(host, text);
}

/* The deadline of each is the same, and those that can still tell tell first. */
START_TEST(those_who_wait_for_one_that_stands_still_name_it)
{
    uint32_t victim = (uint32_t)_i;
    fabric_hosts_start(&hosts, 3, 96 * MIB);
    send_signal(victim, SIGSTOP);
    fabric_hosts_exchange(&hosts, large, 3, SOON_MS);
    fabric_hosts_await_failed(&hosts, F8_OK);
    for (uint32_t i = 0; i < 3; i++) {
        if (i == victim) {
            ck_assert_int_eq(hosts.host[i].status, F8_EDEADLINE);
            assert_reason(i, "did not exchange with the other hosts within 300 ms");
        } else if (hosts.host[i].status != F8_ECONN) { /* as one is late it breaks with the other */
            assert_waits_for(i, victim);
            ck_assert_ptr_null(strstr(hosts.host[i].reason.text, names[3 - victim - i]));
        }
    }
    uint32_t first = victim == 0 ? 1 : 0, second = 3 - victim - first;
    ck_assert(
        hosts.host[first].status == F8_EDEADLINE || hosts.host[second].status == F8_EDEADLINE);
    fabric_hosts_close(&hosts);
}
END_TEST

START_TEST(all_who_do_not_take_part_are_named)
{
    uint32_t value = 1;
    fabric_hosts_start(&hosts, 3, MIB);
    fabric_reduce(hosts.host[1].fabric, 1, &value, 1, SOON_MS);
    fabric_host_await(&hosts, 1);
    assert_waits_for(1, 0);
    assert_reason(1, " and host gamma (127.0.0.1), whose engine is pid ");
    fabric_hosts_close(&hosts);
}
END_TEST

START_TEST(one_that_stands_still_fails_at_the_deadline)
{
    fabric_hosts_start(&hosts, 3, 96 * MIB);
    send_signal(1, SIGSTOP);
    fabric_host_exchange(&hosts, 1, large, 3, SOON_MS);
    fabric_host_exchange(&hosts, 0, large, 3, PATIENCE_MS);
    fabric_host_exchange(&hosts, 2, large, 3, PATIENCE_MS);
    fabric_hosts_await_failed(&hosts, F8_OK);
    ck_assert_int_eq(hosts.host[1].status, F8_EDEADLINE);
    assert_reason(1, "did not exchange with the other hosts within 300 ms");
    fabric_hosts_close(&hosts);
}
END_TEST

START_TEST(a_host_that_does_not_take_part_fails_the_rest_at_the_deadline)
{
    uint32_t value = 1;
    fabric_hosts_start(&hosts, 2, MIB);
    fabric_reduce(hosts.host[0].fabric, 1, &value, 1, SOON_MS);
    fabric_host_await(&hosts, 0);
    ck_assert_int_eq(hosts.host[0].status, F8_EDEADLINE);
    assert_waits_for(0, 1);
    ck_assert(!hosts.host[1].answered);
    fabric_hosts_close(&hosts);
}
END_TEST

START_TEST(a_host_that_does_not_connect_fails_the_rest)
{
    fabric_hosts_open(&hosts, 2);
    fabric_hosts_ask_connect(&hosts, 0, SOON_MS);
    fabric_host_await(&hosts, 0);
    ck_assert_int_eq(hosts.host[0].status, F8_EDEADLINE);
    assert_waits_for(0, 1);
    fabric_hosts_ask_connect(&hosts, 1, SOON_MS);
    fabric_hosts_await_failed(&hosts, F8_OK);
    fabric_hosts_close(&hosts);
}
END_TEST

/* ---- at odds ---- */

static void reduce_apart(uint64_t tag, uint32_t count, uint64_t other_tag, uint32_t other_count)
{
    static uint32_t values[2][100000];
    fabric_hosts_start(&hosts, 2, MIB);
    fabric_reduce(hosts.host[0].fabric, tag, values[0], count, PATIENCE_MS);
    fabric_reduce(hosts.host[1].fabric, other_tag, values[1], other_count, PATIENCE_MS);
    fabric_host_await(&hosts, 0);
    fabric_hosts_await_failed(&hosts, F8_OK);
    /* The second to look may already find the first one gone. */
    bool first = hosts.host[0].status == F8_EMISMATCH;
    ck_assert(first || hosts.host[1].status == F8_EMISMATCH);
    char its[64], others[64];
    (void)snprintf(its, sizeof(its), "%u values with tag %llu", count, (unsigned long long)tag);
    (void)snprintf(others, sizeof(others), "%u values with tag %llu", other_count,
        (unsigned long long)other_tag);
    assert_reason(first ? 0 : 1, its);
    assert_reason(first ? 0 : 1, others);
    assert_reason(first ? 0 : 1, "host alpha (127.0.0.1) ");
    assert_reason(first ? 0 : 1, "host beta (127.0.0.1) ");
    fabric_hosts_close(&hosts);
}

START_TEST(hosts_that_reduce_apart_say_what)
{
    static const struct {
        uint64_t tag;
        uint32_t count;
    } others[] = {{8, 10}, {7, 11}, {7, 0}, {7, 16384}, {7, 16385}, {7, 100000}};
    reduce_apart(7, 10, others[_i].tag, others[_i].count);
}
END_TEST

START_TEST(long_reductions_apart_say_what)
{
    reduce_apart(7, 99999, 7, 100000);
}
END_TEST

START_TEST(spans_outside_of_the_arena_are_refused)
{
    static const struct fabric_span wrong[] = {
        {.offset = MIB, .size = 1, .host = 0},
        {.offset = MIB - 1, .size = 2, .host = 1},
        {.offset = UINT64_MAX, .size = 2, .host = 0},
        {.offset = 0, .size = 1, .host = 2},
    };
    fabric_hosts_start(&hosts, 2, MIB);
    fabric_hosts_exchange(&hosts, &wrong[_i], 1, PATIENCE_MS);
    fabric_hosts_await_failed(&hosts, F8_EINTERNAL);
    assert_reason(0, "are not in an arena of 1048576 bytes over 2 hosts");
    fabric_hosts_close(&hosts);
}
END_TEST

/* ---- closed ---- */

START_TEST(it_can_be_closed_while_it_starts)
{
    fabric_hosts_ask_open(&hosts, 2, "lo", "127.0.0.1");
    fabric_hosts_close(&hosts);
}
END_TEST

START_TEST(it_can_be_closed_before_and_while_it_connects)
{
    fabric_hosts_open(&hosts, 3);
    for (uint32_t i = 0; i < (uint32_t)_i; i++)
        fabric_hosts_ask_connect(&hosts, i, PATIENCE_MS);
    fabric_hosts_close(&hosts);
}
END_TEST

START_TEST(it_can_be_closed_while_it_maps)
{
    struct arena *arena;
    struct reason reason;
    fabric_hosts_open(&hosts, 2);
    fabric_hosts_connect(&hosts);
    ck_assert_int_eq(arena_reserve(MIB, &arena, &reason), F8_OK);
    fabric_map(hosts.host[0].fabric, arena->fd, MIB, PATIENCE_MS);
    fabric_hosts_close(&hosts);
    arena_free(arena);
}
END_TEST

START_TEST(it_can_be_closed_while_it_exchanges)
{
    fabric_hosts_start(&hosts, 3, 96 * MIB);
    begin_and_stop(1);
    begin_others(1);
    fabric_hosts_close(&hosts);
}
END_TEST

START_TEST(it_can_be_closed_while_it_reduces)
{
    static uint32_t values[100000];
    fabric_hosts_start(&hosts, 2, MIB);
    fabric_reduce(hosts.host[0].fabric, 7, values, 100000, PATIENCE_MS);
    fabric_hosts_close(&hosts);
}
END_TEST

START_TEST(it_can_be_closed_when_it_is_dying)
{
    fabric_hosts_start(&hosts, 2, MIB);
    send_signal(0, SIGKILL);
    fabric_hosts_close(&hosts);
}
END_TEST

static Suite *faults_suite(void)
{
    Suite *suite = suite_create("fabric, faults");
    TCase *deaths = tcase_create("deaths");
    tcase_add_test(deaths, death_while_others_send_to_it_fails_all);
    tcase_add_test(deaths, death_while_it_sends_to_others_fails_all);
    tcase_add_loop_test(deaths, death_in_a_reduction_fails_all, 3, 4);
    tcase_add_loop_test(deaths, death_in_a_reduction_fails_all, 100000, 100001);
    tcase_add_test(deaths, death_of_one_that_idles_is_told);
    tcase_add_test(deaths, death_while_it_starts_is_told);
    suite_add_tcase(suite, deaths);
    TCase *deadlines = tcase_create("deadlines");
    tcase_add_loop_test(deadlines, those_who_wait_for_one_that_stands_still_name_it, 0, 3);
    tcase_add_test(deadlines, all_who_do_not_take_part_are_named);
    tcase_add_test(deadlines, one_that_stands_still_fails_at_the_deadline);
    tcase_add_test(deadlines, a_host_that_does_not_take_part_fails_the_rest_at_the_deadline);
    tcase_add_test(deadlines, a_host_that_does_not_connect_fails_the_rest);
    suite_add_tcase(suite, deadlines);
    TCase *odds = tcase_create("at odds");
    tcase_add_loop_test(odds, hosts_that_reduce_apart_say_what, 0, 6);
    tcase_add_test(odds, long_reductions_apart_say_what);
    tcase_add_loop_test(odds, spans_outside_of_the_arena_are_refused, 0, 4);
    suite_add_tcase(suite, odds);
    TCase *closing = tcase_create("closing");
    tcase_add_test(closing, it_can_be_closed_while_it_starts);
    tcase_add_loop_test(closing, it_can_be_closed_before_and_while_it_connects, 0, 4);
    tcase_add_test(closing, it_can_be_closed_while_it_maps);
    tcase_add_test(closing, it_can_be_closed_while_it_exchanges);
    tcase_add_test(closing, it_can_be_closed_while_it_reduces);
    tcase_add_test(closing, it_can_be_closed_when_it_is_dying);
    suite_add_tcase(suite, closing);
    return suite;
}

int main(void)
{
    fabric_hosts_need();
    SRunner *runner = srunner_create(faults_suite());
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
