/* SPDX-License-Identifier: Apache-2.0 */
/* Rings that double until they hold HISTORY_SYNCS values of 8 bytes: see history.h. */
#include "daemon/history.h"

#include <stdlib.h>

#define FIRST_CAPACITY 16

/* Of one weight. */
struct ring {
    struct history_value *values; /* owned; NULL: none yet */
    uint64_t newest;              /* number of the last sync */
    uint32_t capacity;            /* a power of two */
    uint32_t count;
};

struct history {
    uint32_t num_weights;
    struct ring rings[];
};

struct history *history_new(uint32_t num_weights)
{
    struct history *history = calloc(1, sizeof(*history) + num_weights * sizeof(struct ring));
    if (history)
        history->num_weights = num_weights;
    return history;
}

void history_free(struct history *history)
{
    for (uint32_t w = 0; history && w < history->num_weights; w++)
        free(history->rings[w].values);
    free(history);
}

/* Where the sync of that number is: numbers follow one another, so the ring needs no cursor. */
static struct history_value *value_of(const struct ring *ring, uint64_t number)
{
    return &ring->values[number & (ring->capacity - 1)];
}

static void grow(struct ring *ring)
{
    struct ring larger = *ring;
    larger.capacity = ring->capacity ? 2 * ring->capacity : FIRST_CAPACITY;
    larger.values = malloc(larger.capacity * sizeof(*larger.values));
    if (!larger.values)
        return;
    for (uint64_t i = 0; i < ring->count; i++)
        *value_of(&larger, ring->newest - i) = *value_of(ring, ring->newest - i);
    free(ring->values);
    *ring = larger;
}

void history_add(
    struct history *history, uint32_t weight, uint64_t number, struct history_value value)
{
    struct ring *ring = &history->rings[weight];
    if (number != ring->newest + 1)
        ring->count = 0;
    if (ring->count == ring->capacity && ring->capacity < HISTORY_SYNCS)
        grow(ring);
    ring->newest = number;
    if (ring->capacity == 0)
        return;
    *value_of(ring, number) = value;
    if (ring->count < ring->capacity)
        ring->count++;
}

uint32_t history_count(const struct history *history, uint32_t weight, uint64_t newest)
{
    if (!history || history->rings[weight].newest != newest)
        return 0;
    return history->rings[weight].count;
}

struct history_value history_at(const struct history *history, uint32_t weight, uint32_t i)
{
    const struct ring *ring = &history->rings[weight];
    return *value_of(ring, ring->newest - i);
}
