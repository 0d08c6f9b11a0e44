/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the fabric: its state, and what its files ask of one another. fabric.c owns the helper's
 * life, fabric_ask.c what goes to it, fabric_answer.c what comes back. All on the loop.
 */
#ifndef F8_DAEMON_FABRIC_PRIVATE_H
#define F8_DAEMON_FABRIC_PRIVATE_H

#include "daemon/fabric.h"

/* What waits to be sent. */
struct fabric_out {
    uint8_t *data; /* owned */
    size_t size, sent;
    int fd; /* owned, rides on the first byte; -1: none */
};

/* What has come of the answer. */
struct fabric_in {
    struct fabric_answer answer;
    size_t got;       /* bytes of it, then of its payload */
    uint8_t *payload; /* borrowed: where the payload goes, once the answer is there */
};

struct fabric {
    uv_process_t process;
    uv_poll_t poll;
    uv_timer_t deadline;
    unsigned open_handles;                  /* of these three */
    int socket;                             /* owned: this end */
    const struct fabric_listener *listener; /* borrowed: from the caller */
    void *owner;                            /* borrowed: the caller's own */
    uint32_t hosts;
    bool running; /* the helper: not reaped yet */
    bool closed;  /* by fabric_close */
    bool busy;    /* `command` is open */
    enum fabric_command command;
    uint64_t deadline_ms; /* of it */
    struct fabric_out out;
    struct fabric_in in;
    uint32_t *values; /* borrowed: from fabric_reduce's caller while that is open */
    uint32_t num_values;
    uint8_t *opened; /* owned: the answer to OPEN, a version and an address */
    size_t opened_size;
    uint64_t sent, received;
    int status; /* why it has failed, with the reason; F8_OK: it has not */
    struct reason reason;
};

/* Kills the helper; when it is reaped, `failed` gets this, unless it failed before. */
__attribute__((format(printf, 3, 4))) void fabric_fail(
    struct fabric *fabric, int status, const char *format, ...);

/* "connect", "exchange shards": what the open command does. */
const char *fabric_doing(const struct fabric *fabric);

/* FABRIC_OPEN, as the others in fabric.h. */
void fabric_ask_open(struct fabric *fabric, const struct fabric_open *open, uint64_t deadline_ms);

/* Sends what the socket takes of what waits, and has the loop send the rest. */
void fabric_flush(struct fabric *fabric);

/* Lets go of what waits. */
void fabric_out_done(struct fabric_out *out);

/* Reads what is there; calls `done` when it was the rest of an answer. */
void fabric_read(struct fabric *fabric);

/* The loop's watch over the socket: for what comes, and for room if something waits. */
void fabric_watch(struct fabric *fabric);

#endif
