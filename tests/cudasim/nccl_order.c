/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strict checks of who launches what, when. NCCL hangs, or returns garbage, if ranks disagree about
 * the order, the kind or the size of their collectives; here each launch is compared with what the
 * other ranks recorded, so that the second of two that disagree is a fault, whatever runs first.
 */
#include <stdio.h>
#include <string.h>

#include "nccl_comm.h"

static bool is_live(const struct ncclComm *comm)
{
    return comm->life == COMM_LIVE && comm->segment != NULL && !comm->aborted;
}

static bool is_of_thread(const struct ncclComm *comm)
{
    return comm->is_used && pthread_equal(comm->thread, pthread_self());
}

/* By comms_lock. */
static void check_neighbour(
    const struct ncclComm *comm, const struct ncclComm *other, const char *function)
{
    if (other->device == comm->device && other->launching)
        cudasim_fault("%s: rank %d of %s, while an earlier launch on device %d is still "
                      "ncclInProgress: which comes first is left to chance",
            function, comm->rank, comm_name(comm), comm->device);
    if (other->device == comm->device && other->is_used && !is_of_thread(other))
        cudasim_fault("%s: rank %d of %s is launched by another thread than another communicator "
                      "of device %d: which comes first is left to chance",
            function, comm->rank, comm_name(comm), comm->device);
    if (other->clique == comm->clique && is_of_thread(other) && !group_is_explicit())
        cudasim_fault("%s: one thread launches rank %d and rank %d of %s outside of a group",
            function, other->rank, comm->rank, comm_name(comm));
}

void order_call(struct ncclComm *comm, const char *function)
{
    pthread_mutex_lock(&comms_lock);
    if (comm->is_used && !is_of_thread(comm))
        cudasim_fault(
            "%s: rank %d of %s is launched by two threads", function, comm->rank, comm_name(comm));
    for (const struct ncclComm *other = comms; other != NULL; other = other->next)
        if (other != comm && is_live(other))
            check_neighbour(comm, other, function);
    comm->is_used = true;
    comm->thread = pthread_self();
    pthread_mutex_unlock(&comms_lock);
}

void order_group(struct ncclComm *comm)
{
    pthread_mutex_lock(&comms_lock);
    for (const struct ncclComm *other = comms; other != NULL; other = other->next)
        if (is_live(other) && other->clique == comm->clique && other->is_used &&
            pthread_equal(other->thread, comm->thread) && other->launches != comm->launches)
            cudasim_fault("a group launches rank %d of %s without rank %d of the same thread: "
                          "%lu and %lu collectives so far",
                comm->rank, comm_name(comm), other->rank, (unsigned long)comm->launches,
                (unsigned long)other->launches);
    pthread_mutex_unlock(&comms_lock);
}

void order_quiet(const struct ncclComm *comm, const char *function)
{
    pthread_mutex_lock(&comms_lock);
    for (struct ncclComm *other = comms; other != NULL; other = other->next) {
        if (other->device != comm->device)
            continue;
        pthread_mutex_lock(&other->lock);
        unsigned queued = other->queued;
        pthread_mutex_unlock(&other->lock);
        if (queued > 0)
            cudasim_fault("%s on device %d, where %u operations of %s are queued", function,
                comm->device, queued, comm_name(other));
    }
    pthread_mutex_unlock(&comms_lock);
}

/* ---- comparison between ranks ---- */

static const char *describe(const struct signature *signature, char text[160])
{
    static const char *const REDUCTION[] = {"sum", "prod", "max", "min", "avg"};
    int used = snprintf(text, 160, "%s of %lu %s", launch_function(signature->kind),
        (unsigned long)signature->count, launch_type(signature->type));
    if (signature->kind == ALL_REDUCE || signature->kind == REDUCE ||
        signature->kind == REDUCE_SCATTER)
        used += snprintf(text + used, 160 - (size_t)used, ", %s", REDUCTION[signature->reduction]);
    if (signature->kind == BROADCAST || signature->kind == REDUCE)
        used += snprintf(text + used, 160 - (size_t)used, ", root %u", signature->root);
    if (signature->copy_engine)
        snprintf(text + used, 160 - (size_t)used, " by copy engines, %lu bytes into the window",
            (unsigned long)signature->window_offset);
    return text;
}

void order_compare(const struct ncclComm *comm, const char *what, uint64_t number,
    const struct signature *mine, int peer, const struct signature *theirs)
{
    bool is_first = comm->rank < peer;
    char text[2][160];
    if (memcmp(mine, theirs, sizeof(*mine)) == 0)
        return;
    cudasim_fault("%s %lu of %s is %s on rank %d and %s on rank %d", what, (unsigned long)number,
        comm_name(comm), describe(is_first ? mine : theirs, text[0]), is_first ? comm->rank : peer,
        describe(is_first ? theirs : mine, text[1]), is_first ? peer : comm->rank);
}

/* What else was launched on this device; by comms_lock. More than fit are not compared. */
static uint32_t take_orders(const struct ncclComm *comm, struct launch_order *ret_order)
{
    uint32_t orders = 0;
    for (const struct ncclComm *other = comms; other != NULL && orders < SEGMENT_ORDERS;
         other = other->next)
        if (other != comm && other->device == comm->device && is_live(other))
            ret_order[orders++] = (struct launch_order){other->clique, other->launches};
    return orders;
}

static void compare_orders(const struct ncclComm *comm, const struct launch_record *mine, int peer,
    const struct launch_record *theirs)
{
    for (uint32_t i = 0; i < mine->orders; i++)
        for (uint32_t k = 0; k < theirs->orders && k < SEGMENT_ORDERS; k++)
            if (mine->order[i].clique == theirs->order[k].clique &&
                mine->order[i].launches != theirs->order[k].launches)
                cudasim_fault("the order of communicators differs between devices: collective %lu "
                              "of %s comes after %lu of communicator %016lx on rank %d (device %d) "
                              "and after %lu on rank %d (device %d)",
                    (unsigned long)mine->number, comm_name(comm),
                    (unsigned long)mine->order[i].launches, (unsigned long)mine->order[i].clique,
                    comm->rank, comm->device, (unsigned long)theirs->order[k].launches, peer,
                    comm->segment->member[peer].device);
}

void order_launch(struct ncclComm *comm, const struct signature *signature)
{
    struct member *members = comm->segment->member;
    pthread_mutex_lock(&comms_lock);
    uint64_t number = ++comm->launches;
    struct launch_record *mine = &members[comm->rank].launch[number % SEGMENT_LAUNCHES];
    mine->number = 0;
    mine->signature = *signature;
    mine->orders = take_orders(comm, mine->order);
    mine->number = number; /* from now on one of two that disagree sees the other */
    for (int peer = 0; peer < comm->ranks; peer++) {
        const struct launch_record *record = &members[peer].launch[number % SEGMENT_LAUNCHES];
        struct launch_record theirs;
        if (peer == comm->rank || record->number != number)
            continue;
        theirs.signature = record->signature;
        theirs.orders = record->orders;
        memcpy(theirs.order, record->order, sizeof(theirs.order));
        if (record->number != number)
            continue; /* the peer is far ahead and writes this record anew */
        order_compare(comm, "collective", number, signature, peer, &theirs.signature);
        compare_orders(comm, mine, peer, &theirs);
    }
    pthread_mutex_unlock(&comms_lock);
}
