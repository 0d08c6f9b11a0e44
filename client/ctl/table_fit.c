/* SPDX-License-Identifier: Apache-2.0 */
/* Fits tables into terminals: see table_fit.h. */
#include "client/ctl/table_fit.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "client/ctl/sparkline.h"

/* Of a terminal that does not say; and the fewest characters that words are cut to. */
#define COLUMNS_UNKNOWN 80
#define WORDS_LEAST     12

/* Of columns that may be left out, those with an alarm are it last. */
#define ALARMING 1

size_t terminal_columns(void)
{
    struct winsize size = {0};
    const char *columns = getenv("COLUMNS");
    int number = 0;

    if (!isatty(STDOUT_FILENO)) {
        return 0;
    }
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
        return size.ws_col;
    }
    if (columns != NULL) {
        number = atoi(columns);
    }
    return number > 0 ? (size_t)number : COLUMNS_UNKNOWN;
}

/* How readily a column is left out; 0: never. One with an alarm is the last, an empty one first. */
static unsigned int spare_of(const struct table_column *column, const struct table_fit *fit)
{
    if (!fit->says) {
        return 100 + column->spare;
    }
    return column->spare == 0 ? 0 : fit->alarms ? ALARMING : ALARMING + column->spare;
}

/* Words can be cut to so many characters, numbers not at all. */
static size_t least_width(const struct table_column *column, const struct table_fit *fit)
{
    size_t least = table_length(column->title);

    least = least > WORDS_LEAST ? least : WORDS_LEAST;
    return column->right || fit->width < least ? fit->width : least;
}

/* With all words cut as far as they can be. */
static size_t least_length(
    const struct table_column *columns, const struct table_fit *fits, size_t num_columns)
{
    size_t length = 0;

    for (size_t c = 0; c < num_columns; c++) {
        length +=
            fits[c].shown ? least_width(&columns[c], &fits[c]) + (length > 0 ? TABLE_GAP : 0) : 0;
    }
    return length;
}

static size_t line_length(const struct table_fit *fits, size_t num_columns)
{
    size_t length = 0;

    for (size_t c = 0; c < num_columns; c++) {
        length += fits[c].shown ? fits[c].width + (length > 0 ? TABLE_GAP : 0) : 0;
    }
    return length;
}

/*
 * Shows the columns that may not be left out, then each other that still fits, by importance. For
 * one with an alarm words are cut, for others not.
 */
static size_t choose(
    const struct table_column *columns, struct table_fit *fits, size_t num_columns, size_t room)
{
    size_t left_out = 0;
    unsigned int next = 0;

    for (size_t c = 0; c < num_columns; c++) {
        fits[c].shown = spare_of(&columns[c], &fits[c]) == 0;
    }
    do {
        unsigned int last = next;
        next = 0;
        for (size_t c = 0; c < num_columns; c++) {
            unsigned int spare = spare_of(&columns[c], &fits[c]);
            if (spare > last && (next == 0 || spare < next)) {
                next = spare;
            }
        }
        for (size_t c = 0; c < num_columns && next > 0; c++) {
            if (spare_of(&columns[c], &fits[c]) == next) {
                fits[c].shown = true;
                fits[c].shown = (next == ALARMING ? least_length(columns, fits, num_columns)
                                                  : line_length(fits, num_columns)) <= room;
                left_out += fits[c].says && !fits[c].shown;
            }
        }
    } while (next > 0);
    return left_out;
}

/* The widest column of words that is not as narrow as it may be; NULL: there is none. */
static struct table_fit *widest_words(
    const struct table_column *columns, struct table_fit *fits, size_t num_columns)
{
    struct table_fit *widest = NULL;

    for (size_t c = 0; c < num_columns; c++) {
        if (fits[c].shown && fits[c].width > least_width(&columns[c], &fits[c]) &&
            (widest == NULL || fits[c].width > widest->width)) {
            widest = &fits[c];
        }
    }
    return widest;
}

size_t table_fit(
    const struct table_column *columns, struct table_fit *fits, size_t num_columns, size_t room)
{
    struct table_fit *words;
    size_t left_out = 0;

    for (size_t c = 0; c < num_columns; c++) {
        fits[c].shown = true;
    }
    if (room == 0 || line_length(fits, num_columns) <= room) {
        return 0;
    }
    left_out = choose(columns, fits, num_columns, room);
    while (line_length(fits, num_columns) > room &&
           (words = widest_words(columns, fits, num_columns)) != NULL) {
        words->width--;
    }
    return left_out;
}

size_t table_length(const char *text)
{
    size_t length = 0;

    for (; *text != '\0'; text++) {
        length += ((unsigned char)*text & 0xc0) != 0x80;
    }
    return length;
}

/* Where the text's character of that number begins. */
static char *character(char *text, size_t number)
{
    for (; *text != '\0'; text++) {
        if (((unsigned char)*text & 0xc0) != 0x80 && number-- == 0) {
            break;
        }
    }
    return text;
}

void table_cut(char *cell, size_t width)
{
    const char *dots = sparkline_is_utf8() ? "\xe2\x80\xa6" : "...";
    size_t length = table_length(cell), tail, head;
    char end[TABLE_MAX_CELL];

    if (length <= width || width <= table_length(dots)) {
        return;
    }
    tail = (width - table_length(dots)) / 2;
    head = width - table_length(dots) - tail;
    strcpy(end, character(cell, length - tail));
    strcpy(character(cell, head), dots);
    strcat(cell, end);
}
