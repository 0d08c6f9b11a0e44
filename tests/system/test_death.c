/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank is killed while the first of three gathers that all ranks have asked for still runs: the
 * survivors get all three, with the bytes of the dead rank too, and the cause for a fourth, which
 * it had not asked for. Also how the orderly end of a run is logged. Real processes and daemon.
 */
#include <check.h>
#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "f8client.h"
#include "lib/device_memory.h"
#include "lib/suite.h"
#include "lib/test_daemon.h"

#define RANKS    3
#define BUCKETS  4 /* one weight each; the last is what the victim does not ask for */
#define COMPLETE 3
#define COLS     4096

/* Rows of a shard: enough that the three gathers take far longer than it takes to die. */
#ifndef DEATH_ROWS
#define DEATH_ROWS 1024
#endif

#define SHARD_COUNT ((size_t)DEATH_ROWS * COLS)

static const char *const names[BUCKETS] = {"a", "b", "c", "d"};

/* What a rank process is to do. */
struct plan {
    const char *socket; /* borrowed: the daemon's */
    uint32_t rank, victim;
    int asked[2]; /* a pipe: a byte for each survivor that has asked for all */
    int go[2];    /* a pipe: a byte once the victim may ask */
    pid_t victim_pid;
};

struct rank {
    struct f8_client *client;            /* owned */
    struct f8_group *group;              /* borrowed: from the client */
    struct f8_region *region;            /* borrowed: from the client */
    float *memory;                       /* borrowed: where it writes its shards */
    struct device_memory *device_memory; /* owned: NULL on the host */
    void *stream;                        /* borrowed: from device_memory */
};

/* In a rank process: ends it, with a line, unless the call ended as wanted. */
static void need(int status, int wanted, const char *call)
{
    if (status == wanted)
        return;
    (void)fprintf(stderr, "pid %d: %s gave %s where %s was due: %s\n", (int)getpid(), call,
        f8_status_name(status), f8_status_name(wanted), f8_error_text());
    _exit(1);
}

/* 0, 1 or 2: differs between the ranks of a bucket, and between buckets. */
static uint32_t step_of(uint32_t rank, uint32_t bucket)
{
    return (rank + bucket) % RANKS;
}

/* Shards of 1, 2 or 4: the scale of each bucket is 64 if the 4 of whichever rank counts. */
static void fill(float *memory, uint32_t rank)
{
    for (uint32_t b = 0; b < BUCKETS; b++)
        for (size_t i = 0; i < SHARD_COUNT; i++)
            memory[b * SHARD_COUNT + i] = ldexpf(i % 3 ? 1.0f : -1.0f, (int)step_of(rank, b));
}

/* e4m3fn of 64, 128, 256, with the sign of element i. */
static uint8_t expected_byte(uint32_t rank, uint32_t bucket, size_t i)
{
    return (uint8_t)((0x68 + 8 * step_of(rank, bucket)) | (i % 3 ? 0 : 0x80));
}

static bool right_bytes(const struct f8_view *view, uint32_t bucket)
{
    const uint8_t *data = view->data;
    bool right = view->size == RANKS * SHARD_COUNT && *view->scale == 64.0f;
    for (uint32_t r = 0; r < RANKS && right; r++)
        for (size_t i = 0; i < SHARD_COUNT && right; i++)
            right = data[r * SHARD_COUNT + i] == expected_byte(r, bucket, i);
    return right;
}

static int register_all(const struct rank *rank, uint32_t world_size)
{
    struct f8_weight_desc weights[BUCKETS];
    struct f8_bucket_desc buckets[BUCKETS];
    for (uint32_t b = 0; b < BUCKETS; b++) {
        weights[b] = (struct f8_weight_desc){
            .name = names[b],
            .ndim = 2,
            .shape = {(uint64_t)DEATH_ROWS * world_size, COLS},
            .dtype = F8_F32,
            .flavour = F8_DYNAMIC,
            .format = F8_E4M3FN,
            .power_of_two = 1,
            .region = rank->region,
            .offset = b * SHARD_COUNT * sizeof(float),
        };
        buckets[b] = (struct f8_bucket_desc){.name = names[b], .first = b, .count = 1};
    }
    return f8_register(rank->group, weights, BUCKETS, buckets, BUCKETS);
}

/* Connects, joins, writes the shards and seals. */
static void begin(struct rank *rank, const char *socket, uint32_t number, uint32_t world_size)
{
    const struct f8_connect_options options = {.socket = socket, .job = "run"};
    const struct f8_seal_options seal = {.slots = 0};
    void *address;
    need(f8_connect(&options, &rank->client), F8_OK, "f8_connect");
    need(device_memory_open(rank->client, number, &rank->device_memory), F8_OK, "a device");
    rank->stream = device_memory_stream(rank->device_memory);
    need(f8_group_join(rank->client, "dp", number, world_size, &rank->group), F8_OK, "join");
    const size_t size = BUCKETS * SHARD_COUNT * sizeof(float);
    need(device_memory_alloc(rank->device_memory, rank->client, size, &rank->region, &address),
        F8_OK, "the shards");
    rank->memory = address;
    fill(rank->memory, number);
    need(device_memory_put(rank->device_memory, address, size), F8_OK, "putting the shards");
    need(register_all(rank, world_size), F8_OK, "f8_register");
    need(f8_seal(rank->group, &seal), F8_OK, "f8_seal");
    need(f8_changed(rank->group, 0, BUCKETS), F8_OK, "f8_changed");
}

/* Asks for `count` gathers, and returns when the daemon has taken the requests. */
static void ask(const struct rank *rank, uint32_t count)
{
    struct f8_region *region;
    void *address;
    /* Early parts that the death cancels, or finds done: the gather does what is missing. */
    need(f8_pre_gather(rank->group, COMPLETE - 1, rank->stream), F8_OK, "f8_pre_gather");
    for (uint32_t b = 0; b < count; b++)
        need(f8_gather(rank->group, b, F8_DEFAULT_DEADLINE, rank->stream), F8_OK, "f8_gather");
    /* Requests are taken in order, and this one has a reply. */
    need(f8_region_alloc(rank->client, 4096, &region, &address), F8_OK, "f8_region_alloc");
}

static int be_victim(const struct plan *plan)
{
    struct rank rank;
    char byte;
    begin(&rank, plan->socket, plan->rank, RANKS);
    if (read(plan->go[0], &byte, 1) == 1) {
        ask(&rank, COMPLETE);
        (void)raise(SIGKILL);
    }
    return 1;
}

static int be_survivor(const struct plan *plan)
{
    struct rank rank;
    struct f8_view view;
    char cause[64];
    begin(&rank, plan->socket, plan->rank, RANKS);
    ask(&rank, BUCKETS);
    if (write(plan->asked[1], "", 1) != 1)
        return 1;
    for (uint32_t b = 0; b < COMPLETE; b++) {
        need(f8_post_gather(rank.group, b, F8_FOREVER, &view, 1, rank.stream), F8_OK, names[b]);
        need(device_memory_see(rank.device_memory, &view, 0, &view), F8_OK, "seeing a view");
        if (!right_bytes(&view, b)) {
            (void)fprintf(stderr, "rank %u: wrong bytes in bucket %s\n", plan->rank, names[b]);
            return 1;
        }
    }
    need(f8_post_gather(rank.group, COMPLETE, F8_FOREVER, &view, 1, rank.stream), F8_ERANKDEAD,
        "the last");
    (void)snprintf(
        cause, sizeof(cause), "rank %u (pid %d) died", plan->victim, (int)plan->victim_pid);
    if (!strstr(f8_error_text(), cause)) {
        (void)fprintf(stderr, "rank %u got: %s\n", plan->rank, f8_error_text());
        return 1;
    }
    for (uint32_t b = 0; b < COMPLETE; b++)
        need(f8_release(rank.group, b, rank.stream), F8_OK, "f8_release");
    need(f8_changed(rank.group, 0, 1), F8_EBROKEN, "f8_changed, late");
    f8_close(rank.client);
    device_memory_close(rank.device_memory);
    return 0;
}

static int be_rank(void *argument)
{
    const struct plan *plan = argument;
    if (plan->rank == plan->victim)
        return be_victim(plan);
    return be_survivor(plan);
}

static void close_pipe(const int ends[2])
{
    (void)close(ends[0]);
    (void)close(ends[1]);
}

START_TEST(what_all_had_asked_for_outlives_a_rank)
{
    struct test_daemon daemon;
    struct plan plan = {.victim = (uint32_t)_i};
    pid_t pids[RANKS];
    char byte;
    const char *const one_thread[] = {"--threads", "1", NULL};
    test_daemon_start(&daemon, one_thread);
    plan.socket = daemon.socket;
    ck_assert_int_eq(pipe(plan.asked), 0);
    ck_assert_int_eq(pipe(plan.go), 0);
    for (uint32_t i = 0; i < RANKS; i++) {
        plan.rank = (plan.victim + i) % RANKS; /* the victim first: the others know its pid */
        pids[plan.rank] = test_fork(be_rank, &plan);
        if (i == 0)
            plan.victim_pid = pids[plan.rank];
    }
    for (uint32_t i = 1; i < RANKS; i++)
        ck_assert_int_eq(read(plan.asked[0], &byte, 1), 1);
    ck_assert_int_eq(write(plan.go[1], "", 1), 1);
    for (uint32_t r = 0; r < RANKS; r++)
        ck_assert_int_eq(test_wait(pids[r]), r == plan.victim ? -SIGKILL : 0);
    close_pipe(plan.asked);
    close_pipe(plan.go);
    test_daemon_stop(&daemon);
}
END_TEST

/* A run that ends as it should leaves no warning behind. */
START_TEST(an_orderly_end_is_no_warning)
{
    struct test_daemon daemon;
    struct rank rank;
    char log[4096];
    test_daemon_start(&daemon, NULL);
    begin(&rank, daemon.socket, 0, 1);
    ck_assert_int_eq(f8_gather(rank.group, 0, F8_DEFAULT_DEADLINE, rank.stream), F8_OK);
    ck_assert_int_eq(f8_post_gather(rank.group, 0, F8_FOREVER, NULL, 0, rank.stream), F8_OK);
    ck_assert_int_eq(f8_release(rank.group, 0, rank.stream), F8_OK);
    f8_close(rank.client);
    device_memory_close(rank.device_memory);
    test_daemon_await_log(&daemon, "info: job run, group dp: ended: rank 0 (pid ");
    FILE *file = fopen(daemon.log, "re");
    ck_assert_ptr_nonnull(file);
    log[fread(log, 1, sizeof(log) - 1, file)] = '\0';
    (void)fclose(file);
    ck_assert_ptr_nonnull(strstr(log, ") left\n"));
    ck_assert_ptr_null(strstr(log, "broken"));
    ck_assert_ptr_null(strstr(log, "warning:"));
    test_daemon_stop(&daemon);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("processes");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, what_all_had_asked_for_outlives_a_rank, 0, RANKS);
    tcase_add_test(tcase, an_orderly_end_is_no_warning);
    return run_suite("death", tcase);
}
