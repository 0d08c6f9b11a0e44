/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plots as SVG: see svg.h. Two panels above one axis of syncs; what cannot be drawn is a gap in the
 * curve: a bar with a letter for NaN and infinity, a mark on the ground for zero. Runs of such
 * syncs are one mark.
 */
#include "client/ctl/svg.h"

#include <inttypes.h>
#include <string.h>

#include "client/ctl/axis.h"
#include "client/ctl/html.h"

const char svg_style[] =
    ":root{--ink:#1c2430;--soft:#66717f;--line:#dfe3e8;--paper:#fff;--amax:#0b6e8a;"
    "--scale:#8a4b9c;--bad:#b3261e;--warn:#8a5a00}\n"
    "@media(prefers-color-scheme:dark){:root{--ink:#e4e8ee;--soft:#98a3b1;--line:#343c47;"
    "--paper:#14181d;--amax:#5cc3dd;--scale:#cf96e0;--bad:#ff8a80;--warn:#e5b454}}\n"
    ".plot text{font:11px system-ui,sans-serif;fill:var(--soft)}\n"
    ".plot .name{font-weight:600;fill:var(--ink)}\n"
    ".plot .grid{stroke:var(--line);stroke-width:1;fill:none}\n"
    ".plot .amax,.plot .scale{fill:none;stroke-width:1.6;stroke-linejoin:round;"
    "stroke-linecap:round}\n"
    ".plot .amax{stroke:var(--amax)}.plot .scale{stroke:var(--scale)}\n"
    ".plot .special{fill:var(--bad);fill-opacity:.25}.plot text.special{fill:var(--bad);"
    "fill-opacity:1;font-weight:600}\n"
    ".plot .zero{fill:var(--warn)}\n";

/* Where a panel lies, in the SVG's units. */
struct panel {
    double left, top, width, height;
    size_t count;
    uint64_t first;
};

#define LEFT    46
#define RIGHT   10
#define HEADING 20 /* above a panel: what it shows */
#define FOOT    22 /* below all: the numbers of syncs */

static double x_of(const struct panel *panel, size_t i)
{
    double width = panel->count > 1 ? (double)i / (double)(panel->count - 1) : 0.5;

    return panel->left + width * panel->width;
}

static double y_of(const struct panel *panel, double at)
{
    return panel->top + (1 - at) * panel->height;
}

static void grid(FILE *to, const struct panel *panel, const struct axis *axis)
{
    struct axis_tick ticks[AXIS_MAX_TICKS];
    size_t count = axis_ticks(axis, 5, ticks);

    for (size_t t = 0; t < count; t++) {
        double y = y_of(panel, ticks[t].at);
        fprintf(to, "<path class=\"grid\" d=\"M%.1f %.1fh%.1f\"/>", panel->left, y, panel->width);
        fprintf(to, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">", panel->left - 6, y + 3.5);
        if (axis->log2) {
            fprintf(to, "2<tspan dy=\"-4\" font-size=\"8\">%s</tspan></text>\n", ticks[t].label);
        } else {
            fprintf(to, "%s</text>\n", ticks[t].label);
        }
    }
}

/* A point with a gap on both sides is a dot, by the round ends of a line of no length. */
static void curve(FILE *to, const struct panel *panel, const struct axis *axis, const char *name,
    const uint32_t *bits)
{
    bool drawing = false;

    fprintf(to, "<path class=\"%s\" d=\"", name);
    for (size_t i = 0; i < panel->count; i++) {
        if (axis_kind(bits[i]) != AXIS_DRAWN) {
            drawing = false;
            continue;
        }
        fprintf(to, "%s%.1f %.1f%s", drawing ? "L" : "M", x_of(panel, i),
            y_of(panel, axis_at(axis, bits[i])), drawing ? "" : "h0");
        drawing = true;
    }
    fprintf(to, "\"/>\n");
}

/* One run of syncs that have no point. */
static void mark(FILE *to, const struct panel *panel, enum axis_kind kind, size_t begin, size_t end)
{
    static const char *const names[] = {
        [AXIS_ZERO] = "zero", [AXIS_INFINITE] = "infinite", [AXIS_NAN] = "not a number"};
    double x = x_of(panel, begin) - 1.5, width = x_of(panel, end - 1) + 1.5 - x;
    double height = kind == AXIS_ZERO ? 4 : panel->height;

    fprintf(to, "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"><title>",
        kind == AXIS_ZERO ? "zero" : "special", x, panel->top + panel->height - height, width,
        height);
    fprintf(to, "sync %" PRIu64, panel->first + begin);
    if (end - begin > 1) {
        fprintf(to, " to %" PRIu64, panel->first + end - 1);
    }
    fprintf(to, ": %s</title></rect>", names[kind]);
    if (kind != AXIS_ZERO) {
        fprintf(to,
            "<text class=\"special\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>",
            x + width / 2, panel->top + 10, kind == AXIS_NAN ? "N" : "I");
    }
    fprintf(to, "\n");
}

static void marks(FILE *to, const struct panel *panel, const uint32_t *bits)
{
    size_t begin = 0;

    for (size_t i = 1; i <= panel->count; i++) {
        enum axis_kind kind = axis_kind(bits[begin]);
        if (i < panel->count && axis_kind(bits[i]) == kind) {
            continue;
        }
        if (kind != AXIS_DRAWN) {
            mark(to, panel, kind, begin, i);
        }
        begin = i;
    }
}

/* The heading: what it is, and its last value. */
static void heading(
    FILE *to, const struct panel *panel, const char *name, const struct axis *axis, uint32_t last)
{
    float value;

    memcpy(&value, &last, sizeof(value));
    fprintf(to, "<text class=\"name\" x=\"%.1f\" y=\"%.1f\">%s</text>", panel->left, panel->top - 7,
        name);
    fprintf(to, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">last %.6g%s</text>\n",
        panel->left + panel->width, panel->top - 7, (double)value,
        axis != NULL && axis->log2 ? ", log scale" : "");
}

static void panel_of(FILE *to, const struct panel *panel, const char *name, const uint32_t *bits)
{
    struct axis axis;
    bool any = axis_fit(&axis, bits, panel->count);

    heading(to, panel, name, any ? &axis : NULL, bits[panel->count - 1]);
    if (any) {
        grid(to, panel, &axis);
    }
    fprintf(to, "<path class=\"grid\" d=\"M%.1f %.1fv%.1fh%.1f\"/>\n", panel->left, panel->top,
        panel->height, panel->width);
    marks(to, panel, bits);
    if (any) {
        curve(to, panel, &axis, name, bits);
    }
}

static void foot(FILE *to, const struct panel *panel)
{
    double y = panel->top + panel->height + 16;

    fprintf(
        to, "<text x=\"%.1f\" y=\"%.1f\">sync %" PRIu64 "</text>", panel->left, y, panel->first);
    if (panel->count > 1) {
        fprintf(to, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%" PRIu64 "</text>",
            panel->left + panel->width, y, panel->first + panel->count - 1);
    }
    fprintf(to, "\n");
}

/* Both panels, from `top` on. */
static void panels(FILE *to, const struct series *series, double top, double width, double height)
{
    struct panel panel = {.left = LEFT,
        .top = top + HEADING,
        .width = width - LEFT - RIGHT,
        .height = height,
        .count = series->count,
        .first = series->first};

    if (series->count == 0) {
        fprintf(to, "<text x=\"%d\" y=\"%.1f\">no sync yet</text>\n", LEFT, top + HEADING + 10);
        return;
    }
    panel_of(to, &panel, "amax", series->amax);
    panel.top += height + HEADING + 8;
    panel_of(to, &panel, "scale", series->scale);
    foot(to, &panel);
}

static double height_of(double panel_height)
{
    return 2 * (panel_height + HEADING) + 8 + FOOT;
}

#define FILE_WIDTH  760
#define FILE_PANEL  170
#define FILE_HEIGHT (2 * (FILE_PANEL + HEADING) + 8 + FOOT + 40) /* of a plot with its heading */

void svg_begin(FILE *to, size_t count)
{
    fprintf(to,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"plot\" width=\"%d\" height=\"%zu\" "
        "viewBox=\"0 0 %d %zu\" role=\"img\">\n<style>%s.plot .head{font-size:13px;"
        "font-weight:600;fill:var(--ink)}</style>\n"
        "<rect width=\"100%%\" height=\"100%%\" fill=\"var(--paper)\"/>\n",
        FILE_WIDTH, FILE_HEIGHT * count, FILE_WIDTH, FILE_HEIGHT * count, svg_style);
}

void svg_add(FILE *to, size_t index, const struct series *series, const char *text)
{
    fprintf(to,
        "<svg y=\"%zu\" width=\"%d\" height=\"%d\">\n<text class=\"head\" x=\"%d\" y=\"24\">",
        FILE_HEIGHT * index, FILE_WIDTH, FILE_HEIGHT, LEFT);
    html_text(to, text);
    fprintf(to, "</text>\n");
    panels(to, series, 34, FILE_WIDTH, FILE_PANEL);
    fprintf(to, "</svg>\n");
}

void svg_end(FILE *to)
{
    fprintf(to, "</svg>\n");
}

void svg_inline(FILE *to, const struct series *series, const char *text)
{
    double height = height_of(84);

    fprintf(to, "<svg class=\"plot\" viewBox=\"0 0 340 %.0f\" role=\"img\" aria-label=\"", height);
    html_text(to, text);
    fprintf(to, "\">\n");
    panels(to, series, 0, 340, 84);
    fprintf(to, "</svg>\n");
}
