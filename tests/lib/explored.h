/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The states that an explorer has seen, as hashes, and what of a machine of rounds makes one
 * state. Used by round_explore.c and link_explore.c. Single-threaded; exits if memory is short.
 */
#ifndef F8_TESTS_EXPLORED_H
#define F8_TESTS_EXPLORED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/round.h"

/* The hashes of the states that were seen: open addressing; 0 is an empty cell. */
struct visited {
    uint64_t *cells; /* owned */
    uint64_t mask, count;
};

void *must_calloc(size_t count, size_t size);

void visited_init(struct visited *visited);
void visited_done(struct visited *visited);

/* True if the hash is new. */
bool visited_put(struct visited *visited, uint64_t hash);

uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t size);

/*
 * Takes out of a copy of a machine what it will not read again: records and tags of collectives
 * that have ended, the last place of a shared bucket that nobody uses. Else one state counts as
 * many.
 */
void make_canonical(struct rounds *copy);

/* The hash of a machine as such a copy. */
uint64_t hash_rounds(uint64_t hash, const struct rounds *rounds);

/* Whether the head began and waits for another group; how many early parts run. */
bool is_paused(const struct rounds *rounds);
uint32_t early_running(const struct rounds *rounds);

#endif
