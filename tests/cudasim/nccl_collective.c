/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A collective on its stream: publish where the own data is, wait until all ranks have, read
 * theirs, and stay until all have read. A missing or dead rank leaves the others waiting, as their
 * kernels would spin, until their communicator is aborted; then the stream goes on. On streams'
 * workers.
 */
#include <stdlib.h>
#include <string.h>

#include "nccl_comm.h"

enum { CHUNK = 64 * 1024 };

bool operation_begin(struct operation *operation)
{
    struct ncclComm *comm = operation->comm;
    pthread_mutex_lock(&comm->lock);
    while (comm->tickets_done + 1 < operation->ticket && !comm->aborted)
        pthread_cond_wait(&comm->changed, &comm->lock);
    pthread_mutex_unlock(&comm->lock);
    return !comm->aborted;
}

void operation_end(struct operation *operation)
{
    struct ncclComm *comm = operation->comm;
    uint64_t ticket = operation->ticket;
    launch_drop(operation);
    pthread_mutex_lock(&comm->lock);
    if (comm->tickets_done < ticket)
        comm->tickets_done = ticket;
    comm->queued--;
    comm->pending--;
    pthread_cond_broadcast(&comm->changed);
    pthread_mutex_unlock(&comm->lock);
}

enum point { PUBLISHED, TAKEN };

static bool all_reached(const struct ncclComm *comm, enum point point, uint64_t number)
{
    for (int rank = 0; rank < comm->ranks; rank++) {
        const struct meeting *meeting = &comm->segment->member[rank].meeting;
        if ((point == PUBLISHED ? meeting->published : meeting->taken) < number)
            return false;
    }
    return true;
}

/* False if the communicator was aborted. */
static bool wait_for_all(struct ncclComm *comm, enum point point, uint64_t number)
{
    for (;;) {
        uint32_t generation = comm->segment->generation;
        if (comm->aborted)
            return false;
        if (all_reached(comm, point, number))
            return true;
        segment_wait(comm->segment, generation);
    }
}

static bool meet(struct operation *operation)
{
    struct ncclComm *comm = operation->comm;
    struct meeting *mine = &comm->segment->member[comm->rank].meeting;
    uint32_t kind = operation->signature.kind;
    mine->signature = operation->signature;
    mine->memory.pieces = 0;
    if (kind != BROADCAST || operation->signature.root == (uint32_t)comm->rank)
        memory_describe(operation, "sendbuff", operation->send,
            kind == REDUCE_SCATTER ? operation->bytes * (uint64_t)comm->ranks : operation->bytes,
            &mine->memory);
    mine->published = operation->number;
    segment_wake(comm->segment);
    if (!wait_for_all(comm, PUBLISHED, operation->number))
        return false;
    for (int rank = 0; rank < comm->ranks; rank++)
        if (rank != comm->rank)
            order_compare(comm, "collective", operation->number, &operation->signature, rank,
                &comm->segment->member[rank].meeting.signature);
    return true;
}

/* A rank that dies while it is read is like one that never comes: false after the abort. */
static bool wait_for_abort(struct ncclComm *comm)
{
    while (!comm->aborted)
        segment_wait(comm->segment, comm->segment->generation);
    return false;
}

static bool take_part(struct operation *operation, int rank, char *to)
{
    struct ncclComm *comm = operation->comm;
    if (rank == comm->rank && to == operation->send)
        return true;
    const struct segment_memory *memory = &comm->segment->member[rank].meeting.memory;
    return memory_read(comm, rank, memory, 0, to, operation->bytes) || wait_for_abort(comm);
}

static bool gather(struct operation *operation)
{
    struct ncclComm *comm = operation->comm;
    uint64_t bytes = operation->bytes;
    cudasim_allow(operation->receive, bytes * (uint64_t)comm->ranks, true);
    for (int rank = 0; rank < comm->ranks; rank++)
        if (!take_part(operation, rank, operation->receive + (uint64_t)rank * bytes))
            return false;
    return true;
}

static bool broadcast(struct operation *operation)
{
    cudasim_allow(operation->receive, operation->bytes, true);
    return take_part(operation, (int)operation->signature.root, operation->receive);
}

/* All ranks' elements of one chunk, reduced into `into`. */
static bool reduce_chunk(
    struct operation *operation, uint64_t offset, char *into, char *spare, uint64_t bytes)
{
    struct ncclComm *comm = operation->comm;
    const struct signature *signature = &operation->signature;
    uint64_t count = bytes / launch_type_size(signature->type);
    for (int rank = 0; rank < comm->ranks; rank++) {
        char *to = rank == 0 ? into : spare;
        const struct segment_memory *memory = &comm->segment->member[rank].meeting.memory;
        if (!memory_read(comm, rank, memory, offset, to, bytes))
            return wait_for_abort(comm);
        if (rank > 0)
            reduce_add(signature->type, signature->reduction, into, spare, count);
    }
    reduce_end(signature->type, signature->reduction, into, count, comm->ranks);
    return true;
}

/* Into memory of the host: the buffers may be in place, and others still read them. */
static bool reduce(struct operation *operation, char *result)
{
    uint64_t bytes = operation->bytes;
    uint64_t first =
        operation->signature.kind == REDUCE_SCATTER ? bytes * (uint64_t)operation->comm->rank : 0;
    char *spare = malloc(CHUNK);
    bool is_done = spare != NULL;
    for (uint64_t at = 0; at < bytes && is_done; at += CHUNK)
        is_done = reduce_chunk(
            operation, first + at, result + at, spare, bytes - at < CHUNK ? bytes - at : CHUNK);
    free(spare);
    return is_done;
}

static bool leave(struct operation *operation)
{
    struct ncclComm *comm = operation->comm;
    comm->segment->member[comm->rank].meeting.taken = operation->number;
    segment_wake(comm->segment);
    return wait_for_all(comm, TAKEN, operation->number);
}

static void run_reduction(struct operation *operation)
{
    const struct ncclComm *comm = operation->comm;
    const struct signature *signature = &operation->signature;
    bool is_wanted = signature->kind != REDUCE || signature->root == (uint32_t)comm->rank;
    char *result = is_wanted ? malloc(operation->bytes) : NULL;
    if (is_wanted && result == NULL)
        cudasim_fault("no memory for a reduction of %lu bytes", (unsigned long)operation->bytes);
    if ((!is_wanted || reduce(operation, result)) && leave(operation) && is_wanted) {
        cudasim_allow(operation->receive, operation->bytes, true);
        memcpy(operation->receive, result, operation->bytes);
    }
    free(result);
}

void collective_run(void *argument)
{
    struct operation *operation = argument;
    if (operation_begin(operation) && meet(operation)) {
        uint32_t kind = operation->signature.kind;
        if (kind != ALL_GATHER && kind != BROADCAST)
            run_reduction(operation);
        else if (kind == ALL_GATHER ? gather(operation) : broadcast(operation))
            leave(operation);
    }
    operation_end(operation);
}
