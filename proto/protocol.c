/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names, texts and sizes of the protocol's values, and the layout of a place: one copy that the
 * daemon and the clients share. Pure; any thread.
 */
#include "protocol.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

const char *f8_proto_status_text(int status)
{
    switch (status) {
#define F8_STATUS_TEXT(code, name, text)                                                           \
    case F8_##name:                                                                                \
        return text;
        F8_STATUS_LIST(F8_STATUS_TEXT)
#undef F8_STATUS_TEXT
    default:
        return "unknown status";
    }
}

const char *f8_proto_status_name(int status)
{
    switch (status) {
#define F8_STATUS_NAME(code, name, text)                                                           \
    case F8_##name:                                                                                \
        return "F8_" #name;
        F8_STATUS_LIST(F8_STATUS_NAME)
#undef F8_STATUS_NAME
    default:
        return "F8_UNKNOWN_STATUS";
    }
}

/* Bytes of the UTF-8 character at `text`; 0: that is none. The NUL of a string ends it. */
static size_t utf8_character(const unsigned char *text, uint32_t *ret_character)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t size = text[0] < 0x80 ? 1 : text[0] < 0xe0 ? 2 : text[0] < 0xf0 ? 3 : 4;
    uint32_t character = size == 1 ? text[0] : text[0] & (0x7fU >> size);
    if ((text[0] >= 0x80 && text[0] < 0xc2) || text[0] > 0xf4)
        return 0;
    for (size_t i = 1; i < size; i++) {
        if ((text[i] & 0xc0) != 0x80)
            return 0;
        character = character << 6 | (text[i] & 0x3f);
    }
    if (character < least[size] || character > 0x10ffff ||
        (character >= 0xd800 && character < 0xe000))
        return 0;
    *ret_character = character;
    return size;
}

/* C0, DEL and C1: a terminal may take any of them for the beginning of a command. */
static bool is_control(uint32_t character)
{
    return character < 0x20 || (character >= 0x7f && character < 0xa0);
}

const char *f8_proto_name_fault(const char *name, char buffer[static F8_PROTO_FAULT_SIZE])
{
    size_t length = strlen(name), size;
    uint32_t character;
    if (length == 0)
        return "is empty";
    if (length > F8_PROTO_MAX_NAME) {
        (void)snprintf(buffer, F8_PROTO_FAULT_SIZE, "has %zu bytes, the limit is %d", length,
            F8_PROTO_MAX_NAME);
        return buffer;
    }
    for (size_t at = 0; at < length; at += size) {
        size = utf8_character((const unsigned char *)name + at, &character);
        if (size > 0 && !is_control(character))
            continue;
        if (size == 0)
            (void)snprintf(buffer, F8_PROTO_FAULT_SIZE, "is not UTF-8 at byte %zu", at);
        else
            (void)snprintf(buffer, F8_PROTO_FAULT_SIZE,
                "has the control character U+%04X at byte %zu", character, at);
        return buffer;
    }
    return NULL;
}

/* Those with which a text reads otherwise than it is: embeddings, overrides and isolates. */
static bool turns_direction(uint32_t character)
{
    return (character >= 0x202a && character <= 0x202e) ||
           (character >= 0x2066 && character <= 0x2069);
}

void f8_proto_make_printable(char *text)
{
    char *to = text;
    uint32_t character;
    while (*text != '\0') {
        size_t size = utf8_character((const unsigned char *)text, &character);
        if (size == 0 || is_control(character) || turns_direction(character)) {
            *to++ = '?';
        } else {
            memmove(to, text, size);
            to += size;
        }
        text += size > 0 ? size : 1;
    }
    *to = '\0';
}

uint32_t f8_proto_dtype_size(uint32_t dtype)
{
    switch (dtype) {
    case F8_PROTO_F32:
        return 4;
    case F8_PROTO_BF16:
    case F8_PROTO_F16:
        return 2;
    default:
        return 0;
    }
}

uint32_t f8_proto_wire_of(uint32_t flavour, uint32_t dtype, uint32_t format)
{
    switch (flavour) {
    case F8_PROTO_RAW:
        return dtype;
    case F8_PROTO_RAW_BF16:
        return F8_PROTO_WIRE_BF16;
    default:
        return format == F8_PROTO_E5M2 ? F8_PROTO_WIRE_E5M2 : F8_PROTO_WIRE_E4M3FN;
    }
}

uint32_t f8_proto_wire_size(uint32_t wire)
{
    switch (wire) {
    case F8_PROTO_WIRE_E4M3FN:
    case F8_PROTO_WIRE_E5M2:
        return 1;
    default:
        return f8_proto_dtype_size(wire);
    }
}

const char *f8_proto_dtype_name(uint32_t dtype)
{
    static const char *const names[] = {
        [F8_PROTO_F32] = "float32", [F8_PROTO_BF16] = "bfloat16", [F8_PROTO_F16] = "float16"};
    return dtype < sizeof(names) / sizeof(names[0]) ? names[dtype] : NULL;
}

const char *f8_proto_format_name(uint32_t format)
{
    static const char *const names[] = {[F8_PROTO_E4M3FN] = "e4m3fn", [F8_PROTO_E5M2] = "e5m2"};
    return format < sizeof(names) / sizeof(names[0]) ? names[format] : NULL;
}

const char *f8_proto_flavour_name(uint32_t flavour)
{
    static const char *const names[] = {[F8_PROTO_DYNAMIC] = "dynamic",
        [F8_PROTO_DELAYED] = "delayed",
        [F8_PROTO_STATIC] = "static",
        [F8_PROTO_RAW] = "raw",
        [F8_PROTO_RAW_BF16] = "raw-bf16"};
    return flavour < sizeof(names) / sizeof(names[0]) ? names[flavour] : NULL;
}

const char *f8_proto_history_name(uint32_t algorithm)
{
    static const char *const names[] = {
        [F8_PROTO_HISTORY_MAX] = "max", [F8_PROTO_HISTORY_MOST_RECENT] = "most-recent"};
    return algorithm < sizeof(names) / sizeof(names[0]) ? names[algorithm] : NULL;
}

static const struct {
    uint32_t number;
    const char *name;
} events[] = {
#define EVENT_ROW(name, number, text) {number, text},
    F8_PROTO_EVENT_LIST(EVENT_ROW)
#undef EVENT_ROW
};

#define NUM_EVENTS (sizeof(events) / sizeof(events[0]))

const char *f8_proto_event_name(uint32_t event)
{
    for (size_t i = 0; i < NUM_EVENTS; i++)
        if (events[i].number == event)
            return events[i].name;
    return NULL;
}

uint32_t f8_proto_event_of(const char *name)
{
    for (size_t i = 0; i < NUM_EVENTS; i++)
        if (strcmp(events[i].name, name) == 0)
            return events[i].number;
    return 0;
}

const char *f8_proto_wire_name(uint32_t wire)
{
    switch (wire) {
    case F8_PROTO_WIRE_E4M3FN:
        return "e4m3fn";
    case F8_PROTO_WIRE_E5M2:
        return "e5m2";
    default:
        return f8_proto_dtype_name(wire);
    }
}

uint64_t f8_proto_weight_span(uint64_t rows, uint64_t cols, uint32_t world_size, uint32_t wire_size)
{
    return f8_proto_align(f8_proto_chunk_rows(rows, world_size) * world_size * cols * wire_size);
}

const char *const f8_proto_capabilities[F8_CAPABILITY_COUNT] = {
#define F8_CAPABILITY_NAME(name, text) [F8_CAPABILITY_##name] = (text),
    F8_CAPABILITY_LIST(F8_CAPABILITY_NAME)
#undef F8_CAPABILITY_NAME
};

uint64_t f8_proto_capability_set(char *const *names, size_t count)
{
    uint64_t set = 0;
    for (size_t i = 0; i < count; i++)
        for (int c = 0; c < F8_CAPABILITY_COUNT; c++)
            if (strcmp(names[i], f8_proto_capabilities[c]) == 0)
                set |= f8_proto_capability_bit((enum f8_capability)c);
    return set;
}
