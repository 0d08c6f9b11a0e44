/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the last syncs made of the delayed weights of a group: amax and scale of each, for
 * operators, who come when it is too late to watch. A group's is made at its first sync; bounded,
 * and never an error: without memory the oldest are forgotten earlier. Told by collective, asked
 * by session, freed by registry, on the loop.
 */
#ifndef F8_DAEMON_HISTORY_H
#define F8_DAEMON_HISTORY_H

#include <stdint.h>

/* Syncs of a weight that are kept, a power of two. */
#define HISTORY_SYNCS 1024

/* fp32 bits: the amax that a sync took, and the scale that it left. */
struct history_value {
    uint32_t amax, scale;
};

struct history;

/* For the weights of a list; NULL if memory is short. */
struct history *history_new(uint32_t num_weights);

/* NULL allowed. */
void history_free(struct history *history);

/*
 * The weight's sync `number`, from 1 on, gave this. One that does not follow the last begins anew:
 * the state was another's since.
 */
void history_add(
    struct history *history, uint32_t weight, uint64_t number, struct history_value value);

/* How many syncs are known of the weight, the last of them `newest`; `history` may be NULL. */
uint32_t history_count(const struct history *history, uint32_t weight, uint64_t newest);

/* The i-th newest, i < history_count. */
struct history_value history_at(const struct history *history, uint32_t weight, uint32_t i);

#endif
