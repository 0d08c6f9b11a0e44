/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The protocol's fixed numbers, and what both of its sides must compute alike: the status texts,
 * how FSDP2 cuts a weight over ranks, and how a bucket lies in the arena. Pure; any thread.
 */
#ifndef F8_PROTOCOL_H
#define F8_PROTOCOL_H

#include <stddef.h>
#include <stdint.h>

#include "status.h"

#define F8_PROTO_MAJOR 1
#define F8_PROTO_MINOR 0

/* Largest packet of either direction, in bytes. */
#define F8_PROTO_MAX_PACKET 65536

/* Longest job, group, bucket or weight name, in bytes. */
#define F8_PROTO_MAX_NAME 255

/* The amax history of a delayed weight: its length if none is given, and the longest. */
#define F8_PROTO_HISTORY_LENGTH     16
#define F8_PROTO_MAX_HISTORY_LENGTH 1024

/* Room for the words of f8_proto_name_fault. */
#define F8_PROTO_FAULT_SIZE 64

/* Most dimensions of a weight. */
#define F8_PROTO_MAX_DIMS 8

/* Bytes of the id by which the daemons of a group over several hosts find one another. */
#define F8_PROTO_UNIQUE_ID_SIZE 128

/* Places in the arena, and weights in a place, begin at multiples of this. */
#define F8_PROTO_ALIGN 4096

/*
 * What an end of a connection can do beyond the protocol's version: named in Hello and its answer,
 * so that a new library meets an old daemon with a sentence, not with a failure in mid-run.
 * X(NAME, "name"): arena.* is how a client can map gathered weights, the rest is the daemon's.
 */
#define F8_CAPABILITY_LIST(X)                                                                      \
    X(ARENA_MEMFD, "arena.memfd")                                                                  \
    X(REGION_MEMFD, "region.memfd")                                                                \
    X(FLAVOUR_DYNAMIC, "flavour.dynamic")                                                          \
    X(FLAVOUR_DELAYED, "flavour.delayed")                                                          \
    X(FLAVOUR_STATIC, "flavour.static")                                                            \
    X(FLAVOUR_RAW, "flavour.raw")                                                                  \
    X(FLAVOUR_RAW_BF16, "flavour.raw-bf16")                                                        \
    X(POISON, "poison")                                                                            \
    X(WEIGHT_MOVE, "weight-move")                                                                  \
    X(AMAX_GROUP, "amax-group")                                                                    \
    X(STATE, "state")                                                                              \
    X(HOSTS, "hosts")                                                                              \
    X(REGION_CUDA, "region.cuda")

enum f8_capability {
#define F8_CAPABILITY_ENUM(name, text) F8_CAPABILITY_##name,
    F8_CAPABILITY_LIST(F8_CAPABILITY_ENUM)
#undef F8_CAPABILITY_ENUM
        F8_CAPABILITY_COUNT
};

/* Names by enum f8_capability. */
extern const char *const f8_proto_capabilities[F8_CAPABILITY_COUNT];

/* A set of capabilities from the names of a message; unknown names are passed over. */
uint64_t f8_proto_capability_set(char *const *names, size_t count);

/*
 * What is wrong with the name of a job, group, weight or bucket, in words that follow "the name":
 * "is empty". NULL if nothing is: it has 1 to F8_PROTO_MAX_NAME bytes of UTF-8 and no control
 * characters, for it will stand in logs, on terminals and in JSON. The words do not repeat it.
 */
const char *f8_proto_name_fault(const char *name, char buffer[static F8_PROTO_FAULT_SIZE]);

/*
 * Makes any text fit for a terminal and a line of log, in place: each control character, each byte
 * that is no UTF-8 and each character that turns the direction of writing becomes a '?'.
 */
void f8_proto_make_printable(char *text);

static inline uint64_t f8_proto_capability_bit(enum f8_capability capability)
{
    return (uint64_t)1 << capability;
}

/* Of CUDA, on the wire: bytes of a device's UUID and of IPC handles; most ready events of a client
 * and descriptors of one packet. */
#define F8_PROTO_UUID_SIZE   16
#define F8_PROTO_HANDLE_SIZE 64
#define F8_PROTO_MAX_READY   128
#define F8_PROTO_MAX_FDS     64

/* Where the socket is looked for when nothing else is said. */
#define F8_PROTO_SOCKET      "/run/f8gatherd/f8gatherd.sock"
#define F8_PROTO_SOCKET_NAME "f8gatherd.sock"
#define F8_PROTO_SOCKET_ENV  "F8GATHERD_SOCKET"

/* Text and name of a status code; literals, never NULL. */
const char *f8_proto_status_text(int status);
const char *f8_proto_status_name(int status);

/* Rows that each rank has room for: ceil(rows / world_size), as torch.chunk cuts. */
static inline uint64_t f8_proto_chunk_rows(uint64_t rows, uint32_t world_size)
{
    return rows / world_size + (rows % world_size != 0);
}

/* First row of a rank's shard; `rows` itself for ranks past the end. rank < world_size. */
static inline uint64_t f8_proto_shard_begin(uint64_t rows, uint32_t world_size, uint32_t rank)
{
    uint64_t begin = f8_proto_chunk_rows(rows, world_size) * rank;
    return begin < rows ? begin : rows;
}

/* Number of rows of a rank's shard; 0 for ranks past the end. */
static inline uint64_t f8_proto_shard_rows(uint64_t rows, uint32_t world_size, uint32_t rank)
{
    uint64_t begin = f8_proto_shard_begin(rows, world_size, rank);
    uint64_t chunk = f8_proto_chunk_rows(rows, world_size);
    return rows - begin < chunk ? rows - begin : chunk;
}

/* The next multiple of F8_PROTO_ALIGN. */
static inline uint64_t f8_proto_align(uint64_t offset)
{
    return (offset + F8_PROTO_ALIGN - 1) & ~(uint64_t)(F8_PROTO_ALIGN - 1);
}

/* Most elements that a weight may have: products and sums of sizes cannot overflow below it. */
#define F8_PROTO_MAX_ELEMENTS ((uint64_t)1 << 48)

/* f8_dtype, f8_format, f8_flavour and f8_wire of f8client.h, as they are on the wire. */
enum f8_proto_dtype {
    F8_PROTO_F32 = 1,
    F8_PROTO_BF16 = 2,
    F8_PROTO_F16 = 3,
};
enum f8_proto_format {
    F8_PROTO_E4M3FN = 1,
    F8_PROTO_E5M2 = 2,
};
enum f8_proto_flavour {
    F8_PROTO_DYNAMIC = 1,
    F8_PROTO_DELAYED = 2,
    F8_PROTO_STATIC = 3,
    F8_PROTO_RAW = 4,
    F8_PROTO_RAW_BF16 = 5,
};
enum f8_proto_history {
    F8_PROTO_HISTORY_MAX = 0,
    F8_PROTO_HISTORY_MOST_RECENT = 1,
};
/* f8_state: where the seal takes the scaling state from. */
enum f8_proto_state {
    F8_PROTO_STATE_FRESH = 0,
    F8_PROTO_STATE_CONTINUE = 1,
    F8_PROTO_STATE_IMPORT = 2,
};

/* As Seal.syncs: whatever is stored. */
#define F8_PROTO_ANY_SYNCS UINT64_MAX

enum f8_proto_wire {
    F8_PROTO_WIRE_F32 = 1,
    F8_PROTO_WIRE_BF16 = 2,
    F8_PROTO_WIRE_F16 = 3,
    F8_PROTO_WIRE_E4M3FN = 17,
    F8_PROTO_WIRE_E5M2 = 18,
};

/*
 * What the daemon tells of as events: X(NAME, number, "name"), and what the value of each is. The
 * numbers are on the wire.
 */
#define F8_PROTO_EVENT_LIST(X)                                                                     \
    X(RANK_JOINED, 1, "rank-joined")          /* the generation */                                 \
    X(RANK_LEFT, 2, "rank-left")              /* in good order; the generation */                  \
    X(RANK_DIED, 3, "rank-died")              /* the generation */                                 \
    X(GROUP_SEALED, 4, "group-sealed")        /* weights */                                        \
    X(GROUP_BROKEN, 5, "group-broken")        /* with nothing open: the collective to come */      \
    X(ROUND_FAILED, 6, "round-failed")        /* the collective; its group is broken */            \
    X(SATURATION, 7, "saturation")            /* the part of the weight's elements, 0 to 1 */      \
    X(STALE_SCALE, 8, "stale-scale")          /* weights of the bucket */                          \
    X(NAN_FOUND, 9, "nan-found")              /* elements of the weight */                         \
    X(HOST_LOST, 10, "host-lost")             /* ranks that were there */                          \
    X(SNAPSHOT, 11, "snapshot")               /* bytes written */                                  \
    X(SNAPSHOT_FAILED, 12, "snapshot-failed") /* 0 */                                              \
    X(DRAIN, 13, "drain")                     /* groups that are waited for */                     \
    X(DRAIN_CANCELLED, 14, "drain-cancelled") /* 0 */

enum f8_proto_event {
#define F8_PROTO_EVENT_ENUM(name, number, text) F8_PROTO_EVENT_##name = number,
    F8_PROTO_EVENT_LIST(F8_PROTO_EVENT_ENUM)
#undef F8_PROTO_EVENT_ENUM
};

/* The name of a kind of event, NULL for no such number; and back, 0 for no such name. */
const char *f8_proto_event_name(uint32_t event);
uint32_t f8_proto_event_of(const char *name);

/* As Watch.after: none of those that there are. */
#define F8_PROTO_FROM_NOW UINT64_MAX

/* Bytes of a source element; 0 for no dtype. */
uint32_t f8_proto_dtype_size(uint32_t dtype);

/* What the gathered elements of a weight are (an f8_proto_wire), and their size in bytes. */
uint32_t f8_proto_wire_of(uint32_t flavour, uint32_t dtype, uint32_t format);
uint32_t f8_proto_wire_size(uint32_t wire);

/* Names for people and JSON: "float32", "e4m3fn", "dynamic", "raw-bf16". NULL for no such value. */
const char *f8_proto_dtype_name(uint32_t dtype);
const char *f8_proto_format_name(uint32_t format);
const char *f8_proto_flavour_name(uint32_t flavour);
const char *f8_proto_wire_name(uint32_t wire);
const char *f8_proto_history_name(uint32_t algorithm);

/*
 * Bytes that a gathered weight takes in its place: world_size chunks of padded rows, rounded up
 * to F8_PROTO_ALIGN. Weights of a bucket follow one another so; one fp32 scale a weight follows
 * the last, and the place ends at the next multiple of F8_PROTO_ALIGN.
 */
uint64_t f8_proto_weight_span(
    uint64_t rows, uint64_t cols, uint32_t world_size, uint32_t wire_size);

/* Bytes of the scales that close a place, rounded up. */
static inline uint64_t f8_proto_scales_span(uint32_t num_weights)
{
    return f8_proto_align((uint64_t)num_weights * sizeof(float));
}

#endif
