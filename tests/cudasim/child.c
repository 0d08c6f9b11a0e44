/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes for the simulator's tests. See child.h.
 */
#include "child.h"

#include <check.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

static int status_of(int wait_status)
{
    return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

static void set_environment(const char *const *environment)
{
    for (; environment && *environment; environment++) {
        const char *equals = strchr(*environment, '=');
        char *name = strndup(*environment, (size_t)(equals - *environment));
        setenv(name, equals + 1, 1);
        free(name);
    }
}

/* Until all who have the other end have closed it; only the beginning is kept. */
static void read_all(int fd, char *ret_text, size_t size)
{
    char part[4096];
    size_t length = 0;
    for (ssize_t got; (got = read(fd, part, sizeof part)) > 0;) {
        size_t kept = (size_t)got < size - 1 - length ? (size_t)got : size - 1 - length;
        memcpy(ret_text + length, part, kept);
        length += kept;
    }
    ret_text[length] = '\0';
}

struct child_end child_run(
    void (*program)(void *argument), void *argument, const char *const *environment)
{
    struct child_end end = {0};
    int text[2], status;
    ck_assert_int_eq(pipe(text), 0);
    fflush(NULL);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        dup2(text[1], STDERR_FILENO);
        close(text[0]);
        close(text[1]);
        set_environment(environment);
        program(argument);
        _exit(0);
    }
    close(text[1]);
    read_all(text[0], end.text, sizeof end.text);
    close(text[0]);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    end.status = status_of(status);
    end.is_fault = end.status == 128 + SIGABRT;
    return end;
}

void child_must_pass(
    void (*program)(void *argument), void *argument, const char *const *environment)
{
    struct child_end end = child_run(program, argument, environment);
    ck_assert_msg(
        end.status == 0 && !strstr(end.text, "fault"), "status %d:\n%.3000s", end.status, end.text);
}

void child_must_fault(void (*program)(void *argument), void *argument,
    const char *const *environment, const char *text)
{
    struct child_end end = child_run(program, argument, environment);
    ck_assert_msg(end.is_fault && strstr(end.text, "cudasim: fault: ") && strstr(end.text, text),
        "not found: \"%s\"; status %d:\n%.3000s", text, end.status, end.text);
}

/* ---- in programs ---- */

pid_t child_peer(void (*function)(int socket), int *ret_socket)
{
    int sockets[2];
    CHILD_OK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets));
    pid_t pid = fork();
    CHILD_REQUIRE(pid >= 0);
    if (pid == 0) {
        close(sockets[0]);
        function(sockets[1]);
        _exit(0);
    }
    close(sockets[1]);
    *ret_socket = sockets[0];
    return pid;
}

void child_linger(int socket)
{
    char byte;
    while (recv(socket, &byte, 1, 0) > 0) {
    }
}

void child_join(pid_t pid, int status)
{
    int got;
    CHILD_REQUIRE(waitpid(pid, &got, 0) == pid);
    if (status_of(got) != status) {
        fprintf(stderr, "the peer ended with %d, not %d\n", status_of(got), status);
        _exit(1);
    }
}

void child_send(int socket, const void *data, size_t size)
{
    CHILD_REQUIRE(send(socket, data, size, MSG_NOSIGNAL) == (ssize_t)size);
}

void child_receive(int socket, void *ret_data, size_t size)
{
    CHILD_REQUIRE(recv(socket, ret_data, size, MSG_WAITALL) == (ssize_t)size);
}

union fd_control {
    char bytes[CMSG_SPACE(sizeof(int))];
    struct cmsghdr header;
};

void child_send_fd(int socket, int fd)
{
    union fd_control control = {{0}};
    char byte = 0;
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part,
        .msg_iovlen = 1,
        .msg_control = &control,
        .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    CHILD_REQUIRE(sendmsg(socket, &message, MSG_NOSIGNAL) == 1);
}

int child_receive_fd(int socket)
{
    union fd_control control;
    char byte;
    int fd;
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part,
        .msg_iovlen = 1,
        .msg_control = &control,
        .msg_controllen = sizeof control};
    CHILD_REQUIRE(recvmsg(socket, &message, MSG_CMSG_CLOEXEC) == 1);
    CHILD_REQUIRE(CMSG_FIRSTHDR(&message) != NULL);
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}
