/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The channel's way back: leader and followers. The leader is the one thread that polls and
 * receives; it drops the lock to do so. Followers sleep on their own semaphore until their reply
 * is there or they are to lead. Polling comes before receiving, so a reply costs one recvmsg.
 */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "client/channel_private.h"
#include "client/error.h"

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int64_t channel_deadline(int timeout_ms)
{
    return timeout_ms < 0 ? CHANNEL_NEVER : now_ms() + timeout_ms;
}

static int poll_timeout(int64_t deadline)
{
    if (deadline == CHANNEL_NEVER)
        return -1;
    int64_t left = deadline - now_ms();
    return left < 0 ? 0 : left > INT_MAX ? INT_MAX : (int)left;
}

void channel_poke(struct channel *channel)
{
    const uint64_t one = 1;
    if (channel->led && write(channel->poke, &one, sizeof(one)) < 0)
        return; /* its counter is full: the leader is poked already */
}

static void take_poke(struct channel *channel)
{
    uint64_t count;
    if (read(channel->poke, &count, sizeof(count)) < 0)
        return; /* taken before */
}

/* Wakes those who wait for `id`. */
static void wake(struct channel *channel, uint64_t id)
{
    for (struct waiter *w = channel->waiters; w; w = w->next)
        if (w->id == id)
            sem_post(&w->wake);
}

int channel_dead_error(struct channel *channel)
{
    return error_set(channel->dead, "%s", channel->dead_text);
}

void channel_fail(struct channel *channel, int status, const char *text)
{
    if (channel->dead)
        return;
    channel->dead = status;
    if (channel->daemon_pid > 0)
        snprintf(channel->dead_text, sizeof(channel->dead_text),
            "the connection to f8gatherd (pid %d) at %s is lost: %s", (int)channel->daemon_pid,
            channel->socket, text);
    else /* before the greeting */
        snprintf(channel->dead_text, sizeof(channel->dead_text),
            "f8gatherd at %s did not take the connection: %s", channel->socket, text);
    channel->num_posts = 0;
    shutdown(channel->fd, SHUT_RDWR);
    for (struct waiter *w = channel->waiters; w; w = w->next)
        sem_post(&w->wake);
    channel_poke(channel);
}

/* The numbers of a reply's body; what they are depends on the body. */
static void read_body(const F8__Reply *message, struct channel_reply *reply)
{
    reply->body = message->body_case;
    switch (message->body_case) {
    case F8__REPLY__BODY_REGION:
        reply->first = message->region->region;
        reply->second = message->region->size;
        break;
    case F8__REPLY__BODY_JOIN:
        reply->first = message->join->group;
        reply->second = message->join->generation;
        break;
    case F8__REPLY__BODY_SEAL:
        reply->first = message->seal->arena_size;
        reply->second = message->seal->syncs;
        break;
    case F8__REPLY__BODY_GATHER:
        reply->first = message->gather->offset;
        reply->second = message->gather->use;
        reply->done = message->gather->done;
        break;
    case F8__REPLY__BODY_METRICS:
        reply->first = message->metrics->size;
        break;
    case F8__REPLY__BODY_EXPORT:
        reply->first = message->export->size;
        reply->second = message->export->syncs;
        break;
    case F8__REPLY__BODY_DONE:
        reply->done = message->done->done;
        break;
    case F8__REPLY__BODY_PING:
        reply->first = message->ping->uptime_ms;
        break;
    default:
        break;
    }
}

/* A reply that belongs to no request: the daemon's last words (id 0), or garbage. */
static void deliver_stray(struct channel *channel, const F8__Reply *message)
{
    char text[256];
    if (message->id == 0 && message->status != F8_OK) {
        channel_fail(channel, message->status, message->text);
        return;
    }
    snprintf(text, sizeof(text),
        "the daemon answered request %llu with status %d, but no such request is open or there is "
        "no such status",
        (unsigned long long)message->id, message->status);
    channel_fail(channel, F8_EPROTO, text);
}

/* Puts a reply, with the descriptor that came, into its entry and wakes who waits for it. */
static void deliver(struct channel *channel, const F8__Reply *message, int fd, size_t length)
{
    struct pending *entry = pending_find(&channel->pending, message->id);
    if (!entry || entry->state == PENDING_ENDED || message->status > 0) {
        if (fd >= 0)
            close(fd);
        deliver_stray(channel, message);
        return;
    }
    entry->reply = (struct channel_reply){.status = message->status, .fd = fd};
    if (entry->state == PENDING_ABANDONED) {
        pending_close(&channel->pending, entry);
        return;
    }
    read_body(message, &entry->reply);
    if (message->status != F8_OK)
        entry->text = strdup(message->text);
    else if (entry->whole)
        entry->message = f8__reply__unpack(NULL, length, channel->receiver.packet);
    entry->state = PENDING_ENDED;
    wake(channel, message->id);
}

/* Receives one packet; by the leader, without the lock. */
static void receive(struct channel *channel)
{
    F8__Reply *message = NULL;
    int fd = -1;
    size_t length = 0;
    int status = wire_receive(channel->fd, &channel->receiver, &message, &fd, &length);
    if (status == WIRE_AGAIN)
        return;
    pthread_mutex_lock(&channel->lock);
    if (status == F8_OK)
        deliver(channel, message, fd, length);
    else
        channel_fail(channel, status, status == F8_ECONN ? "closed by the daemon" : error_text());
    pthread_mutex_unlock(&channel->lock);
    if (status != F8_OK)
        return;
    wire_reply_free(&channel->receiver, message);
    atomic_fetch_add_explicit(&channel->received, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&channel->received_bytes, length, memory_order_relaxed);
}

/* There is room again: for the thread that waits for it, or else for the posts. */
static void use_room(struct channel *channel)
{
    channel->want_room = false;
    for (struct waiter *w = channel->waiters; w; w = w->next)
        if (w->id == 0)
            w->room = true;
    wake(channel, 0);
    if (channel->num_posts == 0)
        return;
    pthread_mutex_unlock(&channel->lock);
    channel_send_posts(channel);
    pthread_mutex_lock(&channel->lock);
}

/* One turn of the leader: polls until something comes, and takes it. The lock is dropped. */
static int lead_once(struct channel *channel, int timeout_ms)
{
    short events = (short)(POLLIN | (channel->want_room ? POLLOUT : 0));
    struct pollfd fds[2] = {
        {.fd = channel->fd, .events = events}, {.fd = channel->poke, .events = POLLIN}};
    pthread_mutex_unlock(&channel->lock);
    int ready = poll(fds, 2, timeout_ms);
    if (ready > 0 && fds[1].revents)
        take_poke(channel);
    if (ready > 0 && fds[0].revents & ~POLLOUT)
        receive(channel);
    pthread_mutex_lock(&channel->lock);
    if (ready > 0 && fds[0].revents & POLLOUT)
        use_room(channel);
    if (ready > 0)
        return F8_OK;
    if (ready == 0)
        return F8_EDEADLINE;
    return F8_EINTR; /* or the kernel has no memory for a poll: the caller may try again too */
}

/* Sleeps until woken. The lock is dropped. */
static int follow_once(struct channel *channel, struct waiter *w, int64_t deadline)
{
    struct timespec until = {
        .tv_sec = (time_t)(deadline / 1000), .tv_nsec = (long)(deadline % 1000) * 1000000};
    pthread_mutex_unlock(&channel->lock);
    int rc = deadline == CHANNEL_NEVER ? sem_wait(&w->wake)
                                       : sem_clockwait(&w->wake, CLOCK_MONOTONIC, &until);
    int error = errno;
    pthread_mutex_lock(&channel->lock);
    if (rc == 0)
        return F8_OK;
    return error == EINTR ? F8_EINTR : F8_EDEADLINE;
}

static bool is_over(struct channel *channel, const struct waiter *w)
{
    if (channel->dead)
        return true;
    if (w->id == 0)
        return w->room;
    const struct pending *entry = pending_find(&channel->pending, w->id);
    return !entry || entry->state != PENDING_OPEN;
}

static void remove_waiter(struct channel *channel, const struct waiter *w)
{
    struct waiter **link = &channel->waiters;
    while (*link != w)
        link = &(*link)->next;
    *link = w->next;
}

/* Hands the lead to one who waits, if anyone does. */
static void stop_leading(struct channel *channel)
{
    channel->led = false;
    if (channel->waiters)
        sem_post(&channel->waiters->wake);
}

/*
 * Leads or follows until what `w` waits for is over: F8_OK, F8_EDEADLINE, F8_EINTR. Whoever
 * leaves while nobody leads wakes another, who may have been asleep when the lead was offered.
 */
static int await(struct channel *channel, struct waiter *w, int64_t deadline)
{
    int status = F8_OK;
    bool leading = false;
    sem_init(&w->wake, 0, 0);
    w->next = channel->waiters;
    channel->waiters = w;
    while (status == F8_OK && !is_over(channel, w)) {
        if (!leading && !channel->led)
            leading = channel->led = true;
        status = leading ? lead_once(channel, poll_timeout(deadline))
                         : follow_once(channel, w, deadline);
    }
    if (is_over(channel, w))
        status = F8_OK;
    remove_waiter(channel, w);
    if (leading || !channel->led)
        stop_leading(channel);
    sem_destroy(&w->wake);
    return status;
}

void channel_progress(struct channel *channel)
{
    if (channel->led)
        return;
    channel->led = true;
    while (!channel->dead && lead_once(channel, 0) == F8_OK)
        continue;
    stop_leading(channel);
}

int channel_await_room(struct channel *channel)
{
    struct waiter w = {.id = 0};
    pthread_mutex_lock(&channel->lock);
    channel->want_room = true;
    channel_poke(channel);
    int status = await(channel, &w, CHANNEL_NEVER);
    if (channel->dead)
        status = channel_dead_error(channel);
    else if (status == F8_EINTR)
        error_set(status, "a signal came before the request was sent; call again");
    pthread_mutex_unlock(&channel->lock);
    return status;
}

/* Moves the reply out of an entry that is over, and closes it. */
static void take_reply(struct channel *channel, struct pending *entry,
    struct channel_reply *ret_reply, F8__Reply **ret_message)
{
    if (entry->state == PENDING_OPEN) {
        entry->reply.status = channel_dead_error(channel);
    } else if (entry->reply.status != F8_OK) {
        const char *text =
            entry->text && entry->text[0] ? entry->text : f8_proto_status_text(entry->reply.status);
        error_set(entry->reply.status, "%s", text);
    }
    *ret_reply = entry->reply;
    if (entry->reply.status == F8_OK)
        entry->reply.fd = -1;
    else
        ret_reply->fd = -1;
    if (ret_message) {
        *ret_message = entry->message;
        entry->message = NULL;
    }
    pending_close(&channel->pending, entry);
}

static int wait_locked(struct channel *channel, uint64_t id, int64_t deadline,
    struct channel_reply *ret_reply, F8__Reply **ret_message)
{
    struct waiter w = {.id = id};
    int status = is_over(channel, &w) ? F8_OK : await(channel, &w, deadline);
    if (status == F8_EDEADLINE)
        return error_set(status, "no reply yet: the time given to this wait has passed");
    if (status == F8_EINTR)
        return error_set(status, "a signal ended the wait; nothing is lost, wait again");
    struct pending *entry = pending_find(&channel->pending, id);
    if (!entry || entry->state == PENDING_ABANDONED)
        return error_set(F8_ENOENT, "no request %llu is open", (unsigned long long)id);
    take_reply(channel, entry, ret_reply, ret_message);
    return F8_OK;
}

int channel_wait_until(struct channel *channel, uint64_t id, int64_t deadline,
    struct channel_reply *ret_reply, F8__Reply **ret_message)
{
    pthread_mutex_lock(&channel->lock);
    int status = wait_locked(channel, id, deadline, ret_reply, ret_message);
    pthread_mutex_unlock(&channel->lock);
    return status;
}

int channel_wait(
    struct channel *channel, uint64_t id, int timeout_ms, struct channel_reply *ret_reply)
{
    return channel_wait_until(channel, id, channel_deadline(timeout_ms), ret_reply, NULL);
}

int channel_wait_whole(struct channel *channel, uint64_t id, int timeout_ms,
    struct channel_reply *ret_reply, F8__Reply **ret_message)
{
    return channel_wait_until(channel, id, channel_deadline(timeout_ms), ret_reply, ret_message);
}

bool channel_has_reply(struct channel *channel, uint64_t id)
{
    const struct waiter w = {.id = id};
    pthread_mutex_lock(&channel->lock);
    bool over = is_over(channel, &w);
    pthread_mutex_unlock(&channel->lock);
    return over;
}

bool channel_test(struct channel *channel, uint64_t id)
{
    const struct waiter w = {.id = id};
    pthread_mutex_lock(&channel->lock);
    if (!is_over(channel, &w))
        channel_progress(channel);
    bool over = is_over(channel, &w);
    pthread_mutex_unlock(&channel->lock);
    return over;
}

void channel_abandon(struct channel *channel, uint64_t id)
{
    pthread_mutex_lock(&channel->lock);
    struct pending *entry = pending_find(&channel->pending, id);
    if (entry && entry->state == PENDING_OPEN && !channel->dead)
        entry->state = PENDING_ABANDONED;
    else if (entry && entry->state != PENDING_ABANDONED)
        pending_close(&channel->pending, entry);
    wake(channel, id);
    channel_poke(channel);
    pthread_mutex_unlock(&channel->lock);
}
