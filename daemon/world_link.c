/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection between a host and the root of its world: the proof of the token, both ways, before
 * anything else is looked at; then frames, bounded queues, and the detection of ends that are
 * silent. Knows nothing of ranks. Called by root and host, on the loop.
 *
 * Silence is counted from one of our own heartbeats to the next, each for little more than it
 * should last: a daemon that was stopped itself must not take all others for lost when it goes on.
 */
#include "daemon/world_link.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#define HIGH_WATER ((size_t)32 << 20)  /* that wait to be sent: then nothing more should come */
#define LOW_WATER  ((size_t)8 << 20)   /* then it may again */
#define MOST_WAIT  ((size_t)256 << 20) /* then the link is given up */

/* A frame on its way. */
struct write {
    uv_write_t request;
    struct world_frame *frame; /* a reference */
};

static void on_closed(uv_handle_t *handle)
{
    struct world_link *link = handle->data;
    if (--link->handles > 0)
        return;
    world_frame_drop(link->frame);
    free(link);
}

void link_close_handles(struct world_link *link)
{
    if (link->state == LINK_CLOSED)
        return;
    link->state = LINK_CLOSED;
    link->listener = NULL;
    link->traffic = NULL;
    uv_close((uv_handle_t *)&link->tcp, on_closed);
    uv_close((uv_handle_t *)&link->timer, on_closed);
}

void link_lose(struct world_link *link, int status, const struct reason *reason)
{
    const struct world_link_listener *listener = link->listener;
    link->listener = NULL;
    link->traffic = NULL;
    if (listener)
        listener->lost(link, status, reason);
    link_close_handles(link);
}

void link_lose_to(struct world_link *link, int error)
{
    struct reason reason;
    if (error == UV_EOF)
        (void)reason_set(&reason, F8_ECONN, "its connection ended");
    else
        (void)reason_set(&reason, F8_ECONN, "its connection failed: %s", uv_strerror(error));
    link_lose(link, F8_ECONN, &reason);
}

static void lose_failed(struct world_link *link)
{
    struct reason reason;
    if (link->failed == F8_ELIMIT)
        (void)reason_set(
            &reason, F8_ELIMIT, "more than %zu MiB wait to be sent to it", MOST_WAIT >> 20);
    else if (link->failed == F8_ENOMEM)
        (void)reason_set(&reason, F8_ENOMEM, "out of memory for what is sent to it");
    else
        (void)reason_set(&reason, F8_ECONN, "nothing can be sent to it");
    link_lose(link, link->failed, &reason);
}

static void lose_unproved(struct world_link *link)
{
    struct reason reason;
    (void)reason_set(&reason, F8_EDEADLINE, "it did not %s within %" PRIu64 " s",
        link->state == LINK_CONNECT ? "answer"
        : link->state == LINK_OPEN  ? "say what it is here for"
                                    : "prove that it holds the unique id",
        (link->accepted ? (uint64_t)WORLD_PROOF_MS : link->worlds->config->host_timeout_ms) / 1000);
    link_lose(link, F8_EDEADLINE, &reason);
}

/* ---- heartbeats ---- */

static bool is_over(const struct world_link *link, uint64_t ms)
{
    return ms >= link->worlds->config->host_timeout_ms;
}

/* Since the last beat; of a long stop of our own only as much as a busy machine explains. */
static uint64_t since_last_beat(struct world_link *link)
{
    uint64_t now = uv_now(link->worlds->loop), passed = now - link->beat_at;
    uint64_t most = link->worlds->config->heartbeat_ms * 3 / 2;
    link->beat_at = now;
    return passed < most ? passed : most;
}

/* Nothing is heard of whom we do not read. */
static void count_silence(struct world_link *link, uint64_t passed)
{
    link->silent_ms = link->heard || link->paused ? 0 : link->silent_ms + passed;
    link->heard = false;
}

/* The root's end only: a host's may have to wait for the root, which waits for others. */
static void count_stall(struct world_link *link, uint64_t passed)
{
    size_t waiting = uv_stream_get_write_queue_size((const uv_stream_t *)&link->tcp);
    uint64_t taken = link->queued - waiting;
    bool stalls = link->accepted && waiting > 0 && taken == link->taken;
    link->stalled_ms = stalls ? link->stalled_ms + passed : 0;
    link->taken = taken;
}

static void beat(struct world_link *link)
{
    struct reason reason;
    double seconds = (double)link->worlds->config->host_timeout_ms / 1000;
    uint64_t passed = since_last_beat(link);
    count_silence(link, passed);
    count_stall(link, passed);
    if (is_over(link, link->silent_ms)) {
        (void)reason_set(&reason, F8_EDEADLINE, "nothing was heard of it for %g s", seconds);
        link_lose(link, F8_EDEADLINE, &reason);
    } else if (is_over(link, link->stalled_ms)) {
        (void)reason_set(&reason, F8_EDEADLINE, "it took nothing of %zu waiting bytes for %g s",
            uv_stream_get_write_queue_size((const uv_stream_t *)&link->tcp), seconds);
        link_lose(link, F8_EDEADLINE, &reason);
    } else if (link->listener && link->listener->tick) {
        link->listener->tick(link);
    }
}

static void on_timer(uv_timer_t *timer)
{
    struct world_link *link = timer->data;
    if (link->state == LINK_CLOSING)
        link_close_handles(link);
    else if (link->failed)
        lose_failed(link);
    else if (!link->settled)
        lose_unproved(link);
    else
        beat(link);
}

void world_link_settle(struct world_link *link)
{
    uint64_t every = link->worlds->config->heartbeat_ms;
    assert(link->state == LINK_OPEN);
    link->settled = true;
    link->beat_at = uv_now(link->worlds->loop);
    (void)uv_timer_start(&link->timer, on_timer, every, every);
}

uint64_t world_link_silent_ms(const struct world_link *link)
{
    return uv_now(link->worlds->loop) - link->heard_at;
}

/* ---- sending ---- */

/* Not from within the owner's call. */
static void fail_later(struct world_link *link, int status)
{
    if (link->state >= LINK_CLOSING || link->failed)
        return;
    link->failed = status;
    (void)uv_timer_start(&link->timer, on_timer, 0, 0);
}

static void on_written(uv_write_t *request, int status)
{
    struct write *write = (struct write *)request;
    struct world_link *link = request->data;
    world_frame_drop(write->frame);
    free(write);
    if (link->state >= LINK_CLOSING)
        return;
    if (status < 0) {
        link_lose_to(link, status);
        return;
    }
    size_t waiting = uv_stream_get_write_queue_size((const uv_stream_t *)&link->tcp);
    if (!link->full || waiting > LOW_WATER)
        return;
    link->full = false;
    if (link->listener)
        link->listener->drained(link);
}

void world_link_send(struct world_link *link, struct world_frame *frame)
{
    if (link->failed || link->state == LINK_CLOSED)
        return;
    struct write *write = frame ? malloc(sizeof(*write)) : NULL;
    if (!write) {
        fail_later(link, F8_ENOMEM);
        return;
    }
    write->frame = world_frame_keep(frame);
    write->request.data = link;
    uv_buf_t buffer = uv_buf_init((char *)frame->bytes, (unsigned)frame->size);
    if (uv_write(&write->request, (uv_stream_t *)&link->tcp, &buffer, 1, on_written) < 0) {
        world_frame_drop(write->frame);
        free(write);
        fail_later(link, F8_ECONN);
        return;
    }
    link->queued += frame->size;
    if (link->traffic)
        link->traffic->sent += frame->size;
    if (uv_stream_get_write_queue_size((const uv_stream_t *)&link->tcp) > MOST_WAIT)
        fail_later(link, F8_ELIMIT);
}

void link_send_fixed(struct world_link *link, const uint8_t *bytes, size_t size)
{
    struct world_frame *frame = world_frame_grow(NULL, size, size);
    if (frame) {
        memcpy(frame->bytes, bytes, size);
        frame->size = size;
    }
    world_link_send(link, frame);
    world_frame_drop(frame);
}

bool world_link_is_full(const struct world_link *link)
{
    /* Told again when it is not: see on_written. */
    struct world_link *told = (struct world_link *)link;
    if (uv_stream_get_write_queue_size((const uv_stream_t *)&link->tcp) > HIGH_WATER)
        told->full = true;
    return link->full;
}

static void on_shut_down(uv_shutdown_t *request, int status)
{
    struct world_link *link = request->data;
    if (status < 0 && status != UV_ECANCELED)
        link_close_handles(link);
}

/* What waits goes out; the other end is read, unheard, until it closes: else its last would be
 * answered by a reset, which takes away what it has not read yet. */
void link_flush(struct world_link *link)
{
    link->state = LINK_CLOSING;
    link->listener = NULL;
    link->traffic = NULL;
    world_link_pause(link, false);
    link->shutdown.data = link;
    (void)uv_timer_start(&link->timer, on_timer, WORLD_FLUSH_MS, 0);
    if (uv_shutdown(&link->shutdown, (uv_stream_t *)&link->tcp, on_shut_down) < 0)
        link_close_handles(link);
}

void world_link_close(struct world_link *link, struct world_frame *last)
{
    if (link->state == LINK_OPEN && !link->failed) {
        if (last)
            world_link_send(link, last);
        link_flush(link);
    } else if (link->state < LINK_CLOSING) {
        link_close_handles(link);
    }
    world_frame_drop(last);
}

void world_link_pause(struct world_link *link, bool pause)
{
    if (link->paused == pause || link->state == LINK_CLOSED)
        return;
    link->paused = pause;
    if (pause)
        (void)uv_read_stop((uv_stream_t *)&link->tcp);
    else
        (void)uv_read_start((uv_stream_t *)&link->tcp, link_alloc, link_read);
}

/* ---- beginnings ---- */

static struct world_link *link_new(struct worlds *worlds, const struct world_link_options *options)
{
    struct world_link *link = calloc(1, sizeof(*link));
    if (!link)
        return NULL;
    if (uv_tcp_init(worlds->loop, &link->tcp) < 0) {
        free(link);
        return NULL;
    }
    (void)uv_timer_init(worlds->loop, &link->timer);
    link->handles = 2;
    link->tcp.data = link->timer.data = link;
    link->worlds = worlds;
    link->heard_at = uv_now(worlds->loop);
    link->listener = options->listener;
    link->owner = options->owner;
    link->traffic = options->traffic;
    link->id = *options->id;
    return link;
}

int world_link_accept(struct worlds *worlds, uv_stream_t *listener,
    const struct world_link_options *options, struct world_link **ret_link)
{
    uint8_t challenge[WORLD_CHALLENGE_SIZE];
    struct world_link *link = link_new(worlds, options);
    if (!link)
        return F8_ENOMEM;
    link->accepted = true;
    if (uv_accept(listener, (uv_stream_t *)&link->tcp) < 0 ||
        world_random(link->root_nonce, WORLD_NONCE_SIZE) < 0) {
        link_close_handles(link);
        return F8_EIO;
    }
    (void)uv_tcp_nodelay(&link->tcp, 1);
    memcpy(challenge, world_magic, sizeof(world_magic));
    memcpy(challenge + sizeof(world_magic), link->root_nonce, WORLD_NONCE_SIZE);
    link_expect(link, LINK_ANSWER, WORLD_ANSWER_SIZE);
    (void)uv_timer_start(&link->timer, on_timer, WORLD_PROOF_MS, 0);
    (void)uv_read_start((uv_stream_t *)&link->tcp, link_alloc, link_read);
    link_send_fixed(link, challenge, sizeof(challenge));
    *ret_link = link;
    return F8_OK;
}

static void on_connected(uv_connect_t *request, int status)
{
    struct world_link *link = request->data;
    if (link->state == LINK_CLOSED)
        return;
    if (status == UV_ECONNREFUSED) {
        struct reason reason;
        (void)reason_set(&reason, F8_ENOENT,
            "nobody listens there any more; an id is for one group, and for as long as "
            "--world-deadline "
            "says: make a new one");
        link_lose(link, F8_ENOENT, &reason);
        return;
    }
    if (status < 0) {
        link_lose_to(link, status);
        return;
    }
    (void)uv_tcp_nodelay(&link->tcp, 1);
    link_expect(link, LINK_CHALLENGE, WORLD_CHALLENGE_SIZE);
    (void)uv_read_start((uv_stream_t *)&link->tcp, link_alloc, link_read);
}

int world_link_connect(struct worlds *worlds, const struct sockaddr_storage *from,
    const struct world_link_options *options, struct world_link **ret_link, struct reason *reason)
{
    struct world_link *link = link_new(worlds, options);
    if (!link)
        return reason_set(reason, F8_ENOMEM, "out of memory for a connection");
    int error = from ? uv_tcp_bind(&link->tcp, (const struct sockaddr *)from, 0) : 0;
    link->connect.data = link;
    if (error == 0 && world_random(link->host_nonce, WORLD_NONCE_SIZE) < 0)
        error = UV_EIO;
    if (error == 0)
        error = uv_tcp_connect(&link->connect, &link->tcp,
            (const struct sockaddr *)&options->id->address, on_connected);
    if (error < 0) {
        link_close_handles(link);
        return reason_set(reason, F8_ECONN, "it cannot be reached: %s", uv_strerror(error));
    }
    (void)uv_timer_start(&link->timer, on_timer, worlds->config->host_timeout_ms, 0);
    *ret_link = link;
    return F8_OK;
}

void world_link_count(struct world_link *link, struct world_traffic *traffic)
{
    link->traffic = traffic;
}

void *world_link_owner(const struct world_link *link)
{
    return link->owner;
}

bool world_link_is_proved(const struct world_link *link)
{
    return link->state == LINK_OPEN;
}

int world_link_address(
    const struct world_link *link, bool here, struct sockaddr_storage *ret_address)
{
    int size = sizeof(*ret_address);
    int error = here ? uv_tcp_getsockname(&link->tcp, (struct sockaddr *)ret_address, &size)
                     : uv_tcp_getpeername(&link->tcp, (struct sockaddr *)ret_address, &size);
    return error < 0 ? F8_EIO : F8_OK;
}
