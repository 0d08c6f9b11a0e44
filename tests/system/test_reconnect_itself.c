/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client that connects again by itself, at a real daemon that is killed: while it waits for other
 * ranks to seal, while its threads are in calls, with nobody to come back, and with a group that
 * only a new unique id brings back. test_reconnect has the training around it.
 */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "f8client.h"
#include "lib/patience.h"
#include "lib/suite.h"
#include "lib/test_daemon.h"

#define COUNT    64
#define SHORT_MS 100
#define KILLS    8

static struct test_daemon host;

static void well(int status)
{
    ck_assert_msg(status == F8_OK, "%s: %s", f8_status_name(status), f8_error_text());
}

static void says(int got, int status, const char *text)
{
    ck_assert_msg(got == status, "%s: %s", f8_status_name(got), f8_error_text());
    ck_assert_msg(strstr(f8_error_text(), text) != NULL, "%s", f8_error_text());
}

static struct f8_client *connect_client(int reconnect_ms)
{
    struct f8_client *client;
    const struct f8_connect_options options = {
        .socket = host.socket, .job = "x", .reconnect_ms = reconnect_ms};
    well(f8_connect(&options, &client));
    return client;
}

/* The delayed weight of a group that was joined, in memory of its own. */
static void register_weight(struct f8_client *client, struct f8_group *group)
{
    struct f8_region *region;
    void *memory;
    well(f8_region_alloc(client, COUNT * sizeof(float), &region, &memory));
    for (int i = 0; i < COUNT; i++)
        ((float *)memory)[i] = (float)i;
    const struct f8_weight_desc weight = {.name = "w",
        .ndim = 2,
        .shape = {2, COUNT / 2},
        .dtype = F8_F32,
        .flavour = F8_DELAYED,
        .format = F8_E4M3FN,
        .region = region};
    const struct f8_bucket_desc bucket = {.name = "b", .count = 1};
    well(f8_register(group, &weight, 1, &bucket, 1));
}

static struct f8_group *join(
    struct f8_client *client, const char *name, uint32_t rank, uint32_t world_size)
{
    struct f8_group *group;
    well(f8_group_join(client, name, rank, world_size, &group));
    register_weight(client, group);
    return group;
}

static int seal(struct f8_group *group, uint64_t syncs)
{
    const struct f8_seal_options options = {.state = F8_STATE_CONTINUE, .syncs = syncs};
    return f8_seal(group, &options);
}

static int step(struct f8_group *group)
{
    f8_ticket ticket;
    int status = f8_gather(group, 0, F8_DEFAULT_DEADLINE, NULL);
    if (status == F8_OK)
        status = f8_post_gather(group, 0, F8_FOREVER, NULL, 0, NULL);
    if (status == F8_OK)
        status = f8_release(group, 0, NULL);
    if (status == F8_OK)
        status = f8_sync(group, F8_DEFAULT_DEADLINE, &ticket);
    return status == F8_OK ? f8_wait(group, ticket, F8_FOREVER, NULL) : status;
}

static void set_up(void)
{
    test_daemon_start(&host, NULL);
}

static void tear_down(void)
{
    test_daemon_drop_states(&host);
    test_daemon_stop(&host);
}

/* ---- a seal that waits ---- */

struct sealing {
    struct f8_client *client; /* owned */
    struct f8_group *group;   /* borrowed: from the client */
    pthread_t thread;
    atomic_int breaks; /* that it came back from */
    int status;
};

/* What a trainer does that knows only of broken groups. */
static void *seal_in_the_end(void *argument)
{
    struct sealing *sealing = argument;
    int status = seal(sealing->group, 0);
    while (status == F8_EBROKEN) {
        sealing->breaks++;
        status = f8_group_rejoin(sealing->group);
        if (status == F8_OK)
            status = seal(sealing->group, 0);
    }
    sealing->status = status;
    return NULL;
}

/* Rank 0 waits in its seal for rank 1, which comes only when the daemon was replaced twice. */
START_TEST(a_seal_that_waits)
{
    struct sealing first = {.client = connect_client(PATIENCE_MS)};
    first.group = join(first.client, "dp", 0, 2);
    ck_assert_int_eq(pthread_create(&first.thread, NULL, seal_in_the_end, &first), 0);
    for (int kills = 1; kills <= 2; kills++) {
        test_daemon_kill(&host);
        test_daemon_restart(&host, NULL);
        for (int i = 0; i < PATIENCE_MS && first.breaks < kills; i++)
            (void)usleep(1000);
        ck_assert_int_ge(first.breaks, kills);
    }
    struct f8_client *other = connect_client(PATIENCE_MS);
    struct f8_group *second = join(other, "dp", 1, 2);
    well(seal(second, 0));
    (void)pthread_join(first.thread, NULL);
    ck_assert_msg(first.status == F8_OK, "%s", f8_status_name(first.status));
    f8_close(first.client);
    f8_close(other);
}
END_TEST

/* ---- threads ---- */

/* A thread that trains in a group of its own, on the client that all have. */
struct training {
    struct f8_group *group; /* borrowed: from the client */
    pthread_t thread;
    atomic_bool *over;  /* borrowed: the test's */
    atomic_uint breaks; /* that it came back from */
    atomic_ulong syncs; /* that were done, each once */
    char failure[256];  /* empty: none */
};

/* Whatever it is in as the daemon ends: the one way back, and what is done is not done again. */
static int recover(struct training *training, int status)
{
    uint64_t syncs = training->syncs;
    while (status == F8_EBROKEN) {
        training->breaks++;
        status = f8_group_rejoin(training->group);
        if (status == F8_OK)
            status = seal(training->group, training->syncs == 0 ? 0 : F8_ANY_SYNCS);
        if (status == F8_OK)
            status = f8_syncs(training->group, &syncs);
    }
    if (status == F8_OK && syncs - training->syncs > 1)
        status = F8_EMISMATCH;
    training->syncs = syncs;
    return status;
}

static void *train(void *argument)
{
    struct training *training = argument;
    int status = seal(training->group, 0);
    while (status == F8_OK && !*training->over) {
        status = step(training->group);
        if (status == F8_OK)
            training->syncs++;
        else
            status = recover(training, status);
    }
    if (status != F8_OK)
        (void)snprintf(training->failure, sizeof(training->failure), "%s: %s",
            f8_status_name(status), f8_error_text());
    return NULL;
}

static void await_steps(const struct training *training, unsigned long more)
{
    unsigned long until = training->syncs + more;
    for (int i = 0; i < PATIENCE_MS && training->syncs < until && !training->failure[0]; i++)
        (void)usleep(1000);
    ck_assert_msg(training->syncs >= until, "%s", training->failure);
}

START_TEST(threads_in_calls)
{
    struct f8_client *client = connect_client(PATIENCE_MS);
    atomic_bool over = false;
    struct training trainings[3] = {{.over = &over}, {.over = &over}, {.over = &over}};
    static const char *const names[] = {"a", "b", "c"};
    for (int t = 0; t < 3; t++)
        trainings[t].group = join(client, names[t], 0, 1);
    for (int t = 0; t < 3; t++)
        ck_assert_int_eq(pthread_create(&trainings[t].thread, NULL, train, &trainings[t]), 0);
    for (int kills = 0; kills < KILLS; kills++) {
        for (int t = 0; t < 3; t++)
            await_steps(&trainings[t], 3);
        test_daemon_kill(&host);
        test_daemon_restart(&host, NULL);
    }
    for (int t = 0; t < 3; t++)
        await_steps(&trainings[t], 3);
    over = true;
    for (int t = 0; t < 3; t++) {
        uint64_t syncs;
        (void)pthread_join(trainings[t].thread, NULL);
        ck_assert_str_eq(trainings[t].failure, "");
        ck_assert_uint_ge(trainings[t].breaks, KILLS);
        well(f8_syncs(trainings[t].group, &syncs));
        ck_assert_uint_eq(syncs, trainings[t].syncs);
    }
    f8_close(client);
}
END_TEST

/* ---- no daemon, and groups over hosts ---- */

START_TEST(nobody_comes_back)
{
    struct f8_client *client = connect_client(SHORT_MS);
    struct f8_group *group = join(client, "dp", 0, 1);
    well(seal(group, 0));
    well(step(group));
    test_daemon_kill(&host);
    for (int times = 0; times < 3; times++)
        says(step(group), F8_ENODAEMON, host.socket);
    test_daemon_restart(&host, NULL);
    int status = F8_ENODAEMON;
    while (status == F8_ENODAEMON) /* it may take longer on a busy machine */
        status = step(group);
    says(status, F8_EBROKEN, "group dp is broken");
    says(step(group), F8_EBROKEN, "group dp is broken");
    well(f8_group_rejoin(group));
    well(seal(group, 1));
    well(step(group));
    test_daemon_kill(&host);
    f8_close(client);
    test_daemon_restart(&host, NULL);
}
END_TEST

/* What is of one host is there again by itself; a group over several takes a new id. */
START_TEST(a_group_over_hosts)
{
    uint8_t id[F8_UNIQUE_ID_SIZE];
    struct f8_hosts hosts = {.id = id, .local_ranks = 1};
    struct f8_client *client = connect_client(PATIENCE_MS);
    struct f8_group *near = join(client, "near", 0, 1), *far;
    int status = f8_unique_id(client, id);
    if (status == F8_OK)
        status = f8_group_join_hosts(client, "far", 0, 1, &hosts, &far);
    if (status != F8_OK) { /* built without an engine, or on a host without an interface */
        (void)printf("not tested: %s\n", f8_error_text());
        f8_close(client);
        return;
    }
    register_weight(client, far);
    well(seal(near, 0));
    well(seal(far, 0));
    well(step(near));
    well(step(far));
    test_daemon_kill(&host);
    test_daemon_restart(&host, NULL);
    says(step(near), F8_EBROKEN, "ended");
    says(step(far), F8_EBROKEN, "f8_group_rejoin_hosts with a new unique id");
    well(f8_group_rejoin(near));
    well(seal(near, 1));
    says(f8_group_rejoin(far), F8_EORDER, "group far is over several hosts");
    says(seal(far, 1), F8_EBROKEN, "group far is broken");
    well(f8_unique_id(client, id));
    well(f8_group_rejoin_hosts(far, &hosts));
    well(seal(far, 1));
    well(step(near));
    well(step(far));
    f8_close(client);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("itself");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, a_seal_that_waits);
    tcase_add_test(tcase, threads_in_calls);
    tcase_add_test(tcase, nobody_comes_back);
    tcase_add_test(tcase, a_group_over_hosts);
    return run_suite("reconnect_itself", tcase);
}
