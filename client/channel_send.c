/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The channel's way out: numbers requests and sends them under one lock; posts (releases) never
 * wait, but stay in a ring until there is room. Called on any thread.
 *
 * Whoever lets go of send_lock looks at the ring again, so a post that found the lock taken is sent
 * by the thread that had it.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "client/channel_private.h"
#include "client/error.h"

static void count_sent(struct channel *channel, size_t length)
{
    atomic_fetch_add_explicit(&channel->sent, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&channel->sent_bytes, length, memory_order_relaxed);
}

/* The daemon closed: its last replies may say why, so they are read first. */
static int send_lost(struct channel *channel)
{
    pthread_mutex_lock(&channel->lock);
    channel_progress(channel);
    channel_fail(channel, F8_ECONN, "closed by the daemon");
    int status = channel_dead_error(channel);
    pthread_mutex_unlock(&channel->lock);
    return status;
}

/* Sends one packet, and while the socket is full, waits; send_lock held. */
static int send_packet(
    struct channel *channel, const uint8_t *packet, size_t length, const struct wire_fds *fds)
{
    int status = wire_send(channel->fd, packet, length, fds);
    while (status == WIRE_AGAIN) {
        status = channel_await_room(channel);
        if (status == F8_OK)
            status = wire_send(channel->fd, packet, length, fds);
    }
    if (status == F8_OK)
        count_sent(channel, length);
    return status;
}

/* Copies the first post; false if there is none. */
static bool first_post(struct channel *channel, struct post *ret_post)
{
    pthread_mutex_lock(&channel->lock);
    bool any = channel->num_posts > 0;
    if (any)
        *ret_post = channel->posts[channel->first_post];
    pthread_mutex_unlock(&channel->lock);
    return any;
}

static void pop_post(struct channel *channel)
{
    pthread_mutex_lock(&channel->lock);
    if (channel->num_posts > 0) { /* a dead channel has dropped them */
        channel->first_post = (channel->first_post + 1) % channel->max_posts;
        channel->num_posts--;
    }
    pthread_mutex_unlock(&channel->lock);
}

/* Sends the posts in the ring while there is room; send_lock held. F8_OK: all are sent. */
static int send_ready_posts(struct channel *channel)
{
    struct post post;
    while (first_post(channel, &post)) {
        int status = wire_send(channel->fd, post.packet, post.length, NULL);
        if (status != F8_OK)
            return status;
        count_sent(channel, post.length);
        pop_post(channel);
    }
    return F8_OK;
}

void channel_send_posts(struct channel *channel)
{
    struct post post;
    while (first_post(channel, &post) && pthread_mutex_trylock(&channel->send_lock) == 0) {
        int status = send_ready_posts(channel);
        pthread_mutex_unlock(&channel->send_lock);
        if (status == F8_OK)
            continue;
        pthread_mutex_lock(&channel->lock);
        if (status == WIRE_AGAIN) {
            /* Other ranks may wait for this release while this one only waits: the leader must
               send it. */
            channel->want_room = true;
            channel_poke(channel);
        } else {
            channel->num_posts = 0; /* lost; replies that came before are still read */
        }
        pthread_mutex_unlock(&channel->lock);
        return;
    }
}

/* Sends all posts, waiting for room; send_lock held. */
static int send_all_posts(struct channel *channel)
{
    int status;
    while ((status = send_ready_posts(channel)) == WIRE_AGAIN) {
        status = channel_await_room(channel);
        if (status != F8_OK)
            return status;
    }
    return status;
}

void channel_post(struct channel *channel, F8__Request *request)
{
    struct post post;
    assert(f8__request__get_packed_size(request) <= sizeof(post.packet));
    post.length = (uint8_t)f8__request__pack(request, post.packet);
    pthread_mutex_lock(&channel->lock);
    if (!channel->dead) {
        assert(channel->num_posts < channel->max_posts);
        uint32_t at = (channel->first_post + channel->num_posts) % channel->max_posts;
        channel->posts[at] = post;
        channel->num_posts++;
    }
    pthread_mutex_unlock(&channel->lock);
    channel_send_posts(channel);
}

int channel_reserve_posts(struct channel *channel, uint32_t count)
{
    pthread_mutex_lock(&channel->lock);
    int status = F8_OK;
    if (count > channel->max_posts) {
        struct post *posts = calloc(count, sizeof(*posts));
        if (posts) {
            for (uint32_t i = 0; i < channel->num_posts; i++)
                posts[i] = channel->posts[(channel->first_post + i) % channel->max_posts];
            free(channel->posts);
            channel->posts = posts;
            channel->first_post = 0;
            channel->max_posts = count;
        } else {
            status = error_set(F8_ENOMEM, "no memory for %u releases that wait", count);
        }
    }
    pthread_mutex_unlock(&channel->lock);
    return status;
}

static int open_request(struct channel *channel, bool whole, uint64_t *ret_id)
{
    pthread_mutex_lock(&channel->lock);
    int status = channel->dead ? channel_dead_error(channel)
                               : pending_open(&channel->pending, whole, ret_id);
    pthread_mutex_unlock(&channel->lock);
    return status;
}

/* A request that did not go out leaves nothing behind. */
static void unopen_request(struct channel *channel, uint64_t id)
{
    pthread_mutex_lock(&channel->lock);
    pending_close(&channel->pending, pending_find(&channel->pending, id));
    pthread_mutex_unlock(&channel->lock);
}

/* Numbers and sends; send_lock held. */
static int number_and_send(struct channel *channel, F8__Request *request,
    const struct wire_fds *fds, bool whole, uint64_t *ret_id)
{
    uint8_t packet[F8_PROTO_MAX_PACKET];
    size_t length = 0;
    int status = send_all_posts(channel);
    if (status == F8_OK)
        status = open_request(channel, whole, &request->id);
    if (status != F8_OK)
        return status;
    status = wire_pack(request, packet, &length);
    if (status == F8_OK)
        status = send_packet(channel, packet, length, fds);
    if (status != F8_OK)
        unopen_request(channel, request->id);
    else
        *ret_id = request->id;
    return status;
}

int channel_send_with(struct channel *channel, F8__Request *request, const struct wire_fds *fds,
    bool whole, uint64_t *ret_id)
{
    pthread_mutex_lock(&channel->send_lock);
    int status = number_and_send(channel, request, fds, whole, ret_id);
    pthread_mutex_unlock(&channel->send_lock);
    if (status == F8_ECONN)
        return send_lost(channel);
    channel_send_posts(channel);
    return status;
}

int channel_send(struct channel *channel, F8__Request *request, int memfd, uint64_t *ret_id)
{
    const struct wire_fds fds = {.fds = &memfd, .count = memfd >= 0};
    return channel_send_with(channel, request, &fds, false, ret_id);
}

int channel_send_whole(struct channel *channel, F8__Request *request, int memfd, uint64_t *ret_id)
{
    const struct wire_fds fds = {.fds = &memfd, .count = memfd >= 0};
    return channel_send_with(channel, request, &fds, true, ret_id);
}
