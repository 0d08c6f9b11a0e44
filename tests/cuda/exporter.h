/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that is to the CUDA backend what a trainer is: it has memory and events on a device
 * and shares them. The program cuda_exporter does, one after the other, what a test asks of it
 * over a socket; here are the packets, and the test's end. Failures fail the test.
 */
#ifndef F8_TESTS_CUDA_EXPORTER_H
#define F8_TESTS_CUDA_EXPORTER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define EXPORTER_HANDLE     64
#define EXPORTER_MAX_EVENTS 128
#define EXPORTER_MAX_CHUNKS 8
#define EXPORTER_MAX_DATA   4096

enum exporter_op {
    EXPORTER_UUID,     /* of its device */
    EXPORTER_EVENTS,   /* creates `count` inter-process events: handles */
    EXPORTER_ALLOCATE, /* `size` bytes, legacy: index, handles[0] */
    EXPORTER_CHUNKS,   /* VMM allocations of sizes[0..count), one after the other: index, fds */
    EXPORTER_FILL,     /* [offset, offset + size) of memory `index` with `byte`, on its stream */
    EXPORTER_SYNC,     /* waits for its stream */
    EXPORTER_FREE,     /* memory `index` */
    EXPORTER_HOLD,     /* its stream stands still from here on */
    EXPORTER_RELEASE,  /* and goes on */
    EXPORTER_RECORD,   /* event `index`, on its stream */
    EXPORTER_IMPORT,   /* the descriptor of `size` bytes, to be read only: index */
    EXPORTER_READ,     /* `size` bytes of memory `index` from `offset` on, past its stream: data */
    EXPORTER_WAIT,     /* opens the event of the handle and waits for it */
};

struct exporter_request {
    enum exporter_op op;
    uint32_t index, count;
    uint64_t offset, size;
    uint64_t sizes[EXPORTER_MAX_CHUNKS];
    uint8_t handle[EXPORTER_HANDLE];
    uint8_t byte;
};

struct exporter_reply {
    int32_t result;  /* of the call of CUDA that failed, or 0 */
    char failed[64]; /* that one */
    uint32_t index;
    uint8_t uuid[16];
    uint8_t handles[EXPORTER_MAX_EVENTS][EXPORTER_HANDLE];
    uint8_t data[EXPORTER_MAX_DATA];
};

struct exporter {
    pid_t pid;
    int fd;                       /* owned */
    struct exporter_reply reply;  /* the latest */
    int fds[EXPORTER_MAX_CHUNKS]; /* owned: of the latest EXPORTER_CHUNKS; -1 behind the last */
};

/* A file beside the test's own program. */
void exporter_path(const char *file, char *ret_path, size_t size);

/* Starts the program beside the test's own, on device `ordinal` as it numbers them. */
void exporter_start(struct exporter *exporter, int ordinal);

/* Asks and waits for the answer, which must not be an error. `fd` goes with it, unless -1. */
void exporter_ask(struct exporter *exporter, const struct exporter_request *request, int fd);

/* The same, and the result of CUDA is returned. */
int exporter_try(struct exporter *exporter, const struct exporter_request *request, int fd);

void exporter_kill(struct exporter *exporter);

/* It ends by itself, with status 0. */
void exporter_stop(struct exporter *exporter);

#endif
