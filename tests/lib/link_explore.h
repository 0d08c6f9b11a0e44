/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goes through all interleavings of events of the model of link_model.h, depth first, each state
 * once. Single-threaded; memory is 16 bytes a state or less, and the states of one path.
 */
#ifndef F8_TESTS_LINK_EXPLORE_H
#define F8_TESTS_LINK_EXPLORE_H

#include "tests/lib/link_model.h"

struct link_exploration {
    uint64_t states, transitions;
    uint64_t recovered;    /* states in which all programs had ended in spite of a fault */
    uint32_t deepest;      /* events on the longest path */
    bool cut;              /* states_max was reached: not all was seen */
    const char *violation; /* borrowed: static; the invariant that did not hold, or NULL */
    char path[8192];       /* the events that led to it, a line each */
};

/* The shapes that the tests explore; ends with one without a name. */
extern const struct link_shape link_shapes[];

/* Stops at the first violation, or after states_max states. Exits if memory is short. */
void link_explore(
    const struct link_shape *shape, uint64_t states_max, struct link_exploration *ret_result);

#endif
