/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A message is a header (a mark, the type, and the size, in little endian) and its bytes. Called by
 * the parent's rooms hosts_*.c, in its only thread.
 */
#include "link.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* "F8BN", which no other protocol begins with. */
#define MARK UINT32_C(0x4e423846)

/* How long the other end may take nothing. */
#define SEND_MS 60000

void link_open(struct link *link, int fd)
{
    /* A machine that lost its power, or its cable, is not waited for. */
    const int yes = 1;
    const int idle_s = 5;
    const int interval_s = 5;
    const int probes = 3;
    const unsigned unanswered_ms = 20000;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof(yes));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof(interval_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unanswered_ms, sizeof(unanswered_ms));
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    *link = (struct link){.fd = fd};
}

void link_close(struct link *link)
{
    if (link->fd >= 0) {
        close(link->fd);
    }
    free(link->message.body);
    *link = (struct link){.fd = -1};
}

/* Receives up to so many bytes; 1: all are there; 0: not yet; -1: the other end is gone. */
static int receive(
    struct link *link, uint8_t *to, uint64_t size, uint64_t *got, struct bench_error *error)
{
    while (*got < size) {
        ssize_t piece = recv(link->fd, to + *got, size - *got, 0);
        if (piece == 0) {
            return bench_fail(error, "it closed its connection");
        }
        if (piece < 0 && errno != EAGAIN && errno != EINTR) {
            return bench_fail(error, "%s", strerror(errno));
        }
        if (piece < 0) {
            return 0;
        }
        *got += (uint64_t)piece;
    }
    return 1;
}

static int read_header(struct link *link, uint64_t most, struct bench_error *error)
{
    uint32_t mark;
    uint32_t type;
    uint64_t size;

    memcpy(&mark, link->header, sizeof(mark));
    memcpy(&type, link->header + 4, sizeof(type));
    memcpy(&size, link->header + 8, sizeof(size));
    type = le32toh(type);
    size = le64toh(size);
    if (le32toh(mark) != MARK || type >= NUM_LINK_TYPES) {
        return bench_fail(error, "it does not speak as f8bench does");
    }
    if (size > most) {
        return bench_fail(error,
            "it sends a message of %" PRIu64 " bytes, where %" PRIu64 " are the most", size, most);
    }
    link->message = (struct link_message){.type = (enum link_type)type, .size = size};
    link->message.body = malloc(size + 1);
    return link->message.body != NULL ? 0 : bench_no_memory(error);
}

int link_read(struct link *link, uint64_t most, struct bench_error *error)
{
    int result;

    if (link->message.body != NULL && link->body_got == link->message.size &&
        link->header_got == LINK_HEADER_BYTES) { /* the last one has been looked at */
        free(link->message.body);
        link->message = (struct link_message){0};
        link->header_got = 0;
        link->body_got = 0;
    }
    if (link->message.body == NULL) {
        result = receive(link, link->header, LINK_HEADER_BYTES, &link->header_got, error);
        if (result <= 0) {
            return result;
        }
        if (read_header(link, most, error) != 0) {
            return -1;
        }
    }
    result = receive(link, link->message.body, link->message.size, &link->body_got, error);
    if (result > 0) {
        link->message.body[link->message.size] = 0;
    }
    return result;
}

static int send_all(
    struct link *link, const uint8_t *from, uint64_t size, struct bench_error *error)
{
    struct pollfd ready = {.fd = link->fd, .events = POLLOUT};

    while (size > 0) {
        ssize_t sent = send(link->fd, from, size, MSG_NOSIGNAL);
        if (sent > 0) {
            from += sent;
            size -= (uint64_t)sent;
        } else if (errno != EAGAIN && errno != EINTR) {
            return bench_fail(error, "%s", strerror(errno));
        } else if (poll(&ready, 1, SEND_MS) == 0) {
            return bench_fail(error, "it took nothing for %d s", SEND_MS / 1000);
        }
    }
    return 0;
}

int link_send(struct link *link, enum link_type type, const void *body, uint64_t size,
    struct bench_error *error)
{
    uint8_t header[LINK_HEADER_BYTES];
    uint32_t mark = htole32(MARK);
    uint32_t type_le = htole32((uint32_t)type);
    uint64_t size_le = htole64(size);

    memcpy(header, &mark, sizeof(mark));
    memcpy(header + 4, &type_le, sizeof(type_le));
    memcpy(header + 8, &size_le, sizeof(size_le));
    if (send_all(link, header, sizeof(header), error) != 0) {
        return -1;
    }
    return send_all(link, body, size, error);
}
