/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plots for terminals: see plot.h. A canvas of dots is filled, then printed a row at a time; a
 * braille character has two by four dots, an ASCII one is a dot itself. What cannot be drawn stands
 * in a row of its own below the curve, as in a sparkline: N, I and _.
 */
#include "client/ctl/plot.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "client/ctl/axis.h"
#include "client/ctl/colour.h"
#include "client/ctl/sparkline.h"

#define ROWS     7
#define MARGIN   9 /* characters of a label, and the axis */
#define WIDEST   160
#define MAX_WIDE (2 * WIDEST)
#define MAX_HIGH (4 * ROWS)

struct canvas {
    bool braille;
    int columns;    /* characters */
    int wide, high; /* dots; (0, 0) is at the top left */
    bool dots[MAX_HIGH][MAX_WIDE];
    enum axis_kind marks[WIDEST];
};

/* How the parts of the frame look. */
struct frame {
    const char *side, *tick, *corner, *line;
};

static int columns_of_terminal(void)
{
    struct winsize size;
    const char *columns = getenv("COLUMNS");
    int number = 0;

    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) {
        number = size.ws_col;
    } else if (columns != NULL) {
        number = atoi(columns);
    }
    if (number <= 0) {
        number = 80;
    }
    return number < 2 * MARGIN ? 2 * MARGIN : number > WIDEST ? WIDEST : number;
}

static void canvas_init(struct canvas *canvas)
{
    memset(canvas, 0, sizeof(*canvas));
    canvas->braille = sparkline_is_utf8();
    canvas->columns = columns_of_terminal() - MARGIN;
    canvas->wide = canvas->braille ? 2 * canvas->columns : canvas->columns;
    canvas->high = canvas->braille ? 4 * ROWS : ROWS;
}

/* ---- drawing ---- */

/* All dots between two, the first one left out. */
static void draw_line(struct canvas *canvas, int from_x, int from_y, int to_x, int to_y)
{
    int steps = abs(to_x - from_x) > abs(to_y - from_y) ? abs(to_x - from_x) : abs(to_y - from_y);

    for (int i = 1; i <= steps; i++) {
        int x = from_x + (int)lround((double)(to_x - from_x) * i / steps);
        int y = from_y + (int)lround((double)(to_y - from_y) * i / steps);
        canvas->dots[y][x] = true;
    }
}

static int x_of(const struct canvas *canvas, size_t i, size_t count)
{
    return count > 1 ? (int)lround((double)i * (canvas->wide - 1) / (double)(count - 1))
                     : canvas->wide / 2;
}

static void draw(struct canvas *canvas, const struct axis *axis, const uint32_t *bits, size_t count)
{
    int last_x = -1, last_y = 0;

    for (size_t i = 0; i < count; i++) {
        enum axis_kind kind = axis_kind(bits[i]);
        int x = x_of(canvas, i, count);
        int column = canvas->braille ? x / 2 : x;
        if (kind > canvas->marks[column]) {
            canvas->marks[column] = kind;
        }
        if (kind != AXIS_DRAWN) {
            last_x = -1; /* a gap */
            continue;
        }
        int y = (int)lround((1 - axis_at(axis, bits[i])) * (canvas->high - 1));
        canvas->dots[y][x] = true;
        if (last_x >= 0) {
            draw_line(canvas, last_x, last_y, x, y);
        }
        last_x = x;
        last_y = y;
    }
}

/* ---- printing ---- */

/* The character of a cell: U+2800 and eight bits of dots, as UTF-8. */
static void print_braille(const struct canvas *canvas, int column, int row)
{
    static const unsigned char bits[4][2] = {
        {0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    unsigned int dots = 0;

    for (int y = 0; y < 4; y++) {
        for (int x = 0; x < 2; x++) {
            dots |= canvas->dots[4 * row + y][2 * column + x] ? bits[y][x] : 0u;
        }
    }
    if (dots == 0) {
        putchar(' ');
    } else {
        printf("\xe2%c%c", 0xa0 | (int)(dots >> 6), 0x80 | (int)(dots & 0x3f));
    }
}

static void print_cells(const struct canvas *canvas, int row, enum colour colour)
{
    printf("%s", colour_begin(stdout, colour));
    for (int column = 0; column < canvas->columns; column++) {
        if (canvas->braille) {
            print_braille(canvas, column, row);
        } else {
            putchar(canvas->dots[row][column] ? '*' : ' ');
        }
    }
    printf("%s\n", colour_end(stdout, colour));
}

/* The label of the row, if a tick lies in it. */
static void print_label(const struct axis *axis, const struct axis_tick *ticks, size_t count,
    int row, const struct frame *frame)
{
    for (size_t t = 0; t < count; t++) {
        if ((int)lround((1 - ticks[t].at) * (ROWS - 1)) == row) {
            char label[AXIS_LABEL + 2];
            snprintf(label, sizeof(label), "%s%s", axis->log2 ? "2^" : "", ticks[t].label);
            printf("%*s%s", MARGIN - 1, label, frame->tick);
            return;
        }
    }
    printf("%*s%s", MARGIN - 1, "", frame->side);
}

static void print_marks(const struct canvas *canvas)
{
    static const char marks[] = {
        [AXIS_DRAWN] = ' ', [AXIS_ZERO] = '_', [AXIS_INFINITE] = 'I', [AXIS_NAN] = 'N'};
    bool any = false;

    for (int column = 0; column < canvas->columns; column++) {
        any = any || canvas->marks[column] != AXIS_DRAWN;
    }
    if (!any) {
        return;
    }
    printf("%*s %s", MARGIN - 1, "", colour_begin(stdout, COLOUR_ALARM));
    for (int column = 0; column < canvas->columns; column++) {
        putchar(marks[canvas->marks[column]]);
    }
    printf("%s\n", colour_end(stdout, COLOUR_ALARM));
}

/* The numbers of the first and of the last sync, below the axis. */
static void print_foot(
    const struct canvas *canvas, const struct series *series, const struct frame *frame)
{
    char first[24], last[24];
    int gap;

    printf("%*s%s", MARGIN - 1, "", frame->corner);
    for (int column = 0; column < canvas->columns; column++) {
        printf("%s", frame->line);
    }
    snprintf(first, sizeof(first), "%llu", (unsigned long long)series->first);
    snprintf(last, sizeof(last), "%llu", (unsigned long long)(series->first + series->count - 1));
    gap = canvas->columns - (int)strlen(first) - (int)strlen(last);
    printf("\n%*s%s", MARGIN, "", first);
    if (series->count > 1) {
        printf("%*s%s", gap > 1 ? gap : 1, "", last);
    }
    printf("\n");
}

static void print_curve(const struct series *series, const char *name, const uint32_t *bits,
    enum colour colour, const struct frame *frame)
{
    static struct canvas canvas;
    struct axis_tick ticks[AXIS_MAX_TICKS];
    struct axis axis = {.high = 1};
    bool any = axis_fit(&axis, bits, series->count);
    size_t num_ticks = any ? axis_ticks(&axis, 4, ticks) : 0;

    canvas_init(&canvas);
    draw(&canvas, &axis, bits, series->count);
    printf("%s%*s%s\n", colour_begin(stdout, COLOUR_HEADING), MARGIN - 1, name,
        colour_end(stdout, COLOUR_HEADING));
    for (int row = 0; row < ROWS; row++) {
        print_label(&axis, ticks, num_ticks, row, frame);
        print_cells(&canvas, row, colour);
    }
    print_marks(&canvas);
    print_foot(&canvas, series, frame);
}

static bool has_marks(const uint32_t *bits, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (axis_kind(bits[i]) != AXIS_DRAWN) {
            return true;
        }
    }
    return false;
}

void plot_print(const struct series *series)
{
    static const struct frame lines = {"│", "┤", "└", "─"}, ascii = {"|", "+", "+", "-"};
    const struct frame *frame = sparkline_is_utf8() ? &lines : &ascii;

    print_curve(series, "amax", series->amax, COLOUR_FIRST, frame);
    print_curve(series, "scale", series->scale, COLOUR_SECOND, frame);
    if (has_marks(series->amax, series->count) || has_marks(series->scale, series->count)) {
        printf("%*sN: not a number, I: infinite, _: zero\n", MARGIN, "");
    }
}
