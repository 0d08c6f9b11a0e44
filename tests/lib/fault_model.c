/* SPDX-License-Identifier: Apache-2.0 */
/* The model of tests of faults: see fault_model.h. */
#include "lib/fault_model.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "kernels/kernels.h"
#include "protocol.h"

#define HISTORY      3
#define MOST_VALUES  (203 * 512)
#define LARGEST_CODE 0x7E /* 448 as e4m3fn: of the amax, in a scale that was made of it */

static const struct {
    const char *name;
    uint32_t rows, cols;
    enum f8_flavour flavour;
} weights[FAULT_WEIGHTS] = {
    {"wide", 203, 512, F8_DYNAMIC},
    {"late", 37, 48, F8_DELAYED},
    {"norm", 37, 1, F8_RAW},
};

static uint32_t count_of(uint32_t w)
{
    return weights[w].rows * weights[w].cols;
}

uint32_t fault_model_first(uint32_t bucket)
{
    return bucket == 0 ? FAULT_WIDE : FAULT_LATE;
}

uint32_t fault_model_count(uint32_t bucket)
{
    return bucket == 0 ? 1 : 2;
}

/* ---- values ---- */

/* Floats of a rank's shards before this weight. */
static size_t shard_at(uint32_t w, uint32_t ranks)
{
    size_t at = 0;
    for (uint32_t i = 0; i < w; i++)
        at += f8_proto_chunk_rows(weights[i].rows, ranks) * weights[i].cols;
    return at;
}

size_t fault_model_bytes(uint32_t ranks)
{
    return shard_at(FAULT_WEIGHTS, ranks) * sizeof(float);
}

static float amax_of(uint64_t syncs)
{
    return ldexpf(1.0f, (int)(syncs * 7 % 9) - 4);
}

/* Which element has the amax. */
static uint32_t peak_of(uint32_t w, uint64_t syncs)
{
    return (uint32_t)(syncs * 7919 % count_of(w));
}

/* Less than the amax, as a part of it. */
static float part_of(uint32_t w, uint32_t i)
{
    uint32_t x = (w + 1) * 2654435761u + i * 40503u;
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    return ldexpf((float)(int32_t)(x & 0xFFFF) - 32768.0f, -16);
}

static float value_of(uint32_t w, uint32_t i, uint64_t syncs)
{
    if (w == FAULT_NORM)
        return (float)(syncs % 4096 * 64 + i);
    return i == peak_of(w, syncs) ? amax_of(syncs) : part_of(w, i) * amax_of(syncs);
}

void fault_model_fill(float *shards, uint32_t rank, uint32_t ranks, uint64_t syncs)
{
    for (uint32_t w = 0; w < FAULT_WEIGHTS; w++) {
        uint32_t rows = weights[w].rows, cols = weights[w].cols;
        uint32_t first = (uint32_t)f8_proto_shard_begin(rows, ranks, rank) * cols;
        uint32_t count = (uint32_t)f8_proto_shard_rows(rows, ranks, rank) * cols;
        float *shard = shards + shard_at(w, ranks);
        for (uint32_t i = 0; i < count; i++)
            shard[i] = value_of(w, first + i, syncs);
    }
}

int fault_model_register(struct f8_group *group, const struct f8_region *region, uint32_t ranks)
{
    static const char *const names[FAULT_BUCKETS] = {"own", "shared"};
    struct f8_weight_desc descs[FAULT_WEIGHTS];
    struct f8_bucket_desc buckets[FAULT_BUCKETS];
    for (uint32_t w = 0; w < FAULT_WEIGHTS; w++)
        descs[w] = (struct f8_weight_desc){.name = weights[w].name,
            .ndim = 2,
            .shape = {weights[w].rows, weights[w].cols},
            .dtype = F8_F32,
            .flavour = weights[w].flavour,
            .format = F8_E4M3FN,
            .history_length = weights[w].flavour == F8_DELAYED ? HISTORY : 0,
            .region = region,
            .offset = shard_at(w, ranks) * sizeof(float)};
    for (uint32_t b = 0; b < FAULT_BUCKETS; b++)
        buckets[b] = (struct f8_bucket_desc){.name = names[b],
            .first = fault_model_first(b),
            .count = fault_model_count(b),
            .shared = b > 0};
    return f8_register(group, descs, FAULT_WEIGHTS, buckets, FAULT_BUCKETS);
}

/* ---- what must come out ---- */

static float scale_of(uint32_t w, uint64_t syncs)
{
    float amax = amax_of(syncs);
    if (w == FAULT_LATE) { /* of the syncs so far, and the seed, which is of the first step */
        amax = syncs < HISTORY ? amax_of(0) : 0.0f;
        for (uint64_t s = syncs < HISTORY ? 0 : syncs - HISTORY; s < syncs; s++)
            amax = fmaxf(amax, amax_of(s));
    }
    return (float)(448.0 / (double)amax);
}

static void cast(uint32_t w, uint64_t syncs, float scale, uint8_t *codes)
{
    static float values[MOST_VALUES];
    struct f8k_counts counts = {0};
    for (uint32_t i = 0; i < count_of(w); i++)
        values[i] = value_of(w, i, syncs);
    f8k_variant(0)->cast(&(struct f8k_cast){.src = values,
                             .dst = codes,
                             .count = count_of(w),
                             .scale = scale,
                             .dtype = F8K_F32,
                             .format = F8K_E4M3FN},
        &counts);
}

/* The codes of the wide weight are the same for all amaxes, but where the amax is. */
static bool right_wide(const uint8_t *codes, uint64_t syncs)
{
    static uint8_t usual[MOST_VALUES];
    static bool made;
    uint32_t peak = peak_of(FAULT_WIDE, syncs);
    if (!made) {
        float first = part_of(FAULT_WIDE, 0) * 448.0f;
        struct f8k_counts counts = {0};
        cast(FAULT_WIDE, 0, 448.0f / amax_of(0), usual);
        f8k_variant(0)->cast(&(struct f8k_cast){.src = &first,
                                 .dst = usual, /* where the amax of sync 0 is */
                                 .count = 1,
                                 .scale = 1.0f,
                                 .dtype = F8K_F32,
                                 .format = F8K_E4M3FN},
            &counts);
        made = true;
    }
    size_t after = count_of(FAULT_WIDE) - peak - 1;
    return memcmp(codes, usual, peak) == 0 && codes[peak] == LARGEST_CODE &&
           memcmp(codes + peak + 1, usual + peak + 1, after) == 0;
}

static bool right_late(const uint8_t *codes, uint64_t syncs)
{
    static uint8_t expected[MOST_VALUES];
    cast(FAULT_LATE, syncs, scale_of(FAULT_LATE, syncs), expected);
    return memcmp(codes, expected, count_of(FAULT_LATE)) == 0;
}

static bool right_norm(const float *values, uint64_t syncs)
{
    for (uint32_t i = 0; i < count_of(FAULT_NORM); i++)
        if (values[i] != value_of(FAULT_NORM, i, syncs))
            return false;
    return true;
}

static bool right_bytes(uint32_t w, const struct f8_view *view, uint64_t syncs)
{
    if (w == FAULT_NORM)
        return right_norm(view->data, syncs);
    return w == FAULT_WIDE ? right_wide(view->data, syncs) : right_late(view->data, syncs);
}

const char *fault_model_check(uint32_t bucket, const struct f8_view *views, uint64_t syncs)
{
    static char text[160];
    for (uint32_t i = 0; i < fault_model_count(bucket); i++) {
        uint32_t w = fault_model_first(bucket) + i;
        float scale = scale_of(w, syncs);
        if (w != FAULT_NORM && *views[i].scale != scale)
            (void)snprintf(text, sizeof(text),
                "after %" PRIu64 " syncs: the scale of %s is %a, not %a", syncs, weights[w].name,
                (double)*views[i].scale, (double)scale);
        else if (!right_bytes(w, &views[i], syncs))
            (void)snprintf(text, sizeof(text), "after %" PRIu64 " syncs: wrong bytes in %s", syncs,
                weights[w].name);
        else
            continue;
        return text;
    }
    return NULL;
}
