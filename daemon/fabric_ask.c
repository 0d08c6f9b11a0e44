/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands to the helper of a fabric: each is copied into one run of bytes, of which the socket
 * takes what it can at once and the loop sends the rest; a deadline goes with it. Called on the
 * loop.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/fabric_private.h"
#include "proto/status.h"

void fabric_out_done(struct fabric_out *out)
{
    if (out->fd >= 0)
        (void)close(out->fd);
    free(out->data);
    *out = (struct fabric_out){.fd = -1};
}

static ssize_t send_some(const struct fabric *fabric)
{
    const struct fabric_out *out = &fabric->out;
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec bytes = {.iov_base = out->data + out->sent, .iov_len = out->size - out->sent};
    struct msghdr message = {.msg_iov = &bytes, .msg_iovlen = 1};
    if (out->fd >= 0 && out->sent == 0) {
        message.msg_control = &control;
        message.msg_controllen = sizeof(control.space);
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(&control.header), &out->fd, sizeof(int));
    }
    return sendmsg(fabric->socket, &message, MSG_NOSIGNAL);
}

void fabric_flush(struct fabric *fabric)
{
    struct fabric_out *out = &fabric->out;
    while (out->sent < out->size) {
        ssize_t size = send_some(fabric);
        if (size < 0 && errno == EINTR)
            continue;
        if (size < 0)
            break;
        out->sent += (size_t)size;
    }
    /* An error means that the helper has ended: its end says more, and comes by itself. */
    if (out->sent == out->size || (errno != EAGAIN && errno != EWOULDBLOCK))
        fabric_out_done(out);
    fabric_watch(fabric);
}

static void on_deadline(uv_timer_t *timer)
{
    struct fabric *fabric = timer->data;
    fabric_fail(fabric, F8_EDEADLINE,
        "the engine (" FABRIC_HELPER ", pid %d) did not %s within %" PRIu64 " ms",
        fabric->process.pid, fabric_doing(fabric), fabric->deadline_ms);
}

/* Opens a command; gives where its payload goes. NULL: no memory, and the fabric fails. */
static uint8_t *begin(struct fabric *fabric, const struct fabric_ask *ask, uint64_t deadline_ms)
{
    struct fabric_out *out = &fabric->out;
    assert(!fabric->busy && !fabric->closed && !out->data);
    fabric->busy = true;
    fabric->command = (enum fabric_command)ask->command;
    fabric->deadline_ms = deadline_ms;
    fabric->in = (struct fabric_in){0};
    size_t size = sizeof(*ask) + ask->payload;
    uint8_t *data = malloc(size);
    if (!data) {
        fabric_fail(fabric, F8_ENOMEM, "no memory for a command of %zu bytes to the engine", size);
        return NULL;
    }
    memcpy(data, ask, sizeof(*ask));
    out->data = data;
    out->size = size;
    return data + sizeof(*ask);
}

static void end(struct fabric *fabric)
{
    uv_update_time(fabric->deadline.loop);
    (void)uv_timer_start(&fabric->deadline, on_deadline, fabric->deadline_ms, 0);
    fabric_flush(fabric);
}

void fabric_ask_open(struct fabric *fabric, const struct fabric_open *open, uint64_t deadline_ms)
{
    struct fabric_ask ask = {.command = FABRIC_OPEN, .size = deadline_ms, .payload = sizeof(*open)};
    uint8_t *payload = begin(fabric, &ask, deadline_ms);
    if (!payload)
        return;
    memcpy(payload, open, sizeof(*open));
    end(fabric);
}

static uint8_t *put_sized(uint8_t *payload, const void *data, size_t length)
{
    uint32_t size = (uint32_t)length;
    memcpy(payload, &size, sizeof(size));
    memcpy(payload + sizeof(size), data, size);
    return payload + sizeof(size) + size;
}

void fabric_connect(struct fabric *fabric, const struct fabric_peer *peers, uint64_t deadline_ms)
{
    struct fabric_ask ask = {
        .command = FABRIC_CONNECT, .count = fabric->hosts, .size = deadline_ms};
    for (uint32_t i = 0; i < ask.count; i++)
        ask.payload += 2 * sizeof(uint32_t) + strlen(peers[i].name) + peers[i].address_size;
    uint8_t *payload = begin(fabric, &ask, deadline_ms);
    if (!payload)
        return;
    for (uint32_t i = 0; i < ask.count; i++) {
        payload = put_sized(payload, peers[i].name, strlen(peers[i].name));
        payload = put_sized(payload, peers[i].address, peers[i].address_size);
    }
    end(fabric);
}

void fabric_map(struct fabric *fabric, int fd, uint64_t size, uint64_t deadline_ms)
{
    struct fabric_ask ask = {.command = FABRIC_MAP, .size = size};
    if (!begin(fabric, &ask, deadline_ms))
        return;
    if (size > 0)
        fabric->out.fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (size > 0 && fabric->out.fd < 0)
        fabric_fail(fabric, F8_ELIMIT, "cannot hand the arena to the engine: %s", strerror(errno));
    else
        end(fabric);
}

void fabric_reduce(
    struct fabric *fabric, uint64_t tag, uint32_t *values, uint32_t count, uint64_t deadline_ms)
{
    struct fabric_ask ask = {.command = FABRIC_REDUCE,
        .count = count,
        .size = deadline_ms,
        .tag = tag,
        .payload = (uint64_t)count * sizeof(*values)};
    fabric->values = values;
    fabric->num_values = count;
    uint8_t *payload = begin(fabric, &ask, deadline_ms);
    if (!payload)
        return;
    if (count > 0)
        memcpy(payload, values, ask.payload);
    end(fabric);
}

void fabric_exchange(struct fabric *fabric, const struct fabric_span *spans, uint32_t num_spans,
    uint64_t deadline_ms)
{
    struct fabric_ask ask = {.command = FABRIC_EXCHANGE,
        .count = num_spans,
        .size = deadline_ms,
        .payload = (uint64_t)num_spans * sizeof(*spans)};
    uint8_t *payload = begin(fabric, &ask, deadline_ms);
    if (!payload)
        return;
    if (num_spans > 0)
        memcpy(payload, spans, ask.payload);
    end(fabric);
}
