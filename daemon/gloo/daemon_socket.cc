/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The socket to the daemon: see daemon_socket.h. An error of it means the same as its end, because
 * without its daemon the helper has nothing to do.
 */
#include "daemon_socket.h"

#include <cerrno>
#include <cstring>
#include <sys/socket.h>

static int find_descriptor(msghdr &message)
{
    const cmsghdr *header = CMSG_FIRSTHDR(&message);
    int fd = -1;
    if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS)
        memcpy(&fd, CMSG_DATA(header), sizeof(fd));
    return fd;
}

/* Bytes that came, 0 or less at the end; a descriptor that came with them. */
static ssize_t receive_some(void *to, size_t size, int &fd)
{
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    iovec bytes = {to, size};
    msghdr message = {};
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    ssize_t got;
    do
        got = recvmsg(FABRIC_SOCKET, &message, MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    int came = got > 0 ? find_descriptor(message) : -1;
    if (came >= 0)
        fd = came;
    return got;
}

static bool receive_all(void *to, size_t size, int &fd)
{
    for (size_t done = 0; done < size;) {
        ssize_t got = receive_some(static_cast<char *>(to) + done, size - done, fd);
        if (got <= 0)
            return false;
        done += static_cast<size_t>(got);
    }
    return true;
}

bool receive_command(Command &ret_command)
{
    ret_command.fd = -1;
    if (!receive_all(&ret_command.ask, sizeof(ret_command.ask), ret_command.fd))
        return false;
    ret_command.payload.resize(ret_command.ask.payload);
    return receive_all(ret_command.payload.data(), ret_command.payload.size(), ret_command.fd);
}

static bool send_all(const void *from, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t sent =
            send(FABRIC_SOCKET, static_cast<const char *>(from) + done, size - done, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return false;
        done += static_cast<size_t>(sent);
    }
    return true;
}

bool send_answer(fabric_answer answer, const char *payload, size_t size)
{
    answer.payload = size;
    return send_all(&answer, sizeof(answer)) && send_all(payload, size);
}
