/* SPDX-License-Identifier: Apache-2.0 */
/* The test's end of an exporter: see exporter.h. */
#include "exporter.h"

#include <check.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

void exporter_path(const char *file, char *ret_path, size_t size)
{
    char own[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", own, sizeof(own) - 1);
    ck_assert_int_gt(length, 0);
    own[length] = '\0';
    *strrchr(own, '/') = '\0';
    ck_assert_int_lt(snprintf(ret_path, size, "%s/%s", own, file), (int)size);
}

void exporter_start(struct exporter *exporter, int ordinal)
{
    char path[PATH_MAX], number[16];
    int fds[2];
    posix_spawn_file_actions_t actions;
    exporter_path("cuda_exporter", path, sizeof(path));
    (void)snprintf(number, sizeof(number), "%d", ordinal);
    char *arguments[] = {path, number, NULL};
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
    ck_assert_int_eq(posix_spawn_file_actions_init(&actions), 0);
    ck_assert_int_eq(posix_spawn_file_actions_adddup2(&actions, fds[1], STDIN_FILENO), 0);
    ck_assert_int_eq(posix_spawn(&exporter->pid, path, &actions, NULL, arguments, environ), 0);
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)close(fds[1]);
    exporter->fd = fds[0];
    for (int i = 0; i < EXPORTER_MAX_CHUNKS; i++)
        exporter->fds[i] = -1;
}

static void close_fds(struct exporter *exporter)
{
    for (int i = 0; i < EXPORTER_MAX_CHUNKS; i++) {
        if (exporter->fds[i] >= 0)
            (void)close(exporter->fds[i]);
        exporter->fds[i] = -1;
    }
}

static void send_request(
    const struct exporter *exporter, const struct exporter_request *request, int fd)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr aligned;
    } control = {0};
    struct iovec part = {(void *)request, sizeof(*request)};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd >= 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof(control.bytes);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(fd));
        memcpy(CMSG_DATA(header), &fd, sizeof(fd));
    }
    ck_assert_int_eq(sendmsg(exporter->fd, &message, MSG_NOSIGNAL), (ssize_t)sizeof(*request));
}

static void receive_reply(struct exporter *exporter, bool has_fds)
{
    union {
        char bytes[CMSG_SPACE(EXPORTER_MAX_CHUNKS * sizeof(int))];
        struct cmsghdr aligned;
    } control;
    struct iovec part = {&exporter->reply, sizeof(exporter->reply)};
    struct msghdr message = {.msg_iov = &part,
        .msg_iovlen = 1,
        .msg_control = control.bytes,
        .msg_controllen = sizeof(control.bytes)};
    ssize_t size = recvmsg(exporter->fd, &message, MSG_CMSG_CLOEXEC);
    ck_assert_msg(size == (ssize_t)sizeof(exporter->reply), "the exporter has ended");
    if (!has_fds)
        return;
    close_fds(exporter);
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    ck_assert_ptr_nonnull(header);
    memcpy(exporter->fds, CMSG_DATA(header), header->cmsg_len - CMSG_LEN(0));
}

int exporter_try(struct exporter *exporter, const struct exporter_request *request, int fd)
{
    send_request(exporter, request, fd);
    receive_reply(exporter, request->op == EXPORTER_CHUNKS);
    return exporter->reply.result;
}

void exporter_ask(struct exporter *exporter, const struct exporter_request *request, int fd)
{
    int result = exporter_try(exporter, request, fd);
    ck_assert_msg(result == 0, "%s gives %d", exporter->reply.failed, result);
}

void exporter_kill(struct exporter *exporter)
{
    int status;
    ck_assert_int_eq(kill(exporter->pid, SIGKILL), 0);
    ck_assert_int_eq(waitpid(exporter->pid, &status, 0), exporter->pid);
    (void)close(exporter->fd);
    close_fds(exporter);
}

void exporter_stop(struct exporter *exporter)
{
    int status;
    (void)close(exporter->fd);
    close_fds(exporter);
    ck_assert_int_eq(waitpid(exporter->pid, &status, 0), exporter->pid);
    ck_assert_int_eq(status, 0);
}
