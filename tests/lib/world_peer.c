/* SPDX-License-Identifier: Apache-2.0 */
/* A peer of worlds by hand: see world_peer.h. */
#include "tests/lib/world_peer.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/lib/patience.h"
#include "tests/lib/worlds.h"

void peer_open(struct peer *peer, const uint8_t *id)
{
    struct reason reason;
    memset(peer, 0, sizeof(*peer));
    ck_assert_int_eq(world_id_unpack(id, &peer->id, &reason), F8_OK);
    const struct sockaddr *address = (const struct sockaddr *)&peer->id.address;
    peer->fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(peer->fd, 0);
    /* The kernel accepts for the root. */
    ck_assert_int_eq(connect(peer->fd, address, world_address_size(&peer->id.address)), 0);
    ck_assert_int_eq(world_random(peer->host_nonce, WORLD_NONCE_SIZE), F8_OK);
}

void peer_close(struct peer *peer)
{
    (void)close(peer->fd);
    peer->fd = -1;
}

bool peer_send(struct peer *peer, const void *bytes, size_t size)
{
    const uint8_t *next = bytes;
    while (size > 0) {
        ssize_t sent = send(peer->fd, next, size, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN) {
            worlds_turn();
            continue;
        }
        if (sent < 0)
            return false;
        next += sent;
        size -= (size_t)sent;
    }
    return true;
}

/* At least one byte; 0: the other end closed. */
static size_t read_some(struct peer *peer, void *bytes, size_t size)
{
    uint64_t limit = uv_hrtime() + (uint64_t)PATIENCE_S * 1000000000;
    for (;;) {
        ssize_t got = recv(peer->fd, bytes, size, MSG_DONTWAIT);
        if (got >= 0)
            return (size_t)got;
        if (errno != EAGAIN)
            return 0;
        worlds_turn();
        ck_assert_msg(uv_hrtime() < limit, "nothing came in time");
    }
}

bool peer_read(struct peer *peer, void *bytes, size_t size)
{
    uint8_t *next = bytes;
    while (size > 0) {
        size_t got = read_some(peer, next, size);
        if (got == 0)
            return false;
        next += got;
        size -= got;
    }
    return true;
}

bool peer_is_closed(struct peer *peer)
{
    uint8_t bytes[256];
    while (read_some(peer, bytes, sizeof(bytes)) > 0) {
    }
    return true;
}

void peer_answer(struct peer *peer)
{
    uint8_t challenge[8 + WORLD_NONCE_SIZE], answer[WORLD_NONCE_SIZE + WORLD_MAC_SIZE];
    ck_assert(peer_read(peer, challenge, sizeof(challenge)));
    ck_assert_mem_eq(challenge, "F8WORLD", 7);
    memcpy(peer->root_nonce, challenge + 8, WORLD_NONCE_SIZE);
    memcpy(answer, peer->host_nonce, WORLD_NONCE_SIZE);
    world_proof(&peer->id, WORLD_PROVER_HOST, peer->root_nonce, peer->host_nonce,
        answer + WORLD_NONCE_SIZE);
    ck_assert(peer_send(peer, answer, sizeof(answer)));
}

void peer_prove(struct peer *peer)
{
    uint8_t verdict[1 + WORLD_MAC_SIZE], mac[WORLD_MAC_SIZE];
    peer_answer(peer);
    ck_assert(peer_read(peer, verdict, sizeof(verdict)));
    ck_assert_uint_eq(verdict[0], 0);
    world_proof(&peer->id, WORLD_PROVER_ROOT, peer->root_nonce, peer->host_nonce, mac);
    ck_assert_mem_eq(verdict + 1, mac, sizeof(mac));
}

bool peer_send_message(struct peer *peer, const F8__WorldMessage *message)
{
    struct world_frame *frame = world_frame_message(message);
    bool sent = peer_send(peer, frame->bytes, frame->size);
    world_frame_drop(frame);
    return sent;
}

void peer_join(struct peer *peer, uint32_t world_size, uint32_t rank)
{
    F8__WorldJoin join = F8__WORLD_JOIN__INIT;
    F8__WorldMessage message = F8__WORLD_MESSAGE__INIT;
    uint32_t pid = 1;
    join.major = WORLD_MAJOR;
    join.group = (char *)"job/g";
    join.name = (char *)"peer";
    join.world_size = world_size;
    join.n_ranks = join.n_pids = 1;
    join.ranks = &rank;
    join.pids = &pid;
    join.deadline_ms = PATIENCE_MS;
    message.body_case = F8__WORLD_MESSAGE__BODY_JOIN;
    message.join = &join;
    ck_assert(peer_send_message(peer, &message));
}

static F8__WorldMessage *receive_any(struct peer *peer)
{
    uint8_t head[WORLD_HEAD_SIZE];
    uint32_t size, tag;
    if (!peer_read(peer, head, sizeof(head)))
        return NULL;
    world_frame_head(head, &size, &tag);
    ck_assert_uint_eq(tag, WORLD_TAG_MESSAGE);
    ck_assert_uint_le(size, 1 << 20);
    uint8_t *bytes = malloc(size + 1);
    ck_assert_ptr_nonnull(bytes);
    F8__WorldMessage *message =
        peer_read(peer, bytes, size) ? f8__world_message__unpack(NULL, size, bytes) : NULL;
    free(bytes);
    return message;
}

F8__WorldMessage *peer_receive(struct peer *peer)
{
    F8__WorldMessage *message = receive_any(peer);
    while (message && message->body_case == F8__WORLD_MESSAGE__BODY_HEARTBEAT) {
        f8__world_message__free_unpacked(message, NULL);
        message = receive_any(peer);
    }
    return message;
}
