/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names, texts and sizes of the protocol's values, and the layout of a place: one copy that the
 * daemon and the clients share. Pure; any thread.
 */
#include "protocol.h"

#include <stddef.h>
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
        [F8_PROTO_STATIC] = "static",
        [F8_PROTO_RAW] = "raw",
        [F8_PROTO_RAW_BF16] = "raw-bf16"};
    return flavour < sizeof(names) / sizeof(names[0]) ? names[flavour] : NULL;
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
