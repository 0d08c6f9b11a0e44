/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What f8ctl report has to tell, fetched once, so that all parts of the page agree. report.c
 * fetches, report_rank.c says what is worst, report_page.c and report_table.c write the page.
 */
#ifndef F8CTL_REPORT_H
#define F8CTL_REPORT_H

#include <stdint.h>
#include <stdio.h>

#include "client/ctl/columns.h"
#include "client/ctl/fetch.h"

/* Rows of a view in another order; they are the view's. */
struct ranking {
    const void **rows; /* owned; NULL: there was no memory */
    size_t count;      /* that are shown */
    size_t all;        /* that belong there */
};

/* A weight that is drawn. */
struct report_plot {
    struct fetched fetched;         /* owned */
    const F8__HistoryInfo *history; /* borrowed: from fetched */
    const F8__WeightInfo *weight;   /* borrowed: from the report's weights */
};

struct report {
    struct fetched status, jobs, groups, rounds, hosts, weights, stats; /* owned */
    struct ranking saturated, stale, worst;
    struct report_plot *plots; /* owned */
    size_t num_plots;
};

/* The share of the elements that were cast which a cast clamped. */
double report_saturated_share(const F8__WeightInfo *weight);

/* Fills the three rankings from the weights, `top` rows each. F8_ENOMEM. */
int report_rank(struct report *report, uint32_t top);

/* ---- the page ---- */

/* The columns of weights in a page: all of them, and those of the rankings. */
struct columns report_weight_columns(void);
struct columns report_saturated_columns(void);
struct columns report_stale_columns(void);

/* Rows beyond this are there, and shown on demand. */
#define REPORT_SHOWN_ROWS 200

/* A table that can be sorted, within a box that scrolls; `name` is for those who do not see it. */
void report_table(FILE *to, const char *name, const struct columns *columns,
    const void *const *rows, size_t num_rows);

/* Headings and values of one row. */
void report_record(FILE *to, const struct columns *columns, const void *row);

/* "12 345", in threes. */
void report_number(FILE *to, uint64_t number);

/* The list of what needs a look. */
void report_attention(FILE *to, const struct report *report);

/* The whole page. `host` is this host's name; `time` the time in seconds since 1970. */
void report_page(FILE *to, const struct report *report, const char *host, int64_t time);

/* Style and script of the page, and the digest by which a browser runs no other script. */
extern const char report_style[];
extern const char report_script[];
extern const char report_script_digest[]; /* "sha256-..." of report_script */

#endif
