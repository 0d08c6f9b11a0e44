/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The collectives as clients ask for them: see session.h. Each carries its generation, so that
 * one that is late by a failure is told so, not mixed into the next.
 */
#include "daemon/session_private.h"

#include <inttypes.h>
#include <stdlib.h>

int session_generation(const struct session *session, uint32_t group, uint64_t generation,
    struct member **ret_member, struct reason *reason)
{
    int status = session_member(session, group, ret_member, reason);
    if (status < 0)
        return status;
    const struct member *member = *ret_member;
    if (member->generation == generation)
        return F8_OK;
    return reason_set(reason, F8_ESTALE,
        "generation %" PRIu64 " of group %s has passed: rank %u is in generation %" PRIu64,
        generation, member->group->name, member->rank, member->generation);
}

int session_seal(struct session *session, const struct incoming *incoming, struct answer *answer)
{
    const F8__Seal *seal = incoming->request->seal;
    struct member *member;
    int status =
        session_generation(session, seal->group, seal->generation, &member, &answer->reason);
    if (status < 0)
        return status;
    if (member->registering)
        return reason_set(&answer->reason, F8_EORDER,
            "rank %u asked for the seal in the middle of a registration", member->rank);
    if (session->adds_device)
        return reason_set(&answer->reason, F8_EORDER,
            "rank %u asked for the seal, but its device is still being added: wait for that before "
            "the seal",
            member->rank);
    if (seal->state > F8_PROTO_STATE_IMPORT)
        return reason_set(&answer->reason, F8_EINVAL,
            "the seal asks for state %u, known are 0 (fresh), 1 (continue) and 2 (import)",
            seal->state);
    struct collective_seal asked = {
        .deadline_ms = seal->deadline_ms,
        .options = {.slots = seal->slots,
            .poison = seal->poison,
            .state = (uint8_t)seal->state,
            .syncs = seal->syncs},
    };
    if (seal->state == F8_PROTO_STATE_IMPORT)
        status = session_read_import(session, incoming, member, &asked.options, &answer->reason);
    if (status < 0)
        return status;
    return collective_seal(member, incoming->request->id, &asked, &answer->reason);
}

/* A collective of the whole group: they differ in their kind only. */
static int of_group(struct session *session, const struct incoming *incoming,
    const F8__Precompute *message, enum round_kind kind, struct answer *answer)
{
    struct member *member;
    int status =
        session_generation(session, message->group, message->generation, &member, &answer->reason);
    if (status < 0)
        return status;
    return collective_of_group(member, kind, incoming->request->id,
        &(struct collective_request){.deadline_ms = message->deadline_ms, .ready = message->ready},
        &answer->reason);
}

int session_precompute(
    struct session *session, const struct incoming *incoming, struct answer *answer)
{
    return of_group(session, incoming, incoming->request->precompute, ROUND_PRECOMPUTE, answer);
}

int session_sync(struct session *session, const struct incoming *incoming, struct answer *answer)
{
    return of_group(session, incoming, incoming->request->sync, ROUND_SYNC, answer);
}

int session_invalidate(
    struct session *session, const struct incoming *incoming, struct answer *answer)
{
    return of_group(session, incoming, incoming->request->invalidate, ROUND_INVALIDATE, answer);
}

int session_pre_gather(
    struct session *session, const struct incoming *incoming, struct answer *answer)
{
    const F8__PreGather *pre_gather = incoming->request->pre_gather;
    struct member *member;
    int status = session_generation(
        session, pre_gather->group, pre_gather->generation, &member, &answer->reason);
    if (status < 0)
        return status;
    return collective_pre_gather(member, pre_gather->bucket, pre_gather->ready, &answer->reason);
}

int session_gather(struct session *session, const struct incoming *incoming, struct answer *answer)
{
    const F8__Gather *gather = incoming->request->gather;
    struct member *member;
    int status =
        session_generation(session, gather->group, gather->generation, &member, &answer->reason);
    if (status < 0)
        return status;
    return collective_gather(member, incoming->request->id, gather->bucket,
        &(struct collective_request){.deadline_ms = gather->deadline_ms, .ready = gather->ready},
        &answer->reason);
}

int session_release(struct session *session, const struct incoming *incoming, struct answer *answer)
{
    const F8__Release *release = incoming->request->release;
    struct member *member;
    int status =
        session_generation(session, release->group, release->generation, &member, &answer->reason);
    return status < 0 ? status : collective_release(member, release->bucket, release->ready);
}

int session_changed(struct session *session, const struct incoming *incoming, struct answer *answer)
{
    const F8__Changed *changed = incoming->request->changed;
    struct member *member;
    int status =
        session_generation(session, changed->group, changed->generation, &member, &answer->reason);
    if (status < 0)
        return status;
    return collective_changed(member, changed->first, changed->count, &answer->reason);
}

int session_quiesce(struct session *session, const struct incoming *incoming, struct answer *answer)
{
    const F8__Quiesce *quiesce = incoming->request->quiesce;
    struct member *member;
    int status =
        session_generation(session, quiesce->group, quiesce->generation, &member, &answer->reason);
    if (status < 0)
        return status;
    return collective_quiesce(member, incoming->request->id, &answer->reason);
}

static void fill_gather(
    const struct group *group, const struct round_run *run, struct answer *answer)
{
    F8__GatherReply *reply = &answer->body.gather;
    f8__gather_reply__init(reply);
    reply->offset = collective_place_offset(group, run->place);
    reply->use = run->number;
    reply->done = collective_done_event(group);
    answer->reply.body_case = F8__REPLY__BODY_GATHER;
    answer->reply.gather = reply;
}

static void fill_done(const struct group *group, struct answer *answer)
{
    f8__done_reply__init(&answer->body.done);
    answer->body.done.done = collective_done_event(group);
    answer->reply.body_case = F8__REPLY__BODY_DONE;
    answer->reply.done = &answer->body.done;
}

/* The arena as the member's device has it, and the events that tell when a place is written. */
static void fill_device_seal(const struct member *member, struct answer *answer)
{
    const struct arena_device *device = arena_on(member->group->arena, member->device->number);
    F8__SealReply *reply = &answer->body.seal;
    ProtobufCBinaryData *done = calloc(BACKEND_NUM_DONE, sizeof(*done));
    answer->fd = device->fd;
    answer->scratch = done;
    if (!done)
        return; /* the client refuses a reply without them */
    for (uint32_t i = 0; i < BACKEND_NUM_DONE; i++)
        done[i] =
            (ProtobufCBinaryData){.len = BACKEND_HANDLE_SIZE, .data = (uint8_t *)device->done[i]};
    reply->done = done;
    reply->n_done = BACKEND_NUM_DONE;
}

static void fill_seal(const struct member *member, struct answer *answer)
{
    const struct group *group = member->group;
    F8__SealReply *reply = &answer->body.seal;
    f8__seal_reply__init(reply);
    reply->arena_size = group->arena ? group->arena->size : 0;
    reply->syncs = group->syncs;
    answer->reply.body_case = F8__REPLY__BODY_SEAL;
    answer->reply.seal = reply;
    if (member->device)
        fill_device_seal(member, answer);
    else
        answer->fd = group->arena ? group->arena->fd : -1;
}

void session_answer_collective(
    struct member *member, uint64_t tag, int status, const struct round_run *run)
{
    const struct group *group = member->group;
    struct answer answer;
    answer_begin(&answer, tag);
    if (status < 0)
        answer.reason = group->cause;
    else if (run && run->kind == ROUND_GATHER)
        fill_gather(group, run, &answer);
    else if (run && run->kind == ROUND_SEAL)
        fill_seal(member, &answer);
    else if (run && run->kind == ROUND_PRECOMPUTE && member->device)
        fill_done(group, &answer);
    answer_send(member->session, &answer, status);
}
