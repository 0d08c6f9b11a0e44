/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a set of communicators comes to be: all ranks of this process in one group, non-blocking, and
 * polled until a deadline, or until the loop has heard that a host will not come, so that a peer
 * that never comes costs a sentence and not the daemon.
 * Device thread, while no collective runs.
 */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/cuda/comm.h"
#include "proto/status.h"

/* A launch takes NCCL's thread some tens of microseconds: worth to be looked at more often. */
#define EAGER_POLLS 2000

ncclResult_t cuda_comms_end_group(struct cuda *cuda, ncclResult_t result)
{
    ncclResult_t ended = cuda->nccl->library.ncclGroupEnd();
    bool is_error = result != ncclSuccess && result != ncclInProgress;
    return is_error ? result : ended;
}

/* ncclSuccess once all are ready, else the state of the first that is not. */
static ncclResult_t look(
    const struct nccl_library *nccl, const struct cuda_comms *comms, ncclComm_t *ret_comm)
{
    ncclResult_t worst = ncclSuccess;
    for (uint32_t d = 0; d < comms->count; d++) {
        ncclResult_t state = ncclSuccess;
        ncclResult_t result = nccl->ncclCommGetAsyncError(comms->members[d].comm, &state);
        if (result != ncclSuccess)
            state = result;
        if (state == ncclSuccess || (state == ncclInProgress && worst != ncclSuccess))
            continue;
        worst = state;
        *ret_comm = comms->members[d].comm;
        if (state != ncclInProgress)
            return state;
    }
    return worst;
}

int cuda_comms_settle(struct cuda *cuda, const struct cuda_comms *comms, const char *call,
    uint64_t deadline_ms, struct reason *reason)
{
    const struct nccl_library *nccl = &cuda->nccl->library;
    for (unsigned polls = 0;; polls++) {
        ncclComm_t comm = NULL;
        ncclResult_t state = look(nccl, comms, &comm);
        if (state == ncclSuccess)
            return F8_OK;
        if (state != ncclInProgress)
            return nccl_library_failed(nccl, call, state, comm, reason);
        if (comms->is_abandoned && atomic_load(comms->is_abandoned))
            return reason_set(reason, F8_ECANCELED, "%s: another host takes no part in it", call);
        if (cuda_now_ms() >= deadline_ms)
            return reason_set(reason, F8_EDEADLINE, "%s over %u devices was not done in time", call,
                comms->count);
        if (polls < EAGER_POLLS) {
            (void)sched_yield();
            continue;
        }
        cuda_beat(cuda, call);
        cuda_poll_pause();
    }
}

bool cuda_comms_are_well(struct cuda *cuda, const struct cuda_comms *comms, struct reason *reason)
{
    const struct nccl_library *nccl = &cuda->nccl->library;
    ncclComm_t comm = NULL;
    ncclResult_t state = look(nccl, comms, &comm);
    if (state == ncclSuccess || state == ncclInProgress)
        return true;
    (void)nccl_library_failed(nccl, "a collective", state, comm, reason);
    return false;
}

/* ---- forming ---- */

static struct cuda_comms *alloc(const struct cuda_arena *arena)
{
    uint32_t count = arena->base.num_devices;
    struct cuda_comms *comms = calloc(1, sizeof(*comms) + count * sizeof(comms->members[0]));
    if (!comms)
        return NULL;
    comms->key = strdup(arena->name);
    if (!comms->key) {
        free(comms);
        return NULL;
    }
    comms->count = count;
    for (uint32_t d = 0; d < count; d++)
        comms->members[d].device = arena->devices[d].device;
    return comms;
}

static int open_gates(struct cuda_comms *comms, struct reason *reason)
{
    for (uint32_t d = 0; d < comms->count; d++) {
        struct cuda_comm *member = &comms->members[d];
        cuda_device_switch(member->device);
        int r = cuda_failed(cudaStreamCreateWithFlags(&member->gate, cudaStreamNonBlocking), reason,
            "cannot create a stream on device %d", member->device);
        if (r == F8_OK)
            r = cuda_failed(cudaEventCreateWithFlags(&member->opened, cudaEventDisableTiming),
                reason, "cannot create an event on device %d", member->device);
        if (r < 0)
            return r;
    }
    return F8_OK;
}

static void count_made(struct cuda *cuda, const struct cuda_comms *comms)
{
    (void)pthread_mutex_lock(&cuda->info_lock);
    for (uint32_t d = 0; d < comms->count; d++)
        if (comms->members[d].comm)
            cuda->communicators++;
    (void)pthread_mutex_unlock(&cuda->info_lock);
}

static int init_ranks(struct cuda *cuda, const struct cuda_arena *arena, struct cuda_comms *comms,
    const struct cuda_forming *forming, struct reason *reason)
{
    const struct nccl_library *nccl = &cuda->nccl->library;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    /* Trainers want the SMs: with windows NCCL then lets the copy engines gather. */
    if (nccl->version >= NCCL_VERSION_COPY_ENGINE)
        config.CTAPolicy = NCCL_CTA_POLICY_ZERO;

    cuda_beat(cuda, "ncclCommInitRankConfig");
    ncclResult_t result = nccl->ncclGroupStart();
    for (uint32_t d = 0; d < comms->count && result == ncclSuccess; d++) {
        cuda_device_switch(comms->members[d].device);
        result = nccl->ncclCommInitRankConfig(&comms->members[d].comm, (int)arena->num_members,
            *forming->id, (int)(arena->first_member + d), &config);
        if (result == ncclInProgress)
            result = ncclSuccess;
    }
    result = cuda_comms_end_group(cuda, result);
    count_made(cuda, comms);
    if (result != ncclSuccess && result != ncclInProgress)
        return nccl_library_failed(nccl, "ncclCommInitRankConfig", result, NULL, reason);
    return cuda_comms_settle(cuda, comms, "forming communicators", forming->deadline_ms, reason);
}

int cuda_comms_new(struct cuda *cuda, const struct cuda_arena *arena,
    const struct cuda_forming *forming, struct cuda_comms **ret_comms, struct reason *reason)
{
    struct cuda_comms *comms = alloc(arena);
    if (!comms)
        return reason_set(reason, F8_ENOMEM, "no memory for the record of %u communicators",
            arena->base.num_devices);
    comms->is_abandoned = forming->is_abandoned;
    int r = open_gates(comms, reason);
    if (r == F8_OK)
        r = init_ranks(cuda, arena, comms, forming, reason);
    comms->is_abandoned = NULL; /* it is the caller's of the reservation */
    if (r < 0) {
        cuda_comms_doom(cuda, comms);
        return r;
    }
    *ret_comms = comms;
    return F8_OK;
}

/* ---- windows ---- */

static void forget_windows(struct cuda_comms *comms)
{
    for (uint32_t d = 0; d < comms->count; d++)
        comms->members[d].window = NULL;
}

bool cuda_comms_add_window(struct cuda *cuda, const struct cuda_arena *arena,
    struct cuda_comms *comms, uint64_t deadline_ms)
{
    const struct nccl_library *nccl = &cuda->nccl->library;
    struct reason reason;
    cuda_beat(cuda, "ncclCommWindowRegister");
    ncclResult_t result = nccl->ncclGroupStart();
    for (uint32_t d = 0; d < comms->count && result == ncclSuccess; d++) {
        struct cuda_comm *member = &comms->members[d];
        cuda_device_switch(member->device);
        result = nccl->ncclCommWindowRegister(member->comm, arena->base.devices[d].base,
            arena->devices[d].mapped_size, &member->window, NCCL_WIN_COLL_SYMMETRIC);
        if (result == ncclInProgress)
            result = ncclSuccess;
    }
    result = cuda_comms_end_group(cuda, result);
    int r = F8_OK;
    if (result != ncclSuccess && result != ncclInProgress)
        r = nccl_library_failed(nccl, "ncclCommWindowRegister", result, NULL, &reason);
    else
        r = cuda_comms_settle(cuda, comms, "registering a window", deadline_ms, &reason);
    if (r == F8_OK)
        return true;
    cuda_log(
        cuda, LOG_LEVEL_WARNING, "group %s: no window for its arena: %s", comms->key, reason.text);
    forget_windows(comms);
    return false;
}

void cuda_comms_remove_window(struct cuda *cuda, struct cuda_comms *comms)
{
    const struct nccl_library *nccl = &cuda->nccl->library;
    for (uint32_t d = 0; d < comms->count; d++) {
        struct cuda_comm *member = &comms->members[d];
        if (!member->window)
            continue;
        cuda_device_switch(member->device);
        cuda_beat(cuda, "ncclCommWindowDeregister");
        if (nccl->ncclCommWindowDeregister(member->comm, member->window) != ncclSuccess)
            comms->is_failed = true; /* memory that it still names is about to go */
    }
    forget_windows(comms);
}
