/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon is killed again and again, at random moments of a delayed training on four ranks,
 * which re-connect and continue. In the end every scale, amax, history and counter is that of a
 * run without a kill, byte for byte, and what a small model of delayed scaling says.
 */
#include <check.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "f8client.h"
#include "lib/device_memory.h"
#include "lib/suite.h"
#include "lib/test_daemon.h"

#define RANKS 4
#define ROWS  8
#define COLS  16
#define COUNT (ROWS / RANKS * COLS) /* elements of a shard */

#ifndef KILLS
#define KILLS 200
#endif
#ifndef MOMENT_MS
#define MOMENT_MS 50 /* a kill comes within this time after the last one */
#endif

#define SEED 20240607u

/* The model: two delayed weights; a third is dynamic, and has no stored state. */
#define DELAYED 2
#define WEIGHTS 3
static const uint32_t lengths[DELAYED] = {16, 4};
static const enum f8_history algorithms[DELAYED] = {F8_HISTORY_MAX, F8_HISTORY_MOST_RECENT};

/* What test and ranks share. */
struct shared {
    uint64_t stop;  /* set by the test: rank 0 is to choose the last step */
    uint64_t final; /* chosen by rank 0, before any rank can get there; 0: not yet */
    size_t export_size;
    uint8_t export[16384];
};

struct plan {
    const char *socket;    /* borrowed: the daemon's */
    struct shared *shared; /* borrowed: the test's */
    uint32_t rank;
};

/* ---- what weights are at a step, and what must follow ---- */

/* The amax of a weight at a step over all ranks; now and then zero, which keeps the scale. */
static float amax_at(uint32_t weight, uint64_t step)
{
    uint64_t x = (step + 1) * 2654435761u + weight * 40503u;
    return step % 11 == 5 ? 0 : (float)((x >> 7) % 4095 + 1) / 16;
}

struct model {
    float history[16]; /* newest first */
    float scale;
    uint64_t kept;
};

static float scale_of(float amax)
{
    return (float)(448.0 / (double)amax);
}

static void model_sync(struct model *model, uint32_t weight, uint64_t step)
{
    uint32_t length = lengths[weight];
    float amax = amax_at(weight, step), decisive = amax;
    if (step == 0)
        model->history[0] = amax; /* the first gather's */
    memmove(model->history + 1, model->history, (length - 1) * sizeof(float));
    model->history[0] = amax;
    for (uint32_t i = 0; i < length && algorithms[weight] == F8_HISTORY_MAX; i++)
        decisive = model->history[i] > decisive ? model->history[i] : decisive;
    if (amax > 0)
        model->scale = scale_of(decisive);
    else
        model->kept++;
}

/* ---- a rank ---- */

struct rank {
    const struct plan *plan;
    struct f8_client *client;
    struct f8_group *group;
    float *memory;
    struct device_memory *device_memory; /* owned: NULL on the host */
    void *stream;                        /* borrowed: from device_memory */
    uint64_t reached;                    /* syncs that it was told of */
};

/* Ends the process over what no killed daemon explains. */
static void give_up(const struct rank *rank, const char *what, int status)
{
    (void)fprintf(stderr, "rank %u: %s: %s: %s\n", rank->plan->rank, what, f8_status_name(status),
        f8_error_text());
    _exit(1);
}

/* True if the call worked; false if the daemon is gone, or a rank that noticed that before us. */
static bool went_well(const struct rank *rank, const char *what, int status)
{
    if (status == F8_OK)
        return true;
    if (status != F8_ECONN && status != F8_ENODAEMON)
        give_up(rank, what, status);
    return false;
}

static int register_all(struct rank *rank, struct f8_region *region)
{
    static const char *const names[WEIGHTS] = {"wq", "wk", "wv"};
    struct f8_weight_desc weights[WEIGHTS];
    const struct f8_bucket_desc buckets[] = {
        {.name = "a", .count = 1, .shared = 1}, {.name = "b", .first = 1, .count = 2, .shared = 1}};
    for (uint32_t w = 0; w < WEIGHTS; w++)
        weights[w] = (struct f8_weight_desc){
            .name = names[w],
            .ndim = 2,
            .shape = {ROWS, COLS},
            .dtype = F8_F32,
            .flavour = w < DELAYED ? F8_DELAYED : F8_DYNAMIC,
            .format = F8_E4M3FN,
            .history_length = w < DELAYED ? lengths[w] : 0,
            .history = w < DELAYED ? algorithms[w] : F8_HISTORY_MAX,
            .region = region,
            .offset = w * COUNT * sizeof(float),
        };
    return f8_register(rank->group, weights, WEIGHTS, buckets, 2);
}

/* Continues what is stored; if nothing is, all ranks learn that, and begin. */
static int seal(struct rank *rank)
{
    struct f8_seal_options options = {
        .slots = 1, .state = F8_STATE_CONTINUE, .syncs = F8_ANY_SYNCS};
    int status = f8_seal(rank->group, &options);
    if (status != F8_ENOENT)
        return status;
    if (rank->reached > 0)
        give_up(rank, "a state was lost", status);
    options.syncs = 0;
    status = f8_group_rejoin(rank->group);
    return status == F8_OK ? f8_seal(rank->group, &options) : status;
}

/* From nothing to a sealed group; *ret_step is where to go on. */
static bool begin(struct rank *rank, uint64_t *ret_step)
{
    const struct f8_connect_options options = {
        .socket = rank->plan->socket, .job = "run", .token = "secret"};
    struct f8_region *region;
    void *address;
    if (!went_well(rank, "connect", f8_connect(&options, &rank->client)) ||
        !went_well(rank, "device",
            device_memory_open(rank->client, rank->plan->rank, &rank->device_memory)) ||
        !went_well(rank, "join",
            f8_group_join(rank->client, "dp", rank->plan->rank, RANKS, &rank->group)) ||
        !went_well(rank, "region",
            device_memory_alloc(rank->device_memory, rank->client, 4096, &region, &address)))
        return false;
    rank->memory = address;
    rank->stream = device_memory_stream(rank->device_memory);
    if (!went_well(rank, "register", register_all(rank, region)) ||
        !went_well(rank, "seal", seal(rank)) ||
        !went_well(rank, "syncs", f8_syncs(rank->group, ret_step)))
        return false;
    /* One more than known: the sync was kept, and its reply was not. */
    if (*ret_step != rank->reached && *ret_step != rank->reached + 1) {
        (void)fprintf(stderr, "rank %u was told of %llu syncs, %llu are stored\n", rank->plan->rank,
            (unsigned long long)rank->reached, (unsigned long long)*ret_step);
        _exit(1);
    }
    rank->reached = *ret_step;
    return true;
}

/* One rank has the amax itself, a different one each step. */
static void fill(struct rank *rank, uint64_t step)
{
    for (uint32_t w = 0; w < WEIGHTS; w++) {
        bool largest = (step + w) % RANKS == rank->plan->rank;
        for (uint32_t i = 0; i < COUNT; i++)
            rank->memory[w * COUNT + i] =
                amax_at(w, step) * (largest && i == step % COUNT ? -1.0f : 0.5f);
    }
}

static bool gather(struct rank *rank, uint32_t bucket)
{
    return went_well(
               rank, "gather", f8_gather(rank->group, bucket, F8_DEFAULT_DEADLINE, rank->stream)) &&
           went_well(rank, "post",
               f8_post_gather(rank->group, bucket, F8_FOREVER, NULL, 0, rank->stream)) &&
           went_well(rank, "release", f8_release(rank->group, bucket, rank->stream));
}

static bool train(struct rank *rank, uint64_t step)
{
    f8_ticket ticket;
    fill(rank, step);
    if (!went_well(rank, "shards",
            device_memory_put(
                rank->device_memory, rank->memory, WEIGHTS * COUNT * sizeof(float))) ||
        !went_well(rank, "changed", f8_changed(rank->group, 0, WEIGHTS)) || !gather(rank, 0) ||
        !gather(rank, 1) ||
        !went_well(rank, "sync", f8_sync(rank->group, F8_DEFAULT_DEADLINE, &ticket)) ||
        !went_well(rank, "wait", f8_wait(rank->group, ticket, F8_FOREVER, rank->stream)))
        return false;
    rank->reached = step + 1;
    return true;
}

/* Whether this was the last step. Rank 0 decides one step ahead, before anyone can get there. */
static bool at_end(struct rank *rank, uint64_t step)
{
    struct shared *shared = rank->plan->shared;
    uint64_t final = __atomic_load_n(&shared->final, __ATOMIC_ACQUIRE);
    if (final > 0 && step >= final)
        return true;
    if (rank->plan->rank == 0 && final == 0 && __atomic_load_n(&shared->stop, __ATOMIC_ACQUIRE))
        __atomic_store_n(&shared->final, step + 1, __ATOMIC_RELEASE);
    return false;
}

static bool save(struct rank *rank)
{
    struct shared *shared = rank->plan->shared;
    void *data;
    size_t size;
    if (rank->plan->rank != 0)
        return true;
    if (!went_well(rank, "export", f8_export(rank->group, &data, &size)))
        return false;
    if (size > sizeof(shared->export))
        give_up(rank, "an export of this size", F8_ELIMIT);
    memcpy(shared->export, data, size);
    shared->export_size = size;
    free(data);
    return true;
}

static bool live(struct rank *rank)
{
    uint64_t step;
    bool well = begin(rank, &step);
    while (well && !at_end(rank, step))
        well = train(rank, step++);
    return well && save(rank);
}

static int run_rank(void *argument)
{
    struct rank rank = {.plan = argument};
    bool done = false;
    while (!done) {
        rank.client = NULL;
        done = live(&rank);
        f8_close(rank.client);
        device_memory_close(rank.device_memory);
        rank.device_memory = NULL;
        if (!done)
            (void)poll(NULL, 0, 1); /* until there is a daemon again */
    }
    return 0;
}

/* ---- the test ---- */

struct run {
    struct test_daemon daemon;
    struct plan plans[RANKS];
    pid_t pids[RANKS];
};

static struct shared *new_shared(void)
{
    struct shared *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(shared, MAP_FAILED);
    return shared;
}

static void start_run(struct run *run, struct shared *shared)
{
    test_daemon_start(&run->daemon, NULL);
    for (uint32_t r = 0; r < RANKS; r++) {
        run->plans[r] = (struct plan){.socket = run->daemon.socket, .shared = shared, .rank = r};
        run->pids[r] = test_fork(run_rank, &run->plans[r]);
    }
}

static void end_run(struct run *run)
{
    for (uint32_t r = 0; r < RANKS; r++)
        ck_assert_int_eq(test_wait(run->pids[r]), 0);
    test_daemon_drop_states(&run->daemon);
    test_daemon_stop(&run->daemon);
}

/* On a device a run is longer in coming: fewer kills, each with as much of the run before it. */
static int kills(void)
{
    return device_memory_used() ? KILLS / 5 : KILLS;
}

static void wait_a_moment(unsigned *seed)
{
    unsigned most_us = (device_memory_used() ? 10 : 1) * MOMENT_MS * 1000;
    struct timespec moment = {.tv_nsec = (long)(rand_r(seed) % most_us) * 1000};
    (void)nanosleep(&moment, NULL);
}

static uint32_t u32_at(const uint8_t *bytes)
{
    uint32_t value;
    memcpy(&value, bytes, sizeof(value));
    return value;
}

static uint64_t u64_at(const uint8_t *bytes)
{
    uint64_t value;
    memcpy(&value, bytes, sizeof(value));
    return value;
}

/* The export against the model; offsets are those of docs/state.md. */
static void check_export(const struct shared *shared)
{
    const uint8_t *values = shared->export + u32_at(shared->export + 16), *at = values + 16;
    ck_assert_uint_eq(u64_at(values + 8), shared->final);
    for (uint32_t w = 0; w < DELAYED; w++) {
        struct model model = {.scale = scale_of(amax_at(w, 0))};
        for (uint64_t step = 0; step < shared->final; step++)
            model_sync(&model, w, step);
        ck_assert_mem_eq(at, &model.scale, sizeof(float));
        ck_assert_uint_eq(u64_at(at + 16), shared->final); /* gathers */
        ck_assert_uint_eq(u64_at(at + 48), model.kept);
        ck_assert_uint_eq(u64_at(at + 56), shared->final); /* syncs */
        ck_assert_mem_eq(at + 64, model.history, lengths[w] * sizeof(float));
        at += 64 + lengths[w] * sizeof(float);
    }
}

START_TEST(killed_daemon_loses_nothing)
{
    struct run run;
    unsigned seed = SEED;
    struct shared *killed = new_shared(), *quiet = new_shared();
    start_run(&run, killed);
    for (int i = 0; i < kills(); i++) {
        wait_a_moment(&seed);
        test_daemon_kill(&run.daemon);
        test_daemon_restart(&run.daemon, NULL);
    }
    __atomic_store_n(&killed->stop, 1, __ATOMIC_RELEASE);
    end_run(&run);
    check_export(killed);
    quiet->final = killed->final;
    start_run(&run, quiet);
    end_run(&run);
    ck_assert_uint_eq(killed->export_size, quiet->export_size);
    ck_assert_mem_eq(killed->export, quiet->export, quiet->export_size);
    (void)printf("%d kills in %llu steps\n", kills(), (unsigned long long)killed->final);
    (void)munmap(killed, sizeof(*killed));
    (void)munmap(quiet, sizeof(*quiet));
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("processes");
    tcase_set_timeout(tcase, 240);
    tcase_add_test(tcase, killed_daemon_loses_nothing);
    return run_suite("state_kill", tcase);
}
