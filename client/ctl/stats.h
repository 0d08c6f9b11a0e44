/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the daemon counted of itself and of jobs, as rows for people: totals, rates and times.
 * Called by stats_command.c and the report; pure.
 */
#ifndef F8CTL_STATS_H
#define F8CTL_STATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "f8gather.pb-c.h"

/* Counts, and those of earlier that they are compared with. */
struct stats_span {
    const F8__StatsInfo *now;    /* borrowed */
    const F8__StatsInfo *before; /* borrowed; NULL: since the beginning */
};

/* Seconds between the two. */
double stats_seconds(const struct stats_span *span);

/* A row of columns_stats. */
struct stats_row {
    char name[64];
    uint64_t total;
    double rate;
    bool rated;    /* the rate is known */
    bool bytes;    /* the unit; else they are just so many */
    bool alarming; /* if there is any */
};

#define STATS_MAX_ROWS 32

/* Of one daemon or job; their number. */
size_t stats_rows(const struct stats_span *span, struct stats_row rows[STATS_MAX_ROWS]);

/* A row of columns_times; seconds. */
struct stats_time {
    const char *name;
    const char *help; /* from what to what */
    uint64_t count;
    double mean, median, p99;
    double bound; /* longer ones are known to be longer only: INFINITY in median or p99 */
};

#define STATS_TIMES 3

/* Of the daemon; 0 of a job, whose times are not counted. */
size_t stats_times(const struct stats_span *span, struct stats_time times[STATS_TIMES]);

#endif
