/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Columns over the rows of f8ctl top, and how its rates look. Used by top_text.c; columns_top, of
 * its weights, is in columns.h, where options.c finds it.
 */
#ifndef F8CTL_COLUMNS_TOP_H
#define F8CTL_COLUMNS_TOP_H

#include "client/ctl/columns.h"

/* Over rows of struct top_group. */
extern const struct columns columns_top_groups;

/* "12.5", "1200"; bytes as "1.25" GB. NAN is "-". */
void columns_top_rate(char *cell, double rate);
void columns_top_bytes(char *cell, double rate);

#endif
