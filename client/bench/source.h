/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The full, unsharded weights of a run: one shared mapping that the parent makes before it forks,
 * in which each rank fills and changes its own parts and from which the checker reads them all.
 * The daemon never sees it. Values are a pure function of seed, weight, index and step.
 */
#ifndef F8BENCH_SOURCE_H
#define F8BENCH_SOURCE_H

#include <stdint.h>

#include "client/bench/error.h"
#include "client/bench/model.h"

struct source {
    const struct model *model; /* borrowed: from main, which outlives it */
    uint8_t *base;             /* owned: the mapping */
    uint64_t size;             /* of the mapping */
    uint64_t bytes;            /* of all weights */
    uint64_t *offsets;         /* owned: of each weight in the mapping */
    uint64_t seed;
};

int source_open(
    const struct model *model, uint64_t seed, struct source *ret_source, struct bench_error *error);
void source_close(struct source *source);

/* The full weight. */
void *source_weight(const struct source *source, uint32_t weight);

/* Writes a part of a weight for the first time: from the file, or at random. */
void source_fill(const struct source *source, uint32_t weight, const struct model_part *part);

/* What an optimizer step does: each value but 0 moves, by about a hundredth of itself. */
void source_change(
    const struct source *source, uint32_t weight, const struct model_part *part, uint32_t step);

/* Copies a part of a weight to memory, row by row without gaps; gives the number of bytes. */
uint64_t source_copy(
    const struct source *source, uint32_t weight, const struct model_part *part, void *to);

/* A well-mixed number that depends on both; for everything that is seeded. */
uint64_t source_mix(uint64_t seed, uint64_t value);

#endif
