/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Draws tables. A cell is made twice, once to be measured: nothing is kept, so that ten thousand
 * rows cost no memory. Called by the commands; single-threaded.
 */
#include "client/ctl/print_table.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/ctl/colour.h"
#include "client/ctl/table_fit.h"
#include "proto/protocol.h"

/* A cell as it may go to a terminal: what the daemon says has names that others chose. */
static void make_cell(const struct table_column *column, const void *row, char *cell)
{
    cell[0] = '\0';
    column->text(row, cell);
    f8_proto_make_printable(cell);
}

/* What the column has, over all rows. */
static struct table_fit measure(
    const struct table_column *column, const void *const *rows, size_t num_rows)
{
    struct table_fit fit = {.width = table_length(column->title)};
    char cell[TABLE_MAX_CELL];

    for (size_t i = 0; i < num_rows; i++) {
        make_cell(column, rows[i], cell);
        size_t length = table_length(cell);
        fit.width = length > fit.width ? length : fit.width;
        fit.says = fit.says || (cell[0] != '\0' && strcmp(cell, "-") != 0);
        fit.alarms = fit.alarms || (column->alarming != NULL && column->alarming(rows[i]));
    }
    return fit;
}

/* The text in its width; nothing is padded behind the last one of a line. */
static void print_cell(
    FILE *to, const char *text, size_t width, bool right, bool last, enum colour colour)
{
    size_t length = table_length(text);
    int padding = width > length ? (int)(width - length) : 0;

    fprintf(to, "%*s%s%s%s%*s%s", right ? padding : 0, "", colour_begin(stdout, colour), text,
        colour_end(stdout, colour), right || last ? 0 : padding, "",
        last ? "\n" : "  "); /* TABLE_GAP */
}

/* One line: the titles, or the cells of a row. */
static void print_line(FILE *to, const struct table_column *columns, const struct table_fit *fits,
    size_t num_columns, const void *row)
{
    char cell[TABLE_MAX_CELL];
    size_t last = num_columns;

    while (last > 0 && !fits[last - 1].shown) {
        last--;
    }
    for (size_t c = 0; c < last; c++) {
        bool red = row != NULL && columns[c].alarming != NULL && columns[c].alarming(row);
        enum colour colour = row == NULL ? COLOUR_HEADING : red ? COLOUR_ALARM : COLOUR_NONE;
        if (!fits[c].shown) {
            continue;
        }
        if (row != NULL) {
            make_cell(&columns[c], row, cell);
        } else {
            snprintf(cell, sizeof(cell), "%s", columns[c].title);
        }
        table_cut(cell, fits[c].width);
        print_cell(to, cell, fits[c].width, columns[c].right, c + 1 == last, colour);
    }
}

/* Gives how many columns were left out for want of room. */
static size_t print_table(FILE *to, const struct table_column *columns, size_t num_columns,
    const void *const *rows, size_t num_rows, size_t room)
{
    struct table_fit fits[TABLE_MAX_COLUMNS];
    size_t left_out;

    for (size_t c = 0; c < num_columns; c++) {
        fits[c] = measure(&columns[c], rows, num_rows);
    }
    left_out = table_fit(columns, fits, num_columns, room);
    print_line(to, columns, fits, num_columns, NULL);
    for (size_t i = 0; i < num_rows; i++) {
        print_line(to, columns, fits, num_columns, rows[i]);
    }
    if (num_rows == 0) {
        fprintf(to, "(none)\n");
    }
    return left_out;
}

void table_print(const struct table_column *columns, size_t num_columns, const void *const *rows,
    size_t num_rows)
{
    size_t left_out = print_table(stdout, columns, num_columns, rows, num_rows, terminal_columns());

    if (left_out > 0) {
        printf("%s(no room for %zu more column%s; piped, as by | cat, all are there)%s\n",
            colour_begin(stdout, COLOUR_QUIET), left_out, left_out == 1 ? "" : "s",
            colour_end(stdout, COLOUR_QUIET));
    }
}

void table_print_to(FILE *to, const struct table_column *columns, size_t num_columns,
    const void *const *rows, size_t num_rows)
{
    (void)print_table(to, columns, num_columns, rows, num_rows, 0);
}

void table_print_record(const struct table_column *columns, size_t num_columns, const void *row)
{
    char cell[TABLE_MAX_CELL];
    size_t width = 0;

    for (size_t c = 0; c < num_columns; c++) {
        if (strlen(columns[c].title) > width) {
            width = strlen(columns[c].title);
        }
    }
    for (size_t c = 0; c < num_columns; c++) {
        bool red = columns[c].alarming != NULL && columns[c].alarming(row);
        make_cell(&columns[c], row, cell);
        print_cell(stdout, columns[c].title, width, false, false, COLOUR_HEADING);
        print_cell(stdout, cell, 0, false, true, red ? COLOUR_ALARM : COLOUR_NONE);
    }
}

void table_bytes(char *cell, uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double value = (double)bytes;
    int unit = 0;

    while (value >= 1024 && unit < 5) {
        value /= 1024;
        unit++;
    }
    snprintf(cell, TABLE_MAX_CELL, "%.*f %s", unit > 0 ? 1 : 0, value, units[unit]);
}

void table_duration(char *cell, uint64_t milliseconds)
{
    uint64_t seconds = milliseconds / 1000;

    if (seconds < 60) {
        snprintf(cell, TABLE_MAX_CELL, "%.1f s", (double)milliseconds / 1000);
    } else if (seconds < 3600) {
        snprintf(cell, TABLE_MAX_CELL, "%" PRIu64 " min %" PRIu64 " s", seconds / 60, seconds % 60);
    } else if (seconds < 86400) {
        snprintf(cell, TABLE_MAX_CELL, "%" PRIu64 " h %" PRIu64 " min", seconds / 3600,
            seconds / 60 % 60);
    } else {
        snprintf(cell, TABLE_MAX_CELL, "%" PRIu64 " d %" PRIu64 " h", seconds / 86400,
            seconds / 3600 % 24);
    }
}

void table_shape(char *cell, const uint64_t *shape, size_t num_dims)
{
    size_t used = 0;

    for (size_t i = 0; i < num_dims && used < TABLE_MAX_CELL; i++) {
        used += (size_t)snprintf(
            cell + used, TABLE_MAX_CELL - used, "%s%" PRIu64, i > 0 ? "x" : "", shape[i]);
    }
}

void table_numbers(char *cell, const uint32_t *numbers, size_t count)
{
    size_t used = 0;

    for (size_t i = 0; i < count && used < TABLE_MAX_CELL; i++) {
        used += (size_t)snprintf(
            cell + used, TABLE_MAX_CELL - used, "%s%" PRIu32, i > 0 ? " " : "", numbers[i]);
    }
}
