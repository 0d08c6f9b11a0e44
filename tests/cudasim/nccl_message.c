/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sends and receives of one group and communicator, which progress together on one stream: a
 * mailbox for each pair of ranks holds one message at a time. On streams' workers.
 */
#include "nccl_comm.h"

enum step { WAITING, POSTED, DONE };

/* What a message can do now. A dead sender's message never comes. */
static enum step receive(struct operation *operation, struct meeting *mailbox)
{
    struct ncclComm *comm = operation->comm;
    if (mailbox->published < operation->number)
        return WAITING;
    order_compare(comm, "message", operation->number, &operation->signature, operation->peer,
        &mailbox->signature);
    cudasim_allow(operation->receive, operation->bytes, true);
    if (!memory_read(
            comm, operation->peer, &mailbox->memory, 0, operation->receive, operation->bytes))
        return WAITING;
    mailbox->taken = operation->number;
    segment_wake(comm->segment);
    return DONE;
}

static enum step post(struct operation *operation, struct meeting *mailbox)
{
    if (mailbox->taken + 1 < operation->number)
        return WAITING;
    mailbox->signature = operation->signature;
    memory_describe(operation, "sendbuff", operation->send, operation->bytes, &mailbox->memory);
    mailbox->published = operation->number;
    segment_wake(operation->comm->segment);
    return POSTED;
}

/* True once the message has arrived. */
static bool progress(struct operation *operation)
{
    struct ncclComm *comm = operation->comm;
    struct segment *segment = comm->segment;
    if (operation->is_receiving) {
        struct meeting *mailbox = &segment->mailbox[operation->peer][comm->rank];
        return mailbox->taken >= operation->number || receive(operation, mailbox) == DONE;
    }
    struct meeting *mailbox = &segment->mailbox[comm->rank][operation->peer];
    if (mailbox->published < operation->number)
        post(operation, mailbox);
    return mailbox->taken >= operation->number;
}

void message_run(void *argument)
{
    struct operation *operation = argument;
    struct ncclComm *comm = operation->comm;
    bool is_done = !operation_begin(operation);
    while (!is_done && !comm->aborted) {
        uint32_t generation = comm->segment->generation;
        is_done = true;
        for (struct operation *each = operation; each != NULL; each = each->fused)
            is_done = progress(each) && is_done;
        if (!is_done)
            segment_wait(comm->segment, generation);
    }
    operation_end(operation);
}
