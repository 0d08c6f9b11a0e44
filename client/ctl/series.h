/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What consecutive syncs made of a delayed weight, the oldest first, as plots want it. Made from
 * the daemon's HISTORY view by history.c and the report.
 */
#ifndef F8CTL_SERIES_H
#define F8CTL_SERIES_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "f8gather.pb-c.h"

struct series {
    uint64_t first; /* number of the first sync */
    size_t count;
    uint32_t *amax, *scale; /* owned: bits; NULL if memory was short */
};

/* The last syncs, at most `last` unless that is 0. F8_ENOMEM. */
int series_init(struct series *series, const F8__HistoryInfo *history, uint32_t last);
void series_done(struct series *series);

/* "layers.0.w, group dp of job run, uid 1000"; cut if it is too long. */
void series_heading(const F8__HistoryInfo *history, char *text, size_t size);

/* A new object of it. */
json_t *json_of_series(const F8__HistoryInfo *history, const struct series *series);

#endif
