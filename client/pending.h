/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of requests that have no reply yet, or whose reply nobody has taken. An id is a
 * sequence number with the index of its entry in the low bits, so it is found without a search,
 * never used twice, and ids ascend in the order of sending. No locks: channel.c holds its own.
 */
#ifndef F8_CLIENT_PENDING_H
#define F8_CLIENT_PENDING_H

#include <stdbool.h>
#include <stdint.h>

#include "client/channel.h"

#define PENDING_NONE UINT32_MAX

enum pending_state {
    PENDING_UNUSED = 0,
    PENDING_OPEN,      /* sent, no reply yet */
    PENDING_ENDED,     /* the reply is in the entry */
    PENDING_ABANDONED, /* no reply yet, and nobody wants it */
};

struct pending {
    uint64_t id;
    enum pending_state state;
    bool whole;         /* the reply is wanted as a message */
    uint32_t next;      /* of the chain of unused entries */
    F8__Reply *message; /* owned; of `whole` */
    char *text;         /* owned; of a failure */
    struct channel_reply reply;
};

struct pending_table {
    struct pending *entries; /* owned */
    uint32_t size;
    uint32_t unused; /* first unused entry, or PENDING_NONE */
    uint64_t sequence;
};

/* Room for `size` requests at once; it grows when that is not enough. */
int pending_init(struct pending_table *table, uint32_t size);
int pending_reserve(struct pending_table *table, uint32_t size);

/* Frees the table and whatever replies nobody took. */
void pending_done(struct pending_table *table);

/* Opens an entry for a new request. F8_ENOMEM, F8_ELIMIT. */
int pending_open(struct pending_table *table, bool whole, uint64_t *ret_id);

/* The entry of an id, valid until the next pending_open; NULL if there is none (any more). */
struct pending *pending_find(const struct pending_table *table, uint64_t id);

/* Makes an entry unused. What it owns must have been taken, or is freed here. */
void pending_close(struct pending_table *table, struct pending *entry);

#endif
