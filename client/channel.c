/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a channel: connects, says Hello and learns the daemon's version and credit, and
 * closes. Called by client.c and f8ctl on any thread.
 */
#include "client/channel.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/channel_private.h"
#include "client/error.h"
#include "client/socket.h"

/* Entries for open requests: enough for the Hello; then as many as the credit, within reason. */
#define FIRST_SIZE  16
#define MOST_CREDIT 65536

static struct channel *channel_new(void)
{
    struct channel *channel = calloc(1, sizeof(*channel));
    if (!channel)
        return NULL;
    channel->fd = channel->poke = -1;
    channel->limit = CHANNEL_NEVER;
    pthread_mutex_init(&channel->send_lock, NULL);
    pthread_mutex_init(&channel->lock, NULL);
    wire_receiver_init(&channel->receiver);
    if (pending_init(&channel->pending, FIRST_SIZE) != F8_OK) {
        free(channel);
        return NULL;
    }
    return channel;
}

static void fill_hello(F8__Hello *hello, const struct channel_options *options)
{
    f8__hello__init(hello);
    hello->major = F8_PROTO_MAJOR;
    hello->minor = F8_PROTO_MINOR;
    hello->library_version = (char *)(uintptr_t)F8_VERSION;
    hello->role = options->role;
    static char *capabilities[] = {(char *)"arena.memfd"};
    hello->capabilities = capabilities;
    hello->n_capabilities = sizeof(capabilities) / sizeof(capabilities[0]);
    if (options->job)
        hello->job = (char *)(uintptr_t)options->job;
    if (options->token) {
        hello->token.data = (uint8_t *)(uintptr_t)options->token;
        hello->token.len = strlen(options->token);
    }
}

static int take_hello(struct channel *channel, const F8__Reply *reply)
{
    if (reply->body_case != F8__REPLY__BODY_HELLO)
        return error_set(F8_EPROTO,
            "whoever listens at %s did not answer the Hello with one; is "
            "it f8gatherd?",
            channel->socket);
    const F8__HelloReply *hello = reply->hello;
    if (hello->major != F8_PROTO_MAJOR)
        return error_set(F8_EVERSION,
            "f8gatherd %s at %s speaks protocol %u.%u, this library (%s) "
            "speaks %d.%d: install versions that match",
            hello->daemon_version, channel->socket, hello->major, hello->minor, F8_VERSION,
            F8_PROTO_MAJOR, F8_PROTO_MINOR);
    channel->daemon_pid = (pid_t)hello->pid;
    /* Whoever names none has what protocol 1.0 has, which is all that there is today. */
    channel->capabilities =
        hello->n_capabilities == 0
            ? ~UINT64_C(0)
            : f8_proto_capability_set(hello->capabilities, hello->n_capabilities);
    channel->daemon_version = strdup(hello->daemon_version);
    if (!channel->daemon_version)
        return error_set(F8_ENOMEM, "no memory for a connection");
    return pending_reserve(
        &channel->pending, hello->credit < MOST_CREDIT ? hello->credit : MOST_CREDIT);
}

static int say_hello(
    struct channel *channel, const struct channel_options *options, int patience_ms)
{
    F8__Hello hello;
    fill_hello(&hello, options);
    F8__Request request = F8__REQUEST__INIT;
    request.body_case = F8__REQUEST__BODY_HELLO;
    request.hello = &hello;
    F8__Reply *reply = NULL;
    channel->heeds_signals = options->heeds_signals;
    int status = channel_ask(channel, &request, patience_ms, &reply);
    channel->heeds_signals = false;
    if (status == F8_EDEADLINE)
        return error_set(F8_ENODAEMON,
            "f8gatherd at %s did not answer within %g s; it may be "
            "stopped",
            channel->socket, patience_ms / 1e3);
    if (status == F8_EINTR)
        return error_set(status, "a signal came while a daemon was looked for");
    if (status != F8_OK)
        return status;
    status = take_hello(channel, reply);
    f8__reply__free_unpacked(reply, NULL);
    return status;
}

int channel_open(const struct channel_options *options, struct channel **ret_channel)
{
    struct channel *channel = channel_new();
    if (!channel)
        return error_set(F8_ENOMEM, "no memory for a connection");
    int status = F8_OK;
    int patience_ms = options->timeout_ms > 0 ? options->timeout_ms : SOCKET_PATIENCE_MS;
    channel->poke = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (channel->poke < 0)
        status = error_set(F8_ELIMIT, "no descriptor for a connection; raise ulimit -n");
    if (status == F8_OK)
        status = socket_connect(
            options->socket, patience_ms, &channel->fd, channel->socket, sizeof(channel->socket));
    if (status == F8_OK)
        status = say_hello(channel, options, patience_ms);
    if (status != F8_OK) {
        channel_close(channel);
        return status;
    }
    *ret_channel = channel;
    return F8_OK;
}

void channel_close_child(struct channel *channel)
{
    if (!channel)
        return;
    if (channel->fd >= 0)
        close(channel->fd);
    if (channel->poke >= 0)
        close(channel->poke);
    pending_done(&channel->pending);
    free(channel->posts);
    free(channel->daemon_version);
    free(channel);
}

/* Without it, a process that ends right after closing would be taken for one that died. */
static void say_goodbye(struct channel *channel)
{
    uint8_t packet[16];
    F8__Goodbye goodbye = F8__GOODBYE__INIT;
    F8__Request request = F8__REQUEST__INIT;
    request.body_case = F8__REQUEST__BODY_GOODBYE;
    request.goodbye = &goodbye;
    /* If there is no room for it, the daemon sees no more than an end. */
    (void)wire_send(channel->fd, packet, f8__request__pack(&request, packet), NULL);
}

bool channel_is_lost(struct channel *channel)
{
    pthread_mutex_lock(&channel->lock);
    bool lost = channel->dead == F8_ECONN;
    pthread_mutex_unlock(&channel->lock);
    return lost;
}

void channel_hang_up(struct channel *channel)
{
    pthread_mutex_lock(&channel->send_lock);
    pthread_mutex_lock(&channel->lock);
    if (channel->daemon_pid && !channel->dead)
        say_goodbye(channel);
    channel_fail(channel, F8_ECONN, "this client left it");
    pthread_mutex_unlock(&channel->lock);
    pthread_mutex_unlock(&channel->send_lock);
}

void channel_close(struct channel *channel)
{
    if (channel && channel->fd >= 0) {
        if (channel->daemon_pid && !channel->dead)
            say_goodbye(channel);
        /* Closing alone would not end it while a forked child holds the socket too. */
        shutdown(channel->fd, SHUT_RDWR);
    }
    if (channel) {
        pthread_mutex_destroy(&channel->send_lock);
        pthread_mutex_destroy(&channel->lock);
    }
    channel_close_child(channel);
}

/* Sends and waits, going on after signals unless they are heeded. */
static int ask(struct channel *channel, F8__Request *request, const struct wire_fds *fds,
    int64_t deadline, struct channel_reply *ret_reply, F8__Reply **ret_message)
{
    uint64_t id;
    int status;
    do
        status = channel_send_with(channel, request, fds, ret_message != NULL, &id);
    while (status == F8_EINTR && !channel->heeds_signals);
    if (status != F8_OK)
        return status;
    do
        status = channel_wait_until(channel, id, deadline, ret_reply, ret_message);
    while (status == F8_EINTR && !channel->heeds_signals);
    if (status == F8_EDEADLINE || status == F8_EINTR)
        channel_abandon(channel, id);
    return status == F8_OK ? ret_reply->status : status;
}

void channel_limit(struct channel *channel, int timeout_ms)
{
    channel->limit = channel_deadline(timeout_ms);
}

int channel_call(
    struct channel *channel, F8__Request *request, int memfd, struct channel_reply *ret_reply)
{
    return channel_call_with(channel, request, &memfd, memfd >= 0, ret_reply);
}

int channel_call_with(struct channel *channel, F8__Request *request, const int *fds, uint32_t count,
    struct channel_reply *ret_reply)
{
    const struct wire_fds with = {.fds = fds, .count = count};
    struct channel_reply reply;
    int status = ask(channel, request, &with, channel->limit, &reply, NULL);
    if (status == F8_OK && ret_reply)
        *ret_reply = reply;
    else if (status == F8_OK && reply.fd >= 0)
        close(reply.fd);
    return status;
}

int channel_ask(
    struct channel *channel, F8__Request *request, int timeout_ms, F8__Reply **ret_reply)
{
    struct channel_reply reply = {.fd = -1};
    F8__Reply *message = NULL;
    int status = ask(channel, request, NULL, channel_deadline(timeout_ms), &reply, &message);
    if (reply.fd >= 0)
        close(reply.fd);
    if (status == F8_OK && !message)
        status = error_set(F8_ENOMEM, "no memory for a reply");
    if (status == F8_OK)
        *ret_reply = message;
    return status;
}

const char *channel_socket(const struct channel *channel)
{
    return channel->socket;
}

const char *channel_daemon_version(const struct channel *channel)
{
    return channel->daemon_version;
}

pid_t channel_daemon_pid(const struct channel *channel)
{
    return channel->daemon_pid;
}

bool channel_can(const struct channel *channel, enum f8_capability capability)
{
    return channel->capabilities & f8_proto_capability_bit(capability);
}

void channel_traffic(struct channel *channel, struct channel_traffic *ret_traffic)
{
    *ret_traffic = (struct channel_traffic){
        .sent = atomic_load_explicit(&channel->sent, memory_order_relaxed),
        .received = atomic_load_explicit(&channel->received, memory_order_relaxed),
        .sent_bytes = atomic_load_explicit(&channel->sent_bytes, memory_order_relaxed),
        .received_bytes = atomic_load_explicit(&channel->received_bytes, memory_order_relaxed),
    };
}
