/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Joining, re-joining and leaving a group, and the checks that its functions begin with. Any
 * thread; the group's lock is never held over a wait.
 */
#include "client/group.h"

#include <stdlib.h>
#include <string.h>

#include "client/error.h"
#include "client/map.h"

int group_check_broken(const struct f8_group *group)
{
    if (!group->broken)
        return F8_OK;
    return error_set(F8_EBROKEN, "group %s is broken: %s; call f8_group_rejoin%s and f8_seal",
        group->name, group->client->repair.replaced,
        group->over_hosts ? "_hosts with a new unique id" : "");
}

/* The client's call has begun with `status`. */
static int begin(struct f8_group *group, int status)
{
    if (status == F8_OK && group_check_broken(group) != F8_OK)
        status = client_end(group->client, F8_EBROKEN);
    return status;
}

int group_begin(struct f8_group *group)
{
    return begin(group, client_begin(group_client(group)));
}

int group_begin_local(struct f8_group *group)
{
    return begin(group, client_begin_local(group_client(group)));
}

int group_enter_sealed(struct f8_group *group)
{
    pthread_mutex_lock(&group->lock);
    if (group->sealed)
        return F8_OK;
    pthread_mutex_unlock(&group->lock);
    return error_set(F8_EORDER, "group %s is not sealed: call f8_seal first", group->name);
}

int group_enter_bucket(struct f8_group *group, uint32_t bucket, struct bucket **ret_bucket)
{
    int status = group_enter_sealed(group);
    if (status != F8_OK)
        return status;
    if (bucket >= group->num_buckets) {
        status = error_set(F8_EINVAL, "there is no bucket %u in group %s, it has %u", bucket,
            group->name, group->num_buckets);
        pthread_mutex_unlock(&group->lock);
        return status;
    }
    *ret_bucket = &group->buckets[bucket];
    return F8_OK;
}

int group_begin_setup(struct f8_group *group)
{
    int status = F8_OK;
    pthread_mutex_lock(&group->lock);
    if (group->busy)
        status = error_set(F8_EBUSY,
            "another thread registers, seals or re-joins in group %s; wait for it", group->name);
    else
        group->busy = true;
    pthread_mutex_unlock(&group->lock);
    return status;
}

void group_end_setup(struct f8_group *group)
{
    pthread_mutex_lock(&group->lock);
    group->busy = false;
    pthread_mutex_unlock(&group->lock);
}

static bool is_open(enum bucket_state state)
{
    return state != BUCKET_IDLE && state != BUCKET_HELD;
}

void group_set_state(struct f8_group *group, struct bucket *bucket, enum bucket_state state)
{
    group->num_open += (uint32_t)is_open(state) - (uint32_t)is_open(bucket->state);
    if (bucket->shared)
        group->num_shared +=
            (uint32_t)(state >= BUCKET_SENDING) - (uint32_t)(bucket->state >= BUCKET_SENDING);
    bucket->state = state;
    if (!is_open(state)) {
        group_give_back(group, bucket->ready);
        bucket->ready = 0;
    }
}

/* F8_EBUSY if `source` has an open request, which `call` of `group` must not overtake. */
static int check_source(
    const struct f8_group *source, const struct f8_group *group, const char *call)
{
    if (source->num_open == 0)
        return F8_OK;
    const struct bucket *bucket = source->buckets;
    while (!is_open(bucket->state))
        bucket++;
    return error_set(F8_EBUSY,
        "%s of group %s while bucket %s of group %s is being gathered: call f8_post_gather first",
        call, group->name, bucket->name, source->name);
}

int group_check_quiet(const struct f8_group *group, const char *call)
{
    return check_source(group, group, call);
}

int group_check_sources(struct f8_group *group, const char *call)
{
    struct f8_client *client = group->client;
    int status = F8_OK;
    pthread_mutex_lock(&client->lock);
    for (struct f8_group *g = client->groups; g && status == F8_OK; g = g->next) {
        pthread_mutex_lock(&g->lock);
        if (g->amax_group == group)
            status = check_source(g, group, call);
        pthread_mutex_unlock(&g->lock);
    }
    pthread_mutex_unlock(&client->lock);
    return status;
}

void group_unmap(struct f8_group *group, bool forked)
{
    if (!forked)
        pthread_mutex_lock(&group->lock);
    void *arena = group->arena;
    uint64_t arena_size = group->arena_size;
    struct device_arena *device_arena = group->device_arena;
    group->arena = NULL;
    group->arena_size = 0;
    group->device_arena = NULL;
    if (!forked)
        pthread_mutex_unlock(&group->lock);
    if (forked)
        device_arena_forget(device_arena); /* and the host's is not mapped here */
    else if (device_arena)
        device_arena_close(device_arena);
    else
        map_release(arena, arena_size);
}

void group_free(struct f8_group *group, bool forked)
{
    if (!group)
        return;
    group_unmap(group, forked);
    if (!forked)
        pthread_mutex_destroy(&group->lock);
    free(group->slot_events);
    for (uint32_t i = 0; i < group->num_buckets; i++)
        free(group->buckets[i].name);
    for (uint32_t i = 0; i < group->num_weights; i++)
        free(group->weights[i].name);
    free(group->buckets);
    free(group->weights);
    free(group->name);
    free(group);
}

static struct f8_group *group_new(
    struct f8_client *client, const char *name, uint32_t rank, uint32_t world_size)
{
    struct f8_group *group = calloc(1, sizeof(*group));
    if (!group)
        return NULL;
    group->name = strdup(name);
    if (!group->name) {
        free(group);
        return NULL;
    }
    pthread_mutex_init(&group->lock, NULL);
    group->client = client;
    group->rank = rank;
    group->world_size = world_size;
    return group;
}

/* Asks the daemon for membership; the group's id and generation are given in *ret_reply. */
static int send_join(struct f8_group *group, bool rejoin, const struct f8_hosts *hosts,
    struct channel_reply *ret_reply)
{
    F8__Join join = F8__JOIN__INIT;
    join.group = group->name;
    join.rank = group->rank;
    join.world_size = group->world_size;
    join.rejoin = rejoin;
    if (hosts) {
        join.unique_id = (ProtobufCBinaryData){
            .data = (uint8_t *)(uintptr_t)hosts->id, .len = F8_UNIQUE_ID_SIZE};
        join.local_ranks = hosts->local_ranks;
    }
    F8__Request request = F8__REQUEST__INIT;
    request.body_case = F8__REQUEST__BODY_JOIN;
    request.join = &join;
    int status = channel_call(group->client->channel, &request, -1, ret_reply);
    if (status == F8_OK && ret_reply->body != F8__REPLY__BODY_JOIN)
        return error_set(F8_EPROTO, "the daemon answered a join without a generation");
    if (status == F8_OK && rejoin && ret_reply->first != group->id)
        return error_set(F8_EPROTO, "the daemon calls group %s %llu after a re-join, and %u before",
            group->name, (unsigned long long)ret_reply->first, group->id);
    return status;
}

/* Puts the group into its client's list, unless one of that name is there. */
static int list_group(struct f8_group *group)
{
    struct f8_client *client = group->client;
    pthread_mutex_lock(&client->lock);
    const struct f8_group *other = client->groups;
    while (other && strcmp(other->name, group->name) != 0)
        other = other->next;
    if (!other) {
        group->next = client->groups;
        client->groups = group;
    }
    pthread_mutex_unlock(&client->lock);
    if (other)
        return error_set(F8_EEXIST,
            "this client joined group %s already, or another thread is joining it", group->name);
    return F8_OK;
}

static void unlist_group(struct f8_group *group)
{
    struct f8_client *client = group->client;
    pthread_mutex_lock(&client->lock);
    struct f8_group **link = &client->groups;
    while (*link != group)
        link = &(*link)->next;
    *link = group->next;
    pthread_mutex_unlock(&client->lock);
}

/* A join was refused by a daemon that was told to end: a client that connects again by itself may
 * as well meet its end now. */
static void meet_end(struct f8_client *client)
{
    if (client->repair.patience_ms != 0)
        channel_hang_up(client->channel);
}

/* Whether a group may have collectives under way, here or at its other ranks. */
static bool one_goes_on(struct f8_client *client)
{
    bool goes_on = false;
    pthread_mutex_lock(&client->lock);
    for (struct f8_group *g = client->groups; g && !goes_on; g = g->next) {
        pthread_mutex_lock(&g->lock);
        goes_on = g->sealed && !g->lost && !g->broken;
        pthread_mutex_unlock(&g->lock);
    }
    pthread_mutex_unlock(&client->lock);
    return goes_on;
}

/* Joins a group that is in the list, so that its name is taken meanwhile. */
static int join(struct f8_group *group, const struct f8_hosts *hosts)
{
    int status = list_group(group);
    if (status != F8_OK)
        return status;
    struct channel_reply reply;
    status = send_join(group, false, hosts, &reply);
    if (status != F8_OK) {
        unlist_group(group);
        if (status == F8_ECONN && !hosts && !one_goes_on(group->client))
            meet_end(group->client);
        return status;
    }
    group->id = (uint32_t)reply.first;
    group->generation = reply.second;
    return F8_OK;
}

int group_join(struct f8_client *client, const char *name, uint32_t rank, uint32_t world_size,
    const struct f8_hosts *hosts, struct f8_group **ret_group)
{
    int status = client_check_name("group", name);
    if (status != F8_OK)
        return status;
    if (rank >= world_size)
        return error_set(F8_EINVAL, "rank %u of %u in group %s: ranks are 0 to world size - 1",
            rank, world_size, name);
    struct f8_group *group = group_new(client, name, rank, world_size);
    if (!group)
        return error_set(F8_ENOMEM, "no memory for group %s", name);
    group->over_hosts = hosts != NULL;
    status = join(group, hosts);
    if (status == F8_OK)
        *ret_group = group;
    else
        group_free(group, false);
    return status;
}

int f8_group_join(struct f8_client *client, const char *name, uint32_t rank, uint32_t world_size,
    struct f8_group **ret_group)
{
    CLIENT_CALL(client, group_join(client, name, rank, world_size, NULL, ret_group));
}

int f8_group_rejoin(struct f8_group *group)
{
    CLIENT_CALL(group_client(group), group_rejoin(group, NULL));
}

/* It is as before its first seal, in that generation. */
static void start_over(struct f8_group *group, uint64_t generation)
{
    pthread_mutex_lock(&group->lock);
    group_abandon(group, false);
    group->sealed = false;
    group->broken = false;
    group->generation = generation;
    group->entries++;
    pthread_mutex_unlock(&group->lock);
    /* The daemon keeps its events only until this rank asks for the next seal. */
    if (client_device(group->client))
        group_unmap(group, false);
}

void group_lose(struct f8_group *group, bool holding)
{
    if (!holding)
        start_over(group, group->generation);
    pthread_mutex_lock(&group->lock);
    group_abandon(group, holding);
    group->rejoined = false;
    group->lost = true;
    group->id = 0; /* which no daemon gives */
    pthread_mutex_unlock(&group->lock);
}

int group_join_again(struct f8_group *group, const struct f8_hosts *hosts)
{
    struct channel_reply reply;
    int status = send_join(group, false, hosts, &reply);
    if (status != F8_OK)
        return status;
    pthread_mutex_lock(&group->lock);
    group->id = (uint32_t)reply.first;
    group->generation = reply.second;
    group->lost = false;
    pthread_mutex_unlock(&group->lock);
    return F8_OK;
}

/* A re-join of a group that f8_reconnect had to leave out, for want of a unique id. */
static int return_to_hosts(struct f8_group *group, const struct f8_hosts *hosts)
{
    if (!hosts)
        return error_set(F8_EORDER,
            "group %s is over several hosts, and its daemon was lost: it takes a new unique id, "
            "call f8_group_rejoin_hosts",
            group->name);
    int status = group_join_again(group, hosts);
    if (status == F8_OK)
        status = group_register_again(group);
    if (status == F8_OK)
        start_over(group, group->generation);
    else
        group_lose(group, true);
    return status;
}

/* After a reconnection the daemon may say that this rank is in the next generation already. */
static int enter_next(struct f8_group *group, const struct f8_hosts *hosts)
{
    if (group->lost)
        return return_to_hosts(group, hosts);
    struct channel_reply reply = {.second = group->generation};
    int status = send_join(group, true, hosts, &reply);
    if (status == F8_ECONN && !hosts)
        meet_end(group->client); /* there is no other way back for this group */
    else if (status == F8_EORDER && group->rejoined)
        status = F8_OK;
    else if (status == F8_OK)
        group->rejoined = false;
    if (status == F8_OK)
        start_over(group, reply.second);
    return status;
}

int group_rejoin(struct f8_group *group, const struct f8_hosts *hosts)
{
    int status = group_begin_setup(group);
    if (status != F8_OK)
        return status;
    status = enter_next(group, hosts);
    group_end_setup(group);
    return status;
}
