/* SPDX-License-Identifier: Apache-2.0 */
/* Raw packets of an operator: see admin_link.h. */
#include "lib/admin_link.h"

#include <check.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "protocol.h"

static uint8_t packet[F8_PROTO_MAX_PACKET];

static void send_packet(int link, size_t size, int fd)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec iov = {.iov_base = packet, .iov_len = size};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    if (fd >= 0) {
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(&control.header), &fd, sizeof(int));
        message.msg_control = &control;
        message.msg_controllen = sizeof(control);
    }
    ck_assert_int_eq(sendmsg(link, &message, MSG_NOSIGNAL), (ssize_t)size);
}

static size_t receive_packet(int link, int *ret_fd)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec iov = {.iov_base = packet, .iov_len = sizeof(packet)};
    struct msghdr message = {.msg_iov = &iov,
        .msg_iovlen = 1,
        .msg_control = &control,
        .msg_controllen = sizeof(control)};
    ssize_t size = recvmsg(link, &message, MSG_CMSG_CLOEXEC);
    ck_assert_int_gt(size, 0);
    const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    *ret_fd = -1;
    if (header)
        memcpy(ret_fd, CMSG_DATA(header), sizeof(int));
    return (size_t)size;
}

F8__Reply *admin_link_ask(int link, F8__Request *request, int fd, int *ret_fd)
{
    request->id = 7;
    send_packet(link, f8__request__pack(request, packet), fd);
    F8__Reply *reply = f8__reply__unpack(NULL, receive_packet(link, ret_fd), packet);
    ck_assert_ptr_nonnull(reply);
    ck_assert_uint_eq(reply->id, 7);
    return reply;
}

int admin_link_open(const struct test_daemon *daemon, F8__Role role, const char *job)
{
    int link = test_daemon_connect(daemon), fd;
    F8__Hello hello = F8__HELLO__INIT;
    F8__Request request = F8__REQUEST__INIT;
    hello.major = F8_PROTO_MAJOR;
    hello.minor = F8_PROTO_MINOR;
    hello.role = role;
    hello.job = (char *)job;
    request.body_case = F8__REQUEST__BODY_HELLO;
    request.hello = &hello;
    F8__Reply *reply = admin_link_ask(link, &request, -1, &fd);
    ck_assert_msg(reply->status == F8_OK, "%s", reply->text);
    f8__reply__free_unpacked(reply, NULL);
    return link;
}

int admin_link_memfd(const void *bytes, size_t size)
{
    int fd = memfd_create("import", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, bytes, size), (ssize_t)size);
    ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    return fd;
}
