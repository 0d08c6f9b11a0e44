/* SPDX-License-Identifier: Apache-2.0 */
/* The scaling state of a weight: see scaling.h; the arithmetic is f8k_scale's. */
#include "daemon/scaling.h"

#include <string.h>

void scaling_init(struct scaling *scaling, const struct weight *weight)
{
    *scaling = (struct scaling){0};
    if (weight->flavour != F8_PROTO_STATIC)
        return;
    memcpy(&scaling->scale, &weight->static_bits, sizeof(scaling->scale));
    scaling->scale_seen = true;
    scaling->ready = true;
}

void scaling_next_generation(struct scaling *scaling, const struct weight *weight)
{
    scaling->version = SCALING_VERSION_UNKNOWN;
    scaling->scale_version = SCALING_VERSION_UNKNOWN;
    scaling->ready = weight->flavour == F8_PROTO_STATIC;
}

static void set_scale(
    struct scaling *scaling, const struct weight *weight, uint32_t amax, enum f8k_scale_path path)
{
    scaling->amax = amax;
    scaling->amax_seen = true;
    scaling->scale = f8k_scale(amax, (enum f8k_dtype)weight->dtype, (enum f8k_format)weight->format,
        path, weight->power_of_two);
    scaling->scale_seen = true;
}

void scaling_precomputed(
    struct scaling *scaling, const struct weight *weight, uint32_t amax, uint64_t version)
{
    set_scale(scaling, weight, amax, F8K_SCALE_PRECOMPUTE);
    scaling->version = version;
    scaling->scale_version = version;
    scaling->ready = true;
}

void scaling_in_gather(struct scaling *scaling, const struct weight *weight, uint32_t amax)
{
    set_scale(scaling, weight, amax, F8K_SCALE_DIRECT);
}

bool scaling_gathered(struct scaling *scaling, uint64_t version, const struct f8k_counts *counts)
{
    scaling->version = version;
    scaling->gathers++;
    scaling->saturated += counts->saturated;
    scaling->nan += counts->nan;
    bool precomputed = scaling->ready && scaling->amax_seen;
    bool stale = precomputed && version > scaling->scale_version;
    scaling->stale += stale;
    return stale;
}
