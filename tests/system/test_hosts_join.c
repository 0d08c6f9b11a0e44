/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that join a group over several hosts at a daemon which is not theirs: one more than the
 * host is to have, and one in place of another, both while the hosts still meet.
 */
#include <check.h>
#include <string.h>

#include "f8client.h"
#include "lib/suite.h"
#include "lib/test_daemon.h"

#define CLIENTS 3

static struct test_daemon server;
static struct f8_client *clients[CLIENTS];
static uint8_t id[F8_UNIQUE_ID_SIZE];

static struct f8_client *connect_client(void)
{
    struct f8_connect_options options = {.socket = server.socket, .job = "join"};
    struct f8_client *client = NULL;
    ck_assert_int_eq(f8_connect(&options, &client), F8_OK);
    return client;
}

static void setup(void)
{
    static const char *const arguments[] = {"--socket-ifname", "lo", NULL};
    test_daemon_start(&server, arguments);
    for (int i = 0; i < CLIENTS; i++)
        clients[i] = connect_client();
    ck_assert_int_eq(f8_unique_id(clients[0], id), F8_OK);
}

/* The daemon still serves whoever comes. */
static void teardown(void)
{
    f8_close(connect_client());
    for (int i = 0; i < CLIENTS; i++)
        f8_close(clients[i]);
    test_daemon_stop(&server);
}

static int join(int client, uint32_t rank, uint32_t world_size, uint32_t local_ranks)
{
    struct f8_hosts hosts = {.id = id, .local_ranks = local_ranks};
    struct f8_group *group;
    return f8_group_join_hosts(clients[client], "dp", rank, world_size, &hosts, &group);
}

static void refused(int status, int want, const char *text)
{
    ck_assert_int_eq(status, want);
    ck_assert_msg(strstr(f8_error_text(), text) != NULL, "%s", f8_error_text());
}

START_TEST(one_too_many)
{
    ck_assert_int_eq(join(0, 0, 2, 1), F8_OK);
    refused(join(1, 1, 2, 1), F8_ELIMIT, "rank 1 is one more than the 1 ranks that group dp has");
}
END_TEST

/* Rank 1 was reported to the root, and is gone; rank 2 may be on another host. */
START_TEST(one_in_place_of_another)
{
    ck_assert_int_eq(join(0, 0, 3, 2), F8_OK);
    ck_assert_int_eq(join(1, 1, 3, 2), F8_OK);
    f8_close(clients[1]);
    clients[1] = connect_client();
    refused(join(1, 2, 3, 2), F8_EEXIST, "rank 2 of group dp is none of those that meet from this");
    ck_assert_int_eq(join(2, 1, 3, 2), F8_OK);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("hosts_join");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, one_too_many);
    tcase_add_test(tcase, one_in_place_of_another);
    return run_suite("hosts_join", tcase);
}
