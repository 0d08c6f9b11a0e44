/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How sets of communicators end. One that works is finalized and destroyed. A failed one is
 * aborted, all of its ranks in one group and no other set with them; not before its gates are open,
 * as NCCL waits in the abort for collectives to begin. What CUDA gives back is given back when no
 * collective runs. Device thread.
 */
#include <stdlib.h>

#include "daemon/cuda/comm.h"
#include "proto/status.h"

static void count_ended(struct cuda *cuda, const struct cuda_comms *comms)
{
    (void)pthread_mutex_lock(&cuda->info_lock);
    for (uint32_t d = 0; d < comms->count; d++)
        if (comms->members[d].comm)
            cuda->communicators--;
    (void)pthread_mutex_unlock(&cuda->info_lock);
}

static void free_rest(struct cuda_comms *comms)
{
    for (uint32_t d = 0; d < comms->count; d++) {
        struct cuda_comm *member = &comms->members[d];
        cuda_device_switch(member->device);
        if (member->opened)
            (void)cudaEventDestroy(member->opened);
        if (member->gate)
            (void)cudaStreamDestroy(member->gate);
    }
    free(comms->key);
    free(comms);
}

/* ---- of sets that work ---- */

typedef ncclResult_t end_function(ncclComm_t comm);

/* One call for each rank, in one group. */
static ncclResult_t call_all(struct cuda *cuda, struct cuda_comms *comms, end_function *function)
{
    ncclResult_t result = cuda->nccl->library.ncclGroupStart();
    for (uint32_t d = 0; d < comms->count && result == ncclSuccess; d++) {
        cuda_device_switch(comms->members[d].device);
        result = function(comms->members[d].comm);
        if (result == ncclInProgress)
            result = ncclSuccess;
    }
    result = cuda_comms_end_group(cuda, result);
    return result == ncclInProgress ? ncclSuccess : result;
}

void cuda_comms_free(struct cuda *cuda, struct cuda_comms *comms)
{
    const struct nccl_library *nccl = &cuda->nccl->library;
    struct reason reason;
    cuda_beat(cuda, "ncclCommFinalize");
    ncclResult_t result = call_all(cuda, comms, nccl->ncclCommFinalize);
    int r = result == ncclSuccess
                ? cuda_comms_settle(cuda, comms, "the end of communicators",
                      cuda_now_ms() + CUDA_QUIET_LIMIT_MS, &reason)
                : nccl_library_failed(nccl, "ncclCommFinalize", result, NULL, &reason);
    if (r < 0) {
        cuda_log(cuda, LOG_LEVEL_WARNING, "group %s: %s", comms->key, reason.text);
        cuda_comms_doom(cuda, comms);
        return;
    }
    cuda_beat(cuda, "ncclCommDestroy");
    count_ended(cuda, comms);
    (void)call_all(cuda, comms, nccl->ncclCommDestroy);
    free_rest(comms);
}

/* ---- of failed ones ---- */

static bool is_open(const struct cuda_comm *member)
{
    if (!member->gate)
        return true;
    cudaError_t error = cudaStreamQuery(member->gate);
    (void)cudaGetLastError();
    return error != cudaErrorNotReady; /* a context that is lost holds up nothing */
}

/*
 * Where a gate is closed, what was issued before must not spin until it opens: behind a closed gate
 * is the next work, and that waits for ranks whose streams wait for the collective that runs.
 * Unlike an abort, this does not wait, as the communicators are non-blocking.
 */
static void revoke_all(struct cuda *cuda, struct cuda_comms *comms)
{
    const struct nccl_library *nccl = &cuda->nccl->library;
    for (uint32_t d = 0; d < comms->count && nccl->ncclCommRevoke; d++) {
        struct cuda_comm *member = &comms->members[d];
        if (!member->comm || member->is_revoked)
            continue;
        cuda_device_switch(member->device);
        cuda_beat(cuda, "ncclCommRevoke");
        (void)nccl->ncclCommRevoke(member->comm, NCCL_REVOKE_DEFAULT);
        member->is_revoked = true;
    }
}

static bool all_open(const struct cuda_comms *comms)
{
    for (uint32_t d = 0; d < comms->count; d++)
        if (!is_open(&comms->members[d]))
            return false;
    return true;
}

static void abort_all(struct cuda *cuda, struct cuda_comms *comms)
{
    const struct nccl_library *nccl = &cuda->nccl->library;
    bool in_group = nccl->version >= NCCL_VERSION_GROUP_ABORT;
    if (in_group)
        (void)nccl->ncclGroupStart();
    for (uint32_t d = 0; d < comms->count; d++) {
        struct cuda_comm *member = &comms->members[d];
        if (!member->comm)
            continue;
        cuda_device_switch(member->device);
        cuda_beat(cuda, "ncclCommAbort");
        (void)nccl->ncclCommAbort(member->comm);
    }
    cuda_beat(cuda, "ncclCommAbort");
    if (in_group)
        (void)nccl->ncclGroupEnd();
    count_ended(cuda, comms);
    for (uint32_t d = 0; d < comms->count; d++) {
        comms->members[d].comm = NULL;
        comms->members[d].window = NULL;
    }
    comms->is_ended = true;
    cuda_log(
        cuda, LOG_LEVEL_INFO, "group %s: aborted its %u communicators", comms->key, comms->count);
}

/* True once it has ended. */
static bool try_abort(struct cuda *cuda, struct cuda_comms *comms)
{
    if (!comms->is_ended) {
        if (all_open(comms))
            abort_all(cuda, comms);
        else
            revoke_all(cuda, comms);
    }
    return comms->is_ended;
}

void cuda_comms_doom(struct cuda *cuda, struct cuda_comms *comms)
{
    if (comms->is_failed)
        return;
    comms->is_failed = true;
    comms->next = cuda->kept->doomed;
    cuda->kept->doomed = comms;
    (void)try_abort(cuda, comms);
}

bool cuda_comm_all_ended(const struct cuda *cuda)
{
    const struct cuda_comms *comms = cuda->kept ? cuda->kept->doomed : NULL;
    while (comms && comms->is_ended)
        comms = comms->next;
    return !comms;
}

bool cuda_comms_bury(struct cuda *cuda)
{
    bool is_done = true;
    struct cuda_comms **link = &cuda->kept->doomed;
    while (*link) {
        struct cuda_comms *comms = *link;
        bool ended = try_abort(cuda, comms);
        if (ended && !comms->is_held && cuda_collectives_ended(cuda)) {
            *link = comms->next;
            free_rest(comms);
            continue;
        }
        is_done = is_done && ended && comms->is_held;
        link = &comms->next;
    }
    return is_done;
}
