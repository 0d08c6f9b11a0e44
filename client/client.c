/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f8_connect, f8_close, and the checks that every public function begins with. Any thread.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/error.h"
#include "client/group.h"

static int check_handle(const struct f8_client *client)
{
    if (!client)
        return error_set(F8_EINVAL, "the client, group or region is NULL");
    if (client->pid != getpid())
        return error_set(F8_EFORKED,
            "this client was connected by process %d, not by its child %d; connect anew here",
            (int)client->pid, (int)getpid());
    return F8_OK;
}

/* Counts a call, unless one thread has the client for itself: CLIENT_SEIZED, CLIENT_REPAIRED. */
static int count_call(struct f8_client *client)
{
    int calls = atomic_load_explicit(&client->calls, memory_order_relaxed);
    while (calls >= 0 && !atomic_compare_exchange_weak_explicit(&client->calls, &calls, calls + 1,
                             memory_order_acquire, memory_order_relaxed))
        continue;
    return calls;
}

static int begin(struct f8_client *client, bool needs_daemon)
{
    int status = check_handle(client);
    int calls = CLIENT_REPAIRED;
    while (status == F8_OK && calls == CLIENT_REPAIRED) {
        if (atomic_load_explicit(&client->repair.state, memory_order_relaxed) != REPAIR_NONE)
            status = repair_before(client, needs_daemon);
        if (status == F8_OK)
            calls = count_call(client);
    }
    if (calls == CLIENT_SEIZED)
        status = error_set(F8_EBUSY, "another thread is in f8_reconnect of this client");
    return status;
}

int client_begin(struct f8_client *client)
{
    return begin(client, true);
}

int client_begin_local(struct f8_client *client)
{
    return begin(client, false);
}

int client_end(struct f8_client *client, int status)
{
    bool ended =
        status == F8_ECONN && client->repair.patience_ms != 0 && channel_is_lost(client->channel);
    uint64_t connection = client->repair.connection;
    atomic_fetch_sub_explicit(&client->calls, 1, memory_order_release);
    return ended ? repair_after(client, connection) : status;
}

int client_seize(struct f8_client *client)
{
    int status = check_handle(client);
    int calls = 0;
    if (status != F8_OK || atomic_compare_exchange_strong_explicit(&client->calls, &calls,
                               CLIENT_SEIZED, memory_order_acquire, memory_order_relaxed))
        return status;
    return error_set(
        F8_EBUSY, "f8_reconnect: a call of another thread on this client has not returned");
}

void client_release(struct f8_client *client)
{
    atomic_store_explicit(&client->calls, 0, memory_order_release);
}

int client_check_name(const char *what, const char *name)
{
    char buffer[F8_PROTO_FAULT_SIZE];
    if (!name || name[0] == '\0')
        return error_set(F8_EINVAL, "the %s's name is missing or empty", what);
    const char *fault = f8_proto_name_fault(name, buffer);
    return fault ? error_set(F8_EINVAL, "the %s's name %s", what, fault) : F8_OK;
}

int f8_connect(const struct f8_connect_options *options, struct f8_client **ret_client)
{
    if (!options || !ret_client)
        return error_set(F8_EINVAL, "f8_connect: options and ret_client must not be NULL");
    int status = client_check_name("job", options->job);
    if (status != F8_OK)
        return status;
    struct f8_client *client = calloc(1, sizeof(*client));
    if (!client)
        return error_set(F8_ENOMEM, "no memory for a client");
    const struct channel_options channel_options = {.socket = options->socket,
        .job = options->job,
        .token = options->token,
        .role = F8__ROLE__TRAINER};
    client->job = strdup(options->job);
    client->token = options->token ? strdup(options->token) : NULL;
    status = client->job && (client->token || !options->token)
                 ? channel_open(&channel_options, &client->channel)
                 : error_set(F8_ENOMEM, "no memory for a client");
    if (status != F8_OK) {
        free(client->job);
        free(client->token);
        free(client);
        return status;
    }
    client->pid = getpid();
    pthread_mutex_init(&client->lock, NULL);
    pthread_mutex_init(&client->region_lock, NULL);
    repair_init(&client->repair, options->reconnect_ms);
    *ret_client = client;
    return F8_OK;
}

static int find_capability(struct f8_client *client, const char *name, int *ret_has)
{
    if (!name || !ret_has)
        return error_set(F8_EINVAL, "f8_capability: name and ret_has must not be NULL");
    char *names[] = {(char *)(uintptr_t)name};
    uint64_t wanted = f8_proto_capability_set(names, 1);
    int has = 0;
    for (int c = 0; c < F8_CAPABILITY_COUNT; c++)
        if (wanted & f8_proto_capability_bit((enum f8_capability)c))
            has = channel_can(client->channel, (enum f8_capability)c);
    *ret_has = has;
    return F8_OK;
}

int f8_capability(struct f8_client *client, const char *name, int *ret_has)
{
    CLIENT_CALL_LOCAL(client, find_capability(client, name, ret_has));
}

int client_check_stream(struct f8_client *client, const char *call, const void *stream)
{
    if (!stream || client_device(client))
        return F8_OK;
    return error_set(F8_EINVAL, "%s with stream %p: this client works on no device", call, stream);
}

int client_set_device(struct f8_client *client, int ordinal)
{
    struct device *device = client_device(client);
    if (device && device_ordinal(device) == ordinal)
        return F8_OK;
    if (device)
        return error_set(F8_EBUSY,
            "CUDA device %d: this client works on device %d; connect another client for it",
            ordinal, device_ordinal(device));
    pthread_mutex_lock(&client->lock);
    const char *joined = client->groups ? client->groups->name : NULL;
    pthread_mutex_unlock(&client->lock);
    if (joined)
        return error_set(F8_EORDER,
            "CUDA device %d: this client joined group %s on the host already: call f8_set_device, "
            "or share device memory, before f8_group_join",
            ordinal, joined);
    int status = device_open(client->channel, ordinal, &device);
    if (status == F8_OK)
        atomic_store_explicit(&client->device, device, memory_order_release);
    return status;
}

static int set_device(struct f8_client *client, int device)
{
    pthread_mutex_lock(&client->region_lock);
    int status = client_set_device(client, device);
    pthread_mutex_unlock(&client->region_lock);
    return status;
}

int f8_set_device(struct f8_client *client, int device)
{
    CLIENT_CALL(client, set_device(client, device));
}

static void free_groups(struct f8_client *client, bool forked)
{
    while (client->groups) {
        struct f8_group *group = client->groups;
        client->groups = group->next;
        group_free(group, forked);
    }
}

void f8_close(struct f8_client *client)
{
    if (!client)
        return;
    bool forked = client->pid != getpid();
    struct device *device = client_device(client);
    /* First this side lets go of the daemon's events, then the daemon of this side's. */
    free_groups(client, forked);
    if (device && !forked)
        device_leave(device, client->channel);
    if (forked)
        channel_close_child(client->channel);
    else
        channel_close(client->channel);
    device_free(device, forked);
    while (client->regions) {
        struct f8_region *region = client->regions;
        client->regions = region->next;
        region_destroy(region);
    }
    if (!forked) {
        pthread_mutex_destroy(&client->lock);
        pthread_mutex_destroy(&client->region_lock);
        repair_done(&client->repair);
    }
    free(client->job);
    free(client->token);
    free(client);
}

static int read_traffic(struct f8_client *client, struct f8_traffic *ret_traffic)
{
    struct channel_traffic traffic;
    channel_traffic(client->channel, &traffic);
    *ret_traffic = (struct f8_traffic){.sent = traffic.sent,
        .received = traffic.received,
        .sent_bytes = traffic.sent_bytes,
        .received_bytes = traffic.received_bytes,
        .gathers = atomic_load_explicit(&client->gathers, memory_order_relaxed)};
    return F8_OK;
}

int f8_traffic_read(struct f8_client *client, struct f8_traffic *ret_traffic)
{
    CLIENT_CALL_LOCAL(client, read_traffic(client, ret_traffic));
}
