/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f8ctl doctor --peer HOST between hosts that are network namespaces: the other one answers, there
 * is no way to it, and its cable is pulled. Needs root. No daemon runs there: that is no fault of
 * the way.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/bench/network.h"
#include "lib/ctl_run.h"
#include "lib/suite.h"

#define SKIP 77

static struct network *network;

/* The test itself is on host 0 from then on. */
static void setup(void)
{
    struct bench_error error;
    ck_assert_msg(network_new(2, &network, &error) == 0, "%s", error.text);
    ck_assert_int_eq(network_enter(network, 0), 0);
}

static void teardown(void)
{
    network_free(network);
}

static void doctor(const char *flags, const char *peer, int want, char *text, size_t size)
{
    char all[256];
    (void)snprintf(all, sizeof(all), "--socket /nowhere/f8.sock %s doctor --peer %s", flags, peer);
    int result = ctl_run(all, text, size);
    ck_assert_msg(result == want, "it ended with %d instead of %d: %s", result, want, text);
}

static void has(const char *text, const char *part)
{
    ck_assert_msg(strstr(text, part) != NULL, "got: %s\nmust have: %s", text, part);
}

START_TEST(host_answers)
{
    char text[4096];
    doctor("", "10.48.0.2", 0, text, sizeof(text));
    has(text, "ok       route to 10.48.0.2: by eth0 from 10.48.0.1\n");
    has(text, " path to 10.48.0.2: answers in ");
    has(text, "ok       path MTU to 10.48.0.2: 1500 bytes\n");
    doctor("", "fd48::2", 0, text, sizeof(text));
    has(text, "ok       route to fd48::2: by eth0 from fd48::1\n");
    has(text, "ok       path MTU to fd48::2: 1500 bytes\n");
}
END_TEST

START_TEST(no_way_there)
{
    char text[4096];
    doctor("", "192.0.2.1", 1, text, sizeof(text));
    has(text, "FAILED   route to 192.0.2.1: Network is unreachable; this host knows no way there");
}
END_TEST

START_TEST(cable_is_pulled)
{
    struct bench_error error;
    char text[4096];
    ck_assert_msg(network_cut(network, 1, &error) == 0, "%s", error.text);
    doctor("--timeout 0.3", "10.48.0.2", 1, text, sizeof(text));
    has(text, "ok       route to 10.48.0.2: by eth0 from 10.48.0.1\n");
    has(text, "FAILED   path to 10.48.0.2: try 1 of 5, TCP to port 9: no answer in ");
}
END_TEST

int main(void)
{
    struct bench_error error;
    if (network_check(&error) != 0) {
        printf("skipped: %s\n", error.text);
        return SKIP;
    }
    TCase *tcase = tcase_create("ctl_path");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, host_answers);
    tcase_add_test(tcase, no_way_there);
    tcase_add_test(tcase, cable_is_pulled);
    return run_suite("ctl_path", tcase);
}
