/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Windows of the simulated NCCL: which memory they may be of, and that all-gathers go by copy
 * engines if and only if nothing is missing for it.
 */
#include <check.h>
#include <sched.h>
#include <string.h>

#include "cudasim.h"
#include "nccl_support.h"
#include "tests/lib/suite.h"

enum { RANKS = 2, PART = 8192, SIZE = RANKS * PART };

static struct rank ranks[RANKS];
static ncclWindow_t windows[RANKS];

static void open_all(struct shared *shared, int policy, bool is_vmm)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.CTAPolicy = policy;
    NEED_NCCL(ncclGetUniqueId(&shared->id[0]));
    for (int i = 0; i < RANKS; i++)
        rank_open(&ranks[i], i, i, SIZE, is_vmm);
    NEED_NCCL(ncclGroupStart());
    for (int i = 0; i < RANKS; i++) {
        NEED(cudaSetDevice(i) == cudaSuccess);
        NEED_NCCL(ncclCommInitRankConfig(&ranks[i].comm, RANKS, shared->id[0], i, &config));
    }
    NEED_NCCL(ncclGroupEnd());
}

static ncclResult_t register_all(size_t offset)
{
    NEED_NCCL(ncclGroupStart());
    for (int i = 0; i < RANKS; i++)
        NEED_NCCL(ncclCommWindowRegister(ranks[i].comm, ranks[i].memory + offset, SIZE - offset,
            &windows[i], NCCL_WIN_COLL_SYMMETRIC));
    return ncclGroupEnd();
}

static void gather_and_check(void)
{
    uint8_t got[SIZE];
    for (int i = 0; i < RANKS; i++) {
        memset(got, i + 1, PART);
        rank_fill(&ranks[i], (size_t)i * PART, got, PART);
    }
    NEED_NCCL(ncclGroupStart());
    for (int i = 0; i < RANKS; i++)
        NEED_NCCL(ncclAllGather(ranks[i].memory + (size_t)i * PART, ranks[i].memory, PART,
            ncclUint8, ranks[i].comm, ranks[i].stream));
    NEED_NCCL(ncclGroupEnd());
    for (int i = 0; i < RANKS; i++) {
        rank_read(&ranks[i], 0, got, SIZE);
        NEED(got[0] == 1 && got[PART - 1] == 1 && got[PART] == 2 && got[SIZE - 1] == 2);
    }
}

static void need_path(uint64_t copy_engine, uint64_t kernel)
{
    NEED(cudasim_counted(CUDASIM_COPY_ENGINE_COLLECTIVES) == copy_engine);
    NEED(cudasim_counted(CUDASIM_SM_COLLECTIVES) == kernel);
}

static void with_all(struct shared *shared, int process)
{
    (void)process;
    open_all(shared, NCCL_CTA_POLICY_ZERO, true);
    gather_and_check();
    need_path(0, RANKS);
    NEED_NCCL(register_all(0));
    NEED(windows[0] != NULL && windows[1] != NULL);
    gather_and_check();
    need_path(RANKS, RANKS);
    for (int i = 0; i < RANKS; i++)
        NEED_NCCL(ncclCommWindowDeregister(ranks[i].comm, windows[i]));
    gather_and_check();
    need_path(RANKS, 2 * RANKS);
    for (int i = 0; i < RANKS; i++) {
        NEED_NCCL(ncclMemFree(ranks[i].memory));
        rank_close(&ranks[i]);
    }
}

START_TEST(copy_engines)
{
    processes_run(1, with_all);
}
END_TEST

static void without_policy(struct shared *shared, int process)
{
    (void)process;
    open_all(shared, NCCL_CTA_POLICY_DEFAULT, true);
    NEED_NCCL(register_all(0));
    gather_and_check();
    need_path(0, RANKS);
}

START_TEST(kernel_without_policy)
{
    processes_run(1, without_policy);
}
END_TEST

static void on_two_hosts(struct shared *shared, int process)
{
    struct rank *rank = &ranks[process];
    setenv("NCCL_HOSTID", process == 0 ? "a" : "b", 1);
    if (process == 0)
        NEED_NCCL(ncclGetUniqueId(&shared->id[0]));
    meet(shared);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.CTAPolicy = NCCL_CTA_POLICY_ZERO;
    rank_open(rank, process, 0, SIZE, true); /* one device: NCCL takes it for two hosts' */
    NEED_NCCL(ncclCommInitRankConfig(&rank->comm, RANKS, shared->id[0], process, &config));
    NEED_NCCL(ncclCommWindowRegister(
        rank->comm, rank->memory, SIZE, &windows[0], NCCL_WIN_COLL_SYMMETRIC));
    NEED_NCCL(ncclAllGather(rank->memory + (size_t)process * PART, rank->memory, PART, ncclUint8,
        rank->comm, rank->stream));
    NEED(cudaStreamSynchronize(rank->stream) == cudaSuccess);
    need_path(0, 1);
    NEED_NCCL(ncclCommDestroy(rank->comm));
}

START_TEST(kernel_between_hosts)
{
    processes_run(2, on_two_hosts);
}
END_TEST

static void refusals(struct shared *shared, int process)
{
    void *handle;
    (void)process;
    open_all(shared, NCCL_CTA_POLICY_ZERO, true);
    NEED_RESULT(register_all(512), ncclInvalidArgument);
    NEED(windows[0] == NULL && windows[1] == NULL);
    NEED_NCCL(ncclCommWindowRegister(ranks[0].comm, NULL, SIZE, &windows[0], 0));
    NEED(windows[0] == NULL);
    NEED_NCCL(ncclCommWindowDeregister(ranks[0].comm, NULL));
    NEED_NCCL(ncclCommRegister(ranks[0].comm, ranks[0].memory, SIZE, &handle));
    NEED_NCCL(ncclCommDeregister(ranks[0].comm, handle));
    for (int i = 0; i < RANKS; i++) {
        NEED(cudaSetDevice(i) == cudaSuccess);
        NEED(cudaMalloc((void **)&ranks[i].memory, SIZE) == cudaSuccess);
    }
    NEED_RESULT(register_all(0), ncclUnhandledCudaError);
    NEED(windows[0] == NULL && windows[1] == NULL);
    gather_and_check();
    need_path(0, RANKS);
}

START_TEST(memory_that_cannot_be_shared)
{
    processes_run(1, refusals);
}
END_TEST

static void with_different_offsets(struct shared *shared, int process)
{
    (void)process;
    open_all(shared, NCCL_CTA_POLICY_ZERO, true);
    NEED_NCCL(ncclGroupStart());
    for (size_t i = 0; i < RANKS; i++)
        NEED_NCCL(ncclCommWindowRegister(
            ranks[i].comm, ranks[i].memory + i * 4096, 4096, &windows[i], NCCL_WIN_COLL_SYMMETRIC));
    ncclGroupEnd();
}

START_TEST(offsets_differ)
{
    const char *text = processes_fault(1, with_different_offsets);
    ck_assert_ptr_nonnull(strstr(text, "has 4096 bytes at offset 0 with flags 1 on rank 0, and "
                                       "4096 bytes at offset 4096 with flags 1 on rank 1"));
}
END_TEST

/* Copy engines write at the sender's offset: the receivers' must be the same. */
static void with_different_places(struct shared *shared, int process)
{
    (void)process;
    open_all(shared, NCCL_CTA_POLICY_ZERO, true);
    NEED_NCCL(register_all(0));
    NEED_NCCL(ncclGroupStart());
    for (int i = 0; i < RANKS; i++)
        NEED_NCCL(ncclAllGather(ranks[i].memory, ranks[i].memory + 256 + i * 256, 64, ncclUint8,
            ranks[i].comm, ranks[i].stream));
    ncclGroupEnd();
}

START_TEST(places_in_the_window_differ)
{
    const char *text = processes_fault(1, with_different_places);
    ck_assert_ptr_nonnull(strstr(text, "512 bytes into the window on rank 1"));
    ck_assert_ptr_nonnull(strstr(text, "256 bytes into the window on rank 0"));
}
END_TEST

static void CUDART_CB hold(void *flag)
{
    while (*(_Atomic int *)flag == 0)
        sched_yield();
}

static void while_queued(struct shared *shared, int process)
{
    (void)process;
    open_all(shared, NCCL_CTA_POLICY_ZERO, true);
    NEED_NCCL(register_all(0));
    NEED(cudaLaunchHostFunc(ranks[1].stream, hold, &shared->flag[0]) == cudaSuccess);
    NEED_NCCL(ncclGroupStart());
    for (int i = 0; i < RANKS; i++)
        NEED_NCCL(ncclAllGather(ranks[i].memory + (size_t)i * PART, ranks[i].memory, PART,
            ncclUint8, ranks[i].comm, ranks[i].stream));
    NEED_NCCL(ncclGroupEnd());
    ncclCommWindowDeregister(ranks[0].comm, windows[0]);
}

START_TEST(collectives_are_queued)
{
    const char *text = processes_fault(1, while_queued);
    ck_assert_ptr_nonnull(
        strstr(text, "ncclCommWindowDeregister on device 0, where 1 operations of "));
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("windows");
    tcase_set_timeout(cases, 300);
    tcase_add_test(cases, copy_engines);
    tcase_add_test(cases, kernel_without_policy);
    tcase_add_test(cases, kernel_between_hosts);
    tcase_add_test(cases, memory_that_cannot_be_shared);
    tcase_add_test(cases, offsets_differ);
    tcase_add_test(cases, places_in_the_window_differ);
    tcase_add_test(cases, collectives_are_queued);
    return run_suite("nccl windows", cases);
}
