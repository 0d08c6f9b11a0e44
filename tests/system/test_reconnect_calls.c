/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f8_reconnect by itself, on one rank: what comes back of all that a client can have told its
 * daemon, what is said where something cannot, and that it may be called at any time.
 */
#include <check.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "f8client.h"
#include "lib/patience.h"
#include "lib/suite.h"
#include "lib/test_daemon.h"

#define COUNT 64

static struct test_daemon host;
static struct f8_client *client;

static void well(int status)
{
    ck_assert_msg(status == F8_OK, "%s: %s", f8_status_name(status), f8_error_text());
}

static void says(int got, int status, const char *text)
{
    ck_assert_msg(got == status, "%s: %s", f8_status_name(got), f8_error_text());
    ck_assert_msg(strstr(f8_error_text(), text) != NULL, "%s", f8_error_text());
}

static void set_up(void)
{
    test_daemon_start(&host, NULL);
    const struct f8_connect_options options = {
        .socket = host.socket, .job = "x", .token = "secret"};
    well(f8_connect(&options, &client));
}

static void tear_down(void)
{
    f8_close(client);
    test_daemon_drop_states(&host);
    test_daemon_stop(&host);
}

static void lose_the_daemon(void)
{
    test_daemon_kill(&host);
    test_daemon_restart(&host, NULL);
}

/* A memfd of the caller's, with a float in it at each place; closed by the caller. */
static int caller_memfd(float value)
{
    float values[COUNT];
    int fd = memfd_create("caller's", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    for (int i = 0; i < COUNT; i++)
        values[i] = value;
    ck_assert_int_eq(write(fd, values, sizeof(values)), sizeof(values));
    ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    return fd;
}

static float gathered(struct f8_group *group, uint32_t bucket, uint32_t weight)
{
    struct f8_view views[4];
    well(f8_gather(group, bucket, F8_DEFAULT_DEADLINE, NULL));
    well(f8_post_gather(group, bucket, F8_FOREVER, views, 4, NULL));
    float value = *(const float *)views[weight].data;
    well(f8_release(group, bucket, NULL));
    return value;
}

static struct f8_weight_desc raw(const char *name, const struct f8_region *region, uint64_t offset)
{
    return (struct f8_weight_desc){.name = name,
        .ndim = 1,
        .shape = {COUNT},
        .dtype = F8_F32,
        .flavour = F8_RAW,
        .region = region,
        .offset = offset};
}

/* Regions of both kinds, a weight that was moved, one that is static, in two registrations. */
START_TEST(all_comes_back)
{
    struct f8_region *own, *shared;
    struct f8_group *group;
    void *memory;
    float *values;
    int fd = caller_memfd(3);
    well(f8_region_alloc(client, 2 * COUNT * sizeof(float), &own, &memory));
    values = memory;
    well(f8_region_share(client, fd, &shared));
    (void)close(fd); /* what f8_reconnect needs is the library's own */
    well(f8_group_join(client, "dp", 0, 1, &group));
    for (int i = 0; i < 2 * COUNT; i++)
        values[i] = i < COUNT ? 1 : 2;
    struct f8_weight_desc weights[] = {raw("a", own, 0), raw("b", shared, 0), raw("c", own, 0)};
    weights[2].flavour = F8_STATIC;
    weights[2].format = F8_E4M3FN;
    weights[2].static_scale = 4;
    const struct f8_bucket_desc buckets[] = {
        {.name = "ab", .count = 2}, {.name = "c", .first = 2, .count = 1, .shared = 1}};
    const struct f8_seal_options options = {.slots = 1};
    well(f8_register(group, weights, 2, buckets, 1));
    well(f8_register(group, weights + 2, 1, buckets + 1, 1));
    well(f8_seal(group, &options));
    well(f8_weight_move(group, 0, own, COUNT * sizeof(float)));
    ck_assert(gathered(group, 0, 0) == 2.0f && gathered(group, 0, 1) == 3.0f);
    for (int times = 0; times < 2; times++) {
        lose_the_daemon();
        ck_assert_int_eq(f8_changed(group, 0, 3), F8_ECONN);
        well(f8_reconnect(client, PATIENCE_S * 1000));
        says(f8_gather(group, 0, F8_DEFAULT_DEADLINE, NULL), F8_EORDER, "is not sealed");
        well(f8_seal(group, &options));
        ck_assert(gathered(group, 0, 0) == 2.0f && gathered(group, 0, 1) == 3.0f);
        struct f8_view view;
        well(f8_gather(group, 1, F8_DEFAULT_DEADLINE, NULL));
        well(f8_post_gather(group, 1, F8_FOREVER, &view, 1, NULL));
        ck_assert(*view.scale == 4.0f);
        well(f8_release(group, 1, NULL));
    }
    well(f8_weight_move(group, 0, own, 0));
    ck_assert(gathered(group, 0, 0) == 1.0f);
}
END_TEST

/* With gathers under way and views held, which nobody gets any more; and what was freed is gone. */
START_TEST(what_was_under_way_is_over)
{
    struct f8_region *own, *freed;
    struct f8_group *group;
    void *memory;
    struct f8_view view;
    well(f8_region_alloc(client, 4096, &own, &memory));
    well(f8_region_alloc(client, 4096, &freed, &memory));
    well(f8_group_join(client, "dp", 0, 1, &group));
    const struct f8_weight_desc weights[] = {raw("a", own, 0), raw("b", own, 256)};
    const struct f8_bucket_desc buckets[] = {
        {.name = "a", .count = 1}, {.name = "b", .first = 1, .count = 1}};
    well(f8_register(group, weights, 2, buckets, 2));
    well(f8_region_free(freed));
    well(f8_seal(group, NULL));
    well(f8_gather(group, 0, F8_DEFAULT_DEADLINE, NULL));
    well(f8_post_gather(group, 0, F8_FOREVER, &view, 1, NULL)); /* held */
    well(f8_gather(group, 1, F8_DEFAULT_DEADLINE, NULL));       /* open */
    lose_the_daemon();
    well(f8_reconnect(client, PATIENCE_S * 1000));
    ck_assert_int_ne(f8_view_check(group, &view), F8_OK);
    well(f8_seal(group, NULL));
    ck_assert(gathered(group, 0, 0) == 0 && gathered(group, 1, 0) == 0);
}
END_TEST

/* Nobody answers, in the time that was given. */
START_TEST(no_daemon_is_said_in_time)
{
    test_daemon_kill(&host);
    says(f8_reconnect(client, 0), F8_ENODAEMON, host.socket);
    says(f8_reconnect(client, 60), F8_ENODAEMON, host.socket);
    test_daemon_restart(&host, NULL);
    well(f8_reconnect(client, PATIENCE_S * 1000));
    says(f8_reconnect(NULL, 0), F8_EINVAL, "NULL");
}
END_TEST

/* The daemon is there, but stopped: it takes connections and answers nothing. */
START_TEST(a_stopped_daemon_takes_no_more_time)
{
    struct timespec from, to;
    (void)clock_gettime(CLOCK_MONOTONIC, &from);
    ck_assert_int_eq(kill(host.pid, SIGSTOP), 0);
    int status = f8_reconnect(client, 300);
    (void)clock_gettime(CLOCK_MONOTONIC, &to);
    ck_assert_int_eq(kill(host.pid, SIGCONT), 0);
    says(status, F8_ENODAEMON, host.socket);
    ck_assert_msg(to.tv_sec - from.tv_sec < 8, "after %ld s", (long)(to.tv_sec - from.tv_sec));
    well(f8_reconnect(client, PATIENCE_S * 1000));
}
END_TEST

/* On a connection that is there: it is replaced, and other clients find the rank free. */
START_TEST(a_live_connection_is_replaced)
{
    struct f8_region *own;
    struct f8_group *group;
    void *memory;
    well(f8_region_alloc(client, 4096, &own, &memory));
    well(f8_group_join(client, "dp", 0, 1, &group));
    const struct f8_weight_desc weight = raw("a", own, 0);
    const struct f8_bucket_desc bucket = {.name = "a", .count = 1};
    well(f8_register(group, &weight, 1, &bucket, 1));
    for (int i = 0; i < 20; i++) {
        well(f8_seal(group, NULL));
        well(f8_reconnect(client, PATIENCE_S * 1000));
    }
    well(f8_seal(group, NULL));
    ck_assert(gathered(group, 0, 0) == 0);
}
END_TEST

/* Another token is another run's: the new daemon has heard of that one first. */
START_TEST(a_refusal_is_told)
{
    const struct f8_connect_options options = {
        .socket = host.socket, .job = "x", .token = "another"};
    struct f8_client *other;
    lose_the_daemon();
    well(f8_connect(&options, &other));
    says(f8_reconnect(client, PATIENCE_S * 1000), F8_EPERM, "token");
    f8_close(other);
    well(f8_reconnect(client, PATIENCE_S * 1000)); /* again, and now it may */
}
END_TEST

/* A group over hosts needs an id that nobody has yet. */
START_TEST(a_group_over_hosts_asks_for_an_id)
{
    uint8_t id[F8_UNIQUE_ID_SIZE];
    struct f8_hosts hosts = {.id = id, .local_ranks = 1};
    struct f8_seal_options options = {.state = F8_STATE_CONTINUE};
    struct f8_region *own;
    struct f8_group *group;
    void *memory;
    uint64_t syncs;
    f8_ticket ticket;
    int status = f8_unique_id(client, id);
    if (status == F8_OK)
        status = f8_group_join_hosts(client, "dp", 0, 1, &hosts, &group);
    if (status != F8_OK) { /* built without an engine, or on a host without an interface */
        (void)printf("not tested: %s\n", f8_error_text());
        return;
    }
    well(f8_region_alloc(client, 4096, &own, &memory));
    struct f8_weight_desc weight = raw("a", own, 0);
    weight.flavour = F8_DELAYED;
    weight.format = F8_E4M3FN;
    const struct f8_bucket_desc bucket = {.name = "a", .count = 1};
    well(f8_register(group, &weight, 1, &bucket, 1));
    well(f8_seal(group, &options));
    (void)gathered(group, 0, 0);
    well(f8_sync(group, F8_DEFAULT_DEADLINE, &ticket));
    well(f8_wait(group, ticket, F8_FOREVER, NULL));
    lose_the_daemon();
    well(f8_reconnect(client, PATIENCE_S * 1000));
    says(f8_seal(group, &options), F8_EORDER, "f8_group_rejoin_hosts");
    says(f8_group_rejoin(group), F8_EORDER, "group dp is over several hosts");
    well(f8_unique_id(client, id));
    well(f8_group_rejoin_hosts(group, &hosts));
    options.syncs = F8_ANY_SYNCS;
    well(f8_seal(group, &options));
    well(f8_syncs(group, &syncs));
    ck_assert_uint_eq(syncs, 1);
}
END_TEST

/* Two ranks in this process: the first one waits for a gather that the second has not joined. */
struct pair {
    struct f8_client *other; /* owned */
    struct f8_group *groups[2];
    pthread_t thread;
    int status; /* of the thread's call */
};

static void *seal_second(void *argument)
{
    struct pair *pair = argument;
    pair->status = f8_seal(pair->groups[1], NULL);
    return NULL;
}

static void *wait_for_gather(void *argument)
{
    struct pair *pair = argument;
    pair->status = f8_post_gather(pair->groups[0], 0, F8_FOREVER, NULL, 0, NULL);
    return NULL;
}

static void pair_up(struct pair *pair)
{
    const struct f8_connect_options options = {
        .socket = host.socket, .job = "x", .token = "secret"};
    well(f8_connect(&options, &pair->other));
    for (uint32_t rank = 0; rank < 2; rank++) {
        struct f8_client *mine = rank ? pair->other : client;
        struct f8_region *own;
        void *memory;
        well(f8_region_alloc(mine, 4096, &own, &memory));
        well(f8_group_join(mine, "dp", rank, 2, &pair->groups[rank]));
        const struct f8_weight_desc weight = raw("a", own, 0);
        const struct f8_bucket_desc bucket = {.name = "a", .count = 1};
        well(f8_register(pair->groups[rank], &weight, 1, &bucket, 1));
    }
    ck_assert_int_eq(pthread_create(&pair->thread, NULL, seal_second, pair), 0);
    well(f8_seal(pair->groups[0], NULL));
    (void)pthread_join(pair->thread, NULL);
    well(pair->status);
}

/*
 * A wait that goes on is not disturbed, nor does it lose its channel. f8_reconnect can come before
 * the thread waits, and then it does what it is for: the gather is lost, and asked for again.
 */
START_TEST(a_wait_under_way_is_left_alone)
{
    struct pair pair;
    int status = F8_OK;
    while (status == F8_OK) {
        pair_up(&pair);
        well(f8_gather(pair.groups[0], 0, F8_DEFAULT_DEADLINE, NULL));
        ck_assert_int_eq(pthread_create(&pair.thread, NULL, wait_for_gather, &pair), 0);
        for (int i = 0; i < 100 && status == F8_OK; i++) {
            struct f8_traffic traffic;
            well(f8_traffic_read(client, &traffic)); /* calls beside the wait go on */
            (void)poll(NULL, 0, 1);
        }
        status = f8_reconnect(client, PATIENCE_S * 1000);
        if (status == F8_OK) { /* the thread is late */
            (void)pthread_join(pair.thread, NULL);
            f8_close(pair.other);
            f8_close(client);
            const struct f8_connect_options options = {
                .socket = host.socket, .job = "x", .token = "secret"};
            well(f8_connect(&options, &client));
        }
    }
    says(status, F8_EBUSY, "has not returned");
    well(f8_gather(pair.groups[1], 0, F8_DEFAULT_DEADLINE, NULL));
    well(f8_post_gather(pair.groups[1], 0, F8_FOREVER, NULL, 0, NULL));
    (void)pthread_join(pair.thread, NULL);
    well(pair.status);
    f8_close(pair.other);
    well(f8_reconnect(client, PATIENCE_S * 1000)); /* and now nobody waits */
}
END_TEST

/* What the threads of the test below share. */
struct crowd {
    struct f8_group *group; /* borrowed: from the client */
    atomic_bool over;
    atomic_int busy; /* calls that came during a f8_reconnect */
};

static void count(struct crowd *crowd, int status)
{
    atomic_fetch_add(&crowd->busy, status == F8_EBUSY);
}

static void *call_the_client(void *argument)
{
    struct crowd *crowd = argument;
    while (!atomic_load(&crowd->over)) {
        struct f8_region *region;
        struct f8_group *joined;
        void *memory;
        int status = f8_region_alloc(client, 4096, &region, &memory);
        count(crowd, status);
        if (status == F8_OK)
            while (f8_region_free(region) == F8_EBUSY)
                (void)sched_yield();
        count(crowd, f8_group_join(client, "dp", 0, 1, &joined));
    }
    return NULL;
}

static void *call_the_group(void *argument)
{
    struct crowd *crowd = argument;
    while (!atomic_load(&crowd->over)) {
        f8_ticket ticket;
        int status = f8_seal(crowd->group, NULL);
        count(crowd, status);
        if (f8_precompute(crowd->group, F8_DEFAULT_DEADLINE, NULL, &ticket) == F8_OK)
            count(crowd, f8_wait(crowd->group, ticket, F8_FOREVER, NULL));
        if (f8_gather(crowd->group, 0, F8_DEFAULT_DEADLINE, NULL) == F8_OK)
            count(crowd, f8_post_gather(crowd->group, 0, F8_FOREVER, NULL, 0, NULL));
        (void)f8_release(crowd->group, 0, NULL);
        count(crowd, f8_quiesce(crowd->group, F8_FOREVER));
    }
    return NULL;
}

/* Threads that know of nothing call all the time: each call is before f8_reconnect or after it. */
START_TEST(calls_of_other_threads_are_kept_apart)
{
    struct crowd crowd = {.over = false};
    struct f8_region *own;
    pthread_t threads[2];
    void *memory;
    well(f8_region_alloc(client, 4096, &own, &memory));
    well(f8_group_join(client, "dp", 0, 1, &crowd.group));
    const struct f8_weight_desc weight = raw("a", own, 0);
    const struct f8_bucket_desc bucket = {.name = "a", .count = 1};
    well(f8_register(crowd.group, &weight, 1, &bucket, 1));
    ck_assert_int_eq(pthread_create(&threads[0], NULL, call_the_client, &crowd), 0);
    ck_assert_int_eq(pthread_create(&threads[1], NULL, call_the_group, &crowd), 0);
    for (int done = 0; done < 20 || atomic_load(&crowd.busy) == 0;) {
        int status = f8_reconnect(client, PATIENCE_S * 1000);
        if (status == F8_OK)
            done++;
        else
            says(status, F8_EBUSY, "has not returned");
    }
    atomic_store(&crowd.over, true);
    for (int i = 0; i < 2; i++)
        (void)pthread_join(threads[i], NULL);
    well(f8_reconnect(client, PATIENCE_S * 1000));
    well(f8_seal(crowd.group, NULL));
    ck_assert(gathered(crowd.group, 0, 0) == 0);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("calls");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, all_comes_back);
    tcase_add_test(tcase, what_was_under_way_is_over);
    tcase_add_test(tcase, no_daemon_is_said_in_time);
    tcase_add_test(tcase, a_stopped_daemon_takes_no_more_time);
    tcase_add_test(tcase, a_live_connection_is_replaced);
    tcase_add_test(tcase, a_wait_under_way_is_left_alone);
    tcase_add_test(tcase, calls_of_other_threads_are_kept_apart);
    tcase_add_test(tcase, a_refusal_is_told);
    tcase_add_test(tcase, a_group_over_hosts_asks_for_an_id);
    return run_suite("reconnect_calls", tcase);
}
