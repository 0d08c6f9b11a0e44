/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of the report that is about hosts. Called by report.c, of a run that has some and did
 * not fail.
 */
#ifndef F8BENCH_REPORT_HOSTS_H
#define F8BENCH_REPORT_HOSTS_H

#include <jansson.h>

#include "client/bench/report.h"

void report_hosts_text(const struct report *report);

/* NULL if memory is out. */
json_t *report_hosts_json(const struct report *report);

#endif
