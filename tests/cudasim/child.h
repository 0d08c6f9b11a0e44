/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs for the simulator's tests, each in a process of its own: an environment of its own, and
 * a fault ends only that one. The test itself makes no CUDA call, so that its children may.
 */
#ifndef CUDASIM_CHILD_H
#define CUDASIM_CHILD_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

struct child_end {
    bool is_fault;   /* ended by abort() */
    int status;      /* of exit, or 128 + the signal */
    char text[8192]; /* what it and its children wrote to standard error */
};

/* Runs a program to its end; environment: "NAME=value" up to NULL, or NULL. */
struct child_end child_run(
    void (*program)(void *argument), void *argument, const char *const *environment);

/* Fails the Check test unless the program ends well and says nothing of a fault. */
void child_must_pass(
    void (*program)(void *argument), void *argument, const char *const *environment);

/* Fails the Check test unless the program ends by the fault that has this text. */
void child_must_fault(void (*program)(void *argument), void *argument,
    const char *const *environment, const char *text);

/* In a program: a second process, which runs function(its end of a socket); `ret_socket` is ours.
 */
pid_t child_peer(void (*function)(int socket), int *ret_socket);

/* In a peer: waits to be killed, or for the end of the one that started it. */
void child_linger(int socket);

/* In a program: waits for a peer, which must have ended with this status (128 + signal). */
void child_join(pid_t pid, int status);

/* In a program: whole messages over a peer's socket; the second pair with a descriptor. */
void child_send(int socket, const void *data, size_t size);
void child_receive(int socket, void *ret_data, size_t size);
void child_send_fd(int socket, int fd);
int child_receive_fd(int socket);

/* In a program: ends it, with a line that says why. */
#define CHILD_REQUIRE(condition)                                                                   \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

/* In a program: a call that gives 0. */
#define CHILD_OK(call)                                                                             \
    do {                                                                                           \
        int code = (int)(call);                                                                    \
        if (code) {                                                                                \
            fprintf(stderr, "%s:%d: %d from %s\n", __FILE__, __LINE__, code, #call);               \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

#endif
