/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How columns are made: macros that define the functions of a column, and its place in a list.
 * Used by columns.c and columns_weights.c, which define the lists of columns.h.
 */
#ifndef F8CTL_COLUMNS_PRIVATE_H
#define F8CTL_COLUMNS_PRIVATE_H

#include "client/ctl/columns.h"
#include "f8gather.pb-c.h"
#include "proto/protocol.h"

/* A function that prints a field of a row of that type. */
#define CELL(name, type, format, ...)                                                              \
    static void name(const void *row, char *cell)                                                  \
    {                                                                                              \
        const type *r = row;                                                                       \
        snprintf(cell, TABLE_MAX_CELL, format, __VA_ARGS__);                                       \
    }

/* A function that makes a cell with one of print_table's. */
#define CELL_BY(name, type, make, ...)                                                             \
    static void name(const void *row, char *cell)                                                  \
    {                                                                                              \
        const type *r = row;                                                                       \
        make(cell, __VA_ARGS__);                                                                   \
    }

/* What such a cell is sorted by, and whether it is known. */
#define NUMBER(name, type, is_known, value)                                                        \
    static bool name##_number(const void *row, double *ret_number)                                 \
    {                                                                                              \
        const type *r = row;                                                                       \
        *ret_number = (double)(value);                                                             \
        return is_known;                                                                           \
    }

/* All three of a field that is a count, bytes, or milliseconds. */
#define COUNT(name, type, field)                                                                   \
    CELL(name, type, "%" PRIu64, (uint64_t)r->field)                                               \
    NUMBER(name, type, true, r->field)
#define BYTES(name, type, field)                                                                   \
    CELL_BY(name, type, table_bytes, r->field)                                                     \
    NUMBER(name, type, true, r->field)
#define DURATION(name, type, field)                                                                \
    CELL_BY(name, type, table_duration, r->field)                                                  \
    NUMBER(name, type, true, r->field)

/* A function that tells when a field is worth a look. */
#define ALARM(name, type, condition)                                                               \
    static bool name(const void *row)                                                              \
    {                                                                                              \
        const type *r = row;                                                                       \
        return condition;                                                                          \
    }

/* Columns of words, of numbers, and of either with an alarm. */
#define COLUMN(title, right, text, number, alarm, spare)                                           \
    {                                                                                              \
        title, right, text, number, alarm, spare                                                   \
    }
#define LEFT(title, text)                 COLUMN(title, false, text, NULL, NULL, 0)
#define RIGHT(title, text)                COLUMN(title, true, text, text##_number, NULL, 0)
#define ALARMING(title, text, alarm)      COLUMN(title, true, text, text##_number, alarm, 0)
#define LEFT_ALARMING(title, text, alarm) COLUMN(title, false, text, NULL, alarm, 0)

/* The same that a narrow terminal can do without, the higher `spare` the sooner. */
#define SPARE_LEFT(spare, title, text)  COLUMN(title, false, text, NULL, NULL, spare)
#define SPARE_RIGHT(spare, title, text) COLUMN(title, true, text, text##_number, NULL, spare)
#define SPARE_ALARMING(spare, title, text, alarm)                                                  \
    COLUMN(title, true, text, text##_number, alarm, spare)

#define COLUMNS(name, list) const struct columns name = {list, sizeof(list) / sizeof((list)[0])}

#endif
