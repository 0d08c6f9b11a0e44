/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames between the hosts of a world: a head and bytes in one piece that is counted, so that the
 * root sends what one host told to all others without copying it. Called by link, root and host,
 * on the loop.
 */
#include "daemon/world_private.h"

#include <stdlib.h>

#define FIRST_CAPACITY ((size_t)4096)

static void put_uint32(uint8_t *bytes, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        bytes[i] = (uint8_t)(value >> (8 * i));
}

static uint32_t get_uint32(const uint8_t *bytes)
{
    uint32_t value = 0;
    for (int i = 0; i < 4; i++)
        value |= (uint32_t)bytes[i] << (8 * i);
    return value;
}

/* With its head, and what follows still to be filled in. */
static struct world_frame *frame_new(uint32_t tag, size_t size)
{
    struct world_frame *frame = malloc(sizeof(*frame) + WORLD_HEAD_SIZE + size);
    if (!frame)
        return NULL;
    frame->references = 1;
    frame->size = frame->capacity = WORLD_HEAD_SIZE + size;
    put_uint32(frame->bytes, (uint32_t)size);
    put_uint32(frame->bytes + 4, tag);
    return frame;
}

struct world_frame *world_frame_data(uint32_t tag, const uint8_t *data, size_t size)
{
    struct world_frame *frame = frame_new(tag, size);
    if (frame && size > 0)
        memcpy(frame->bytes + WORLD_HEAD_SIZE, data, size);
    return frame;
}

struct world_frame *world_frame_message(const F8__WorldMessage *message)
{
    size_t size = f8__world_message__get_packed_size(message);
    struct world_frame *frame = frame_new(WORLD_TAG_MESSAGE, size);
    if (frame)
        (void)f8__world_message__pack(message, frame->bytes + WORLD_HEAD_SIZE);
    return frame;
}

struct world_frame *world_frame_end(int status, const char *text)
{
    F8__WorldEnd end = F8__WORLD_END__INIT;
    F8__WorldMessage message = F8__WORLD_MESSAGE__INIT;
    end.status = status;
    end.text = (char *)text; /* protobuf-c wants a pointer that it may free */
    message.body_case = F8__WORLD_MESSAGE__BODY_END;
    message.end = &end;
    return world_frame_message(&message);
}

struct world_frame *world_frame_keep(struct world_frame *frame)
{
    frame->references++;
    return frame;
}

void world_frame_drop(struct world_frame *frame)
{
    if (frame && --frame->references == 0)
        free(frame);
}

void world_frame_head(const uint8_t head[WORLD_HEAD_SIZE], uint32_t *ret_size, uint32_t *ret_tag)
{
    *ret_size = get_uint32(head);
    *ret_tag = get_uint32(head + 4);
}

void world_frame_set_tag(struct world_frame *frame, uint32_t tag)
{
    put_uint32(frame->bytes + 4, tag);
}

struct world_frame *world_frame_grow(struct world_frame *frame, size_t more, size_t limit)
{
    size_t size = frame ? frame->size : 0, capacity = frame ? frame->capacity : FIRST_CAPACITY;
    while (capacity < size + more)
        capacity *= 2;
    if (capacity > limit)
        capacity = limit;
    if (frame && capacity == frame->capacity)
        return frame;
    struct world_frame *grown = realloc(frame, sizeof(*grown) + capacity);
    if (!grown)
        return NULL;
    grown->references = 1;
    grown->size = size;
    grown->capacity = capacity;
    return grown;
}
