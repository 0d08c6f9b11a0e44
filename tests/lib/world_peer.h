/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An end of a world's connection that is not the daemon's: a socket and bytes, for all that a host
 * would never send, for hosts that are killed, that stop, and that do not read. It turns the loop
 * of worlds.h while it waits.
 */
#ifndef F8_TESTS_WORLD_PEER_H
#define F8_TESTS_WORLD_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/world_private.h"

struct peer {
    int fd; /* owned */
    struct world_id id;
    uint8_t root_nonce[WORLD_NONCE_SIZE], host_nonce[WORLD_NONCE_SIZE];
};

/* Connects to the root of an id; says nothing. */
void peer_open(struct peer *peer, const uint8_t *id);
void peer_close(struct peer *peer);

/* Sends all of it; false if the other end has closed. */
bool peer_send(struct peer *peer, const void *bytes, size_t size);

/* Reads exactly that much; false if the other end closed before. */
bool peer_read(struct peer *peer, void *bytes, size_t size);

/* Whether the other end closes, after whatever it says. */
bool peer_is_closed(struct peer *peer);

/* Reads the root's nonce, and answers it with the proof for peer->id. */
void peer_answer(struct peer *peer);

/* All of the proof, which must work. */
void peer_prove(struct peer *peer);

bool peer_send_message(struct peer *peer, const F8__WorldMessage *message);

/* Joins group "job/g" with the one rank. */
void peer_join(struct peer *peer, uint32_t world_size, uint32_t rank);

/* The next message that is no heartbeat; NULL if the other end closes. The caller frees it. */
F8__WorldMessage *peer_receive(struct peer *peer);

#endif
