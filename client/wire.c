/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packets of the client's end of the socket: sendmsg, recvmsg, SCM_RIGHTS and protobuf. Sending
 * and receiving may run at the same time; each by one thread at a time, as channel.c arranges.
 */
#include "client/wire.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/error.h"

/* Most descriptors that one packet may bring before it counts as garbage. */
#define MAX_DESCRIPTORS 4

union control {
    struct cmsghdr header; /* for the alignment */
    char bytes[CMSG_SPACE(MAX_DESCRIPTORS * sizeof(int))];
};

/* Unpacking without malloc: memory is taken from the front and all given back at once. */
static void *arena_alloc(void *data, size_t size)
{
    struct wire_receiver *receiver = data;
    size_t rounded = (size + 15) & ~(size_t)15;
    if (rounded < size || rounded > sizeof(receiver->arena) - receiver->used)
        return malloc(size);
    void *memory = receiver->arena + receiver->used;
    receiver->used += rounded;
    return memory;
}

static void arena_free(void *data, void *memory)
{
    struct wire_receiver *receiver = data;
    uintptr_t address = (uintptr_t)memory, begin = (uintptr_t)receiver->arena;
    if (address < begin || address >= begin + sizeof(receiver->arena))
        free(memory);
}

void wire_receiver_init(struct wire_receiver *receiver)
{
    receiver->used = 0;
    receiver->allocator =
        (ProtobufCAllocator){.alloc = arena_alloc, .free = arena_free, .allocator_data = receiver};
}

int wire_pack(const F8__Request *request, uint8_t *packet, size_t *ret_length)
{
    size_t length = f8__request__get_packed_size(request);
    if (length > F8_PROTO_MAX_PACKET)
        return error_set(F8_ELIMIT, "a request of %zu bytes is longer than the %d of a packet",
            length, F8_PROTO_MAX_PACKET);
    *ret_length = f8__request__pack(request, packet);
    return F8_OK;
}

static int send_error(int error)
{
    switch (error) {
    case EAGAIN:
        return WIRE_AGAIN;
    case EPIPE:
    case ECONNRESET:
    case ENOTCONN:
        return F8_ECONN;
    case ENOMEM:
    case ENOBUFS:
        return error_set(F8_ENOMEM, "the kernel has no memory for a message: %s", strerror(error));
    case ETOOMANYREFS:
        return error_set(F8_ELIMIT,
            "more memory descriptors are under way to the daemon than ulimit -n allows: raise it");
    case EBADF:
        return error_set(F8_EINVAL, "the memory descriptor to be sent is not open");
    default:
        return error_set(
            F8_EIO, "a message to the daemon was refused by the kernel: %s", strerror(error));
    }
}

int wire_send(int fd, const uint8_t *packet, size_t length, const struct wire_fds *fds)
{
    struct iovec part = {.iov_base = (void *)(uintptr_t)packet, .iov_len = length};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    union {
        struct cmsghdr header; /* for the alignment */
        char bytes[CMSG_SPACE(F8_PROTO_MAX_FDS * sizeof(int))];
    } control;
    if (fds && fds->count > 0) {
        assert(fds->count <= F8_PROTO_MAX_FDS);
        size_t size = fds->count * sizeof(int);
        memset(&control, 0, sizeof(control));
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(size);
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(size);
        memcpy(CMSG_DATA(&control.header), fds->fds, size);
    }
    ssize_t sent;
    do
        sent = sendmsg(fd, &message, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent < 0 ? send_error(errno) : F8_OK;
}

/* Takes the descriptors off a packet: the first is given, any others are closed. */
static int take_descriptors(struct msghdr *message, int *ret_fd)
{
    int count = 0;
    for (struct cmsghdr *h = CMSG_FIRSTHDR(message); h; h = CMSG_NXTHDR(message, h)) {
        if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t at = CMSG_LEN(0); at + sizeof(int) <= h->cmsg_len; at += sizeof(int)) {
            int fd;
            memcpy(&fd, (const char *)h + at, sizeof(int));
            if (count++ == 0)
                *ret_fd = fd;
            else
                close(fd);
        }
    }
    return count;
}

static int receive_packet(int fd, struct wire_receiver *receiver, size_t *ret_length, int *ret_fd)
{
    struct iovec part = {.iov_base = receiver->packet, .iov_len = sizeof(receiver->packet)};
    union control control;
    struct msghdr message = {.msg_iov = &part,
        .msg_iovlen = 1,
        .msg_control = control.bytes,
        .msg_controllen = sizeof(control.bytes)};
    ssize_t length = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    /* A peer that closed with packets unread is told once, before the packets that it sent. */
    if (length < 0 && errno == ECONNRESET)
        length = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    if (length < 0)
        return errno == EAGAIN || errno == EINTR ? WIRE_AGAIN : F8_ECONN;
    int count = take_descriptors(&message, ret_fd);
    if (length == 0 && count == 0)
        return F8_ECONN;
    if (count > 1 || message.msg_flags & (MSG_TRUNC | MSG_CTRUNC))
        return error_set(F8_EPROTO,
            "the daemon sent a packet that is longer than %d bytes or has "
            "more than one descriptor",
            F8_PROTO_MAX_PACKET);
    *ret_length = (size_t)length;
    return F8_OK;
}

int wire_receive(
    int fd, struct wire_receiver *receiver, F8__Reply **ret_reply, int *ret_fd, size_t *ret_length)
{
    int memfd = -1;
    size_t length = 0;
    int status = receive_packet(fd, receiver, &length, &memfd);
    F8__Reply *reply = NULL;
    if (status == F8_OK) {
        receiver->used = 0;
        reply = f8__reply__unpack(&receiver->allocator, length, receiver->packet);
        if (!reply)
            status = error_set(F8_EPROTO, "the daemon sent %zu bytes that are no reply", length);
    }
    if (status != F8_OK) {
        if (memfd >= 0)
            close(memfd);
        return status;
    }
    *ret_reply = reply;
    *ret_fd = memfd;
    *ret_length = length;
    return F8_OK;
}

void wire_reply_free(struct wire_receiver *receiver, F8__Reply *reply)
{
    f8__reply__free_unpacked(reply, &receiver->allocator);
}
