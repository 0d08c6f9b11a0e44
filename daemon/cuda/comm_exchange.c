/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The collectives of works: every device's call of one step in one group, in the order of the
 * devices, so that all streams see the same order; then NCCL's own thread is waited for until it
 * has queued them, as what comes behind them must be queued behind them. Device thread.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/cuda/comm.h"
#include "proto/status.h"

/* Where a driver has what NCCL's copy-engine collectives need: as CUDA numbers it. */
#define DRIVER_WITH_COPY_ENGINES 12050

cudaStream_t cuda_comm_gate(const struct cuda_arena *arena, uint32_t d)
{
    return arena->comms ? arena->comms->members[d].gate : arena->devices[d].stream;
}

int cuda_comm_open_gate(const struct cuda_arena *arena, uint32_t d, struct reason *reason)
{
    if (!arena->comms)
        return F8_OK;
    const struct cuda_comm *member = &arena->comms->members[d];
    int r = cuda_failed(cudaEventRecord(member->opened, member->gate), reason,
        "cannot record that a work's waits are over");
    if (r == F8_OK)
        r = cuda_failed(cudaStreamWaitEvent(arena->devices[d].stream, member->opened, 0), reason,
            "cannot make a work wait for its gate");
    return r;
}

bool cuda_comm_gate_is_open(const struct cuda_arena *arena, uint32_t d)
{
    cudaError_t error = cudaStreamQuery(cuda_comm_gate(arena, d));
    (void)cudaGetLastError();
    return error != cudaErrorNotReady;
}

/* Ends the group, and waits until its operations are on the streams. */
static int launch(struct cuda *cuda, struct cuda_arena *arena, const char *call,
    ncclResult_t result, struct reason *reason)
{
    const struct nccl_library *nccl = &cuda->nccl->library;
    result = cuda_comms_end_group(cuda, result);
    arena->has_collectives = true;
    if (result != ncclSuccess && result != ncclInProgress)
        return nccl_library_failed(nccl, call, result, arena->comms->members[0].comm, reason);
    return cuda_comms_settle(cuda, arena->comms, call, cuda_now_ms() + CUDA_QUIET_LIMIT_MS, reason);
}

static bool goes_on(ncclResult_t result)
{
    return result == ncclSuccess || result == ncclInProgress;
}

int cuda_comm_reduce(struct cuda *cuda, struct cuda_arena *arena, uint32_t first, uint32_t count,
    struct reason *reason)
{
    if (!arena->comms || count == 0)
        return F8_OK;
    const struct nccl_library *nccl = &cuda->nccl->library;
    ncclResult_t result = nccl->ncclGroupStart();
    for (uint32_t d = 0; d < arena->base.num_devices && goes_on(result); d++) {
        uint32_t *reduced = arena->devices[d].reduced + first;
        result = nccl->ncclAllReduce(reduced, reduced, count, ncclUint32, ncclMax,
            arena->comms->members[d].comm, arena->devices[d].stream);
    }
    return launch(cuda, arena, "ncclAllReduce", result, reason);
}

/* ---- spans ---- */

static ncclResult_t all_gather(
    struct cuda *cuda, struct cuda_arena *arena, const struct backend_span *span)
{
    const struct nccl_library *nccl = &cuda->nccl->library;
    ncclResult_t result = ncclSuccess;
    for (uint32_t d = 0; d < arena->base.num_devices && goes_on(result); d++) {
        uint8_t *to = arena->base.devices[d].base + span->offset;
        result = nccl->ncclAllGather(to + (arena->first_member + d) * span->chunk, to, span->chunk,
            ncclUint8, arena->comms->members[d].comm, arena->devices[d].stream);
    }
    return result;
}

static ncclResult_t broadcast(
    struct cuda *cuda, struct cuda_arena *arena, uint64_t offset, uint64_t size, uint32_t root)
{
    const struct nccl_library *nccl = &cuda->nccl->library;
    ncclResult_t result = ncclSuccess;
    for (uint32_t d = 0; d < arena->base.num_devices && goes_on(result); d++) {
        uint8_t *at = arena->base.devices[d].base + offset;
        result = nccl->ncclBroadcast(at, at, size, ncclUint8, (int)root,
            arena->comms->members[d].comm, arena->devices[d].stream);
    }
    return result;
}

/* A broadcast from each device that holds ranks which follow one another. */
static ncclResult_t broadcast_span(struct cuda *cuda, struct cuda_arena *arena,
    const struct backend_span *span, uint32_t *ret_exchanges)
{
    ncclResult_t result = ncclSuccess;
    for (uint32_t rank = 0, end; rank < arena->ranks && goes_on(result); rank = end) {
        uint32_t root = arena->member_of_rank[rank];
        for (end = rank + 1; end < arena->ranks && arena->member_of_rank[end] == root;)
            end++;
        result = broadcast(
            cuda, arena, span->offset + rank * span->chunk, (end - rank) * span->chunk, root);
        ++*ret_exchanges;
    }
    return result;
}

/* NCCL does not say which way it takes; these are its conditions, but for the operator's own. */
static bool uses_copy_engines(const struct cuda *cuda, const struct cuda_arena *arena)
{
    const char *policy = getenv("NCCL_CTA_POLICY");
    if (policy && strcmp(policy, "ZERO") != 0 && strcmp(policy, "2") != 0)
        return false;
    return arena->base.path == BACKEND_PATH_ALLGATHER && arena->base.window &&
           cuda->nccl->library.version >= NCCL_VERSION_COPY_ENGINE &&
           cuda->driver_version >= DRIVER_WITH_COPY_ENGINES;
}

int cuda_comm_exchange(struct cuda *cuda, struct cuda_arena *arena,
    const struct backend_span *spans, uint32_t num_spans, struct cuda_command *command,
    struct reason *reason)
{
    const struct nccl_library *nccl = cuda->nccl ? &cuda->nccl->library : NULL;
    bool gathers = arena->base.path == BACKEND_PATH_ALLGATHER;
    uint32_t exchanges = 0;
    if (!arena->comms || num_spans == 0)
        return F8_OK;
    ncclResult_t result = nccl->ncclGroupStart();
    for (uint32_t i = 0; i < num_spans && goes_on(result); i++) {
        if (spans[i].chunk == 0)
            continue;
        if (gathers) {
            result = all_gather(cuda, arena, &spans[i]);
            exchanges++;
        } else {
            result = broadcast_span(cuda, arena, &spans[i], &exchanges);
        }
    }
    int r = launch(cuda, arena, gathers ? "ncclAllGather" : "ncclBroadcast", result, reason);
    if (r < 0)
        return r;
    command->exchanges += exchanges;
    if (uses_copy_engines(cuda, arena))
        command->copy_engine_exchanges += exchanges;
    return F8_OK;
}
