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

struct scaling {
    uint64_t version;       /* of the values last gathered or reduced */
    uint64_t scale_version; /* of the values that a precomputed scale was made from */
    uint64_t gathers;
    uint64_t saturated, nan; /* elements, over all gathers */
    uint64_t stale;          /* gathers with a scale older than the values */
    float scale;             /* last used or precomputed */
    uint32_t amax;           /* bits; last reduced */
    bool amax_seen, scale_seen;
    bool ready; /* the next cast takes `scale` as it is: static, or precomputed */
};

/* The state of a weight that was never gathered. */
void scaling_init(struct scaling *scaling, const struct weight *weight);

/* A new generation: what was precomputed from other ranks' values is not used again. */
void scaling_next_generation(struct scaling *scaling, const struct weight *weight);

/* The batched reduction gave this amax for values of this version. */
void scaling_precomputed(
    struct scaling *scaling, const struct weight *weight, uint32_t amax, uint64_t version);

/* The reduction inside a gather gave this amax: the scale is for that gather alone. */
void scaling_in_gather(struct scaling *scaling, const struct weight *weight, uint32_t amax);

/*
 * The weight was gathered, with values of this version. True if that was with a scale that was
 * precomputed from older values: legal (evaluation, accumulation), but worth a word.
 */
bool scaling_gathered(struct scaling *scaling, uint64_t version, const struct f8k_counts *counts);

#endif
