/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A second process of the same program, for measurements between processes: started anew, never
 * forked, because CUDA does not survive a fork. It has a socket to the first one as its standard
 * input. One thread; a failure ends the program and says why.
 */
#ifndef F8_TESTS_GPU_TWIN_H
#define F8_TESTS_GPU_TWIN_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* The socket in the process that was started. */
#define TWIN_SOCKET 0

struct twin {
    pid_t pid;
    int socket; /* owned */
};

/* Starts this program with one argument, `role`. */
void twin_start(struct twin *twin, const char *role);

/* Messages of equal, known sizes. What does not come because the other one has ended is a failure.
 */
void twin_send(int socket, const void *message, size_t size);
void twin_receive(int socket, void *message, size_t size);

/* Closes the socket and waits: whether it ended with status 0. */
bool twin_end(struct twin *twin);

/* Seconds of a clock that all processes share. */
double twin_now(void);

/* Of `count` values, at least 1; sorts them. */
double twin_median(double *values, size_t count);

#endif
