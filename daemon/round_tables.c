/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes the tables of a generation's rounds, in one block: see round_tables.h. Called by collective
 * on the loop, when a group begins to form and when it is sealed.
 */
#include "daemon/round_tables.h"

#include <stdlib.h>

/* Gives the offset of an array of `bytes` and moves the end past it, 8-aligned. */
static size_t take(size_t *end, size_t bytes)
{
    size_t at = *end;
    *end = (at + bytes + 7) & ~(size_t)7;
    return at;
}

static void layout(struct rounds *rounds, const struct round_shape *shape)
{
    size_t end = (sizeof(*rounds) + 7) & ~(size_t)7;
    size_t pairs = (size_t)shape->ranks * shape->buckets;
    rounds->records_at = take(&end, shape->depth * sizeof(struct record));
    rounds->tags_at = take(&end, (size_t)shape->depth * shape->ranks * sizeof(uint64_t));
    rounds->ranks_at = take(&end, shape->ranks * sizeof(struct rank));
    rounds->buckets_at = take(&end, shape->buckets * sizeof(struct bucket));
    rounds->places_at = take(&end, ((size_t)shape->slots + shape->buckets) * sizeof(struct place));
    rounds->uses_at = take(&end, pairs);
    rounds->earlies_at = take(&end, pairs);
    rounds->size = end;
}

struct rounds *round_new(
    const struct round_shape *shape, const struct round_ops *ops, void *context)
{
    struct rounds plan = {
        .ops = ops,
        .context = context,
        .num_ranks = shape->ranks,
        .num_buckets = shape->buckets,
        .num_slots = shape->slots,
        .depth = shape->depth,
        .head = shape->first,
        .sealed = shape->sealed,
        .tail = shape->first,
    };
    layout(&plan, shape);
    struct rounds *rounds = calloc(1, plan.size);
    if (!rounds)
        return NULL;
    *rounds = plan;
    for (uint32_t r = 0; r < shape->ranks; r++)
        rank_at(rounds, r)->next = shape->first;
    for (uint32_t b = 0; b < shape->buckets; b++) {
        bucket_at(rounds, b)->shared = shape->shared[b];
        bucket_at(rounds, b)->place = shape->shared[b] ? ROUND_NO_PLACE : shape->slots + b;
    }
    return rounds;
}
