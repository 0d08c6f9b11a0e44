/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The collectives and messages of the API: checks of the arguments, NCCL's choice between copy
 * engines and a kernel, and queueing on the stream. Called by the one thread that launches, or by
 * the background thread of a non-blocking group.
 */
#include <stdlib.h>

#include "nccl_comm.h"

enum { DRIVER_WITH_COPY_ENGINES = 12050 };

static const char *const FUNCTION[] = {
    [ALL_GATHER] = "ncclAllGather",
    [ALL_REDUCE] = "ncclAllReduce",
    [BROADCAST] = "ncclBroadcast",
    [REDUCE] = "ncclReduce",
    [REDUCE_SCATTER] = "ncclReduceScatter",
    [MESSAGE] = "ncclSend",
};

static const struct {
    const char *name;
    size_t size;
} TYPE[ncclNumTypes] = {
    [ncclInt8] = {"int8", 1},
    [ncclUint8] = {"uint8", 1},
    [ncclInt32] = {"int32", 4},
    [ncclUint32] = {"uint32", 4},
    [ncclInt64] = {"int64", 8},
    [ncclUint64] = {"uint64", 8},
    [ncclFloat16] = {"float16", 2},
    [ncclFloat32] = {"float32", 4},
    [ncclFloat64] = {"float64", 8},
    [ncclBfloat16] = {"bfloat16", 2},
    [ncclFloat8e4m3] = {"float8e4m3", 1},
    [ncclFloat8e5m2] = {"float8e5m2", 1},
};

const char *launch_function(uint32_t kind)
{
    return FUNCTION[kind];
}

const char *launch_type(uint32_t type)
{
    return TYPE[type].name;
}

size_t launch_type_size(uint32_t type)
{
    return TYPE[type].size;
}

static bool is_reducing(uint32_t kind)
{
    return kind == ALL_REDUCE || kind == REDUCE || kind == REDUCE_SCATTER;
}

static ncclResult_t check_arguments(const struct operation *operation, const char *function)
{
    const struct signature *signature = &operation->signature;
    uint32_t root = signature->kind == MESSAGE ? (uint32_t)operation->peer : signature->root;
    if (root >= (uint32_t)operation->comm->ranks)
        return nccl_warn(ncclInvalidArgument,
            "%s : invalid root %d (root should be in the 0..%d range)", function, (int)root,
            operation->comm->ranks);
    if (signature->type >= ncclNumTypes)
        return nccl_warn(
            ncclInvalidArgument, "%s : invalid type %d", function, (int)signature->type);
    if (!is_reducing(signature->kind))
        return ncclSuccess;
    if (signature->reduction >= ncclNumOps)
        return nccl_warn(ncclInvalidArgument, "%s : invalid reduction operation %d", function,
            (int)signature->reduction);
    if (!reduce_is_simulated(signature->type, signature->reduction))
        return nccl_warn(ncclInvalidArgument, "%s : reduction of %s is not simulated", function,
            launch_type(signature->type));
    return ncclSuccess;
}

/* In place is exactly the rank's own part; NCCL does not look, and overwrites what it still needs.
 */
static void check_overlap(const struct operation *operation, const char *function)
{
    const struct ncclComm *comm = operation->comm;
    const char *send = operation->send, *receive = operation->receive;
    uint64_t ranks = (uint64_t)comm->ranks, bytes = operation->bytes;
    uint32_t kind = operation->signature.kind;
    uint64_t send_bytes = kind == REDUCE_SCATTER ? bytes * ranks : bytes;
    uint64_t receive_bytes = kind == ALL_GATHER ? bytes * ranks : bytes;
    uint64_t own = (uint64_t)comm->rank * bytes;
    if (send == NULL || receive == NULL || send >= receive + receive_bytes ||
        receive >= send + send_bytes)
        return;
    if (kind == ALL_GATHER ? send == receive + own
                           : receive == send + (kind == REDUCE_SCATTER ? own : 0))
        return;
    cudasim_fault("%s: rank %d of %s: sendbuff %p overlaps recvbuff %p without being in place",
        function, comm->rank, comm_name(comm), (const void *)send, (const void *)receive);
}

static void check_buffers(const struct operation *operation, const char *function)
{
    const struct ncclComm *comm = operation->comm;
    uint64_t ranks = (uint64_t)comm->ranks, bytes = operation->bytes;
    uint32_t kind = operation->signature.kind;
    bool is_root = operation->signature.root == (uint32_t)comm->rank;
    if (kind == MESSAGE ? !operation->is_receiving : kind != BROADCAST || is_root)
        memory_check(comm, function, "sendbuff", operation->send,
            kind == REDUCE_SCATTER ? bytes * ranks : bytes);
    if (kind == MESSAGE ? operation->is_receiving : kind != REDUCE || is_root)
        memory_check(comm, function, "recvbuff", operation->receive,
            kind == ALL_GATHER ? bytes * ranks : bytes);
    if (kind == MESSAGE || ((kind == BROADCAST || kind == REDUCE) && !is_root))
        return;
    check_overlap(operation, function);
}

static void check_stream(const struct operation *operation, const char *function)
{
    const struct ncclComm *comm = operation->comm;
    if ((uintptr_t)operation->stream <= 2) /* the default streams; cudasim_enqueue refuses them */
        return;
    int device = cudasim_stream_device(operation->stream);
    if (device != comm->device)
        cudasim_fault("%s: rank %d of %s is on device %d, and the stream on device %d", function,
            comm->rank, comm_name(comm), comm->device, device);
}

/* NCCL says nowhere which way it took: it silently uses a kernel if any of this is missing. */
static void choose_path(struct operation *operation)
{
    const struct ncclComm *comm = operation->comm;
    const struct ncclWindow_vidmem *send = window_find(comm, operation->send);
    const struct ncclWindow_vidmem *receive = window_find(comm, operation->receive);
    int driver = 0;
    if (operation->signature.kind != ALL_GATHER || comm->ranks == 1 || send == NULL ||
        receive == NULL || !(send->flags & receive->flags & NCCL_WIN_COLL_SYMMETRIC) ||
        comm->config.CTAPolicy != NCCL_CTA_POLICY_ZERO ||
        cudaDriverGetVersion(&driver) != cudaSuccess || driver < DRIVER_WITH_COPY_ENGINES)
        return;
    operation->signature.copy_engine = 1;
    operation->signature.window_offset = (uint64_t)(operation->receive - receive->buffer);
}

static ncclResult_t add(const struct operation *request, const char *function)
{
    struct ncclComm *comm = request->comm;
    ncclResult_t result = comm_ready(comm);
    if (result == ncclSuccess && comm->life == COMM_REVOKED)
        result = nccl_warn(ncclInvalidUsage, "%s: communicator was revoked", function);
    if (result == ncclSuccess)
        result = check_arguments(request, function);
    if (result != ncclSuccess)
        return result;
    if (comm->life == COMM_FINALIZED)
        cudasim_fault("%s: rank %d of %s is used after ncclCommFinalize", function, comm->rank,
            comm_name(comm));
    order_call(comm, function);
    struct operation *operation = malloc(sizeof(*operation));
    if (operation == NULL)
        return ncclSystemError;
    *operation = *request;
    operation->bytes = operation->signature.count * launch_type_size(operation->signature.type);
    if (operation->bytes > 0) {
        check_buffers(operation, function);
        check_stream(operation, function);
        choose_path(operation);
    }
    return group_add((struct job){.kind = JOB_LAUNCH, .comm = comm, .operation = operation});
}

static ncclResult_t launch(struct operation request, const char *function)
{
    struct ncclComm *comm = request.comm;
    ncclResult_t result = comm_check(comm, function);
    if (result != ncclSuccess)
        return result;
    group_begin();
    result = group_error(add(&request, function));
    ncclResult_t ended = group_end();
    return result != ncclSuccess ? result : ended;
}

void launch_begin(struct operation *operation)
{
    if (operation->bytes == 0)
        return;
    operation->is_begun = true;
    cudasim_collective_begin(operation->comm->device);
}

void launch_drop(struct operation *operation)
{
    while (operation != NULL) {
        struct operation *fused = operation->fused;
        if (operation->is_begun)
            cudasim_collective_end(operation->comm->device);
        free(operation);
        operation = fused;
    }
}

static void count(const struct operation *operation)
{
    uint32_t kind = operation->signature.kind;
    cudasim_count(kind == ALL_GATHER   ? CUDASIM_ALL_GATHERS
                  : kind == ALL_REDUCE ? CUDASIM_ALL_REDUCES
                                       : CUDASIM_OTHER_COLLECTIVES,
        1);
    if (operation->comm->ranks > 1)
        cudasim_count(operation->signature.copy_engine ? CUDASIM_COPY_ENGINE_COLLECTIVES
                                                       : CUDASIM_SM_COLLECTIVES,
            1);
}

/* Each message has a number of its own between its two ranks. */
static struct operation *number_messages(struct operation *operation)
{
    struct operation *first = NULL, **last = &first;
    while (operation != NULL) {
        struct operation *next = operation->fused;
        struct ncclComm *comm = operation->comm;
        operation->fused = NULL;
        if (operation->bytes == 0) {
            launch_drop(operation);
        } else {
            uint64_t *numbers = operation->is_receiving ? comm->received : comm->sent;
            operation->number = ++numbers[operation->peer];
            *last = operation;
            last = &operation->fused;
        }
        operation = next;
    }
    return first;
}

ncclResult_t launch_queue(struct operation *operation)
{
    struct ncclComm *comm = operation->comm;
    bool is_message = operation->signature.kind == MESSAGE;
    if (is_message)
        operation = number_messages(operation);
    else
        order_launch(comm, &operation->signature);
    if (operation == NULL)
        return ncclSuccess;
    if (operation->bytes == 0) {
        launch_drop(operation);
        return ncclSuccess;
    }
    if (!is_message)
        operation->number = ++comm->collectives;
    operation->ticket = ++comm->tickets;
    count(operation);
    pthread_mutex_lock(&comm->lock);
    comm->pending++;
    comm->queued++;
    pthread_mutex_unlock(&comm->lock);
    int status = (int)cudasim_enqueue(operation->stream, launch_function(operation->signature.kind),
        is_message ? message_run : collective_run, operation);
    if (status != 0)
        operation_end(operation);
    return nccl_from_cuda(status, "the launch on a stream");
}

/* ---- the API ---- */

ncclResult_t ncclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount,
    ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream)
{
    struct signature signature = {.kind = ALL_GATHER, .type = datatype, .count = sendcount};
    return launch((struct operation){.comm = comm,
                      .signature = signature,
                      .send = sendbuff,
                      .receive = recvbuff,
                      .stream = stream},
        __func__);
}

ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count_,
    ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    struct signature signature = {
        .kind = ALL_REDUCE, .type = datatype, .reduction = op, .count = count_};
    return launch((struct operation){.comm = comm,
                      .signature = signature,
                      .send = sendbuff,
                      .receive = recvbuff,
                      .stream = stream},
        __func__);
}

ncclResult_t ncclBroadcast(const void *sendbuff, void *recvbuff, size_t count_,
    ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream)
{
    struct signature signature = {
        .kind = BROADCAST, .type = datatype, .root = (uint32_t)root, .count = count_};
    return launch((struct operation){.comm = comm,
                      .signature = signature,
                      .send = sendbuff,
                      .receive = recvbuff,
                      .stream = stream},
        __func__);
}

ncclResult_t ncclReduce(const void *sendbuff, void *recvbuff, size_t count_,
    ncclDataType_t datatype, ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)
{
    struct signature signature = {
        .kind = REDUCE, .type = datatype, .reduction = op, .root = (uint32_t)root, .count = count_};
    return launch((struct operation){.comm = comm,
                      .signature = signature,
                      .send = sendbuff,
                      .receive = recvbuff,
                      .stream = stream},
        __func__);
}

ncclResult_t ncclReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount,
    ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    struct signature signature = {
        .kind = REDUCE_SCATTER, .type = datatype, .reduction = op, .count = recvcount};
    return launch((struct operation){.comm = comm,
                      .signature = signature,
                      .send = sendbuff,
                      .receive = recvbuff,
                      .stream = stream},
        __func__);
}

ncclResult_t ncclSend(const void *sendbuff, size_t count_, ncclDataType_t datatype, int peer,
    ncclComm_t comm, cudaStream_t stream)
{
    struct signature signature = {.kind = MESSAGE, .type = datatype, .count = count_};
    return launch(
        (struct operation){
            .comm = comm, .signature = signature, .peer = peer, .send = sendbuff, .stream = stream},
        __func__);
}

ncclResult_t ncclRecv(void *recvbuff, size_t count_, ncclDataType_t datatype, int peer,
    ncclComm_t comm, cudaStream_t stream)
{
    struct signature signature = {.kind = MESSAGE, .type = datatype, .count = count_};
    return launch((struct operation){.comm = comm,
                      .signature = signature,
                      .peer = peer,
                      .is_receiving = true,
                      .receive = recvbuff,
                      .stream = stream},
        __func__);
}
