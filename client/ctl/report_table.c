/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables of the report: the columns that f8ctl's lists have, as HTML. Rows beyond a number are in a
 * part that is hidden until it is asked for, so that ten thousand cost a telephone nothing. Called
 * by report_page.c.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/html.h"
#include "client/ctl/report.h"
#include "client/ctl/sort.h"

/* Headings that are not words. */
static const char *const names[] = {
    "NAN", "NaN", "cuda", "CUDA", "UID", "UID", "PCI", "PCI", "UUID", "UUID"};

/* "SINCE SYNC" as "Since sync": a page needs not shout. */
static void print_title(FILE *to, const char *title)
{
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i += 2) {
        if (strcmp(names[i], title) == 0) {
            fputs(names[i + 1], to);
            return;
        }
    }
    for (size_t i = 0; title[i] != '\0'; i++) {
        char letter[2] = {title[i], '\0'};
        letter[0] =
            (char)(i > 0 ? tolower((unsigned char)letter[0]) : toupper((unsigned char)letter[0]));
        html_text(to, letter);
    }
}

/* What a script sorts by, where the text does not say it: "1.5 GiB". */
static void print_number(
    FILE *to, const struct table_column *column, const void *row, const char *cell)
{
    double number;
    char *end;

    if (column->number != NULL && column->number(row, &number)) {
        double told = strtod(cell, &end);
        if (*end != '\0' || told != number) {
            fprintf(to, " data-n=\"%.9g\"", number);
        }
    }
}

/* A text that is longer than this may be broken into lines. */
#define WIDE 28

static void print_cell(FILE *to, const struct table_column *column, const void *row)
{
    char cell[TABLE_MAX_CELL] = "";
    bool alarming = column->alarming != NULL && column->alarming(row);
    const char *place;

    column->text(row, cell);
    place = column->right ? "n" : strlen(cell) > WIDE ? "w" : "";
    fprintf(to, "<td");
    if (place[0] != '\0' || alarming) {
        fprintf(to, " class=\"%s%s%s\"", place, place[0] != '\0' && alarming ? " " : "",
            alarming ? "bad" : "");
    }
    print_number(to, column, row, cell);
    fprintf(to, ">");
    html_text(to, cell);
}

/* Cells end without a tag, as HTML allows: it would be a quarter of a large page. */
static void print_rows(
    FILE *to, const struct columns *columns, const void *const *rows, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++) {
        fprintf(to, "<tr>");
        for (size_t c = 0; c < columns->count; c++) {
            print_cell(to, &columns->columns[c], rows[i]);
        }
        fprintf(to, "</tr>\n");
    }
}

static void print_head(FILE *to, const struct columns *columns)
{
    fprintf(to, "<thead><tr>");
    for (size_t c = 0; c < columns->count; c++) {
        fprintf(to, "<th scope=\"col\"%s>", columns->columns[c].right ? " class=\"n\"" : "");
        print_title(to, columns->columns[c].title);
        fprintf(to, "</th>");
    }
    fprintf(to, "</tr></thead>\n");
}

void report_table(FILE *to, const char *name, const struct columns *columns,
    const void *const *rows, size_t num_rows)
{
    size_t shown = num_rows < REPORT_SHOWN_ROWS ? num_rows : REPORT_SHOWN_ROWS;

    if (num_rows == 0) {
        fprintf(to, "<p class=\"none\">None.</p>\n");
        return;
    }
    if (num_rows > shown) {
        fprintf(to, "<p class=\"tools\" hidden><input type=\"search\" placeholder=\"Filter\" "
                    "aria-label=\"Filter\"> <button type=\"button\">Show all ");
        report_number(to, num_rows);
        fprintf(to, "</button> <span></span></p>\n");
    }
    fprintf(to, "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"%s\"><table>\n",
        name);
    print_head(to, columns);
    fprintf(to, "<tbody>\n");
    print_rows(to, columns, rows, 0, shown);
    fprintf(to, "</tbody>\n");
    if (num_rows > shown) {
        fprintf(to, "<tbody hidden>\n");
        print_rows(to, columns, rows, shown, num_rows);
        fprintf(to, "</tbody>\n");
    }
    fprintf(to, "</table></div>\n");
}

void report_record(FILE *to, const struct columns *columns, const void *row)
{
    fprintf(to, "<dl>\n");
    for (size_t c = 0; c < columns->count; c++) {
        const struct table_column *column = &columns->columns[c];
        char cell[TABLE_MAX_CELL] = "";
        bool alarming = column->alarming != NULL && column->alarming(row);
        column->text(row, cell);
        fprintf(to, "<dt>");
        print_title(to, column->title);
        fprintf(to, "</dt><dd%s>", alarming ? " class=\"bad\"" : "");
        html_text(to, cell);
        fprintf(to, "</dd>\n");
    }
    fprintf(to, "</dl>\n");
}

void report_number(FILE *to, uint64_t number)
{
    char digits[32];
    size_t length = (size_t)snprintf(digits, sizeof(digits), "%llu", (unsigned long long)number);

    for (size_t i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0) {
            fputs("&#8239;", to); /* a narrow space that does not break */
        }
        fputc(digits[i], to);
    }
}

/* ---- columns of weights, out of those of f8ctl's lists ---- */

static void share_text(const void *row, char *cell)
{
    double share = report_saturated_share(row);

    if (share > 0 && share < 1e-4) {
        snprintf(cell, TABLE_MAX_CELL, "%.2g ppm", share * 1e6);
    } else {
        snprintf(cell, TABLE_MAX_CELL, "%.3g %%", share * 100);
    }
}

static bool share_number(const void *row, double *ret_number)
{
    *ret_number = report_saturated_share(row);
    return true;
}

static const struct table_column share_column = {
    .title = "CLAMPED", .right = true, .text = share_text, .number = share_number};

/* The columns of those names, from the lists of weights and of scales. */
static struct columns choose(struct table_column *list, const char *const *titles, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct table_column *column = sort_find(&columns_weights, titles[i]);
        if (column == NULL) {
            column = sort_find(&columns_scales, titles[i]);
        }
        list[i] = column != NULL ? *column : share_column;
    }
    return (struct columns){.columns = list, .count = count};
}

#define CHOOSE(titles)                                                                             \
    static struct table_column list[sizeof(titles) / sizeof((titles)[0])];                         \
    return choose(list, titles, sizeof(titles) / sizeof((titles)[0]))

struct columns report_weight_columns(void)
{
    static const char *const titles[] = {"name", "job", "group", "bucket", "shape", "flavour",
        "gathered-as", "gathers", "scale", "amax", "age", "stale", "saturated", "clamped", "nan",
        "since-sync", "kept"};
    CHOOSE(titles);
}

struct columns report_saturated_columns(void)
{
    static const char *const titles[] = {
        "name", "job", "group", "clamped", "saturated", "gathers", "shape", "scale", "amax", "nan"};
    CHOOSE(titles);
}

struct columns report_stale_columns(void)
{
    static const char *const titles[] = {
        "name", "job", "group", "stale", "gathers", "version", "scaled-at", "age", "scale"};
    CHOOSE(titles);
}
