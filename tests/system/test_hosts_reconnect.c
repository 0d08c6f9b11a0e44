/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A training over two hosts whose daemons are killed and started again in mid-run: one, the other,
 * both at once, at any moment. Each rank recovers by the recipe of docs/checkpoints.md, with a new
 * unique id that rank 0 publishes, and in the end every byte and scale that was gathered is that of
 * a run that nothing disturbed. Ranks 0 and 1 are of host a, 2 and 3 of host b: daemons that share
 * the loopback.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/host_ranks.h"
#include "lib/patience.h"
#include "lib/suite.h"

#define WORLD 4
#define HOSTS 2
#define STEPS 30
#ifndef KILLS
#define KILLS 20
#endif
#ifndef MOMENT_US
#define MOMENT_US 50000
#endif

/* A host that is lost once more while others seal costs that, and no more. */
#define SEAL_MS (PATIENCE_MS / 6)

#define MAX_IDS  1024
#define MAX_KEPT 65536

/* What test and ranks share. Ids are what a trainer's store has. */
struct shared {
    uint64_t steps[WORLD]; /* that a rank has done */
    uint64_t reconnects[WORLD], rejoins[WORLD];
    uint64_t may;       /* steps that ranks may do */
    uint64_t published; /* ids, of rank 0 */
    uint8_t ids[MAX_IDS][F8_UNIQUE_ID_SIZE];
    uint64_t syncs[WORLD];
    size_t kept_size[WORLD];
    uint8_t kept[WORLD][MAX_KEPT];
};

static const char *const arguments[HOSTS][7] = {
    {"--socket-ifname", "lo", "--host-name", "a", "--linger", "60", NULL},
    {"--socket-ifname", "lo", "--host-name", "b", "--linger", "60", NULL}};

static struct test_hosts hosts; /* without namespaces of their own */
static struct host_ranks ranks, alone;
static struct shared *shared;
static pid_t pids[WORLD];

/* ---- a rank ---- */

static uint64_t entered; /* number of the id that this rank has entered with last */

/* Rank 0 publishes an id; the others take one that is newer than that they have entered with. */
static int take_new_id(struct host_rank *rank, uint64_t *ret_number)
{
    uint64_t newest;
    if (rank->number == 0) {
        newest = shared->published + 1;
        int status = f8_unique_id(rank->client, shared->ids[newest % MAX_IDS]);
        if (status != F8_OK)
            return status;
        __atomic_store_n(&shared->published, newest, __ATOMIC_RELEASE);
    }
    while ((newest = __atomic_load_n(&shared->published, __ATOMIC_ACQUIRE)) == entered)
        (void)usleep(500);
    *ret_number = newest;
    rank->hosts.id = shared->ids[newest % MAX_IDS];
    return F8_OK;
}

static int seal(struct host_rank *rank, uint64_t syncs)
{
    const struct f8_seal_options options = {
        .deadline_ms = SEAL_MS, .state = F8_STATE_CONTINUE, .syncs = syncs};
    return f8_seal(rank->group, &options);
}

/* The recipe: whoever lost its daemon finds the next; then all enter with a new id. */
static int recover(struct host_rank *rank, int status)
{
    uint64_t number = 0;
    while (status != F8_OK) {
        if (status == F8_ECONN || status == F8_ENODAEMON) {
            shared->reconnects[rank->number]++;
            status = f8_reconnect(rank->client, PATIENCE_MS);
        } else if (status == F8_ERANKDEAD || status == F8_EBROKEN || status == F8_EDEADLINE ||
                   status == F8_EIO || status == F8_EMISMATCH) {
            status = F8_OK;
        } else {
            return status;
        }
        if (status == F8_OK)
            status = take_new_id(rank, &number);
        if (status == F8_OK)
            status = host_rank_rejoin_hosts(rank);
        if (status == F8_OK) {
            entered = number;
            status = seal(rank, F8_ANY_SYNCS);
        }
        shared->rejoins[rank->number] += status == F8_OK;
    }
    return F8_OK;
}

/* A step, whose sync may turn out to have happened although it failed. */
static int train(struct host_rank *rank)
{
    const size_t kept_size = rank->kept_size;
    const uint32_t step = rank->step;
    uint64_t syncs;
    int status = host_rank_step(rank);
    if (status == F8_OK)
        return F8_OK;
    status = recover(rank, status);
    if (status == F8_OK)
        status = f8_syncs(rank->group, &syncs);
    if (status != F8_OK)
        return status;
    rank->step = (uint32_t)syncs;
    if (syncs == step)
        rank->kept_size = kept_size;
    return syncs == step || syncs == step + 1 ? F8_OK : F8_EINTERNAL;
}

static int live(struct host_rank *rank)
{
    int status = take_new_id(rank, &entered);
    if (status == F8_OK)
        status = host_rank_join(rank);
    if (status == F8_OK)
        status = seal(rank, 0);
    while (status == F8_OK && rank->step < STEPS) {
        while (__atomic_load_n(&shared->may, __ATOMIC_ACQUIRE) <= rank->step)
            (void)usleep(500);
        status = train(rank);
        __atomic_store_n(&shared->steps[rank->number], rank->step, __ATOMIC_RELEASE);
    }
    return status == F8_OK ? f8_syncs(rank->group, &shared->syncs[rank->number]) : status;
}

static int run_rank(void *argument)
{
    struct host_rank *rank = argument;
    const uint32_t number = rank->number;
    /* The id of the beginning is rank 0's too, which so connects first. */
    const struct f8_connect_options options = {.socket = rank->socket, .job = "run"};
    int status = f8_connect(&options, &rank->client);
    if (status == F8_OK)
        status = live(rank);
    if (status != F8_OK)
        (void)fprintf(stderr, "rank %u, step %u: %s: %s\n", number, rank->step,
            f8_status_name(status), f8_error_text());
    if (rank->kept_size <= MAX_KEPT) {
        memcpy(shared->kept[number], rank->kept, rank->kept_size);
        shared->kept_size[number] = rank->kept_size;
    }
    (void)host_rank_close(rank);
    free(rank->kept);
    return status == F8_OK ? 0 : 1;
}

/* ---- the test ---- */

static void start(void)
{
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(shared, MAP_FAILED);
    hosts = (struct test_hosts){.count = HOSTS};
    for (uint32_t h = 0; h < HOSTS; h++)
        test_daemon_start(&hosts.daemons[h], arguments[h]);
    host_ranks_init(&ranks, &host_plan_delayed, &hosts, HOSTS);
    for (uint32_t r = 0; r < WORLD; r++)
        pids[r] = test_fork(run_rank, &ranks.ranks[r]);
}

static void stop(void)
{
    for (uint32_t h = 0; h < HOSTS; h++) {
        test_daemon_end(&hosts.daemons[h]);
        test_daemon_drop_states(&hosts.daemons[h]);
        (void)unlink(hosts.daemons[h].log);
        ck_assert_msg(rmdir(hosts.daemons[h].directory) == 0, "host %u left files behind", h);
    }
    (void)munmap(shared, sizeof(*shared));
}

static void let(uint64_t steps)
{
    __atomic_store_n(&shared->may, steps, __ATOMIC_RELEASE);
}

/* Until each rank has done so many steps. */
static void await_steps(uint64_t steps)
{
    for (int ms = 0; ms < PATIENCE_MS; ms++) {
        bool done = true;
        for (uint32_t r = 0; r < WORLD; r++)
            done = done && __atomic_load_n(&shared->steps[r], __ATOMIC_ACQUIRE) >= steps;
        if (done)
            return;
        (void)usleep(1000);
    }
    ck_abort_msg("the ranks do not get to step %llu", (unsigned long long)steps);
}

/* Bits of `which`: daemons that are killed, all before any is there again. */
static void kill_daemons(uint32_t which)
{
    for (uint32_t h = 0; h < HOSTS; h++)
        if (which & (1u << h))
            test_daemon_kill(&hosts.daemons[h]);
    for (uint32_t h = 0; h < HOSTS; h++)
        if (which & (1u << h))
            test_daemon_restart(&hosts.daemons[h], arguments[h]);
}

static void same_as_undisturbed(void)
{
    struct host_plan undisturbed = host_plan_delayed;
    undisturbed.group = "alone";
    for (uint32_t r = 0; r < WORLD; r++)
        ck_assert_int_eq(test_wait(pids[r]), 0);
    host_ranks_init(&alone, &undisturbed, &hosts, 1);
    host_ranks_start(&alone);
    for (uint32_t step = 0; step < STEPS; step++)
        host_ranks_must(&alone, 0, WORLD, host_rank_step);
    for (uint32_t r = 0; r < WORLD; r++) {
        ck_assert_uint_eq(shared->syncs[r], STEPS);
        ck_assert_uint_eq(shared->kept_size[r], alone.ranks[r].kept_size);
        ck_assert_mem_eq(shared->kept[r], alone.ranks[r].kept, shared->kept_size[r]);
    }
    host_ranks_end(&alone);
}

/* While ranks train, and while they wait: daemon b, daemon a, which made the id, and both. */
START_TEST(a_kill_is_one_id)
{
    const uint32_t which = (uint32_t)_i;
    for (uint64_t step = 3; step <= 19; step += 8) {
        let(step + 5);
        await_steps(step);
        kill_daemons(which);
    }
    let(STEPS);
    same_as_undisturbed();
    for (uint32_t r = 0; r < WORLD; r++) {
        ck_assert_uint_ge(shared->rejoins[r], 3);
        if (which & (1u << ranks.ranks[r].host))
            ck_assert_uint_ge(shared->reconnects[r], 3);
        else
            ck_assert_uint_eq(shared->reconnects[r], 0);
    }
}
END_TEST

/* Of a call, of a reconnection, of a world that forms, of a seal. */
START_TEST(kills_at_random_lose_nothing)
{
    unsigned seed = 20261201u;
    let(1);
    await_steps(1); /* before, there is nothing to reconnect */
    for (uint32_t i = 0; i < KILLS; i++) {
        let(1 + (uint64_t)i * (STEPS - 2) / KILLS);
        (void)usleep((useconds_t)(rand_r(&seed) % MOMENT_US));
        kill_daemons(1 + (uint32_t)rand_r(&seed) % 3);
    }
    let(STEPS);
    same_as_undisturbed();
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("processes");
    tcase_set_timeout(cases, 300);
    tcase_add_checked_fixture(cases, start, stop);
    tcase_add_loop_test(cases, a_kill_is_one_id, 1, 4);
    tcase_add_test(cases, kills_at_random_lose_nothing);
    return run_suite("hosts_reconnect", cases);
}
