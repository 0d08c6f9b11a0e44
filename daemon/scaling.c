/* SPDX-License-Identifier: Apache-2.0 */
/* The scaling state of a weight: see scaling.h; the arithmetic of a scale is f8k_scale's. */
#include "daemon/scaling.h"

#include <stdlib.h>
#include <string.h>

/* Bits of fp32 infinity: what is at or above is not finite. */
#define INFINITE 0x7f800000u

void scaling_init(struct scaling *scaling, const struct weight *weight, uint32_t *history)
{
    *scaling = (struct scaling){.delayed.history = history};
    if (weight->flavour == F8_PROTO_DELAYED) {
        scaling_invalidate(scaling, weight);
    } else if (weight->flavour == F8_PROTO_STATIC) {
        memcpy(&scaling->scale, &weight->static_bits, sizeof(scaling->scale));
        scaling->scale_seen = true;
        scaling->ready = true;
    }
}

struct scaling *scaling_new(const struct weight_list *list)
{
    size_t entries = 0;
    for (uint32_t w = 0; w < list->num_weights; w++)
        entries += list->weights[w].history_length;
    struct scaling *scalings =
        malloc(list->num_weights * sizeof(*scalings) + entries * sizeof(uint32_t));
    if (!scalings)
        return NULL;
    uint32_t *history = (uint32_t *)(scalings + list->num_weights);
    for (uint32_t w = 0; w < list->num_weights; w++) {
        scaling_init(&scalings[w], &list->weights[w], history);
        history += list->weights[w].history_length;
    }
    return scalings;
}

void scaling_reset(struct scaling *scaling, const struct weight *weight)
{
    scaling_init(scaling, weight, scaling->delayed.history);
}

void scaling_next_generation(struct scaling *scaling, const struct weight *weight)
{
    scaling->version = SCALING_VERSION_UNKNOWN;
    scaling->scale_version = SCALING_VERSION_UNKNOWN;
    scaling->precomputed = false;
    scaling->pending = 0; /* what has not landed by now never will */
    if (weight->flavour == F8_PROTO_DYNAMIC)
        scaling->ready = false;
}

bool scaling_wants_amax(const struct scaling *scaling, const struct weight *weight)
{
    return !scaling->ready &&
           (weight->flavour == F8_PROTO_DYNAMIC || weight->flavour == F8_PROTO_DELAYED);
}

static void set_scale(
    struct scaling *scaling, const struct weight *weight, uint32_t amax, enum f8k_scale_path path)
{
    scaling->scale = f8k_scale(amax, (enum f8k_dtype)weight->dtype, (enum f8k_format)weight->format,
        path, weight->power_of_two);
    scaling->scale_seen = true;
}

static void see_amax(struct scaling *scaling, uint32_t amax)
{
    scaling->amax = amax;
    scaling->amax_seen = true;
}

void scaling_precomputed(
    struct scaling *scaling, const struct weight *weight, uint32_t amax, uint64_t version)
{
    scaling_precompute_begun(scaling, version);
    scaling_precompute_landed(scaling, weight, amax);
}

void scaling_precompute_begun(struct scaling *scaling, uint64_t version)
{
    scaling->version = version;
    scaling->scale_version = version;
    scaling->precomputed = true;
    scaling->ready = true;
    scaling->pending++;
}

void scaling_precompute_landed(struct scaling *scaling, const struct weight *weight, uint32_t amax)
{
    see_amax(scaling, amax);
    set_scale(scaling, weight, amax, F8K_SCALE_PRECOMPUTE);
    scaling->pending--;
}

void scaling_in_gather(struct scaling *scaling, const struct weight *weight, uint32_t amax)
{
    see_amax(scaling, amax);
    set_scale(scaling, weight, amax, F8K_SCALE_DIRECT);
    if (weight->flavour != F8_PROTO_DELAYED)
        return;
    scaling->delayed.history[scaling->delayed.newest] = amax;
    scaling->ready = true;
}

void scaling_cast(struct scaling *scaling, uint32_t amax)
{
    see_amax(scaling, amax);
    scaling->delayed.local = amax;
    scaling->delayed.since_sync++;
}

uint32_t scaling_history(const struct scaling *scaling, const struct weight *weight, uint32_t i)
{
    return scaling->delayed.history[(scaling->delayed.newest + i) % weight->history_length];
}

/* The amax that the next scale follows from. One that is not finite would hold the scale back for
 * as long as it is in the window, so it is passed over. */
static uint32_t decisive_amax(const struct scaling *scaling, const struct weight *weight)
{
    uint32_t amax = scaling_history(scaling, weight, 0);
    if (weight->history_algorithm == F8_PROTO_HISTORY_MOST_RECENT)
        return amax;
    for (uint32_t i = 1; i < weight->history_length; i++) {
        uint32_t older = scaling_history(scaling, weight, i);
        if (older < INFINITE && older > amax)
            amax = older;
    }
    return amax;
}

bool scaling_sync(struct scaling *scaling, const struct weight *weight)
{
    struct scaling_delayed *delayed = &scaling->delayed;
    if (!scaling->ready)
        return false;
    delayed->newest = (delayed->newest + weight->history_length - 1u) % weight->history_length;
    delayed->history[delayed->newest] = delayed->local;
    delayed->syncs++;
    delayed->since_sync = 0;
    see_amax(scaling, delayed->local);
    if (delayed->local == 0 || delayed->local >= INFINITE)
        delayed->kept++;
    else
        set_scale(scaling, weight, decisive_amax(scaling, weight), F8K_SCALE_DIRECT);
    return true;
}

void scaling_invalidate(struct scaling *scaling, const struct weight *weight)
{
    scaling->precomputed = false;
    if (weight->flavour == F8_PROTO_DYNAMIC) {
        scaling->ready = false;
    } else if (weight->flavour == F8_PROTO_DELAYED) {
        memset(scaling->delayed.history, 0,
            weight->history_length * sizeof(*scaling->delayed.history));
        scaling->delayed.newest = 0;
        scaling->delayed.local = 0;
        scaling->scale = 1;
        scaling->ready = false;
    }
}

void scaling_follow(
    struct scaling *scaling, const struct scaling *leader, const struct weight *weight)
{
    scaling->scale = leader->scale;
    scaling->scale_seen = leader->scale_seen;
    scaling->scale_version = leader->scale_version;
    scaling->amax = leader->amax;
    scaling->amax_seen = leader->amax_seen;
    scaling->precomputed = leader->precomputed;
    scaling->pending = leader->pending;
    bool takes_local = !scaling->ready || !leader->ready;
    scaling->ready = leader->ready;
    if (weight->flavour != F8_PROTO_DELAYED)
        return;
    if (scaling->delayed.syncs != leader->delayed.syncs)
        scaling->delayed.since_sync = 0;
    scaling->delayed.syncs = leader->delayed.syncs;
    scaling->delayed.kept = leader->delayed.kept;
    if (takes_local)
        scaling->delayed.local = leader->delayed.local;
    scaling->delayed.newest = leader->delayed.newest;
    memcpy(scaling->delayed.history, leader->delayed.history,
        weight->history_length * sizeof(*leader->delayed.history));
}

void scaling_counted(struct scaling *scaling, const struct f8k_counts *counts)
{
    scaling->saturated += counts->saturated;
    scaling->nan += counts->nan;
}

bool scaling_gathered(struct scaling *scaling, uint64_t version, const struct f8k_counts *counts)
{
    scaling->version = version;
    scaling->gathers++;
    scaling_counted(scaling, counts);
    bool stale = scaling->precomputed && version > scaling->scale_version;
    scaling->stale += stale;
    return stale;
}
