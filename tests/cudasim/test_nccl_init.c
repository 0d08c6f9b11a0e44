/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How communicators of the simulated NCCL come to be: what is refused, ranks that disagree or are
 * missing, and initialization without blocking.
 */
#include <check.h>
#include <string.h>

#include "nccl_support.h"
#include "tests/lib/suite.h"

/* ---- what is refused ---- */

static void refusals(struct shared *shared, int process)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId *id = &shared->id[0], no_id = {{0}};
    ncclComm_t comm;
    int version = 0, value = -1;
    (void)process;
    NEED_NCCL(ncclGetVersion(&version));
    NEED(version == 22809);
    NEED_NCCL(ncclGetUniqueId(id));
    NEED_RESULT(ncclCommInitRank(&comm, 0, *id, 0), ncclInvalidArgument);
    NEED_RESULT(ncclCommInitRank(&comm, 2, *id, 2), ncclInvalidArgument);
    NEED_RESULT(ncclCommInitRank(NULL, 1, *id, 0), ncclInvalidArgument);
    NEED_RESULT(ncclCommInitRank(&comm, 1, no_id, 0), ncclInvalidArgument);
    config.magic = 1;
    NEED_RESULT(ncclCommInitRankConfig(&comm, 1, *id, 0, &config), ncclInvalidArgument);
    NEED(strstr(ncclGetLastError(NULL), "NCCL_CONFIG_INITIALIZER") != NULL);
    config = (ncclConfig_t)NCCL_CONFIG_INITIALIZER;
    config.CTAPolicy = 3;
    NEED_RESULT(ncclCommInitRankConfig(&comm, 1, *id, 0, &config), ncclInvalidArgument);
    config.CTAPolicy = NCCL_CTA_POLICY_ZERO;
    config.blocking = 2;
    NEED_RESULT(ncclCommInitRankConfig(&comm, 1, *id, 0, &config), ncclInvalidArgument);
    NEED_RESULT(ncclGroupEnd(), ncclInvalidUsage);
    NEED_NCCL(ncclCommInitRank(&comm, 1, *id, 0));
    NEED_NCCL(ncclCommCount(comm, &value));
    NEED(value == 1);
    NEED_NCCL(ncclCommUserRank(comm, &value));
    NEED(value == 0);
    NEED_NCCL(ncclCommCuDevice(comm, &value));
    NEED(value == 0);
    NEED_RESULT(ncclAllGather(NULL, NULL, 1, ncclNumTypes, comm, NULL), ncclInvalidArgument);
    NEED_RESULT(ncclBroadcast(NULL, NULL, 1, ncclUint8, 1, comm, NULL), ncclInvalidArgument);
    NEED_NCCL(ncclCommFinalize(comm));
    NEED_NCCL(ncclCommDestroy(comm));
    NEED_NCCL(ncclCommDestroy(NULL));
}

START_TEST(bad_arguments)
{
    processes_run(1, refusals);
}
END_TEST

static void duplicates(struct shared *shared, int process)
{
    ncclComm_t comm[2];
    (void)process;
    NEED_NCCL(ncclGetUniqueId(&shared->id[0]));
    NEED(cudaSetDevice(1) == cudaSuccess);
    NEED_NCCL(ncclGroupStart());
    NEED_NCCL(ncclCommInitRank(&comm[0], 2, shared->id[0], 0));
    NEED_NCCL(ncclCommInitRank(&comm[1], 2, shared->id[0], 1));
    NEED_RESULT(ncclGroupEnd(), ncclInvalidUsage);
    NEED(strcmp(ncclGetLastError(NULL),
             "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 2000") == 0);
    NEED_NCCL(ncclCommAbort(comm[0]));
    NEED_NCCL(ncclCommAbort(comm[1]));
}

START_TEST(duplicate_device)
{
    processes_run(1, duplicates);
}
END_TEST

/* Two ranks that cannot both be right, in one group, so that the second one surely is the wrong
 * one. */
static void init_two(struct shared *shared, int world, int rank, const char *error)
{
    ncclComm_t comm[2];
    NEED_NCCL(ncclGetUniqueId(&shared->id[0]));
    NEED_NCCL(ncclGroupStart());
    NEED_NCCL(ncclCommInitRank(&comm[0], 2, shared->id[0], 0));
    NEED_NCCL(ncclCommInitRank(&comm[1], world, shared->id[0], rank));
    NEED_RESULT(ncclGroupEnd(), ncclInternalError);
    NEED(strstr(ncclGetLastError(NULL), error) != NULL);
    NEED_NCCL(ncclCommAbort(comm[0]));
    NEED_NCCL(ncclCommAbort(comm[1]));
}

static void disagreements(struct shared *shared, int process)
{
    (void)process;
    init_two(shared, 2, 0, "rank 0 of 2 ranks has already checked in");
    init_two(shared, 3, 1, "mismatch in rank count from procs 2 : 3");
}

START_TEST(ranks_that_disagree)
{
    processes_run(1, disagreements);
}
END_TEST

/* ---- without blocking ---- */

static void rank_is_missing(struct shared *shared, int process)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm = NULL;
    ncclResult_t result;
    int count;
    (void)process;
    config.blocking = 0;
    NEED_NCCL(ncclGetUniqueId(&shared->id[0]));
    NEED_RESULT(ncclCommInitRankConfig(&comm, 2, shared->id[0], 0, &config), ncclInProgress);
    NEED(comm != NULL);
    for (int i = 0; i < 1000; i++) {
        NEED_NCCL(ncclCommGetAsyncError(comm, &result));
        NEED(result == ncclInProgress);
    }
    NEED_RESULT(ncclCommCount(comm, &count), ncclInvalidArgument);
    NEED_NCCL(ncclCommAbort(comm));
}

START_TEST(missing_rank_stays_in_progress)
{
    processes_run(1, rank_is_missing);
}
END_TEST

/* To abort one communicator of a group that is in progress ends the group, as in NCCL. */
static void group_is_in_progress(struct shared *shared, int process)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm[2];
    ncclResult_t result;
    (void)process;
    config.blocking = 0;
    NEED_NCCL(ncclGetUniqueId(&shared->id[0]));
    NEED_NCCL(ncclGetUniqueId(&shared->id[1]));
    NEED_NCCL(ncclGroupStart());
    for (int i = 0; i < 2; i++)
        NEED_NCCL(ncclCommInitRankConfig(&comm[i], 2, shared->id[i], 0, &config));
    NEED_RESULT(ncclGroupEnd(), ncclInProgress);
    NEED_NCCL(ncclCommAbort(comm[1]));
    do
        NEED_NCCL(ncclCommGetAsyncError(comm[0], &result));
    while (result == ncclInProgress);
    NEED(result == ncclInternalError);
    NEED_NCCL(ncclCommAbort(comm[0]));
}

START_TEST(abort_ends_a_group_in_progress)
{
    processes_run(1, group_is_in_progress);
}
END_TEST

static void mixed_group(struct shared *shared, int process)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm[2];
    (void)process;
    config.blocking = 0;
    NEED_NCCL(ncclGetUniqueId(&shared->id[0]));
    NEED_NCCL(ncclGroupStart());
    NEED_NCCL(ncclCommInitRank(&comm[0], 2, shared->id[0], 0));
    NEED_RESULT(
        ncclCommInitRankConfig(&comm[1], 2, shared->id[0], 1, &config), ncclInvalidArgument);
    NEED_RESULT(ncclGroupEnd(), ncclInvalidArgument);
    NEED_NCCL(ncclCommAbort(comm[0]));
}

START_TEST(group_of_both_kinds)
{
    processes_run(1, mixed_group);
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("init");
    tcase_set_timeout(cases, 300);
    tcase_add_test(cases, bad_arguments);
    tcase_add_test(cases, duplicate_device);
    tcase_add_test(cases, ranks_that_disagree);
    tcase_add_test(cases, missing_rank_stays_in_progress);
    tcase_add_test(cases, abort_ends_a_group_in_progress);
    tcase_add_test(cases, group_of_both_kinds);
    return run_suite("nccl init", cases);
}
