/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trainer for the tests of the CUDA backend: a process of its own (trainer_main.c) with memory,
 * a stream and events on one device, that does what the test tells it, one request at a time. The
 * functions here are the test's side; they fail the test where the trainer does not do it.
 */
#ifndef F8_TESTS_CUDA_TRAINER_H
#define F8_TESTS_CUDA_TRAINER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/backend_device.h"

#define TRAINER_EVENTS 4

struct trainer {
    pid_t pid;
    int socket;
    uint8_t uuid[BACKEND_UUID_SIZE];
    uint8_t ready[TRAINER_EVENTS][BACKEND_HANDLE_SIZE];
    uint8_t memory[BACKEND_HANDLE_SIZE]; /* legacy IPC handle of its shard */
};

/* Starts one on a device, with a shard of `size` bytes that are 0. */
void trainer_start(struct trainer *trainer, int device, uint64_t size);

/* Its stream stops until trainer_go; what it is told meanwhile queues up. */
void trainer_hold(struct trainer *trainer);
void trainer_go(struct trainer *trainer);

/* On its stream, without waiting: fills its shard; records a ready event; waits for the done event
 * with that handle. */
void trainer_fill(struct trainer *trainer, uint8_t byte);
void trainer_record(struct trainer *trainer, uint32_t event);
void trainer_wait_done(struct trainer *trainer, const uint8_t *handle);

/* Maps the arena on its device, read-only. */
void trainer_map(struct trainer *trainer, int fd, uint64_t size);

/* Copies from the mapped arena on its stream, waits for its stream, and brings the bytes. */
void trainer_read(struct trainer *trainer, uint64_t offset, uint32_t size, uint8_t *ret_bytes);

/* Ends it: in order, after its stream has run, or by SIGKILL. */
void trainer_end(struct trainer *trainer);
void trainer_kill(struct trainer *trainer);

/* ---- between the two processes ---- */

enum trainer_verb {
    TRAINER_HOLD,
    TRAINER_GO,
    TRAINER_FILL,
    TRAINER_RECORD,
    TRAINER_WAIT_DONE,
    TRAINER_MAP, /* with the descriptor */
    TRAINER_READ,
    TRAINER_END,
};

struct trainer_request {
    enum trainer_verb verb;
    uint32_t value; /* byte, event */
    uint64_t offset, size;
    uint8_t handle[BACKEND_HANDLE_SIZE];
};

#define TRAINER_MAX_READ 4096

struct trainer_reply {
    uint8_t uuid[BACKEND_UUID_SIZE];
    uint8_t ready[TRAINER_EVENTS][BACKEND_HANDLE_SIZE];
    uint8_t memory[BACKEND_HANDLE_SIZE];
    uint8_t bytes[TRAINER_MAX_READ];
};

/* Where the trainer's socket is. */
#define TRAINER_SOCKET 3

#endif
