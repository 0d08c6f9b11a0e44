/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f8ctl monitor where a group spans two hosts, which are network namespaces (root): a daemon that
 * is killed is a lost host to the other, and its ranks are named with it. Skipped where no
 * namespaces can be made.
 */
#include <check.h>
#include <string.h>

#include "lib/host_ranks.h"
#include "lib/patience.h"
#include "lib/program.h"
#include "lib/suite.h"

#define WORLD 4

static struct test_hosts hosts;
static struct host_ranks ranks;

static const struct host_plan plan = {
    .world = WORLD, .buckets = 2, .weights = 2, .rows = 16, .cols = 8, .flavour = F8_DYNAMIC};

static void start(void)
{
    test_hosts_start(&hosts, 2, NULL);
    host_ranks_init(&ranks, &plan, &hosts, 2);
    host_ranks_start(&ranks);
    host_ranks_must(&ranks, 0, WORLD, host_rank_step);
}

static void stop(void)
{
    host_ranks_end(&ranks);
    test_hosts_stop(&hosts);
}

/* The lost one is the root of the group's hosts, or not. */
START_TEST(a_host_is_lost)
{
    struct program ctl;
    uint32_t lost = (uint32_t)_i, other = 1 - lost;
    json_error_t error;
    test_daemon_kill(&hosts.daemons[lost]);
    program_start(&ctl, F8_TEST_CTL, NULL,
        "--socket %s monitor --since 0 --events host-lost --count 1", hosts.daemons[other].socket);
    program_expect(&ctl, 0);
    json_t *event = json_loads(ctl.out, 0, &error);
    ck_assert_msg(json_is_object(event), "%s: %s", error.text, ctl.out);
    ck_assert_str_eq(json_string_value(json_object_get(event, "event")), "host-lost");
    ck_assert_str_eq(
        json_string_value(json_object_get(event, "host")), lost == 0 ? "host0" : "host1");
    ck_assert_str_eq(json_string_value(json_object_get(event, "group")), "dp");
    ck_assert(json_number_value(json_object_get(event, "value")) == 2);
    ck_assert_ptr_nonnull(strstr(json_string_value(json_object_get(event, "text")), "it had rank"));
    json_decref(event);
    program_done(&ctl);
    /* that is no death of the ranks here */
    program_start(&ctl, F8_TEST_CTL, NULL,
        "--socket %s monitor --since 0 --events rank-died,round-failed --count 1",
        hosts.daemons[other].socket);
    program_expect(&ctl, 0);
    ck_assert_ptr_nonnull(strstr(ctl.out, "\"event\":\"round-failed\""));
    program_done(&ctl);
    test_hosts_restart(&hosts, lost);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("monitor_hosts");
    TCase *cases = tcase_create("monitor_hosts");
    tcase_add_checked_fixture(cases, start, stop);
    tcase_set_timeout(cases, 2 * PATIENCE_S);
    tcase_add_loop_test(cases, a_host_is_lost, 0, 2);
    suite_add_tcase(suite, cases);
    return suite;
}

int main(void)
{
    return test_hosts_possible() ? run_cases(make_suite()) : TEST_HOSTS_SKIP;
}
