/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What concerns the whole group: precompute and its tickets, changes of values, moves of shards,
 * quiesce. Any thread; the group's lock is never held over a wait or a send.
 */
#include <stdlib.h>

#include "client/error.h"
#include "client/group.h"

void group_abandon(struct f8_group *group, bool holding)
{
    struct channel *channel = group->client->channel;
    for (uint32_t i = 0; i < group->num_buckets; i++) {
        struct bucket *bucket = &group->buckets[i];
        channel_abandon(channel, bucket->pre_gather);
        channel_abandon(channel, bucket->gather);
        bucket->pre_gather = bucket->gather = 0;
        if (!holding || bucket->state != BUCKET_HELD)
            group_set_state(group, bucket, BUCKET_IDLE);
    }
    for (uint32_t i = 0; i < GROUP_MAX_TICKETS; i++) {
        channel_abandon(channel, group->tickets[i]);
        group->tickets[i] = 0;
        group_give_back(group, group->ready[i]);
        group->ready[i] = 0;
    }
    group->num_tickets = 0;
    group->num_reading = 0;
    channel_abandon(channel, group->seal);
    group->seal = 0;
    group_drop_slots(group);
}

/* A collective of the whole group. */
struct whole {
    const char *call; /* the public function's name */
    F8__Request__BodyCase body;
    bool reading; /* it reads shards */
};

static const struct whole precompute = {"f8_precompute", F8__REQUEST__BODY_PRECOMPUTE, true};
static const struct whole sync = {"f8_sync", F8__REQUEST__BODY_SYNC, false};
static const struct whole invalidate = {"f8_invalidate", F8__REQUEST__BODY_INVALIDATE, false};

/* Reserves a ticket, and an event if shards are read, if the collective may start now; lock held.
 */
static int begin_whole(
    struct f8_group *group, const struct whole *whole, int64_t deadline_ms, uint32_t *ret_ready)
{
    if (deadline_ms < 0)
        return error_set(F8_EINVAL, "%s: a deadline of %lld ms; give 0 for the default",
            whole->call, (long long)deadline_ms);
    int status = group_check_quiet(group, whole->call);
    if (status != F8_OK)
        return status;
    if (group->num_tickets == GROUP_MAX_TICKETS)
        return error_set(F8_ELIMIT, "%d tickets of group %s are open: call f8_wait first",
            GROUP_MAX_TICKETS, group->name);
    if (whole->reading)
        status = group_take_ready(group, ret_ready);
    if (status != F8_OK)
        return status;
    group->num_tickets++;
    group->num_reading += whole->reading;
    return F8_OK;
}

/* After sending: keeps the ticket, or gives its place back. */
static int end_whole(struct f8_group *group, const struct whole *whole, uint64_t generation,
    uint32_t ready, int status, uint64_t id)
{
    pthread_mutex_lock(&group->lock);
    if (group->generation != generation) {
        if (status == F8_OK)
            channel_abandon(group->client->channel, id);
        group_give_back(group, ready);
        status = error_set(F8_ESTALE, "group %s was re-joined meanwhile", group->name);
    } else if (status == F8_OK) {
        uint32_t place = 0;
        while (group->tickets[place] != 0)
            place++;
        group->tickets[place] = id;
        group->kinds[place] = whole;
        group->ready[place] = ready;
    } else {
        group_give_back(group, ready);
        group->num_tickets--;
        group->num_reading -= whole->reading;
    }
    pthread_mutex_unlock(&group->lock);
    return status;
}

static int start_whole(struct f8_group *group, const struct whole *whole, int64_t deadline_ms,
    void *stream, f8_ticket *ret_ticket)
{
    int status = client_check_stream(group->client, whole->call, stream);
    if (status == F8_OK)
        status = group_check_sources(group, whole->call);
    if (status == F8_OK)
        status = group_enter_sealed(group);
    if (status != F8_OK)
        return status;
    uint32_t ready = 0;
    status = begin_whole(group, whole, deadline_ms, &ready);
    uint64_t generation = group->generation;
    pthread_mutex_unlock(&group->lock);
    if (status != F8_OK)
        return status;
    F8__Precompute message = F8__PRECOMPUTE__INIT;
    message.group = group->id;
    message.generation = generation;
    message.deadline_ms = (uint64_t)deadline_ms;
    message.ready = ready;
    F8__Request request = F8__REQUEST__INIT;
    request.body_case = whole->body;
    request.precompute = &message; /* a union: all three have this form */
    uint64_t id = 0;
    status = group_record(group, ready, stream);
    if (status == F8_OK)
        status = channel_send(group->client->channel, &request, -1, &id);
    status = end_whole(group, whole, generation, ready, status, id);
    if (status == F8_OK)
        *ret_ticket = id;
    return status;
}

int f8_precompute(struct f8_group *group, int64_t deadline_ms, void *stream, f8_ticket *ret_ticket)
{
    GROUP_CALL(group, start_whole(group, &precompute, deadline_ms, stream, ret_ticket));
}

int f8_sync(struct f8_group *group, int64_t deadline_ms, f8_ticket *ret_ticket)
{
    GROUP_CALL(group, start_whole(group, &sync, deadline_ms, NULL, ret_ticket));
}

int f8_invalidate(struct f8_group *group, int64_t deadline_ms, f8_ticket *ret_ticket)
{
    GROUP_CALL(group, start_whole(group, &invalidate, deadline_ms, NULL, ret_ticket));
}

static uint64_t *find_ticket(struct f8_group *group, f8_ticket ticket)
{
    for (uint32_t i = 0; ticket != 0 && i < GROUP_MAX_TICKETS; i++)
        if (group->tickets[i] == ticket)
            return &group->tickets[i];
    return NULL;
}

static int no_ticket(const struct f8_group *group, f8_ticket ticket)
{
    return error_set(F8_ENOENT,
        "no collective of group %s has ticket %llu: it was waited for, or the group re-joined",
        group->name, (unsigned long long)ticket);
}

static int check_ticket(struct f8_group *group, f8_ticket ticket)
{
    int status = F8_OK;
    pthread_mutex_lock(&group->lock);
    if (!find_ticket(group, ticket))
        status = no_ticket(group, ticket);
    pthread_mutex_unlock(&group->lock);
    return status;
}

/* Gives the ticket's place back, if the group did not re-join meanwhile; lock held. */
static int end_ticket(
    struct f8_group *group, uint64_t *ticket, const struct channel_reply *reply, void *stream)
{
    if (!ticket)
        return reply->status;
    size_t place = (size_t)(ticket - group->tickets);
    const struct whole *whole = group->kinds[place];
    *ticket = 0;
    group_give_back(group, group->ready[place]);
    group->ready[place] = 0;
    group->num_tickets--;
    group->num_reading -= whole->reading;
    group->syncs += whole == &sync && reply->status == F8_OK;
    return reply->status == F8_OK ? group_wait_done(group, reply->done, stream) : reply->status;
}

static int wait_ticket(struct f8_group *group, f8_ticket ticket, int timeout_ms, void *stream)
{
    int status = check_ticket(group, ticket);
    if (status == F8_OK)
        status = client_check_stream(group->client, "f8_wait", stream);
    if (status != F8_OK)
        return status;
    struct channel_reply reply;
    status = channel_wait(group->client->channel, ticket, timeout_ms, &reply);
    if (status == F8_EDEADLINE || status == F8_EINTR)
        return status;
    if (status == F8_ENOENT)
        return no_ticket(group, ticket);
    pthread_mutex_lock(&group->lock);
    status = end_ticket(group, find_ticket(group, ticket), &reply, stream);
    pthread_mutex_unlock(&group->lock);
    return status;
}

int f8_wait(struct f8_group *group, f8_ticket ticket, int timeout_ms, void *stream)
{
    GROUP_CALL(group, wait_ticket(group, ticket, timeout_ms, stream));
}

static int test_ticket(struct f8_group *group, f8_ticket ticket, int *ret_done, void *stream)
{
    int status = group_check_broken(group);
    if (status != F8_OK) { /* all that was open is over */
        *ret_done = 1;
        return status;
    }
    status = check_ticket(group, ticket);
    if (status != F8_OK)
        return status;
    bool done = channel_test(group->client->channel, ticket);
    if (done)
        status = wait_ticket(group, ticket, 0, stream);
    *ret_done = done;
    return status;
}

int f8_test(struct f8_group *group, f8_ticket ticket, int *ret_done, void *stream)
{
    CLIENT_CALL(group_client(group), test_ticket(group, ticket, ret_done, stream));
}

/* F8_EBUSY if a precompute that reads the weight's shard is open; lock held. */
static int check_no_precompute(const struct f8_group *group, const char *call, uint32_t index)
{
    const struct weight *w = &group->weights[index];
    const struct f8_group *amax_group = w->amax_group ? w->amax_group : group;
    if (w->flavour != F8_DYNAMIC || amax_group->num_reading == 0)
        return F8_OK;
    bool claimed = w->bucket != GROUP_NO_BUCKET;
    return error_set(F8_EBUSY,
        "%s of weight %u%s%s while a precompute of group %s is open: call f8_wait first", call,
        index, claimed ? " of bucket " : "", claimed ? group->buckets[w->bucket].name : "",
        amax_group->name);
}

/* F8_EBUSY if an open request reads weights `first` to `first + count`; lock held. */
static int check_unread(
    const struct f8_group *group, const char *call, uint32_t first, uint32_t count)
{
    const struct f8_group *other = group->amax_group;
    if (group->num_open == 0 && group->num_reading == 0 && (!other || other->num_reading == 0))
        return F8_OK;
    int status = F8_OK;
    for (uint32_t i = first; i < first + count && status == F8_OK; i++) {
        const struct weight *w = &group->weights[i];
        const struct bucket *b = w->bucket == GROUP_NO_BUCKET ? NULL : &group->buckets[w->bucket];
        if (b && b->state != BUCKET_IDLE && b->state != BUCKET_HELD)
            status = error_set(F8_EBUSY,
                "%s of weight %u while its bucket %s is being gathered: call f8_post_gather first",
                call, i, b->name);
        else
            status = check_no_precompute(group, call, i);
    }
    return status;
}

/* Takes the group's generation if the weights exist and no open request reads them. */
static int enter_weights(struct f8_group *group, const char *call, uint32_t first, uint32_t count,
    uint64_t *ret_generation)
{
    int status;
    pthread_mutex_lock(&group->lock);
    if (first > group->num_weights || count > group->num_weights - first)
        status = error_set(F8_EINVAL, "%s of weights %u to %llu (not included): group %s has %u",
            call, first, (unsigned long long)first + count, group->name, group->num_weights);
    else
        status = check_unread(group, call, first, count);
    *ret_generation = group->generation;
    pthread_mutex_unlock(&group->lock);
    return status;
}

static int tell_changed(struct f8_group *group, uint32_t first, uint32_t count)
{
    uint64_t generation;
    int status = enter_weights(group, "f8_changed", first, count, &generation);
    if (status != F8_OK || count == 0)
        return status;
    F8__Changed changed = F8__CHANGED__INIT;
    changed.group = group->id;
    changed.generation = generation;
    changed.first = first;
    changed.count = count;
    F8__Request request = F8__REQUEST__INIT;
    request.body_case = F8__REQUEST__BODY_CHANGED;
    request.changed = &changed;
    return channel_call(group->client->channel, &request, -1, NULL);
}

int f8_changed(struct f8_group *group, uint32_t first, uint32_t count)
{
    GROUP_CALL(group, tell_changed(group, first, count));
}

static int move_weight(
    struct f8_group *group, uint32_t weight, const struct f8_region *region, uint64_t offset)
{
    uint64_t generation;
    int status = enter_weights(group, "f8_weight_move", weight, 1, &generation);
    if (status != F8_OK)
        return status;
    if (region && region->client != group->client)
        return error_set(F8_EREGION, "weight %u cannot move to a region of another client", weight);
    F8__WeightMove move = F8__WEIGHT_MOVE__INIT;
    move.group = group->id;
    move.generation = generation;
    move.weight = weight;
    move.region = region ? region->id : 0;
    move.offset = region ? offset : 0;
    F8__Request request = F8__REQUEST__INIT;
    request.body_case = F8__REQUEST__BODY_WEIGHT_MOVE;
    request.weight_move = &move;
    status = channel_call(group->client->channel, &request, -1, NULL);
    if (status != F8_OK)
        return status;
    pthread_mutex_lock(&group->lock);
    group->weights[weight].region = region;
    group->weights[weight].offset = move.offset;
    pthread_mutex_unlock(&group->lock);
    return F8_OK;
}

int f8_weight_move(
    struct f8_group *group, uint32_t weight, const struct f8_region *region, uint64_t offset)
{
    GROUP_CALL(group, move_weight(group, weight, region, offset));
}

static int quiesce_group(struct f8_group *group, int timeout_ms)
{
    pthread_mutex_lock(&group->lock);
    F8__Quiesce quiesce = F8__QUIESCE__INIT;
    quiesce.group = group->id;
    quiesce.generation = group->generation;
    pthread_mutex_unlock(&group->lock);
    F8__Request request = F8__REQUEST__INIT;
    request.body_case = F8__REQUEST__BODY_QUIESCE;
    request.quiesce = &quiesce;
    struct channel *channel = group->client->channel;
    uint64_t id;
    int status = channel_send(channel, &request, -1, &id);
    if (status != F8_OK)
        return status;
    struct channel_reply reply;
    status = channel_wait(channel, id, timeout_ms, &reply);
    if (status == F8_OK)
        return reply.status;
    channel_abandon(channel, id);
    return status;
}

int f8_quiesce(struct f8_group *group, int timeout_ms)
{
    GROUP_CALL(group, quiesce_group(group, timeout_ms));
}
