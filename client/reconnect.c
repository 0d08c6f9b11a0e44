/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f8_reconnect, and the same for a client that does it by itself (repair.c): all that a daemon was
 * told by this client, told to the one that is there now. It comes from what the client, its
 * regions and its groups remember. Only this changes a client's channel: no other call is inside
 * meanwhile (client_seize).
 */
#include <limits.h>
#include <poll.h>
#include <time.h>

#include "client/error.h"
#include "client/group.h"
#include "client/socket.h"

/* Between two tries to reach a daemon. */
#define PAUSE_MS 20

int64_t reconnect_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* How long and how: f8_reconnect's, or a client's own. */
struct terms {
    int timeout_ms;   /* 0: one try, however long; negative: no end */
    int64_t deadline; /* if timeout_ms > 0 */
    bool by_itself;   /* in the midst of the trainer's calls: what it holds stays until it knows */
};

/* The connection that is, or was, there ends before another one begins, which finds its ranks free.
 */
static void leave(struct f8_client *client, bool by_itself)
{
    for (struct f8_group *g = client->groups; g; g = g->next)
        group_lose(g, by_itself);
    struct device *device = client_device(client);
    if (device)
        device_leave(device, client->channel);
    channel_hang_up(client->channel);
}

/* Another connection to the same socket takes the place of the old one, which is kept until then.
 */
static int replace_channel(struct f8_client *client, int timeout_ms, bool by_itself)
{
    const struct channel_options options = {.socket = channel_socket(client->channel),
        .job = client->job,
        .token = client->token,
        .role = F8__ROLE__TRAINER,
        .timeout_ms = timeout_ms,
        .heeds_signals = by_itself};
    struct channel *channel;
    int status = channel_open(&options, &channel);
    if (status != F8_OK)
        return status;
    channel_close(client->channel);
    client->channel = channel;
    return F8_OK;
}

/* The device's events are made anew: the old ones are the old daemon's. */
static int add_device(struct f8_client *client)
{
    struct device *old = client_device(client), *device;
    if (!old)
        return F8_OK;
    int status = device_open(client->channel, device_ordinal(old), &device);
    if (status != F8_OK)
        return status;
    atomic_store_explicit(&client->device, device, memory_order_release);
    device_free(old, false);
    return F8_OK;
}

static int add_regions(struct f8_client *client)
{
    int status = F8_OK;
    pthread_mutex_lock(&client->region_lock);
    for (struct f8_region *r = client->regions; r && status == F8_OK; r = r->next)
        status = region_add_again(r);
    pthread_mutex_unlock(&client->region_lock);
    return status;
}

/* All are joined before any registers: weights name groups that take their amaxes. */
static int add_groups(struct f8_client *client)
{
    int status = F8_OK;
    for (struct f8_group *g = client->groups; g && status == F8_OK; g = g->next)
        if (!g->over_hosts)
            status = group_join_again(g, NULL);
    for (struct f8_group *g = client->groups; g && status == F8_OK; g = g->next)
        if (!g->lost)
            status = group_register_again(g);
    for (struct f8_group *g = client->groups; g && status == F8_OK; g = g->next)
        g->rejoined = !g->lost;
    return status;
}

/* A deadline that a daemon has let pass, which is stopped maybe, is that of f8_reconnect. */
static int tell_all(struct f8_client *client, int timeout_ms)
{
    channel_limit(client->channel, timeout_ms > 0 ? timeout_ms : -1);
    int status = add_device(client);
    if (status == F8_OK)
        status = add_regions(client);
    if (status == F8_OK)
        status = add_groups(client);
    channel_limit(client->channel, -1);
    if (status == F8_EDEADLINE)
        status = error_set(F8_ENODAEMON,
            "f8gatherd at %s did not take within %g s what this client has; it may be stopped",
            channel_socket(client->channel), timeout_ms / 1e3);
    return status;
}

/* What is left until the deadline, but no more than one try takes. */
static int left_ms(int64_t deadline, int most)
{
    int64_t left = deadline - reconnect_now_ms();
    return left < 1 ? 1 : left < most ? (int)left : most;
}

/* One try. What it leaves undone, the next one begins anew. */
static int reconnect(struct f8_client *client, const struct terms *terms)
{
    leave(client, terms->by_itself);
    bool limited = terms->timeout_ms > 0;
    int patience_ms = limited ? left_ms(terms->deadline, SOCKET_PATIENCE_MS) : 0;
    int status = replace_channel(client, patience_ms, terms->by_itself);
    if (status == F8_OK)
        status = tell_all(client, limited ? left_ms(terms->deadline, terms->timeout_ms) : 0);
    return status;
}

/* Until it is done, or fails by more than want of a daemon, or the time is over; by itself also
 * until a signal's handler has run: who waits without end must be able to stop. */
static int keep_trying(struct f8_client *client, const struct terms *terms)
{
    for (;;) {
        int status = reconnect(client, terms);
        /* There is none yet, or it ended meanwhile, or it was told to end and lets nobody join. */
        bool again = status == F8_ENODAEMON || status == F8_ECONN;
        if (!again || (terms->timeout_ms >= 0 && reconnect_now_ms() >= terms->deadline))
            return status;
        if (poll(NULL, 0, PAUSE_MS) < 0 && terms->by_itself)
            return error_set(F8_EINTR, "a signal came while a daemon was looked for");
    }
}

/* The daemon that all was told to is the client's until another one was told all. */
static int reconnect_on(struct f8_client *client, const struct terms *terms)
{
    if (client->ended == 0)
        client->ended = channel_daemon_pid(client->channel);
    int status = keep_trying(client, terms);
    if (status == F8_OK) {
        repair_note(client, client->ended);
        client->ended = 0;
    }
    return status;
}

int reconnect_by_itself(struct f8_client *client, int64_t deadline)
{
    const struct terms terms = {
        .timeout_ms = left_ms(deadline, INT_MAX), .deadline = deadline, .by_itself = true};
    int status = reconnect_on(client, &terms);
    /* A daemon that was told a part is none: the next call begins anew. */
    if (status != F8_OK && !channel_is_lost(client->channel))
        leave(client, true);
    for (struct f8_group *g = client->groups; g && status == F8_OK; g = g->next)
        g->broken = true;
    return status;
}

int f8_reconnect(struct f8_client *client, int timeout_ms)
{
    int status = client_seize(client);
    if (status != F8_OK)
        return status;
    const struct terms terms = {
        .timeout_ms = timeout_ms, .deadline = reconnect_now_ms() + timeout_ms};
    status = reconnect_on(client, &terms);
    client_release(client);
    return status;
}
