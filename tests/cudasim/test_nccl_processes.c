/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated NCCL between real processes: gathers with random delays, several ranks a process,
 * aborts of a collective that hangs, and processes that die before, during and after it.
 */
#include <check.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "cudasim.h"
#include "nccl_support.h"
#include "tests/lib/suite.h"

enum { PART = 30011, STEPS = 30, STORMS = 12 };

static struct rank ranks[2];
static uint8_t expected[4 * PART], got[4 * PART];

/* `count` ranks of the process, of `world` in all. */
static void open_ranks(struct shared *shared, int process, int count, int world, int blocking)
{
    if (process == 0)
        NEED_NCCL(ncclGetUniqueId(&shared->id[0]));
    meet(shared);
    for (int i = 0; i < count; i++)
        rank_open(&ranks[i], process * count + i, process * count + i, (size_t)world * PART, false);
    ranks_init(ranks, count, world, &shared->id[0], blocking);
}

static void close_ranks(int count)
{
    for (int i = 0; i < count; i++)
        rank_close(&ranks[i]);
}

static void gather(struct rank *rank)
{
    NEED_NCCL(ncclAllGather(rank->memory + (size_t)rank->rank * PART, rank->memory, PART, ncclUint8,
        rank->comm, rank->stream));
}

static void gather_step(int count, int world, int step)
{
    for (int i = 0; i < world; i++)
        pattern(expected + (size_t)i * PART, PART, i, step);
    for (int i = 0; i < count; i++)
        rank_fill(
            &ranks[i], (size_t)ranks[i].rank * PART, expected + (size_t)ranks[i].rank * PART, PART);
    NEED_NCCL(ncclGroupStart());
    for (int i = 0; i < count; i++)
        gather(&ranks[i]);
    NEED_NCCL(ncclGroupEnd());
    for (int i = 0; i < count; i++) {
        rank_read(&ranks[i], 0, got, (size_t)world * PART);
        NEED(memcmp(got, expected, (size_t)world * PART) == 0);
    }
}

/* ---- results ---- */

static void two_ranks_each(struct shared *shared, int process)
{
    open_ranks(shared, process, 2, 4, 1);
    for (int step = 0; step < STEPS; step++)
        gather_step(2, 4, step);
    close_ranks(2);
}

START_TEST(processes_with_two_ranks)
{
    processes_run(2, two_ranks_each);
}
END_TEST

static void late(struct shared *shared, int process)
{
    setenv("CUDASIM_DELAY_US", "3000", 1);
    open_ranks(shared, process, 1, 4, 1);
    for (int step = 0; step < STEPS / 3; step++)
        gather_step(1, 4, step);
    close_ranks(1);
}

START_TEST(random_delays)
{
    char seed[16];
    snprintf(seed, sizeof(seed), "%d", _i);
    setenv("CUDASIM_SEED", seed, 1);
    processes_run(4, late);
    unsetenv("CUDASIM_SEED");
}
END_TEST

/* The one that made the id joins like any other, and may leave before the rest is done. */
static void creator_leaves(struct shared *shared, int process)
{
    struct rank *rank = &ranks[0];
    if (process == 0) {
        NEED_NCCL(ncclGetUniqueId(&shared->id[0]));
        NEED_NCCL(ncclGetUniqueId(&shared->id[1]));
    }
    meet(shared);
    if (process == 2) {
        while (shared->flag[0] == 0) /* the creator is dead */
            sched_yield();
        setenv("CUDASIM_NCCL_DEATH", "error", 1);
        rank_open(rank, 0, 2, PART, false);
        NEED_RESULT(ncclCommInitRank(&rank->comm, 2, shared->id[1], 0), ncclRemoteError);
        NEED_NCCL(ncclCommAbort(rank->comm));
        return;
    }
    rank_open(rank, process, process, 2 * PART, false);
    ranks_init(rank, 1, 2, &shared->id[0], 1);
    gather_step(1, 2, 0);
    if (process == 0)
        kill(getpid(), SIGKILL);
    NEED_NCCL(ncclCommAbort(rank->comm));
}

START_TEST(creator_dies)
{
    int status;
    struct shared *shared = shared_new(3);
    pid_t pids[3];
    for (int i = 0; i < 3; i++)
        pids[i] = process_start(shared, creator_leaves, i);
    waitpid(pids[0], &status, 0);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    shared->flag[0] = 1;
    for (int i = 1; i < 3; i++) {
        ck_assert_int_eq(waitpid(pids[i], &status, 0), pids[i]);
        ck_assert_int_eq(status, 0);
    }
    shared_free(shared);
}
END_TEST

/* ---- hangs, aborts, deaths ---- */

/* Rank 1 never comes: rank 0's collective hangs, is aborted, and its stream goes on. */
static void one_hangs(struct shared *shared, int process)
{
    struct rank *rank = &ranks[0];
    ncclResult_t result;
    uint8_t byte;
    open_ranks(shared, process, 1, 2, 0);
    if (process == 0) {
        ncclAllGather(rank->memory, rank->memory, PART, ncclUint8, rank->comm, rank->stream);
        NEED_NCCL(rank_settle(rank));
        NEED(cudaMemsetAsync(rank->memory, 0x11, 1, rank->stream) == cudaSuccess);
        for (int i = 0; i < 100; i++) {
            NEED(cudaStreamQuery(rank->stream) == cudaErrorNotReady);
            NEED_NCCL(ncclCommGetAsyncError(rank->comm, &result));
            NEED(result == ncclSuccess);
            sched_yield();
        }
        NEED_NCCL(ncclCommAbort(rank->comm));
        rank->comm = NULL;
        rank_read(rank, 0, &byte, 1);
        NEED(byte == 0x11);
    }
    meet(shared);
    /* The other rank is not told: it hangs too, until it is aborted. */
    if (process == 1) {
        ncclAllGather(rank->memory + PART, rank->memory, PART, ncclUint8, rank->comm, rank->stream);
        NEED_NCCL(rank_settle(rank));
        NEED(cudaStreamQuery(rank->stream) == cudaErrorNotReady);
        NEED_NCCL(ncclCommAbort(rank->comm));
        rank->comm = NULL;
        NEED(cudaStreamSynchronize(rank->stream) == cudaSuccess);
    }
    rank_close(rank);
}

START_TEST(abort_of_a_hung_collective)
{
    processes_run(2, one_hangs);
}
END_TEST

/* A broken communicator is aborted; another of the same device goes on, and so does a new one. */
static void neighbour_goes_on(struct shared *shared, int process)
{
    struct rank hung;
    if (process == 0)
        NEED_NCCL(ncclGetUniqueId(&shared->id[1]));
    open_ranks(shared, process, 1, 2, 1);
    rank_open(&hung, process, process, 2 * PART, false);
    ranks_init(&hung, 1, 2, &shared->id[1], 1);
    gather_step(1, 2, 0);
    if (process == 0)
        gather(&hung);
    meet(shared);
    /* The hung one runs on its own stream and does not hold up the other's. */
    NEED(process == 1 || cudaStreamQuery(hung.stream) == cudaErrorNotReady);
    NEED_NCCL(ncclCommAbort(hung.comm));
    hung.comm = NULL;
    gather_step(1, 2, 1);
    if (process == 0)
        NEED_NCCL(ncclGetUniqueId(&shared->id[2]));
    meet(shared);
    ranks_init(&hung, 1, 2, &shared->id[2], 1);
    gather(&hung);
    NEED(cudaStreamSynchronize(hung.stream) == cudaSuccess);
    rank_close(&hung);
    close_ranks(1);
}

START_TEST(abort_leaves_others_alone)
{
    processes_run(2, neighbour_goes_on);
}
END_TEST

/* Two communicators on one stream, the first hung: in a group both are told before either waits. */
static void aborts_in_a_group(struct shared *shared, int process)
{
    struct rank second;
    if (process == 0)
        NEED_NCCL(ncclGetUniqueId(&shared->id[1]));
    open_ranks(shared, process, 1, 2, 1);
    rank_open(&second, process, process, 2 * PART, false);
    ranks_init(&second, 1, 2, &shared->id[1], 1);
    if (process == 0) {
        cudaStream_t own = second.stream;
        second.stream = ranks[0].stream;
        gather(&ranks[0]);
        gather(&second);
        second.stream = own;
    }
    NEED_NCCL(ncclGroupStart());
    NEED_NCCL(ncclCommAbort(second.comm));
    NEED_NCCL(ncclCommAbort(ranks[0].comm));
    NEED_NCCL(ncclGroupEnd());
    second.comm = ranks[0].comm = NULL;
    NEED(cudaStreamSynchronize(ranks[0].stream) == cudaSuccess);
    rank_close(&second);
    close_ranks(1);
}

START_TEST(abort_of_several)
{
    processes_run(2, aborts_in_a_group);
}
END_TEST

static void revokes(struct shared *shared, int process)
{
    struct rank *rank = &ranks[0];
    open_ranks(shared, process, 1, 2, 1);
    if (process == 0)
        gather(rank);
    NEED_NCCL(ncclCommRevoke(rank->comm, NCCL_REVOKE_DEFAULT));
    NEED(cudaStreamSynchronize(rank->stream) == cudaSuccess);
    NEED_RESULT(ncclAllGather(rank->memory, rank->memory, 1, ncclUint8, rank->comm, rank->stream),
        ncclInvalidUsage);
    close_ranks(1);
}

START_TEST(revoke_stops_what_runs)
{
    processes_run(2, revokes);
}
END_TEST

/* Process 1 dies in the middle of gathers; process 0 sees nothing, or an error. */
static void peer_dies(struct shared *shared, int process)
{
    struct rank *rank = &ranks[0];
    ncclResult_t result;
    bool is_error = getenv("CUDASIM_NCCL_DEATH") != NULL;
    open_ranks(shared, process, 1, 2, 1);
    gather_step(1, 2, 0);
    if (process == 1)
        kill(getpid(), SIGKILL);
    gather(rank);
    while (shared->flag[0] == 0) /* it is dead */
        sched_yield();
    NEED_NCCL(ncclCommGetAsyncError(rank->comm, &result));
    NEED(result == (is_error ? ncclRemoteError : ncclSuccess));
    NEED(cudaStreamQuery(rank->stream) == cudaErrorNotReady);
    if (is_error)
        NEED_RESULT(
            ncclAllGather(rank->memory, rank->memory, PART, ncclUint8, rank->comm, rank->stream),
            ncclRemoteError);
    NEED_NCCL(ncclCommAbort(rank->comm));
    rank->comm = NULL;
    close_ranks(1);
}

START_TEST(death_of_a_process)
{
    int status;
    struct shared *shared = shared_new(2);
    if (_i == 1)
        setenv("CUDASIM_NCCL_DEATH", "error", 1);
    pid_t first = process_start(shared, peer_dies, 0), second = process_start(shared, peer_dies, 1);
    ck_assert_int_eq(waitpid(second, &status, 0), second);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    shared->flag[0] = 1;
    ck_assert_int_eq(waitpid(first, &status, 0), first);
    ck_assert_int_eq(status, 0);
    unsetenv("CUDASIM_NCCL_DEATH");
    shared_free(shared);
}
END_TEST

/* Ranks 0 and 1 gather until they are killed. Rank 2 counts on them until it is told to abort. */
static void storm(struct shared *shared, int process)
{
    struct rank *rank = &ranks[0];
    open_ranks(shared, process, 1, 3, 0);
    shared->flag[1 + process] = 1;
    while (shared->flag[0] == 0) {
        ncclAllGather(rank->memory + (size_t)rank->rank * PART, rank->memory, PART, ncclUint8,
            rank->comm, rank->stream);
        NEED_NCCL(rank_settle(rank));
        while (cudaStreamQuery(rank->stream) == cudaErrorNotReady && shared->flag[0] == 0)
            sched_yield();
    }
    NEED_NCCL(ncclCommAbort(rank->comm));
    NEED(cudaStreamSynchronize(rank->stream) == cudaSuccess);
}

/* After any kill the survivor aborts in good order, and a new world begins. */
START_TEST(storm_of_kills)
{
    for (int round = 0; round < STORMS; round++) {
        pid_t pids[3];
        int status;
        struct shared *shared = shared_new(3);
        for (int i = 0; i < 3; i++)
            pids[i] = process_start(shared, storm, i);
        while (shared->flag[1] == 0 || shared->flag[2] == 0 || shared->flag[3] == 0)
            sched_yield();
        for (int i = 0; i < round * 37; i++) /* somewhere in the gathers */
            sched_yield();
        for (int i = 0; i < 2; i++) {
            kill(pids[(i + round) % 2], SIGKILL);
            ck_assert_int_eq(waitpid(pids[(i + round) % 2], &status, 0), pids[(i + round) % 2]);
            ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        }
        shared->flag[0] = 1;
        ck_assert_int_eq(waitpid(pids[2], &status, 0), pids[2]);
        ck_assert_int_eq(status, 0);
        shared_free(shared);
    }
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("processes");
    tcase_set_timeout(cases, 300);
    tcase_add_test(cases, processes_with_two_ranks);
    tcase_add_loop_test(cases, random_delays, 1, 5);
    tcase_add_test(cases, creator_dies);
    tcase_add_test(cases, abort_of_a_hung_collective);
    tcase_add_test(cases, abort_leaves_others_alone);
    tcase_add_test(cases, abort_of_several);
    tcase_add_test(cases, revoke_stops_what_runs);
    tcase_add_loop_test(cases, death_of_a_process, 0, 2);
    tcase_add_test(cases, storm_of_kills);
    return run_suite("nccl processes", cases);
}
