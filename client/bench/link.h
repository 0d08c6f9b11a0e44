/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages between the f8bench of host 0 and those of other machines, over TCP. A link belongs to
 * the parent, which reads it when poll says so; what it sends is sent when the call returns.
 * Nothing that comes is believed: sizes have limits, and what is no message ends the link.
 */
#ifndef F8BENCH_LINK_H
#define F8BENCH_LINK_H

#include <stdint.h>

#include "client/bench/error.h"

/* What a message is. */
enum link_type {
    LINK_HELLO,   /* to host 0: struct link_hello, and settings as text */
    LINK_REFUSED, /* from host 0: why, as text; the link ends */
    LINK_WELCOME, /* from host 0: the settings are right, others are waited for */
    LINK_START,   /* from host 0: all have come; the name of the job, as text */
    LINK_MEET,    /* to host 0, and back when all have come: bytes, which are joined by "or" */
    LINK_FAILED,  /* either way: struct link_failed */
    LINK_REPORT,  /* to host 0: what the ranks of a host have found */
    LINK_LEAVE,   /* from host 0: it has all reports; struct link_leave */
    LINK_ASK,     /* either way, from one that has failed: are you there? */
    LINK_HERE,    /* the answer */
    NUM_LINK_TYPES,
};

struct link_hello {
    uint32_t host;
};

struct link_failed {
    uint32_t nearness; /* to the cause: the greater one is told */
    char text[sizeof(((struct bench_error *)0)->text)];
};

struct link_leave {
    uint32_t mismatches; /* whether any host had one */
};

/* A message that has come. */
struct link_message {
    enum link_type type;
    uint64_t size;
    uint8_t *body; /* owned: by the link, until the next link_read; a zero follows it */
};

#define LINK_HEADER_BYTES 16

struct link {
    int fd; /* owned; -1: there is none */
    uint8_t header[LINK_HEADER_BYTES];
    uint64_t header_got;
    uint64_t body_got;
    struct link_message message; /* that is coming, or has come */
};

/* Takes a connected socket over, makes it report a dead peer in about 20 s, and never block. */
void link_open(struct link *link, int fd);

/* Fine with a link that has none, or that was zeroed and given fd -1. */
void link_close(struct link *link);

/*
 * Reads on without waiting. 1: a message is there, in link->message; 0: not yet; -1 with the
 * reason: the other end is gone, or sends what is no message, or one of more than `most` bytes.
 */
int link_read(struct link *link, uint64_t most, struct bench_error *error);

/* Sends a message; -1 with the reason: the other end is gone, or took nothing for a minute. */
int link_send(struct link *link, enum link_type type, const void *body, uint64_t size,
    struct bench_error *error);

#endif
