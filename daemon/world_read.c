/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What comes in over a link: first bytes of a fixed number, by which both ends prove the token and
 * of which nothing is parsed; then frames. Called by libuv, on the loop; see world_link.h.
 */
#include "daemon/world_link.h"

#define MOST_EARLY ((size_t)1 << 20) /* a frame before the other end has joined */

const uint8_t world_magic[8] = {'F', '8', 'W', 'O', 'R', 'L', 'D', WORLD_MAJOR};

/* ---- the proof ---- */

void link_expect(struct world_link *link, enum link_state state, size_t size)
{
    link->state = state;
    link->fixed_size = size;
    link->fixed_used = 0;
}

static void open_up(struct world_link *link)
{
    link_expect(link, LINK_OPEN, WORLD_HEAD_SIZE);
    link->listener->proved(link);
}

static void take_challenge(struct world_link *link)
{
    uint8_t answer[WORLD_ANSWER_SIZE];
    struct reason reason;
    if (memcmp(link->fixed, world_magic, sizeof(world_magic)) != 0) {
        bool version = memcmp(link->fixed, world_magic, sizeof(world_magic) - 1) == 0;
        (void)reason_set(&reason, version ? F8_EVERSION : F8_EPROTO,
            version ? "it speaks version %u of the protocol between daemons, f8gatherd " F8_VERSION
                      " speaks %u: install the same version on all hosts"
                    : "what listens there is no f8gatherd",
            link->fixed[sizeof(world_magic) - 1], (unsigned)WORLD_MAJOR);
        link_lose(link, version ? F8_EVERSION : F8_EPROTO, &reason);
        return;
    }
    memcpy(link->root_nonce, link->fixed + sizeof(world_magic), WORLD_NONCE_SIZE);
    memcpy(answer, link->host_nonce, WORLD_NONCE_SIZE);
    world_proof(&link->id, WORLD_PROVER_HOST, link->root_nonce, link->host_nonce,
        answer + WORLD_NONCE_SIZE);
    link_expect(link, LINK_VERDICT, WORLD_VERDICT_SIZE);
    link_send_fixed(link, answer, sizeof(answer));
}

static void take_answer(struct world_link *link)
{
    uint8_t mac[WORLD_MAC_SIZE], verdict[WORLD_VERDICT_SIZE] = {0};
    memcpy(link->host_nonce, link->fixed, WORLD_NONCE_SIZE);
    world_proof(&link->id, WORLD_PROVER_HOST, link->root_nonce, link->host_nonce, mac);
    if (!world_proof_equal(mac, link->fixed + WORLD_NONCE_SIZE)) {
        struct reason reason;
        const struct world_link_listener *listener = link->listener;
        verdict[0] = 1;
        link_send_fixed(link, verdict, sizeof(verdict));
        link_flush(link);
        (void)reason_set(&reason, F8_EPERM, "it does not hold the unique id of this world");
        listener->lost(link, F8_EPERM, &reason);
        return;
    }
    world_proof(&link->id, WORLD_PROVER_ROOT, link->root_nonce, link->host_nonce, verdict + 1);
    link_send_fixed(link, verdict, sizeof(verdict));
    open_up(link);
}

static void take_verdict(struct world_link *link)
{
    uint8_t mac[WORLD_MAC_SIZE];
    struct reason reason;
    world_proof(&link->id, WORLD_PROVER_ROOT, link->root_nonce, link->host_nonce, mac);
    if (link->fixed[0] == 0 && world_proof_equal(mac, link->fixed + 1)) {
        open_up(link);
        return;
    }
    (void)reason_set(&reason, F8_EPERM, "%s",
        link->fixed[0] ? "it refuses this unique id: it is of another world"
                       : "it does not hold the unique id itself");
    link_lose(link, F8_EPERM, &reason);
}

/* ---- receiving ---- */

static void take_message(struct world_link *link, const struct world_frame *frame)
{
    struct reason reason;
    F8__WorldMessage *message = f8__world_message__unpack(
        NULL, frame->size - WORLD_HEAD_SIZE, frame->bytes + WORLD_HEAD_SIZE);
    if (!message) {
        (void)reason_set(&reason, F8_EPROTO, "it sent a message that is none");
        link_lose(link, F8_EPROTO, &reason);
        return;
    }
    if (link->listener)
        link->listener->message(link, message);
    f8__world_message__free_unpacked(message, NULL);
}

static void take_frame(struct world_link *link)
{
    struct world_frame *frame = link->frame;
    uint32_t size, tag;
    link->frame = NULL;
    link_expect(link, LINK_OPEN, WORLD_HEAD_SIZE);
    world_frame_head(frame->bytes, &size, &tag);
    if (tag == WORLD_TAG_MESSAGE)
        take_message(link, frame);
    else if (link->listener)
        link->listener->data(link, tag, frame);
    world_frame_drop(frame);
}

/* Room for the next `more` bytes only: a head that lies takes no memory. */
static bool grow_frame(struct world_link *link, size_t more)
{
    struct reason reason;
    struct world_frame *grown = world_frame_grow(link->frame, more, link->frame_size);
    if (grown) {
        link->frame = grown;
        return true;
    }
    (void)reason_set(&reason, F8_ENOMEM, "out of memory for what it sends");
    link_lose(link, F8_ENOMEM, &reason);
    return false;
}

static void append(struct world_link *link, const uint8_t *bytes, size_t size)
{
    if (!grow_frame(link, size))
        return;
    memcpy(link->frame->bytes + link->frame->size, bytes, size);
    link->frame->size += size;
    if (link->frame->size == link->frame_size)
        take_frame(link);
}

static void take_head(struct world_link *link)
{
    struct reason reason;
    uint32_t size, tag;
    size_t most = link->settled ? WORLD_MAX_MESSAGE : MOST_EARLY;
    world_frame_head(link->fixed, &size, &tag);
    if (size > most) {
        (void)reason_set(
            &reason, F8_EPROTO, "it sent a frame of %u bytes, allowed are %zu", size, most);
        link_lose(link, F8_EPROTO, &reason);
        return;
    }
    link->frame_size = WORLD_HEAD_SIZE + (size_t)size;
    append(link, link->fixed, WORLD_HEAD_SIZE);
}

static void take_fixed(struct world_link *link)
{
    switch (link->state) {
    case LINK_CHALLENGE:
        take_challenge(link);
        break;
    case LINK_ANSWER:
        take_answer(link);
        break;
    case LINK_VERDICT:
        take_verdict(link);
        break;
    default:
        take_head(link);
    }
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static void consume(struct world_link *link, const uint8_t *bytes, size_t size)
{
    while (size > 0 && link->state < LINK_CLOSING) {
        size_t taken;
        if (link->frame) {
            taken = least(size, link->frame_size - link->frame->size);
            append(link, bytes, taken);
        } else {
            taken = least(size, link->fixed_size - link->fixed_used);
            memcpy(link->fixed + link->fixed_used, bytes, taken);
            link->fixed_used += taken;
            if (link->fixed_used == link->fixed_size)
                take_fixed(link);
        }
        bytes += taken;
        size -= taken;
    }
}

void link_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *ret_buffer)
{
    struct world_link *link = handle->data;
    (void)suggested;
    *ret_buffer = uv_buf_init((char *)link->worlds->scratch, WORLD_SCRATCH_SIZE);
}

void link_read(uv_stream_t *stream, ssize_t size, const uv_buf_t *buffer)
{
    struct world_link *link = stream->data;
    if (size == 0 || link->state == LINK_CLOSED)
        return;
    if (size < 0) {
        if (link->state == LINK_CLOSING)
            link_close_handles(link);
        else
            link_lose_to(link, (int)size);
        return;
    }
    link->heard = true;
    link->heard_at = uv_now(link->worlds->loop);
    if (link->traffic)
        link->traffic->received += (uint64_t)size;
    consume(link, (const uint8_t *)buffer->base, (size_t)size);
}
