/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How clients come into groups, and how groups end: see session.h. A join that meets a broken
 * group whose last work still runs waits until that is over. If nobody is left in that group by
 * then, it ends, and the join makes another: of any world size, for one.
 */
#include "daemon/session_private.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "protocol.h"

/* What a client wants, from a message or from its own waiting. */
struct entry {
    const char *name; /* borrowed: the group's */
    uint32_t rank, world_size;
    bool rejoin;
    struct collective_span span;
};

/* What it says of hosts, as far as it is wrong in itself. */
static int check_span(const F8__Join *join, struct reason *reason)
{
    if (join->unique_id.len == 0)
        return F8_OK;
    if (join->unique_id.len != F8_PROTO_UNIQUE_ID_SIZE)
        return reason_set(reason, F8_EINVAL, "group %s: a unique id has %d bytes, not %zu",
            join->group, F8_PROTO_UNIQUE_ID_SIZE, join->unique_id.len);
    if (join->local_ranks < 1 || join->local_ranks > join->world_size)
        return reason_set(reason, F8_EINVAL,
            "group %s: %u local ranks are not from 1 to the world size %u", join->group,
            join->local_ranks, join->world_size);
    return F8_OK;
}

static int check_join(const struct session *session, const F8__Join *join, struct reason *reason)
{
    const struct config *config = registry_config(session->context->registry);
    if (session->waits_for)
        return reason_set(reason, F8_EORDER, "a join of this client is under way");
    int status = session_check_name("group", join->group, reason);
    if (status < 0)
        return status;
    if (join->world_size < 1 || join->world_size > config->max_ranks)
        return reason_set(reason, F8_EINVAL,
            "group %s: world size %u is not from 1 to %u (--max-ranks)", join->group,
            join->world_size, config->max_ranks);
    if (join->rank >= join->world_size)
        return reason_set(reason, F8_EINVAL, "group %s: rank %u is not below the world size %u",
            join->group, join->rank, join->world_size);
    return check_span(join, reason);
}

/* Any member, to name who is in the group. */
static const struct member *some_member(const struct group *group)
{
    for (uint32_t r = 0; r < group->world_size; r++)
        if (group->members[r])
            return group->members[r];
    return NULL;
}

static int check_world_size(
    const struct group *group, const struct entry *entry, struct reason *reason)
{
    const struct member *other = some_member(group);
    if (group->world_size == entry->world_size)
        return F8_OK;
    return reason_set(reason, F8_EMISMATCH,
        "rank %u gave world size %u for group %s, which rank %u (pid %u) joined with %u",
        entry->rank, entry->world_size, group->name, other ? other->rank : 0,
        other ? other->pid : 0, group->world_size);
}

static int check_rejoin(const struct session *session, const struct group *group,
    const struct entry *entry, struct reason *reason)
{
    const struct member *member = group_member_for(group, session);
    if (!member || member->rank != entry->rank)
        return reason_set(reason, F8_EORDER,
            "this client is not rank %u of group %s: join it first", entry->rank, group->name);
    if (group->state != GROUP_BROKEN && member->generation == group->generation)
        return reason_set(
            reason, F8_EORDER, "group %s is not broken: it need not be rejoined", group->name);
    return F8_OK;
}

static int check_new(const struct session *session, const struct group *group,
    const struct entry *entry, struct reason *reason)
{
    const struct member *holder = group->members[entry->rank];
    const struct config *config = registry_config(session->context->registry);
    const struct member *member = group_member_for(group, session);
    if (member)
        return reason_set(reason, F8_EORDER, "this client is rank %u of group %s already",
            member->rank, group->name);
    if (session->num_members >= config->max_groups)
        return reason_set(reason, F8_ELIMIT,
            "group %s is one more than the limit of %u groups of one client (--max-groups)",
            group->name, config->max_groups);
    if (holder)
        return reason_set(reason, F8_EEXIST, "rank %u of group %s is held by pid %u", entry->rank,
            group->name, holder->pid);
    return F8_OK;
}

static int wait_for_drain(struct session *session, struct group *group, const struct entry *entry,
    uint64_t id, struct reason *reason)
{
    session->join_name = strdup(entry->name);
    if (!session->join_name)
        return reason_set(reason, F8_ENOMEM, "out of memory joining group %s", entry->name);
    session->waits_for = group;
    session->join_id = id;
    session->join_rank = entry->rank;
    session->join_world_size = entry->world_size;
    session->rejoining = entry->rejoin;
    session->join_local_ranks = entry->span.local_ranks;
    session->join_has_id = entry->span.id != NULL;
    if (entry->span.id)
        memcpy(session->join_unique_id, entry->span.id, sizeof(session->join_unique_id));
    session->next_waiting = group->waiting;
    group->waiting = session;
    return SESSION_PENDING;
}

void session_stop_waiting(struct session *session)
{
    struct session *first = session->waits_for->waiting;
    if (first == session) {
        session->waits_for->waiting = session->next_waiting;
    } else {
        while (first->next_waiting != session)
            first = first->next_waiting;
        first->next_waiting = session->next_waiting;
    }
    session->waits_for = NULL;
    free(session->join_name);
    session->join_name = NULL;
}

/* Frees a group that nobody is in, waits for, or works for. */
static void reap(struct group *group)
{
    collective_free(group);
    registry_free_group(group);
}

/* Makes the client a member that takes part. */
static int seat(struct session *session, struct group *group, uint32_t rank)
{
    struct member *member = group_add_member(group, rank, session->peer.pid, session);
    if (!member)
        return F8_ENOMEM;
    int status = collective_enter(member);
    if (status < 0) {
        group_remove_member(member);
        return status;
    }
    member->device = session->device ? device_ref(session->device) : NULL;
    member->sibling = session->members;
    session->members = member;
    session->num_members++;
    return F8_OK;
}

static int enter(struct session *session, struct group *group, const struct entry *entry,
    uint64_t id, struct answer *answer)
{
    struct reason *reason = &answer->reason;
    int status = entry->rejoin ? check_rejoin(session, group, entry, reason)
                               : check_new(session, group, entry, reason);
    if (status < 0)
        return status;
    if (!collective_is_open(group))
        return wait_for_drain(session, group, entry, id, reason);
    status = collective_set_span(group, entry->rank, entry->rejoin, &entry->span, reason);
    if (status < 0)
        return status;
    status = entry->rejoin ? collective_enter(group->members[entry->rank])
                           : seat(session, group, entry->rank);
    if (status < 0)
        return reason_set(reason, status, "out of memory joining group %s", group->name);
    F8__JoinReply *reply = &answer->body.join;
    f8__join_reply__init(reply);
    reply->group = group->id;
    reply->generation = group->generation;
    answer->reply.body_case = F8__REPLY__BODY_JOIN;
    answer->reply.join = reply;
    return F8_OK;
}

static int make_group(struct session *session, const struct entry *entry, struct group **ret_group,
    struct reason *reason)
{
    struct group *group = registry_add_group(session->job, entry->name, entry->world_size);
    if (group && collective_new(&session->context->collective, group) < 0) {
        registry_free_group(group);
        group = NULL;
    }
    if (!group)
        return reason_set(reason, F8_ENOMEM, "out of memory making group %s", entry->name);
    *ret_group = group;
    return F8_OK;
}

static int find_and_enter(
    struct session *session, const struct entry *entry, uint64_t id, struct answer *answer)
{
    struct group *group = registry_find_group(session->job, entry->name);
    bool made = !group;
    if (session->context->draining)
        return reason_set(&answer->reason, F8_ECONN,
            "group %s: f8gatherd was told to end, nobody joins any more", entry->name);
    /* A group without members is there only until its last work has ended. */
    if (group && !entry->rejoin && group_is_empty(group))
        return wait_for_drain(session, group, entry, id, &answer->reason);
    int status = made ? make_group(session, entry, &group, &answer->reason)
                      : check_world_size(group, entry, &answer->reason);
    if (status < 0)
        return status;
    status = enter(session, group, entry, id, answer);
    if (made && status < 0)
        reap(group);
    return status;
}

int session_join(struct session *session, const struct incoming *incoming, struct answer *answer)
{
    const F8__Join *join = incoming->request->join;
    const struct entry entry = {.name = join->group,
        .rank = join->rank,
        .world_size = join->world_size,
        .rejoin = join->rejoin,
        .span = {.id = join->unique_id.len > 0 ? join->unique_id.data : NULL,
            .local_ranks = join->local_ranks}};
    int status = check_join(session, join, &answer->reason);
    return status < 0 ? status : find_and_enter(session, &entry, incoming->request->id, answer);
}

/* Of a session that waits for nothing any more; `name` is freed. */
static void retry_join(struct session *session, char *name)
{
    const struct entry entry = {.name = name,
        .rank = session->join_rank,
        .world_size = session->join_world_size,
        .rejoin = session->rejoining,
        .span = {.id = session->join_has_id ? session->join_unique_id : NULL,
            .local_ranks = session->join_local_ranks}};
    struct answer answer;
    answer_begin(&answer, session->join_id);
    int status = find_and_enter(session, &entry, session->join_id, &answer);
    assert(status != SESSION_PENDING);
    answer_send(session, &answer, status);
    free(name);
}

/* Upward from collective: nothing of the broken or empty group runs any more. */
static void drained(struct group *group)
{
    struct session *next = group->waiting;
    group->waiting = NULL;
    if (group_is_empty(group))
        reap(group);
    while (next) {
        struct session *session = next;
        char *name = session->join_name;
        next = session->next_waiting;
        session->waits_for = NULL;
        session->join_name = NULL;
        retry_join(session, name);
    }
}

const struct collective_listener session_listener = {
    .done = session_answer_collective,
    .drained = drained,
};
