/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The columns of what was counted: totals with their rates, and times. As columns.c.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "client/ctl/columns_private.h"
#include "client/ctl/stats.h"

/* ---- counts ---- */
CELL(count_name, struct stats_row, "%s", r->name)
NUMBER(count_total, struct stats_row, true, r->total)
NUMBER(count_rate, struct stats_row, r->rated, r->rate)
ALARM(count_alarms, struct stats_row, r->alarming && r->total > 0)

static void count_total(const void *row, char *cell)
{
    const struct stats_row *r = row;

    if (r->bytes) {
        table_bytes(cell, r->total);
    } else {
        snprintf(cell, TABLE_MAX_CELL, "%" PRIu64, r->total);
    }
}

static void count_rate(const void *row, char *cell)
{
    const struct stats_row *r = row;

    if (!r->rated) {
        strcpy(cell, "-");
    } else if (r->bytes) {
        table_bytes(cell, (uint64_t)r->rate);
    } else {
        snprintf(cell, TABLE_MAX_CELL, "%.*f", r->rate > 0 && r->rate < 10 ? 2 : 0, r->rate);
    }
}

static const struct table_column stats_list[] = {LEFT("COUNT", count_name),
    ALARMING("TOTAL", count_total, count_alarms), RIGHT("A SECOND", count_rate)};
COLUMNS(columns_stats, stats_list);

/* ---- times ---- */

/* "12 us", "1.5 ms"; what is beyond the last bound is known to be longer than that. */
static void seconds(char *cell, double value, const struct stats_time *time)
{
    const char *more = isinf(value) ? "> " : "";

    value = isinf(value) ? time->bound : value;
    if (time->count == 0) {
        strcpy(cell, "-");
    } else if (value < 1e-3) {
        snprintf(cell, TABLE_MAX_CELL, "%s%.3g us", more, value * 1e6);
    } else if (value < 1) {
        snprintf(cell, TABLE_MAX_CELL, "%s%.3g ms", more, value * 1e3);
    } else {
        snprintf(cell, TABLE_MAX_CELL, "%s%.3g s", more, value);
    }
}

CELL(time_name, struct stats_time, "%s", r->name)
CELL(time_help, struct stats_time, "%s", r->help)
COUNT(time_count, struct stats_time, count)
CELL_BY(time_mean, struct stats_time, seconds, r->mean, r)
CELL_BY(time_median, struct stats_time, seconds, r->median, r)
CELL_BY(time_p99, struct stats_time, seconds, r->p99, r)
NUMBER(time_mean, struct stats_time, r->count > 0, r->mean)
NUMBER(time_median, struct stats_time, r->count > 0, r->median)
NUMBER(time_p99, struct stats_time, r->count > 0, r->p99)

static const struct table_column time_list[] = {LEFT("TIME", time_name), RIGHT("OF", time_count),
    RIGHT("MEAN", time_mean), RIGHT("P50", time_median), RIGHT("P99", time_p99),
    LEFT("FROM", time_help)};
COLUMNS(columns_times, time_list);
