/* SPDX-License-Identifier: Apache-2.0 */
/* Sorting: see sort.h. Each key is made once, so that ten thousand rows take no time. */
#include "client/ctl/sort.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/error.h"
#include "proto/status.h"

struct key {
    const void *row;
    char *text;    /* owned; NULL for numbers */
    double number; /* if known */
    size_t index;  /* in the daemon's order */
    bool known;
};

static char folded(char c)
{
    return c == ' ' || c == '_' ? '-' : (char)tolower((unsigned char)c);
}

static bool is_called(const char *title, const char *name)
{
    while (*title != '\0' && folded(*title) == folded(*name)) {
        title++;
        name++;
    }
    return *title == '\0' && *name == '\0';
}

const struct table_column *sort_find(const struct columns *columns, const char *title)
{
    for (size_t c = 0; c < columns->count; c++) {
        if (is_called(columns->columns[c].title, title)) {
            return &columns->columns[c];
        }
    }
    return NULL;
}

char *sort_titles(const struct columns *columns, char *buffer, size_t size)
{
    size_t used = 0;

    for (size_t c = 0; c < columns->count; c++) {
        const char *title = columns->columns[c].title;
        if (used + strlen(title) + 2 > size) {
            break;
        }
        if (c > 0) {
            buffer[used++] = ' ';
        }
        while (*title != '\0') {
            buffer[used++] = folded(*title++);
        }
    }
    buffer[used] = '\0';
    return buffer;
}

static int compare_numbers(double a, double b)
{
    if (isnan(a) || isnan(b)) {
        return !!isnan(a) - !!isnan(b);
    }
    return (a > b) - (a < b);
}

/* Ascending; the unknown at the end is not turned around by the caller. */
static int compare_values(const struct key *a, const struct key *b)
{
    return a->text != NULL ? strverscmp(a->text, b->text) : compare_numbers(a->number, b->number);
}

static int compare(const void *left, const void *right, void *descending)
{
    const struct key *a = left, *b = right;
    int order = (int)b->known - (int)a->known;

    if (order == 0 && a->known) {
        order = compare_values(a, b);
        order = *(const bool *)descending ? -order : order;
    }
    return order != 0 ? order : (a->index > b->index) - (a->index < b->index);
}

/* False if memory is out. */
static bool make_key(const struct table_column *column, struct key *key)
{
    char cell[TABLE_MAX_CELL];

    if (column->number != NULL) {
        key->known = column->number(key->row, &key->number);
        return true;
    }
    cell[0] = '\0';
    column->text(key->row, cell);
    key->known = strcmp(cell, "-") != 0;
    key->text = strdup(cell);
    return key->text != NULL;
}

int sort_rows(
    const struct table_column *column, bool descending, const void **rows, size_t num_rows)
{
    struct key *keys = calloc(num_rows + 1, sizeof(*keys));
    bool complete = keys != NULL;

    for (size_t i = 0; i < num_rows && complete; i++) {
        keys[i].row = rows[i];
        keys[i].index = i;
        complete = make_key(column, &keys[i]);
    }
    if (complete) {
        qsort_r(keys, num_rows, sizeof(*keys), compare, &descending);
        for (size_t i = 0; i < num_rows; i++) {
            rows[i] = keys[i].row;
        }
    }
    for (size_t i = 0; keys != NULL && i < num_rows; i++) {
        free(keys[i].text);
    }
    free(keys);
    return complete ? F8_OK : error_set(F8_ENOMEM, "no memory to sort %zu rows", num_rows);
}
