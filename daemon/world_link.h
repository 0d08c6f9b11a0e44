/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the two files of a link share: world_link.c (its life, heartbeats, sending) and
 * world_read.c (the proof, and what comes in).
 */
#ifndef F8_DAEMON_WORLD_LINK_H
#define F8_DAEMON_WORLD_LINK_H

#include "daemon/world_private.h"

/* What a root says first. */
extern const uint8_t world_magic[8];

#define WORLD_CHALLENGE_SIZE ((size_t)8 + WORLD_NONCE_SIZE)              /* root: magic, nonce */
#define WORLD_ANSWER_SIZE    ((size_t)WORLD_NONCE_SIZE + WORLD_MAC_SIZE) /* host: nonce, proof */
#define WORLD_VERDICT_SIZE   ((size_t)1 + WORLD_MAC_SIZE)                /* root: 0, proof; or 1 */

enum link_state {
    LINK_CONNECT,
    LINK_CHALLENGE, /* the host waits for the root's nonce */
    LINK_ANSWER,    /* the root waits for nonce and proof */
    LINK_VERDICT,   /* the host waits for the root's proof */
    LINK_OPEN,
    LINK_CLOSING, /* detached: what was to be sent goes out */
    LINK_CLOSED,  /* the handles are being closed */
};

struct world_link {
    uv_tcp_t tcp;
    uv_timer_t timer; /* the limit of a state; of an open one, its heartbeat */
    uv_connect_t connect;
    uv_shutdown_t shutdown;
    uint32_t handles;                           /* that are not closed */
    struct worlds *worlds;                      /* borrowed */
    void *owner;                                /* borrowed */
    const struct world_link_listener *listener; /* borrowed: static; NULL: detached */
    struct world_traffic *traffic;              /* borrowed: the owner's; NULL: nobody counts */
    struct world_id id;
    enum link_state state;
    bool accepted; /* this end is the root's */
    bool settled, paused, heard, full;
    int failed; /* to be told from the timer; F8_OK */
    uint8_t root_nonce[WORLD_NONCE_SIZE], host_nonce[WORLD_NONCE_SIZE];
    uint8_t fixed[WORLD_ANSWER_SIZE]; /* what comes before frames, and heads */
    size_t fixed_size, fixed_used;
    struct world_frame *frame; /* owned: that comes in; NULL: its head is not there */
    size_t frame_size;
    uint64_t silent_ms, stalled_ms, beat_at, heard_at;
    uint64_t queued, taken; /* bytes: given to us; of these to the kernel, at the last beat */
};

/* Its owner hears of it, unless it has closed the link already, and must forget it. */
void link_lose(struct world_link *link, int status, const struct reason *reason);
void link_lose_to(struct world_link *link, int error); /* of libuv */
void link_close_handles(struct world_link *link);

/* Detaches the owner; what waits goes out, for a limited time. */
void link_flush(struct world_link *link);

/* `size` bytes are to come next, in this state. */
void link_expect(struct world_link *link, enum link_state state, size_t size);

/* What comes before frames. */
void link_send_fixed(struct world_link *link, const uint8_t *bytes, size_t size);

/* For uv_read_start. */
void link_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *ret_buffer);
void link_read(uv_stream_t *stream, ssize_t size, const uv_buf_t *buffer);

#endif
