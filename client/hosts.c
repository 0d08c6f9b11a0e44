/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups over several hosts: the unique id, and joining with it. All that is different is said to
 * the daemon, which finds the others. Any thread.
 */
#include <string.h>

#include "client/error.h"
#include "client/group.h"

static int check_daemon(const struct f8_client *client)
{
    if (channel_can(client->channel, F8_CAPABILITY_HOSTS))
        return F8_OK;
    return error_set(F8_EVERSION,
        "the daemon (f8gatherd %s at %s) cannot do groups over several hosts",
        channel_daemon_version(client->channel), channel_socket(client->channel));
}

static int ask_unique_id(struct f8_client *client, uint8_t ret_id[F8_UNIQUE_ID_SIZE])
{
    int status = check_daemon(client);
    if (status != F8_OK)
        return status;
    if (!ret_id)
        return error_set(F8_EINVAL, "f8_unique_id: ret_id must not be NULL");
    F8__UniqueId ask = F8__UNIQUE_ID__INIT;
    F8__Request request = F8__REQUEST__INIT;
    F8__Reply *reply;
    request.body_case = F8__REQUEST__BODY_UNIQUE_ID;
    request.unique_id = &ask;
    status = channel_ask(client->channel, &request, -1, &reply);
    if (status != F8_OK)
        return status;
    if (reply->body_case == F8__REPLY__BODY_UNIQUE_ID &&
        reply->unique_id->unique_id.len == F8_UNIQUE_ID_SIZE)
        memcpy(ret_id, reply->unique_id->unique_id.data, F8_UNIQUE_ID_SIZE);
    else
        status = error_set(F8_EPROTO, "the daemon answered f8_unique_id without an id of %d bytes",
            F8_UNIQUE_ID_SIZE);
    f8__reply__free_unpacked(reply, NULL);
    return status;
}

int f8_unique_id(struct f8_client *client, uint8_t ret_id[F8_UNIQUE_ID_SIZE])
{
    CLIENT_CALL(client, ask_unique_id(client, ret_id));
}

static int check_hosts(const char *name, uint32_t world_size, const struct f8_hosts *hosts)
{
    if (!hosts || !hosts->id)
        return error_set(F8_EINVAL, "group %s over hosts: no unique id was given", name);
    if (hosts->local_ranks < 1 || hosts->local_ranks > world_size)
        return error_set(F8_EINVAL,
            "group %s over hosts: %u local ranks are not from 1 to the world size %u", name,
            hosts->local_ranks, world_size);
    return F8_OK;
}

static int join_over_hosts(struct f8_client *client, const char *name, uint32_t rank,
    uint32_t world_size, const struct f8_hosts *hosts, struct f8_group **ret_group)
{
    int status = client_check_name("group", name);
    if (status == F8_OK)
        status = check_daemon(client);
    if (status == F8_OK)
        status = check_hosts(name, world_size, hosts);
    if (status != F8_OK)
        return status;
    return group_join(client, name, rank, world_size, hosts, ret_group);
}

int f8_group_join_hosts(struct f8_client *client, const char *name, uint32_t rank,
    uint32_t world_size, const struct f8_hosts *hosts, struct f8_group **ret_group)
{
    CLIENT_CALL(client, join_over_hosts(client, name, rank, world_size, hosts, ret_group));
}

static int rejoin_over_hosts(struct f8_group *group, const struct f8_hosts *hosts)
{
    int status = check_daemon(group->client);
    if (status == F8_OK)
        status = check_hosts(group->name, group->world_size, hosts);
    if (status != F8_OK)
        return status;
    return group_rejoin(group, hosts);
}

int f8_group_rejoin_hosts(struct f8_group *group, const struct f8_hosts *hosts)
{
    CLIENT_CALL(group_client(group), rejoin_over_hosts(group, hosts));
}
