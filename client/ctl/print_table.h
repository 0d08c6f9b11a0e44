/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables for people: aligned columns, human units, colour only on a terminal without NO_COLOR.
 * Called by the commands in views.c.
 */
#ifndef F8CTL_PRINT_TABLE_H
#define F8CTL_PRINT_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Longest text of a cell. */
#define TABLE_MAX_CELL 4096

/* A column: its heading, and what a row has in it. */
struct table_column {
    const char *title;
    bool right; /* aligned to the right: numbers */
    void (*text)(const void *row, char *cell);
    bool (*number)(const void *row, double *ret_number); /* to sort by; false: it is not known.
                                                            NULL: by the text */
    bool (*alarming)(const void *row);                   /* worth a look: red; NULL: never */
    unsigned int spare; /* of columns that a narrow terminal can do without, the higher the sooner;
                           0: it is always there */
};

/*
 * One line a row under the headings; "(none)" if there are none. Where standard output is a
 * terminal, no line wraps if that can be helped: see table_fit.h.
 */
void table_print(const struct table_column *columns, size_t num_columns, const void *const *rows,
    size_t num_rows);

/* The same to another stream, which gets colours as standard output would, and the whole width. */
void table_print_to(FILE *to, const struct table_column *columns, size_t num_columns,
    const void *const *rows, size_t num_rows);

/* One line a column: heading and value of one row. */
void table_print_record(const struct table_column *columns, size_t num_columns, const void *row);

/* "1.5 GiB", "2 h 3 min", "4096x1024", "0.123 4 5" into a cell. */
void table_bytes(char *cell, uint64_t bytes);
void table_duration(char *cell, uint64_t milliseconds);
void table_shape(char *cell, const uint64_t *shape, size_t num_dims);
void table_numbers(char *cell, const uint32_t *numbers, size_t count);

#endif
