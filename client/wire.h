/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One message, one packet: packs a Request into a packet and sends it, receives a packet and
 * unpacks the Reply in it, with the memory descriptors that ride on either. No locks, no waiting:
 * channel.c says who may send and who may receive.
 */
#ifndef F8_CLIENT_WIRE_H
#define F8_CLIENT_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include "f8gather.pb-c.h"
#include "proto/protocol.h"

/* The socket has no room (sending) or no packet (receiving) now: poll it. Not an error. */
#define WIRE_AGAIN 1

/* Plenty for a reply without lists; what does not fit is allocated. */
#define WIRE_ARENA_SIZE 8192

/* What receiving needs. About 72 KiB; one a connection. */
struct wire_receiver {
    uint8_t packet[F8_PROTO_MAX_PACKET];
    _Alignas(16) uint8_t arena[WIRE_ARENA_SIZE]; /* replies are unpacked into it, from the start */
    size_t used;
    ProtobufCAllocator allocator; /* of `arena`; its allocator_data is this struct */
};

void wire_receiver_init(struct wire_receiver *receiver);

/*
 * Packs `request` into `packet` of F8_PROTO_MAX_PACKET bytes and gives its length in *ret_length.
 * F8_ELIMIT: it is too long.
 */
int wire_pack(const F8__Request *request, uint8_t *packet, size_t *ret_length);

/* Descriptors to go with a packet: at most F8_PROTO_MAX_FDS, borrowed. */
struct wire_fds {
    const int *fds;
    uint32_t count;
};

/* Sends a packet with `fds` on it (NULL: none). F8_OK, WIRE_AGAIN, F8_ECONN or another error. */
int wire_send(int fd, const uint8_t *packet, size_t length, const struct wire_fds *fds);

/*
 * Receives one packet and unpacks it. *ret_reply is valid until the next call, to be freed with
 * wire_reply_free; *ret_fd is the caller's to close, -1 if none came. F8_OK, WIRE_AGAIN, F8_ECONN
 * (the daemon closed) or F8_EPROTO.
 */
int wire_receive(
    int fd, struct wire_receiver *receiver, F8__Reply **ret_reply, int *ret_fd, size_t *ret_length);
void wire_reply_free(struct wire_receiver *receiver, F8__Reply *reply);

#endif
