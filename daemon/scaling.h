/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scaling state of one weight of a group: which scale its next cast takes, what the last amax
 * was, and what casts met. Plain state and arithmetic, told by collective on the loop.
 */
#ifndef F8_DAEMON_SCALING_H
#define F8_DAEMON_SCALING_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/weights.h"
#include "kernels/kernels.h"

/* A version counts a weight's changes since its rank joined; this one is not known yet. */
#define SCALING_VERSION_UNKNOWN 0

/* What only a delayed weight has. */
struct scaling_delayed {
    uint32_t *history;   /* borrowed: a ring of amax bits, in the block of scaling_new */
    uint32_t newest;     /* index of the newest */
    uint32_t local;      /* bits: amax of the last gather, over its ranks; what a sync takes */
    uint64_t syncs;      /* of this weight */
    uint64_t since_sync; /* gathers since the last one: many mean that it was forgotten */
    uint64_t kept;       /* syncs that kept the scale: the amax was zero or not finite */
};

struct scaling {
    uint64_t version;       /* of the values last gathered or reduced */
    uint64_t scale_version; /* of the values that a precomputed scale was made from */
    uint64_t gathers;
    uint64_t saturated, nan; /* elements, over all gathers */
    uint64_t stale;          /* gathers with a scale older than the values */
    struct scaling_delayed delayed;
    float scale;   /* last used or precomputed */
    uint32_t amax; /* bits; last reduced */
    bool amax_seen, scale_seen;
    bool precomputed; /* `scale` is from the batched reduction */
    bool ready; /* the next cast takes `scale` as it is: static, precomputed, or initialised */
    uint16_t pending; /* precomputes whose scale only a device knows yet: `scale` is older */
};

/* The state of a weight that was never gathered; `history` has room for its history_length. */
void scaling_init(struct scaling *scaling, const struct weight *weight, uint32_t *history);

/*
 * The states of a list's weights, none of which was gathered yet; NULL if memory is short. One
 * block, histories and all: ended with free().
 */
struct scaling *scaling_new(const struct weight_list *list);

/* As scaling_new leaves it: a group that begins afresh. */
void scaling_reset(struct scaling *scaling, const struct weight *weight);

/* A new generation: what was precomputed from other ranks' values is not used again. */
void scaling_next_generation(struct scaling *scaling, const struct weight *weight);

/* Whether a gather must reduce the weight's amax before it can cast. */
bool scaling_wants_amax(const struct scaling *scaling, const struct weight *weight);

/* The batched reduction gave this amax for values of this version. Dynamic weights. */
void scaling_precomputed(
    struct scaling *scaling, const struct weight *weight, uint32_t amax, uint64_t version);

/*
 * The same on devices, where it is begun, and known some time later: in between casts take the
 * scale from the device's tables.
 */
void scaling_precompute_begun(struct scaling *scaling, uint64_t version);
void scaling_precompute_landed(struct scaling *scaling, const struct weight *weight, uint32_t amax);

/*
 * The reduction inside a gather gave this amax. Dynamic: the scale is for that gather alone.
 * Delayed: it seeds the history, and the scale holds until the next sync.
 */
void scaling_in_gather(struct scaling *scaling, const struct weight *weight, uint32_t amax);

/* A delayed weight was cast, and this is its amax over the ranks of the gather. */
void scaling_cast(struct scaling *scaling, uint32_t amax);

/*
 * A sync of a delayed weight: the amax of its last gather enters the history, which gives the
 * next scale. Nothing happens to a weight that has no seed yet: false.
 */
bool scaling_sync(struct scaling *scaling, const struct weight *weight);

/* The weight was loaded anew: the next gather seeds it, or computes its scale. */
void scaling_invalidate(struct scaling *scaling, const struct weight *weight);

/*
 * The state of a weight whose amax is taken over another group's ranks becomes that group's; what
 * its own gathers count and met stays, or their largest amax would be that of other groups from
 * then on. Both have the same history_length.
 */
void scaling_follow(
    struct scaling *scaling, const struct scaling *leader, const struct weight *weight);

/* The i-th newest amax of the history, i < history_length. */
uint32_t scaling_history(const struct scaling *scaling, const struct weight *weight, uint32_t i);

/*
 * The weight was gathered, with values of this version. True if that was with a scale that was
 * precomputed from older values: legal (evaluation, accumulation), but worth a word.
 */
bool scaling_gathered(struct scaling *scaling, uint64_t version, const struct f8k_counts *counts);

/* What a gather on devices met is known only some time after it. */
void scaling_counted(struct scaling *scaling, const struct f8k_counts *counts);

#endif
