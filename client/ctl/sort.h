/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows in the order of a column: numbers by value (NaN above infinity), words as versions are
 * sorted (layers.2 before layers.10); what is not known comes last either way. Rows that are alike
 * stay in the daemon's order. Called by options.c and views.c.
 */
#ifndef F8CTL_SORT_H
#define F8CTL_SORT_H

#include "client/ctl/columns.h"

/* The column of that title, in any case and with '-' for spaces; NULL: there is none. */
const struct table_column *sort_find(const struct columns *columns, const char *title);

/* "job group since-sync ...": in a buffer, which it returns. */
char *sort_titles(const struct columns *columns, char *buffer, size_t size);

/* F8_OK or F8_ENOMEM. */
int sort_rows(
    const struct table_column *column, bool descending, const void **rows, size_t num_rows);

#endif
