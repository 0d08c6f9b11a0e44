/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What of a table a terminal has room for: columns that matter less are left out, and then words
 * are cut in their middle, so that no line wraps. Pure but for terminal_columns; called by
 * print_table.c, single-threaded.
 */
#ifndef F8CTL_TABLE_FIT_H
#define F8CTL_TABLE_FIT_H

#include <stdbool.h>
#include <stddef.h>

#include "client/ctl/print_table.h"

/* Most columns of a table. */
#define TABLE_MAX_COLUMNS 32

/* Characters between two columns. */
#define TABLE_GAP 2

/* A column as the rows fill it, and what becomes of it. */
struct table_fit {
    size_t width; /* characters: of the longest cell or the title; then, of what is shown */
    bool says;    /* some cell has more than "-" in it */
    bool alarms;  /* some cell is red */
    bool shown;
};

/* Columns of the terminal that standard output is; 0: it is none, and lines may be of any length.
 */
size_t terminal_columns(void);

/*
 * Sets what is shown of measured columns, and how wide, so that a line has at most `room`
 * characters if that can be; room 0: all of it. How many columns are left out that say something.
 */
size_t table_fit(
    const struct table_column *columns, struct table_fit *fits, size_t num_columns, size_t room);

/* Cuts a UTF-8 text of more than `width` characters to that, with an ellipsis in its middle. */
void table_cut(char *cell, size_t width);

/* Characters of a UTF-8 text; a terminal is asked for no more than that. */
size_t table_length(const char *text);

#endif
