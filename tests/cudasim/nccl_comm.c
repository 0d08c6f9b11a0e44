/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a communicator after its initialization: queries, asynchronous errors, finalize,
 * destroy, abort, revoke. Destroy and abort block, also for communicators with blocking=0, as in
 * NCCL 2.28; of a group, all are told to stop before the first is waited for.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "nccl_comm.h"

enum { SECONDS_UNTIL_NOTE = 5 };

pthread_mutex_t comms_lock = PTHREAD_MUTEX_INITIALIZER;
struct ncclComm *comms;

static const char *const END[] = {
    [COMM_DESTROYED] = "ncclCommDestroy", [COMM_ABORTED] = "ncclCommAbort"};

static bool is_known(const struct ncclComm *comm)
{
    pthread_mutex_lock(&comms_lock);
    const struct ncclComm *known = comms;
    while (known != NULL && known != comm)
        known = known->next;
    pthread_mutex_unlock(&comms_lock);
    return known != NULL;
}

ncclResult_t comm_check(struct ncclComm *comm, const char *function)
{
    ncclResult_t result = nccl_from_cuda((int)cudasim_enter(function), function);
    if (result != ncclSuccess)
        return result;
    if (comm == NULL)
        return nccl_warn(ncclInvalidArgument, "%s : comm argument is NULL", function);
    if (!is_known(comm))
        cudasim_fault("%s: %p is not a communicator of this process", function, (void *)comm);
    if (comm->life == COMM_DESTROYED || comm->life == COMM_ABORTED)
        cudasim_fault("%s: rank %d of %s is used after %s", function, comm->rank, comm_name(comm),
            END[comm->life]);
    return ncclSuccess;
}

ncclResult_t comm_ready(struct ncclComm *comm)
{
    if (comm->result == ncclInProgress)
        return nccl_warn(ncclInvalidArgument,
            "Attempt to use communicator before the previous operation returned ncclSuccess");
    return (ncclResult_t)comm->result;
}

const char *comm_name(const struct ncclComm *comm)
{
    static _Thread_local char name[96];
    if (comm->config.commName != NULL)
        snprintf(name, sizeof(name), "communicator %s", comm->config.commName);
    else
        snprintf(name, sizeof(name), "communicator %016lx", (unsigned long)comm->clique);
    return name;
}

void comm_hold(struct ncclComm *comm)
{
    pthread_mutex_lock(&comm->lock);
    comm->pending++;
    pthread_mutex_unlock(&comm->lock);
}

void comm_release(struct ncclComm *comm)
{
    pthread_mutex_lock(&comm->lock);
    comm->pending--;
    pthread_cond_broadcast(&comm->changed);
    pthread_mutex_unlock(&comm->lock);
}

void comm_drain(struct ncclComm *comm, const char *function)
{
    pthread_mutex_lock(&comm->lock);
    while (comm->pending > 0) {
        struct timespec limit;
        clock_gettime(CLOCK_REALTIME, &limit);
        limit.tv_sec += SECONDS_UNTIL_NOTE;
        if (pthread_cond_timedwait(&comm->changed, &comm->lock, &limit) == ETIMEDOUT)
            cudasim_note("%s of rank %d of %s still waits for %u operations; NCCL waits for them "
                         "too, behind whatever is before them on their streams",
                function, comm->rank, comm_name(comm), comm->pending);
    }
    pthread_mutex_unlock(&comm->lock);
}

void comm_reclaim(struct ncclComm *comm)
{
    comm_drain(comm, END[comm->life]);
    while (comm->windows != NULL) {
        struct ncclWindow_vidmem *window = comm->windows;
        comm->windows = window->next;
        free(window);
    }
    pthread_mutex_lock(&comms_lock);
    struct segment *segment = comm->segment;
    comm->segment = NULL;
    pthread_mutex_unlock(&comms_lock);
    if (segment == NULL)
        return;
    segment->member[comm->rank].state = comm->life == COMM_ABORTED ? MEMBER_ABORTED : MEMBER_LEFT;
    segment_wake(segment);
    segment_close(segment);
}

/* Ends all waits of this rank, and of no other. */
static void stop_waits(struct ncclComm *comm)
{
    comm->aborted = true;
    pthread_mutex_lock(&comms_lock);
    if (comm->segment != NULL) {
        comm->segment->member[comm->rank].stopped = true;
        segment_wake(comm->segment);
    }
    pthread_mutex_unlock(&comms_lock);
    pthread_mutex_lock(&comm->lock);
    pthread_cond_broadcast(&comm->changed);
    pthread_mutex_unlock(&comm->lock);
}

static ncclResult_t run_job(struct ncclComm *comm, enum job_kind kind)
{
    group_begin();
    ncclResult_t result = group_error(group_add((struct job){.kind = kind, .comm = comm}));
    ncclResult_t ended = group_end();
    return result != ncclSuccess ? result : ended;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    if (comm == NULL)
        return ncclSuccess;
    ncclResult_t result = comm_check(comm, __func__);
    if (result != ncclSuccess)
        return result;
    comm->life = COMM_ABORTED;
    stop_waits(comm);
    return run_job(comm, JOB_RECLAIM);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    if (comm == NULL)
        return ncclSuccess;
    ncclResult_t result = comm_check(comm, __func__);
    if (result == ncclSuccess)
        result = comm_ready(comm);
    if (result != ncclSuccess)
        return result;
    comm->life = COMM_DESTROYED;
    return run_job(comm, JOB_RECLAIM);
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    if (comm == NULL)
        return ncclSuccess;
    ncclResult_t result = comm_check(comm, __func__);
    if (result == ncclSuccess)
        result = comm_ready(comm);
    if (result != ncclSuccess)
        return result;
    if (comm->life != COMM_LIVE)
        return nccl_warn(ncclInvalidArgument, "CommFinalize: the communicator was finalized");
    comm->life = COMM_FINALIZED;
    return run_job(comm, JOB_FINALIZE);
}

ncclResult_t ncclCommRevoke(ncclComm_t comm, int revokeFlags)
{
    if (comm == NULL)
        return ncclSuccess;
    ncclResult_t result = comm_check(comm, __func__);
    if (result != ncclSuccess)
        return result;
    if (revokeFlags != NCCL_REVOKE_DEFAULT || comm->life != COMM_LIVE)
        return nccl_warn(ncclInvalidArgument, "CommRevoke: flags %d", revokeFlags);
    comm->life = COMM_REVOKED;
    stop_waits(comm);
    return run_job(comm, JOB_FINALIZE);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError)
{
    ncclResult_t result = comm_check(comm, __func__);
    if (result != ncclSuccess)
        return result;
    if (asyncError == NULL)
        return nccl_warn(ncclInvalidArgument, "ncclGetAsyncError : asyncError argument is NULL");
    int expected = ncclSuccess;
    if (comm->result == ncclSuccess && comm->life == COMM_LIVE && death_is_error()) {
        int lost = comm_lost_rank(comm);
        if (lost >= 0 &&
            atomic_compare_exchange_strong(&comm->result, &expected, (int)ncclRemoteError))
            nccl_warn(ncclRemoteError, "rank %d of %s is gone", lost, comm_name(comm));
    }
    *asyncError = (ncclResult_t)comm->result;
    return ncclSuccess;
}

static ncclResult_t get(const struct ncclComm *comm, const char *function, int *ret)
{
    ncclResult_t result = comm_check((struct ncclComm *)comm, function);
    if (result != ncclSuccess)
        return result;
    if (ret == NULL)
        return nccl_warn(ncclInvalidArgument, "%s : argument is NULL", function);
    return comm_ready((struct ncclComm *)comm);
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int *count)
{
    ncclResult_t result = get(comm, __func__, count);
    if (result == ncclSuccess)
        *count = comm->ranks;
    return result;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device)
{
    ncclResult_t result = get(comm, __func__, device);
    if (result == ncclSuccess)
        *device = comm->ordinal;
    return result;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank)
{
    ncclResult_t result = get(comm, __func__, rank);
    if (result == ncclSuccess)
        *rank = comm->rank;
    return result;
}
