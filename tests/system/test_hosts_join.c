/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that join a group over several hosts: at a daemon which is not theirs (one more than the
 * host is to have, one in place of another), with what is no id, where others never come, and where
 * there is but one host.
 */
#include <check.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "f8client.h"
#include "lib/admin_link.h"
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
    static const char *const arguments[] = {"--socket-ifname", "lo", "--world-deadline", "3", NULL};
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

START_TEST(bytes_that_are_no_id)
{
    id[40] ^= 1;
    refused(join(0, 0, 2, 1), F8_EINVAL, "damaged");
    memset(id, 0, sizeof(id));
    refused(join(0, 0, 2, 1), F8_EINVAL, "this is no unique id");
}
END_TEST

/* The rank that waits for another of its host hears when the root's patience ends. */
START_TEST(a_host_that_is_not_complete)
{
    struct f8_hosts hosts = {.id = id, .local_ranks = 2};
    const struct f8_bucket_desc bucket = {.name = "b", .first = 0, .count = 1};
    const struct f8_weight_desc weight = {
        .name = "w",
        .shape = {1, 4},
        .ndim = 2,
        .dtype = F8_F32,
        .flavour = F8_RAW,
    };
    struct f8_group *group;
    int status = f8_group_join_hosts(clients[0], "dp", 1, 4, &hosts, &group);
    ck_assert_int_eq(status, F8_OK);
    status = f8_register(group, &weight, 1, &bucket, 1);
    ck_assert_msg(status == F8_OK, "%s", f8_error_text());
    refused(f8_seal(group, NULL), F8_EDEADLINE,
        "group dp: 1 of the 2 ranks that it is to have on this host have joined within 3 s");
}
END_TEST

struct sealing {
    struct f8_client *client;
    uint32_t rank;
    int status;
    char text[512];
};

/* A group of which this host has all the ranks; each on a thread. */
static void *join_and_seal(void *argument)
{
    struct sealing *sealing = argument;
    struct f8_hosts hosts = {.id = id, .local_ranks = 2};
    const struct f8_bucket_desc bucket = {.name = "b", .first = 0, .count = 1};
    struct f8_weight_desc weight = {
        .name = "w",
        .shape = {2, 4},
        .ndim = 2,
        .dtype = F8_F32,
        .flavour = F8_RAW,
    };
    struct f8_group *group;
    struct f8_region *region = NULL;
    void *shard;
    f8_ticket ticket;
    sealing->status = f8_region_alloc(sealing->client, 16, &region, &shard);
    weight.region = region;
    if (sealing->status == F8_OK)
        sealing->status =
            f8_group_join_hosts(sealing->client, "dp", sealing->rank, 2, &hosts, &group);
    if (sealing->status == F8_OK)
        sealing->status = f8_register(group, &weight, 1, &bucket, 1);
    if (sealing->status == F8_OK)
        sealing->status = f8_seal(group, NULL);
    if (sealing->status == F8_OK)
        sealing->status = f8_sync(group, F8_DEFAULT_DEADLINE, &ticket);
    if (sealing->status == F8_OK)
        sealing->status = f8_wait(group, ticket, F8_FOREVER, NULL);
    strncpy(sealing->text, f8_error_text(), sizeof(sealing->text) - 1);
    return NULL;
}

/* There are no other hosts, and no names of none. */
static void shows_no_rank_hosts(void)
{
    F8__Inspect inspect = F8__INSPECT__INIT;
    F8__Request request = F8__REQUEST__INIT;
    int link = admin_link_open(&server, F8__ROLE__ADMIN, ""), fd;
    inspect.view = F8__VIEW__GROUPS;
    request.body_case = F8__REQUEST__BODY_INSPECT;
    request.inspect = &inspect;
    F8__Reply *reply = admin_link_ask(link, &request, -1, &fd);
    ck_assert_uint_eq(reply->inspect->n_groups, 1);
    ck_assert_uint_eq(reply->inspect->groups[0]->hosts, 1);
    ck_assert_uint_eq(reply->inspect->groups[0]->n_rank_hosts, 0);
    f8__reply__free_unpacked(reply, NULL);
    (void)close(link);
}

/* The seal can be asked for before the daemon has the table of its own world. */
START_TEST(one_host_of_all_ranks)
{
    for (int i = 0; i < 20; i++) {
        struct sealing sealings[2] = {
            {.client = clients[1], .rank = 0}, {.client = clients[2], .rank = 1}};
        pthread_t threads[2];
        for (int r = 0; r < 2; r++)
            ck_assert_int_eq(pthread_create(&threads[r], NULL, join_and_seal, &sealings[r]), 0);
        for (int r = 0; r < 2; r++)
            ck_assert_int_eq(pthread_join(threads[r], NULL), 0);
        for (int r = 0; r < 2; r++)
            ck_assert_msg(sealings[r].status == F8_OK, "%s", sealings[r].text);
        shows_no_rank_hosts();
        for (int r = 0; r < 2; r++) {
            f8_close(clients[1 + r]);
            clients[1 + r] = connect_client();
        }
        ck_assert_int_eq(f8_unique_id(clients[0], id), F8_OK);
    }
}
END_TEST

/* What waits for one of the two to come. */
struct waiting {
    struct f8_group *group; /* owned: its client */
    int status;
    char text[512];
};

static void *seal_and_wait(void *argument)
{
    struct waiting *waiting = argument;
    waiting->status = f8_seal(waiting->group, NULL);
    strncpy(waiting->text, f8_error_text(), sizeof(waiting->text) - 1);
    return NULL;
}

static struct f8_group *join_and_register(int client, uint32_t rank, const uint8_t *with)
{
    struct f8_hosts hosts = {.id = with, .local_ranks = 2};
    const struct f8_bucket_desc bucket = {.name = "b", .first = 0, .count = 1};
    struct f8_weight_desc weight = {
        .name = "w", .shape = {2, 4}, .ndim = 2, .dtype = F8_F32, .flavour = F8_RAW};
    struct f8_group *group = NULL;
    struct f8_region *region = NULL;
    void *shard;
    int status = f8_group_join_hosts(clients[client], "dp", rank, 2, &hosts, &group);
    ck_assert_msg(status == F8_OK, "%s", f8_error_text());
    ck_assert_int_eq(f8_region_alloc(clients[client], 16, &region, &shard), F8_OK);
    weight.region = region;
    ck_assert_int_eq(f8_register(group, &weight, 1, &bucket, 1), F8_OK);
    return group;
}

/* Rank 0 gave the id before, and waits; rank 1 comes with the new one. */
START_TEST(a_new_id_ends_the_wait_with_the_old)
{
    struct waiting waiting[2] = {{.group = join_and_register(1, 0, id)}};
    pthread_t threads[2];
    uint8_t new_id[F8_UNIQUE_ID_SIZE];
    ck_assert_int_eq(pthread_create(&threads[0], NULL, seal_and_wait, &waiting[0]), 0);
    ck_assert_int_eq(f8_unique_id(clients[0], new_id), F8_OK);
    waiting[1].group = join_and_register(2, 1, new_id);
    ck_assert_int_eq(pthread_join(threads[0], NULL), 0);
    /* The one if it came too late to wait. */
    ck_assert_msg(waiting[0].status == F8_EMISMATCH || waiting[0].status == F8_EBROKEN, "%s",
        waiting[0].text);
    ck_assert_msg(
        strstr(waiting[0].text, "rank 1 enters group dp with the unique id of root 127.0.0.1:") &&
            strstr(waiting[0].text, ", rank 0 (pid ") &&
            strstr(waiting[0].text, ") did with that of root 127.0.0.1:"),
        "%s", waiting[0].text);
    struct f8_hosts hosts = {.id = new_id, .local_ranks = 2};
    ck_assert_int_eq(f8_group_rejoin_hosts(waiting[0].group, &hosts), F8_OK);
    for (int r = 0; r < 2; r++)
        ck_assert_int_eq(pthread_create(&threads[r], NULL, seal_and_wait, &waiting[r]), 0);
    for (int r = 0; r < 2; r++)
        ck_assert_int_eq(pthread_join(threads[r], NULL), 0);
    for (int r = 0; r < 2; r++)
        ck_assert_msg(waiting[r].status == F8_OK, "%s", waiting[r].text);
}
END_TEST

/* Bytes that are no id end nothing. */
START_TEST(a_damaged_id_ends_no_wait)
{
    struct waiting waiting[2] = {{.group = join_and_register(1, 0, id)}};
    pthread_t threads[2];
    uint8_t damaged[F8_UNIQUE_ID_SIZE];
    struct f8_hosts hosts = {.id = damaged, .local_ranks = 2};
    struct f8_group *group;
    ck_assert_int_eq(pthread_create(&threads[0], NULL, seal_and_wait, &waiting[0]), 0);
    memcpy(damaged, id, sizeof(damaged));
    damaged[40] ^= 1;
    refused(f8_group_join_hosts(clients[2], "dp", 1, 2, &hosts, &group), F8_EINVAL, "damaged");
    waiting[1].group = join_and_register(2, 1, id);
    ck_assert_int_eq(pthread_create(&threads[1], NULL, seal_and_wait, &waiting[1]), 0);
    for (int r = 0; r < 2; r++)
        ck_assert_int_eq(pthread_join(threads[r], NULL), 0);
    for (int r = 0; r < 2; r++)
        ck_assert_msg(waiting[r].status == F8_OK, "%s", waiting[r].text);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("hosts_join");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, one_too_many);
    tcase_add_test(tcase, one_in_place_of_another);
    tcase_add_test(tcase, bytes_that_are_no_id);
    tcase_add_test(tcase, a_host_that_is_not_complete);
    tcase_add_test(tcase, one_host_of_all_ranks);
    tcase_add_test(tcase, a_new_id_ends_the_wait_with_the_old);
    tcase_add_test(tcase, a_damaged_id_ends_no_wait);
    return run_suite("hosts_join", tcase);
}
