/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What f8ctl shows of a world that forms: at the root the hosts that have come, the ranks that are
 * missing, since when and for how long still; at another host what that one knows. Two daemons of
 * this machine, on loopback; ranks are clients of this process.
 */
#include <check.h>
#include <jansson.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "f8client.h"
#include "lib/ctl_run.h"
#include "lib/patience.h"
#include "lib/suite.h"
#include "lib/test_daemon.h"

#define WORLD 5

static struct test_daemon alpha, beta; /* alpha is the root's */
static struct f8_client *clients[WORLD];
static uint8_t id[F8_UNIQUE_ID_SIZE];

static void setup(void)
{
    static const char *const of_alpha[] = {"--socket-ifname", "lo", "--host-name", "alpha", NULL};
    static const char *const of_beta[] = {"--socket-ifname", "lo", "--host-name", "beta", NULL};
    test_daemon_start(&alpha, of_alpha);
    test_daemon_start(&beta, of_beta);
    for (int i = 0; i < WORLD; i++) {
        struct f8_connect_options options = {
            .socket = i < 2 ? alpha.socket : beta.socket, .job = "run"};
        ck_assert_int_eq(f8_connect(&options, &clients[i]), F8_OK);
    }
    ck_assert_int_eq(f8_unique_id(clients[0], id), F8_OK);
}

static void teardown(void)
{
    for (int i = 0; i < WORLD; i++)
        f8_close(clients[i]);
    test_daemon_stop(&beta);
    test_daemon_stop(&alpha);
}

static void join(uint32_t rank)
{
    struct f8_hosts hosts = {.id = id, .local_ranks = 2};
    struct f8_group *group;
    ck_assert_int_eq(f8_group_join_hosts(clients[rank], "dp", rank, WORLD, &hosts, &group), F8_OK);
}

/* The rows of a view of a daemon. */
static json_t *look(const struct test_daemon *daemon, const char *view)
{
    static char text[1 << 16];
    char command[512];
    (void)snprintf(command, sizeof(command), "--socket %s %s --json", daemon->socket, view);
    ck_assert_int_eq(ctl_run(command, text, sizeof(text)), 0);
    json_t *object = json_loads(text, 0, NULL);
    ck_assert_msg(object != NULL, "no JSON: %s", text);
    json_t *rows = json_incref(json_object_get(object, view));
    json_decref(object);
    return rows;
}

/* What the group waits for, copied; "": nothing. Times are there. */
static void group_waits(const struct test_daemon *daemon, char *text, size_t size)
{
    json_t *groups = look(daemon, "groups");
    const json_t *meeting = json_object_get(json_array_get(groups, 0), "meeting");
    const char *waits_for = json_string_value(json_object_get(meeting, "waits_for"));
    (void)snprintf(text, size, "%s", waits_for ? waits_for : "");
    if (waits_for) {
        json_int_t left = json_integer_value(json_object_get(meeting, "left_ms"));
        ck_assert_int_gt(left, 0);
        ck_assert_int_le(left, 300000);
        ck_assert_int_ge(json_integer_value(json_object_get(meeting, "since_ms")), 0);
    }
    json_decref(groups);
}

static void await_group(const struct test_daemon *daemon, const char *part)
{
    char text[1024] = "";
    time_t end = time(NULL) + PATIENCE_S;
    while (!strstr(text, part)) {
        ck_assert_msg(time(NULL) < end, "\"%s\" has no \"%s\"", text, part);
        group_waits(daemon, text, sizeof(text));
    }
}

static void is_host(const json_t *host, const char *name, int first, bool here, bool root)
{
    const json_t *ranks = json_object_get(host, "ranks");
    ck_assert_str_eq(json_string_value(json_object_get(host, "name")), name);
    ck_assert_str_eq(json_string_value(json_object_get(host, "job")), "run");
    ck_assert_str_eq(json_string_value(json_object_get(host, "group")), "dp");
    ck_assert_uint_eq(json_array_size(ranks), 2);
    ck_assert_int_eq(json_integer_value(json_array_get(ranks, 0)), first);
    ck_assert_int_eq(json_is_true(json_object_get(host, "here")), here);
    ck_assert_int_eq(json_is_true(json_object_get(host, "root")), root);
    const json_t *meeting = json_object_get(host, "meeting");
    ck_assert_int_gt(json_integer_value(json_object_get(meeting, "left_ms")), 0);
}

START_TEST(a_world_that_forms_is_seen)
{
    join(0);
    await_group(&alpha, "ranks of this host: 1 of the 2 that it is to have have joined");
    join(1);
    await_group(&alpha, "3 of 5 ranks are missing: ranks 2-4");
    json_t *hosts = look(&alpha, "hosts");
    ck_assert_uint_eq(json_array_size(hosts), 1);
    is_host(json_array_get(hosts, 0), "alpha", 0, true, true);
    json_decref(hosts);

    join(2);
    join(3);
    await_group(&beta, "other hosts, of which the root at 127.0.0.1:");
    await_group(&alpha, "1 of 5 ranks are missing: rank 4");
    hosts = look(&alpha, "hosts");
    ck_assert_uint_eq(json_array_size(hosts), 2);
    is_host(json_array_get(hosts, 1), "beta", 2, false, false);
    json_decref(hosts);
    hosts = look(&beta, "hosts");
    ck_assert_uint_eq(json_array_size(hosts), 1);
    is_host(json_array_get(hosts, 0), "beta", 2, true, false);
    json_decref(hosts);
}
END_TEST

/* The root's daemon has no rank of the group. */
START_TEST(a_root_without_ranks_shows_who_came)
{
    join(2);
    join(3);
    await_group(&beta, "other hosts, of which the root at 127.0.0.1:");
    json_t *hosts = look(&alpha, "hosts");
    ck_assert_uint_eq(json_array_size(hosts), 1);
    is_host(json_array_get(hosts, 0), "beta", 2, false, false);
    json_decref(hosts);
}
END_TEST

/* Its daemon is gone, and with it the root. */
START_TEST(a_root_that_is_not_there_is_named)
{
    ck_assert_int_eq(kill(alpha.pid, SIGSTOP), 0);
    join(2);
    join(3);
    await_group(&beta, "its root at 127.0.0.1:");
    ck_assert_int_eq(kill(alpha.pid, SIGCONT), 0);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("hosts_forming");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, a_world_that_forms_is_seen);
    tcase_add_test(tcase, a_root_without_ranks_shows_who_came);
    tcase_add_test(tcase, a_root_that_is_not_there_is_named);
    return run_suite("hosts_forming", tcase);
}
