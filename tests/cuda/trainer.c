/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The test's side of trainers: starts the program beside the test's own, and talks to it over a
 * socket pair, a request and its reply at a time.
 */
#include "trainer.h"

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

/* The program "cuda_trainer" in the folder of this one. */
static void find_program(char *ret_path, size_t size)
{
    char self[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    ck_assert_int_gt(length, 0);
    self[length] = '\0';
    *strrchr(self, '/') = '\0';
    ck_assert_int_lt(snprintf(ret_path, size, "%s/cuda_trainer", self), (int)size);
}

static void receive(const struct trainer *trainer, struct trainer_reply *ret_reply)
{
    ssize_t length = recv(trainer->socket, ret_reply, sizeof(*ret_reply), 0);
    ck_assert_msg(length == (ssize_t)sizeof(*ret_reply), "trainer %d has ended", trainer->pid);
}

static void ask(const struct trainer *trainer, const struct trainer_request *request, int fd,
    struct trainer_reply *ret_reply)
{
    struct iovec part = {.iov_base = (void *)request, .iov_len = sizeof(*request)};
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    struct trainer_reply unused;
    if (fd >= 0) {
        message.msg_control = &control;
        message.msg_controllen = sizeof(control.bytes);
        control.header = (struct cmsghdr){
            .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
        memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
    }
    ck_assert_int_eq(sendmsg(trainer->socket, &message, MSG_NOSIGNAL), sizeof(*request));
    receive(trainer, ret_reply ? ret_reply : &unused);
}

void trainer_start(struct trainer *trainer, int device, uint64_t size)
{
    char path[PATH_MAX], device_text[16], size_text[32];
    int sockets[2];
    posix_spawn_file_actions_t actions;
    struct trainer_reply reply;
    find_program(path, sizeof(path));
    (void)snprintf(device_text, sizeof(device_text), "%d", device);
    (void)snprintf(size_text, sizeof(size_text), "%llu", (unsigned long long)size);
    char *arguments[] = {path, device_text, size_text, NULL};

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
    ck_assert_int_eq(posix_spawn_file_actions_init(&actions), 0);
    ck_assert_int_eq(posix_spawn_file_actions_adddup2(&actions, sockets[1], TRAINER_SOCKET), 0);
    ck_assert_int_eq(posix_spawn(&trainer->pid, path, &actions, NULL, arguments, environ), 0);
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)close(sockets[1]);
    trainer->socket = sockets[0];
    receive(trainer, &reply);
    memcpy(trainer->uuid, reply.uuid, sizeof(reply.uuid));
    memcpy(trainer->ready, reply.ready, sizeof(reply.ready));
    memcpy(trainer->memory, reply.memory, sizeof(reply.memory));
}

void trainer_hold(struct trainer *trainer)
{
    ask(trainer, &(struct trainer_request){.verb = TRAINER_HOLD}, -1, NULL);
}

void trainer_go(struct trainer *trainer)
{
    ask(trainer, &(struct trainer_request){.verb = TRAINER_GO}, -1, NULL);
}

void trainer_fill(struct trainer *trainer, uint8_t byte)
{
    ask(trainer, &(struct trainer_request){.verb = TRAINER_FILL, .value = byte}, -1, NULL);
}

void trainer_record(struct trainer *trainer, uint32_t event)
{
    ask(trainer, &(struct trainer_request){.verb = TRAINER_RECORD, .value = event}, -1, NULL);
}

void trainer_wait_done(struct trainer *trainer, const uint8_t *handle)
{
    struct trainer_request request = {.verb = TRAINER_WAIT_DONE};
    memcpy(request.handle, handle, sizeof(request.handle));
    ask(trainer, &request, -1, NULL);
}

void trainer_map(struct trainer *trainer, int fd, uint64_t size)
{
    ask(trainer, &(struct trainer_request){.verb = TRAINER_MAP, .size = size}, fd, NULL);
}

void trainer_read(struct trainer *trainer, uint64_t offset, uint32_t size, uint8_t *ret_bytes)
{
    struct trainer_reply reply;
    ck_assert_uint_le(size, TRAINER_MAX_READ);
    ask(trainer, &(struct trainer_request){.verb = TRAINER_READ, .offset = offset, .size = size},
        -1, &reply);
    memcpy(ret_bytes, reply.bytes, size);
}

static void reap(struct trainer *trainer)
{
    int status = -1;
    ck_assert_int_eq(waitpid(trainer->pid, &status, 0), trainer->pid);
    (void)close(trainer->socket);
}

void trainer_end(struct trainer *trainer)
{
    ask(trainer, &(struct trainer_request){.verb = TRAINER_END}, -1, NULL);
    reap(trainer);
}

void trainer_kill(struct trainer *trainer)
{
    ck_assert_int_eq(kill(trainer->pid, SIGKILL), 0);
    reap(trainer);
}
