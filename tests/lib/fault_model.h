/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model of tests of faults: three weights in two buckets, of values that follow from the number
 * of syncs that the group has seen, and what must come out when they are gathered. The amax of each
 * is a power of two that differs from sync to sync. Used by ranks, on one thread.
 */
#ifndef F8_TESTS_FAULT_MODEL_H
#define F8_TESTS_FAULT_MODEL_H

#include <stddef.h>
#include <stdint.h>

#include "f8client.h"

enum { FAULT_WIDE, FAULT_LATE, FAULT_NORM, FAULT_WEIGHTS };

#define FAULT_BUCKETS 2 /* the first has a place of its own, the second a shared slot */

/* Bytes of a rank's shards. */
size_t fault_model_bytes(uint32_t ranks);

/* Registers weights and buckets. */
int fault_model_register(struct f8_group *group, const struct f8_region *region, uint32_t ranks);

/* Writes a rank's shards for the step after this many syncs. */
void fault_model_fill(float *shards, uint32_t rank, uint32_t ranks, uint64_t syncs);

/* NULL, or what is wrong with the gathered bucket: a sentence in a static buffer. */
const char *fault_model_check(uint32_t bucket, const struct f8_view *views, uint64_t syncs);

uint32_t fault_model_first(uint32_t bucket);
uint32_t fault_model_count(uint32_t bucket);

#endif
