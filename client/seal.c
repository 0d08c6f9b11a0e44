/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f8_seal: the collective that reserves the arena and says where the scaling state comes from, and
 * the arena's mapping. Any thread. A signal may end the wait; the request stays open and the next
 * f8_seal goes on with it.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/error.h"
#include "client/group.h"
#include "client/map.h"
#include "client/state.h"

static const struct f8_seal_options no_options = {.slots = 0};

static int check_options(const struct f8_group *group, const struct f8_seal_options *options)
{
    if (options->deadline_ms < 0)
        return error_set(F8_EINVAL, "f8_seal: a deadline of %lld ms; give 0 for the default",
            (long long)options->deadline_ms);
    for (uint32_t i = 0; options->slots == 0 && i < group->num_buckets; i++)
        if (group->buckets[i].shared)
            return error_set(F8_EINVAL,
                "bucket %s takes a shared slot, but f8_seal was given none: set slots",
                group->buckets[i].name);
    return state_check(group, options);
}

/* Each bucket of each group may have a release that waits for room in the socket. */
static int reserve_releases(struct f8_client *client)
{
    uint32_t count = 0;
    pthread_mutex_lock(&client->lock);
    for (struct f8_group *g = client->groups; g; g = g->next) {
        pthread_mutex_lock(&g->lock);
        count += g->num_buckets;
        pthread_mutex_unlock(&g->lock);
    }
    pthread_mutex_unlock(&client->lock);
    return channel_reserve_posts(client->channel, count);
}

static int send_seal(struct f8_group *group, const struct f8_seal_options *options)
{
    int memfd = -1;
    int status = check_options(group, options);
    if (status == F8_OK)
        status = reserve_releases(group->client);
    if (status == F8_OK)
        status = state_import(options, &memfd);
    if (status == F8_OK) {
        pthread_mutex_lock(&group->lock);
        status = group_reserve_slots(group, options->slots);
        pthread_mutex_unlock(&group->lock);
    }
    if (status != F8_OK) {
        if (memfd >= 0)
            close(memfd);
        return status;
    }
    F8__Seal seal = F8__SEAL__INIT;
    seal.group = group->id;
    seal.generation = group->generation;
    seal.slots = options->slots;
    seal.poison = options->poison != 0;
    seal.deadline_ms = (uint64_t)options->deadline_ms;
    seal.state = options->state;
    seal.syncs = options->syncs;
    F8__Request request = F8__REQUEST__INIT;
    request.body_case = F8__REQUEST__BODY_SEAL;
    request.seal = &seal;
    uint64_t id;
    status = channel_send_whole(group->client->channel, &request, memfd, &id);
    if (memfd >= 0)
        close(memfd); /* the daemon has its own by now */
    pthread_mutex_lock(&group->lock);
    if (status == F8_OK) {
        group->seal = id;
        group->rejoined = false;
        group->slots = options->slots;
        group->poison = options->poison != 0;
    } else {
        group_drop_slots(group);
    }
    pthread_mutex_unlock(&group->lock);
    return status;
}

/* An arena as it is mapped. */
struct mapped {
    void *address;
    struct device_arena *device; /* NULL: on the host */
};

/* Maps the arena that came with the reply; a forked child does not inherit the mapping. */
static int map_on_host(const struct channel_reply *reply, void **ret_arena)
{
    struct stat stat;
    void *arena = NULL;
    if (fstat(reply->fd, &stat) != 0 || (uint64_t)stat.st_size < reply->first)
        return error_set(F8_EPROTO, "the daemon sent an arena that is smaller than it says (%llu)",
            (unsigned long long)reply->first);
    int status = map_shared(reply->fd, reply->first, PROT_READ, &arena);
    if (status != F8_OK)
        return status;
    if (madvise(arena, reply->first, MADV_DONTFORK) != 0) {
        status = error_set(F8_EIO, "the arena cannot be kept from forks: %s", strerror(errno));
        map_release(arena, reply->first);
        return status;
    }
    *ret_arena = arena;
    return F8_OK;
}

/*
 * What the daemon exported cannot be opened once it has ended, which CUDA does not tell apart from
 * other failures. So it is asked for a sign of life, and its end is the cause if it gives none.
 */
static int blame_the_end(struct channel *channel, int status)
{
    F8__Ping ping = F8__PING__INIT;
    F8__Request request = F8__REQUEST__INIT;
    char text[512];
    (void)snprintf(text, sizeof(text), "%s", error_text());
    request.body_case = F8__REQUEST__BODY_PING;
    request.ping = &ping;
    int alive = channel_call(channel, &request, -1, NULL);
    return alive == F8_ECONN ? alive : error_set(status, "%s", text);
}

static int map_on_device(struct device *device, struct channel *channel,
    const struct channel_reply *reply, const F8__Reply *message, struct mapped *ret_mapped)
{
    int status = device_arena_open(
        device, message->seal, reply->fd, &ret_mapped->device, &ret_mapped->address);
    return status == F8_EIO ? blame_the_end(channel, status) : status;
}

/*
 * A group without buckets, such as one that only takes amaxes, has no memory; on a device it has
 * events all the same.
 */
static int map_arena(const struct f8_group *group, const struct channel_reply *reply,
    const F8__Reply *message, struct mapped *ret_mapped)
{
    struct device *device = client_device(group->client);
    bool is_seal = reply->body == F8__REPLY__BODY_SEAL, none = reply->first == 0;
    if (!is_seal || (none ? group->num_buckets > 0 : reply->fd < 0))
        return error_set(F8_EPROTO, "the daemon sealed the group but sent no arena");
    if (device && !message)
        return error_set(F8_ENOMEM, "no memory for the reply to a seal");
    if (device)
        return map_on_device(device, group->client->channel, reply, message, ret_mapped);
    return none ? F8_OK : map_on_host(reply, &ret_mapped->address);
}

/* Puts the new arena in place of that of the generation before. */
static int take_arena(
    struct f8_group *group, const struct channel_reply *reply, const F8__Reply *message)
{
    struct mapped mapped = {.address = NULL};
    group_unmap(group, false);
    int status = map_arena(group, reply, message, &mapped);
    if (status != F8_OK)
        return status;
    pthread_mutex_lock(&group->lock);
    group->arena = mapped.address;
    group->device_arena = mapped.device;
    group->arena_size = reply->first;
    group->syncs = reply->second;
    group->sealed = true;
    pthread_mutex_unlock(&group->lock);
    return F8_OK;
}

static int finish_seal(struct f8_group *group)
{
    struct channel_reply reply = {.fd = -1};
    F8__Reply *message = NULL;
    int status =
        channel_wait_whole(group->client->channel, group->seal, F8_FOREVER, &reply, &message);
    if (status == F8_EINTR)
        return status;
    pthread_mutex_lock(&group->lock);
    group->seal = 0;
    pthread_mutex_unlock(&group->lock);
    if (status == F8_OK)
        status = reply.status;
    if (status == F8_OK)
        status = take_arena(group, &reply, message);
    if (reply.fd >= 0)
        close(reply.fd); /* the mapping is enough */
    if (message)
        f8__reply__free_unpacked(message, NULL);
    if (status != F8_OK) {
        pthread_mutex_lock(&group->lock);
        group_drop_slots(group);
        pthread_mutex_unlock(&group->lock);
    }
    return status;
}

/*
 * A sealed group is not sealed again, but one that broke meanwhile has a cause to tell. Only the
 * daemon knows, and says so to a rank that says that none of its weights have changed.
 */
static int refuse_again(const struct f8_group *group)
{
    F8__Changed changed = F8__CHANGED__INIT;
    F8__Request request = F8__REQUEST__INIT;
    changed.group = group->id;
    changed.generation = group->generation;
    request.body_case = F8__REQUEST__BODY_CHANGED;
    request.changed = &changed;
    int status = channel_call(group->client->channel, &request, -1, NULL);
    if (status == F8_EBROKEN || status == F8_ECONN)
        return status;
    return error_set(F8_EORDER, "group %s is sealed already", group->name);
}

/* The text of a seal that the daemon refused says what must come before it. */
static int with_remedy(const struct f8_group *group, int status)
{
    char text[1024];
    if (status != F8_EBROKEN)
        return status;
    (void)snprintf(text, sizeof(text), "%s", error_text());
    return error_set(status, "%s; call f8_group_rejoin%s before f8_seal", text,
        group->over_hosts ? " (or f8_group_rejoin_hosts, if a host was lost)" : "");
}

static int seal_group(struct f8_group *group, const struct f8_seal_options *options)
{
    int status = group_begin_setup(group);
    if (status != F8_OK)
        return status;
    if (group->sealed)
        status = refuse_again(group);
    else if (group->lost)
        status = error_set(F8_EORDER,
            "the daemon of group %s was lost: call f8_reconnect, or, after it, "
            "f8_group_rejoin_hosts",
            group->name);
    else if (group->seal == 0)
        status = send_seal(group, options ? options : &no_options);
    if (status == F8_OK)
        status = finish_seal(group);
    group_end_setup(group);
    return with_remedy(group, status);
}

int f8_seal(struct f8_group *group, const struct f8_seal_options *options)
{
    GROUP_CALL(group, seal_group(group, options));
}
