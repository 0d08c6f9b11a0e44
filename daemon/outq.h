/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packets that a socket would not take yet, in order, each perhaps with a descriptor. One buffer
 * that grows and is kept, so that a connection at rest allocates nothing. Used by conn.
 */
#ifndef F8_DAEMON_OUTQ_H
#define F8_DAEMON_OUTQ_H

#include <stddef.h>
#include <stdint.h>

struct outq {
    uint8_t *data; /* owned; records lie from head to tail */
    size_t capacity, head, tail;
    uint32_t count;
};

/* The first packet; valid until the queue changes. */
struct outq_packet {
    const uint8_t *data; /* borrowed: the queue's */
    size_t size;
    int fd; /* borrowed: the queue's; -1: none */
};

/* Appends a copy of the packet, and a duplicate of fd unless it is -1. F8_ENOMEM, F8_EIO. */
int outq_push(struct outq *queue, const void *data, size_t size, int fd);

/* Only if count > 0. */
struct outq_packet outq_first(const struct outq *queue);

/* Drops the first packet and closes its descriptor. */
void outq_pop(struct outq *queue);

/* Drops all and frees the buffer. */
void outq_done(struct outq *queue);

/* Bytes that wait. */
size_t outq_bytes(const struct outq *queue);

#endif
