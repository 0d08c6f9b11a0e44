/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What f8bench prints at the end: a table for people, or one JSON object. Called by main.
 */
#ifndef F8BENCH_REPORT_H
#define F8BENCH_REPORT_H

#include "client/bench/summary.h"

/* All that there is to tell. */
struct report {
    const struct options *options; /* borrowed: from main, as all here */
    const struct model *model;
    const struct outcome *outcome;
    const struct summary *summary;
};

/* To standard output; what went wrong as its last line. */
void report_text(const struct report *report);

/* To standard output, in one line; -1 if memory is out. */
int report_json(const struct report *report);

/* The JSON of a run that could not begin, because its files cannot be read. */
int report_json_error(const char *text);

#endif
