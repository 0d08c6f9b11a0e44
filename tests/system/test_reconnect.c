/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A training whose daemon is killed in mid-run, and one whose host is rebooted: each rank makes one
 * call, or none where it connects again by itself and only knows of broken groups, seals with what
 * is stored, and goes on. In the end all scales, amaxes and histories are those of a run that
 * nothing disturbed, bit for bit. Two ranks, delayed and dynamic weights.
 */
#include <check.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "f8client.h"
#include "lib/device_memory.h"
#include "lib/patience.h"
#include "lib/suite.h"
#include "lib/test_daemon.h"

#define RANKS   2
#define COLS    64
#define WEIGHTS 3
#define COUNT   (2 * COLS / RANKS) /* elements of a shard */
#define STEPS   40
#ifndef KILLS
#define KILLS 100
#endif
#ifndef MOMENT_US
#define MOMENT_US 30000
#endif

/* What test and ranks share. */
struct shared {
    uint64_t steps[RANKS]; /* that a rank has done */
    uint64_t reconnects[RANKS];
    uint64_t may; /* steps that ranks may do */
    size_t export_size;
    uint8_t export[16384];
};

static struct test_daemon host;
static char snapshots[64];

struct rank {
    struct shared *shared; /* borrowed: the test's */
    uint32_t number;
    bool by_itself; /* it connects again so, and has no other way back than that of broken groups */
    struct f8_client *client;
    struct f8_group *group, *mesh;
    float *memory;
    struct device_memory *device_memory; /* owned: NULL on the host */
    void *stream;                        /* borrowed: from device_memory */
};

static int failed(const struct rank *rank, const char *what, int status)
{
    (void)fprintf(stderr, "rank %u: %s: %s: %s\n", rank->number, what, f8_status_name(status),
        f8_error_text());
    return status;
}

#define TRY(what, call)                                                                            \
    do {                                                                                           \
        int try_status = (call);                                                                   \
        if (try_status != F8_OK)                                                                   \
            return failed(rank, what, try_status);                                                 \
    } while (0)

/* Once in the life of the rank: no other code registers anything. */
static int set_up_rank(struct rank *rank)
{
    static const char *const names[WEIGHTS] = {"wq", "wk", "wv"};
    const struct f8_connect_options options = {.socket = host.socket,
        .job = "run",
        .token = "secret",
        .reconnect_ms = rank->by_itself ? PATIENCE_MS : 0};
    struct f8_region *region;
    void *address;
    TRY("connect", f8_connect(&options, &rank->client));
    TRY("device", device_memory_open(rank->client, rank->number, &rank->device_memory));
    rank->stream = device_memory_stream(rank->device_memory);
    TRY("join", f8_group_join(rank->client, "dp", rank->number, RANKS, &rank->group));
    TRY("join", f8_group_join(rank->client, "mesh", rank->number, RANKS, &rank->mesh));
    TRY("region", device_memory_alloc(rank->device_memory, rank->client, 4096, &region, &address));
    rank->memory = address;
    struct f8_weight_desc weights[WEIGHTS];
    for (uint32_t w = 0; w < WEIGHTS; w++)
        weights[w] = (struct f8_weight_desc){.name = names[w],
            .ndim = 2,
            .shape = {2, COLS},
            .dtype = F8_F32,
            .flavour = w < 2 ? F8_DELAYED : F8_DYNAMIC,
            .format = w == 1 ? F8_E5M2 : F8_E4M3FN,
            .power_of_two = w == 1,
            .history_length = w == 0 ? 5 : 0,
            .history = w == 0 ? F8_HISTORY_MOST_RECENT : F8_HISTORY_MAX,
            .amax_group = w == 1 ? rank->mesh : NULL,
            .region = region,
            .offset = w * COUNT * sizeof(float)};
    const struct f8_bucket_desc buckets[] = {
        {.name = "a", .count = 2, .shared = 1}, {.name = "b", .first = 2, .count = 1}};
    TRY("register", f8_register(rank->group, weights, WEIGHTS, buckets, 2));
    return F8_OK;
}

static int seal(struct rank *rank)
{
    struct f8_seal_options options = {
        .slots = 1, .state = F8_STATE_CONTINUE, .syncs = F8_ANY_SYNCS};
    bool first = rank->shared->steps[rank->number] == 0;
    options.syncs = first ? 0 : F8_ANY_SYNCS;
    int status = f8_seal(rank->group, &options);
    options.slots = 0;
    return status == F8_OK ? f8_seal(rank->mesh, &options) : status;
}

static void fill(struct rank *rank, uint64_t step)
{
    for (uint32_t i = 0; i < WEIGHTS * COUNT; i++)
        rank->memory[i] = (float)((step * 31 + i * 7 + rank->number * 13) % 97 + 1) / 16;
}

static int hold(struct rank *rank, uint32_t bucket)
{
    int status = f8_gather(rank->group, bucket, F8_DEFAULT_DEADLINE, rank->stream);
    return status == F8_OK ? f8_post_gather(rank->group, bucket, F8_FOREVER, NULL, 0, rank->stream)
                           : status;
}

static int release(struct rank *rank, uint32_t bucket)
{
    return f8_release(rank->group, bucket, rank->stream);
}

static int sync_group(struct rank *rank, struct f8_group *group)
{
    f8_ticket ticket;
    int status = f8_sync(group, F8_DEFAULT_DEADLINE, &ticket);
    return status == F8_OK ? f8_wait(group, ticket, F8_FOREVER, rank->stream) : status;
}

/*
 * One step, of which the syncs may have happened already: in dp, in mesh, or in none. What was
 * synced is not synced again, and a gather changes no state until its sync.
 */
static int train(struct rank *rank, uint64_t step)
{
    uint64_t dp, mesh;
    int status = f8_syncs(rank->group, &dp);
    if (status == F8_OK)
        status = f8_syncs(rank->mesh, &mesh);
    if (status != F8_OK || (dp > step && mesh > step))
        return status;
    fill(rank, step);
    status = device_memory_put(rank->device_memory, rank->memory, WEIGHTS * COUNT * sizeof(float));
    if (status == F8_OK)
        status = f8_changed(rank->group, 0, WEIGHTS);
    if (status == F8_OK)
        status = hold(rank, 1);
    if (status == F8_OK)
        status = hold(rank, 0);
    if (status == F8_OK)
        status = release(rank, 0);
    if (status == F8_OK)
        status = release(rank, 1);
    if (status == F8_OK && dp == step)
        status = sync_group(rank, rank->group);
    if (status == F8_OK && mesh == step)
        status = sync_group(rank, rank->mesh);
    return status;
}

static int rejoin(struct rank *rank)
{
    int status = f8_group_rejoin(rank->group);
    return status == F8_OK ? f8_group_rejoin(rank->mesh) : status;
}

/* What the end of another rank does to a call, and the daemon's to one that is told no more. */
static int recover_from_break(struct rank *rank, int status)
{
    while (status == F8_EBROKEN || status == F8_ERANKDEAD) {
        rank->shared->reconnects[rank->number]++;
        (void)release(rank, 1); /* which it may hold still */
        status = rejoin(rank);
        if (status == F8_OK)
            status = seal(rank);
    }
    return status;
}

/* What the daemon's end does to a call: the connection is lost. */
static int recover(struct rank *rank, int status)
{
    if (rank->by_itself)
        return recover_from_break(rank, status);
    while (status == F8_ECONN || status == F8_ENODAEMON) {
        rank->shared->reconnects[rank->number]++;
        status = f8_reconnect(rank->client, PATIENCE_S * 1000);
        if (status == F8_OK)
            status = seal(rank);
    }
    return status;
}

/* Waits until the test lets this step begin. */
static void await_leave(const struct rank *rank, uint64_t step)
{
    while (__atomic_load_n(&rank->shared->may, __ATOMIC_ACQUIRE) <= step)
        (void)usleep(500);
}

static int live(struct rank *rank)
{
    TRY("set up", set_up_rank(rank));
    TRY("seal", seal(rank));
    for (uint64_t step = 0; step < STEPS;) {
        await_leave(rank, step);
        int status = train(rank, step);
        if (status == F8_OK) {
            step++;
            __atomic_store_n(&rank->shared->steps[rank->number], step, __ATOMIC_RELEASE);
        } else {
            TRY("recover", recover(rank, status));
        }
    }
    return F8_OK;
}

/* Both states, one behind the other. */
static int save(struct rank *rank)
{
    struct shared *shared = rank->shared;
    struct f8_group *groups[] = {rank->group, rank->mesh};
    for (int g = 0; g < 2; g++) {
        void *data;
        size_t size;
        TRY("export", f8_export(groups[g], &data, &size));
        memcpy(shared->export + shared->export_size, data, size);
        shared->export_size += size;
        free(data);
    }
    return F8_OK;
}

static int run_rank(void *argument)
{
    struct rank *rank = argument;
    int status = live(rank);
    if (status == F8_OK && rank->number == 0)
        status = save(rank);
    f8_close(rank->client);
    device_memory_close(rank->device_memory);
    return status == F8_OK ? 0 : 1;
}

/* ---- the test ---- */

struct run {
    struct shared *shared;
    struct rank ranks[RANKS];
    pid_t pids[RANKS];
};

static const char *arguments[] = {"--state-dir", snapshots, "--snapshot-interval", "0", NULL};

static void start_run(struct run *run, bool by_itself)
{
    run->shared =
        mmap(NULL, sizeof(*run->shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(run->shared, MAP_FAILED);
    (void)strcpy(snapshots, "/tmp/f8snapshots-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(snapshots));
    test_daemon_start(&host, arguments);
    for (uint32_t r = 0; r < RANKS; r++) {
        run->ranks[r] = (struct rank){.shared = run->shared, .number = r, .by_itself = by_itself};
        run->pids[r] = test_fork(run_rank, &run->ranks[r]);
    }
}

static void let(struct run *run, uint64_t steps)
{
    __atomic_store_n(&run->shared->may, steps, __ATOMIC_RELEASE);
}

/* Until each rank has done so many steps. */
static void await_steps(const struct run *run, uint64_t steps)
{
    for (int i = 0; i < PATIENCE_S * 1000; i++) {
        bool done = true;
        for (int r = 0; r < RANKS; r++)
            done = done && __atomic_load_n(&run->shared->steps[r], __ATOMIC_ACQUIRE) >= steps;
        if (done)
            return;
        (void)usleep(1000);
    }
    ck_abort_msg("the ranks do not get to step %llu", (unsigned long long)steps);
}

static void end_run(struct run *run)
{
    for (uint32_t r = 0; r < RANKS; r++)
        ck_assert_int_eq(test_wait(run->pids[r]), 0);
    test_daemon_drop_states(&host);
    test_daemon_stop(&host);
    test_remove_directory(snapshots);
}

static uint32_t u32_at(const uint8_t *bytes)
{
    uint32_t value;
    memcpy(&value, bytes, sizeof(value));
    return value;
}

/*
 * One state against another, by the offsets of docs/state.md, and how long it is: all but what
 * counts gathers. A kill between the syncs of both groups makes a step's gathers anew for one of
 * them, which the other's counters see twice.
 */
static size_t check_state(const uint8_t *state, const uint8_t *quiet, uint32_t history)
{
    uint32_t head = u32_at(state + 16), values = u32_at(state + 24);
    const size_t weight = head + 16, past_counters = weight + 48;
    ck_assert_mem_eq(state, quiet, head);
    ck_assert_mem_eq(state + head + 8, quiet + head + 8, 8); /* syncs */
    ck_assert_mem_eq(state + weight, quiet + weight, 16);    /* scale, amax, flags */
    ck_assert_mem_eq(state + past_counters, quiet + past_counters, 16 + 4 * (size_t)history);
    return head + values;
}

/* The run's last word against that of one that nothing disturbs. */
static void check_against_quiet(struct run *run, uint64_t reconnects)
{
    struct run quiet;
    for (int r = 0; r < RANKS; r++)
        ck_assert_uint_ge(run->shared->reconnects[r], reconnects);
    start_run(&quiet, false);
    let(&quiet, STEPS);
    end_run(&quiet);
    ck_assert_uint_eq(quiet.shared->reconnects[0], 0);
    ck_assert_uint_gt(run->shared->export_size, 0);
    ck_assert_uint_eq(run->shared->export_size, quiet.shared->export_size);
    size_t size = check_state(run->shared->export, quiet.shared->export, 5);
    size += check_state(run->shared->export + size, quiet.shared->export + size, 16);
    ck_assert_uint_eq(size, quiet.shared->export_size);
    (void)munmap(quiet.shared, sizeof(*quiet.shared));
    (void)munmap(run->shared, sizeof(*run->shared));
}

/* Killed while ranks train, and while they wait; no two of them notice at the same place. */
START_TEST(a_kill_is_one_call)
{
    struct run run;
    start_run(&run, _i);
    for (uint64_t step = 3; step <= 27; step += 6) {
        let(&run, step + 3);
        await_steps(&run, step);
        test_daemon_kill(&host);
        test_daemon_restart(&host, arguments);
    }
    let(&run, STEPS);
    end_run(&run);
    check_against_quiet(&run, 5);
}
END_TEST

/* At any moment: of a call, of a reconnection, of a seal. */
START_TEST(kills_at_random_lose_nothing)
{
    struct run run;
    unsigned seed = 20261130u;
    start_run(&run, _i);
    let(&run, 1);
    await_steps(&run, 1); /* before, there is nothing to reconnect */
    for (int i = 0; i < KILLS; i++) {
        let(&run, 1 + (uint64_t)i * (STEPS - 2) / KILLS);
        (void)usleep((useconds_t)(rand_r(&seed) % MOMENT_US));
        test_daemon_kill(&host);
        test_daemon_restart(&host, arguments);
    }
    let(&run, STEPS);
    end_run(&run);
    check_against_quiet(&run, 1);
}
END_TEST

/* SIGTERM, an empty runtime directory, and a daemon that has the snapshots. */
START_TEST(a_reboot_is_one_call)
{
    struct run run;
    start_run(&run, _i);
    for (uint64_t step = 5; step <= 15; step += 5) {
        let(&run, step);
        await_steps(&run, step);
        test_daemon_end(&host);
        test_daemon_drop_states(&host);
        test_daemon_restart(&host, arguments);
        test_daemon_await_log(&host, "is there by its snapshot");
    }
    let(&run, STEPS);
    end_run(&run);
    check_against_quiet(&run, 3);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("processes");
    tcase_set_timeout(tcase, 240);
    /* By hand, and by itself: then it is no call. */
    tcase_add_loop_test(tcase, a_kill_is_one_call, 0, 2);
    tcase_add_loop_test(tcase, kills_at_random_lose_nothing, 0, 2);
    tcase_add_loop_test(tcase, a_reboot_is_one_call, 0, 2);
    return run_suite("reconnect", tcase);
}
