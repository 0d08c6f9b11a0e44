/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libf8client: the words of f8client.h, which includes this: objects, element types, formats,
 * flavours, states, layouts. Values are those of the protocol and never change.
 */
#ifndef F8TYPES_H
#define F8TYPES_H

#include <stddef.h>
#include <stdint.h>

#include "status.h"

#if defined(F8_BUILDING_LIBRARY)
#define F8_API __attribute__((visibility("default")))
#else
#define F8_API
#endif

/* Most dimensions a weight may have. */
#define F8_MAX_DIMS 8

/* Bytes of the id that the ranks of a group over several hosts share. */
#define F8_UNIQUE_ID_SIZE 128

/* Wait without limit (the daemon's own deadline still applies). */
#define F8_FOREVER (-1)

/* Take the daemon's configured deadline for this collective. */
#define F8_DEFAULT_DEADLINE 0

/* A connection of this process to the daemon, as one rank of one job. */
struct f8_client;

/* This client's membership of a group. Owned by the client; freed by f8_close. */
struct f8_group;

/* Memory that this process and the daemon both see. Owned by the client. */
struct f8_region;

/* Source element types. */
enum f8_dtype {
    F8_F32 = 1,
    F8_BF16 = 2,
    F8_F16 = 3,
};

/* The float8 formats of OCP. */
enum f8_format {
    F8_E4M3FN = 1,
    F8_E5M2 = 2,
};

/* How a weight is gathered. */
enum f8_flavour {
    F8_DYNAMIC = 1,  /* float8; scale from the amax over all ranks */
    F8_DELAYED = 2,  /* float8; scale from a history of amaxes, which f8_sync extends */
    F8_STATIC = 3,   /* float8; scale given at registration */
    F8_RAW = 4,      /* bytes unchanged: norms, biases */
    F8_RAW_BF16 = 5, /* fp32 source, gathered as bf16 */
};

/* How the next scale of a delayed weight follows from its amax history. */
enum f8_history {
    F8_HISTORY_MAX = 0,         /* from the largest of the window */
    F8_HISTORY_MOST_RECENT = 1, /* from the newest */
};

/* What the gathered elements are, as f8_view reports it. */
enum f8_wire {
    F8_WIRE_F32 = 1,
    F8_WIRE_BF16 = 2,
    F8_WIRE_F16 = 3,
    F8_WIRE_E4M3FN = 17,
    F8_WIRE_E5M2 = 18,
};

/* Where the scaling state of delayed weights comes from. */
enum f8_state {
    F8_STATE_FRESH = 0,    /* nothing is known; what was stored for the group is dropped */
    F8_STATE_CONTINUE = 1, /* what the daemon has stored for this job and group, as of its last
                              sync; with syncs 0 and nothing stored as F8_STATE_FRESH */
    F8_STATE_IMPORT = 2,   /* what f8_export gave, such as from a checkpoint */
};

/* As f8_seal_options.syncs: whatever is stored, but something: F8_ENOENT if there is nothing. */
#define F8_ANY_SYNCS UINT64_MAX

/* Orders of f8_copy_out. */
enum f8_layout {
    F8_WEIGHT_MAJOR = 1, /* whole weights one after the other, without padding */
    F8_RANK_MAJOR = 2,   /* FSDP2's all-gather output: for each rank, its padded chunk (c rows) of
                            every weight */
};

#endif
