/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A frame of f8ctl top as text: who the daemon is and what all groups do, then the groups, then the
 * weights that come first in the order that was asked for. See top.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/ctl/colour.h"
#include "client/ctl/columns_top.h"
#include "client/ctl/top.h"
#include "client/plural.h"

/* Weights of a frame without a limit of lines, unless --top says. */
#define WEIGHTS 10

/* Lines around the two tables: the heading's, blanks, titles, and the help on keys. */
#define FRAME_LINES 9

static void print_daemon(const struct top *top, FILE *to)
{
    const F8__StatusInfo *status = top->look.status.rows[0];
    char uptime[TABLE_MAX_CELL], clock[16];
    time_t seconds = time(NULL);
    struct tm local;

    strftime(clock, sizeof(clock), "%T", localtime_r(&seconds, &local));
    table_duration(uptime, status->uptime_ms);
    fprintf(to, "%sf8gatherd %s%s (pid %u) at %s, up for %s, %s\n",
        colour_begin(stdout, COLOUR_HEADING), status->version, colour_end(stdout, COLOUR_HEADING),
        status->pid, status->socket, uptime, clock);
}

static void print_totals(const struct top *top, FILE *to)
{
    const F8__StatusInfo *status = top->look.status.rows[0];
    const struct top_rates *total = &top->look.total;
    char gathers[TABLE_MAX_CELL], bytes[TABLE_MAX_CELL], saturated[TABLE_MAX_CELL],
        stale[TABLE_MAX_CELL];
    enum colour waiting = top->look.waiting > 0 ? COLOUR_WARNING : COLOUR_NONE;

    columns_top_rate(gathers, total->gathers);
    columns_top_bytes(bytes, total->bytes);
    columns_top_rate(saturated, total->saturated);
    columns_top_rate(stale, total->stale);
    fprintf(to, "%s gathers/s, %s GB/s, %s saturated/s, %s stale/s, %s%zu waiting round%s%s\n",
        gathers, bytes, saturated, stale, colour_begin(stdout, waiting), top->look.waiting,
        plural(top->look.waiting), colour_end(stdout, waiting));
    fprintf(to, "%u job%s, %u group%s, %llu weight%s, %u connection%s, %llu failed round%s\n",
        status->jobs, plural(status->jobs), status->groups, plural(status->groups),
        (unsigned long long)status->weights, plural(status->weights), status->connections,
        plural(status->connections), (unsigned long long)status->failed_rounds,
        plural(status->failed_rounds));
}

/* At most `limit` rows, and how many more there are. */
static void print_rows(
    FILE *to, const struct columns *columns, const void *const *rows, size_t count, size_t limit)
{
    size_t shown = limit < count ? limit : count;

    table_print_to(to, columns->columns, columns->count, rows, shown);
    if (shown < count) {
        fprintf(to, "%sand %zu more%s\n", colour_begin(stdout, COLOUR_QUIET), count - shown,
            colour_end(stdout, COLOUR_QUIET));
    }
}

static void print_groups(const struct top *top, FILE *to, size_t limit)
{
    size_t count = top->look.groups.num_rows;
    const void **rows = calloc(count + 1, sizeof(*rows));

    for (size_t i = 0; i < count && rows != NULL; i++) {
        rows[i] = &top->look.rows[i];
    }
    if (rows != NULL) {
        print_rows(to, &columns_top_groups, rows, count, limit);
    }
    free(rows);
}

static void print_weights(const struct top *top, FILE *to, size_t limit)
{
    fprintf(to, "%sweights by %s%s%s\n", colour_begin(stdout, COLOUR_QUIET), top->sort->title,
        top->descending ? ", the highest first" : "", colour_end(stdout, COLOUR_QUIET));
    print_rows(to, &columns_top, top->weights.sorted, top->weights.fetched.num_rows, limit);
}

/* The groups get at most half of what there is, the weights the rest. */
static void print_tables(const struct top *top, FILE *to, unsigned int lines)
{
    size_t room = lines > FRAME_LINES + 4 ? lines - FRAME_LINES : 4;
    size_t groups = top->look.groups.num_rows, weights;

    if (lines == 0) {
        weights = top->ctl->top > 0 ? top->ctl->top : WEIGHTS;
    } else {
        groups = groups < room / 2 ? groups : room / 2;
        weights = room - groups - (groups < top->look.groups.num_rows);
        weights = top->ctl->top > 0 && top->ctl->top < weights ? top->ctl->top : weights;
    }
    fprintf(to, "\n");
    print_groups(top, to, groups);
    fprintf(to, "\n");
    print_weights(top, to, weights);
}

char *top_text(const struct top *top, unsigned int lines, bool keys)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);

    if (to == NULL) {
        return NULL;
    }
    if (keys) {
        fprintf(to,
            "%sq quit  s saturated  t stale  g gathers  a amax  n name  < > column  r turn "
            "around%s\n",
            colour_begin(stdout, COLOUR_QUIET), colour_end(stdout, COLOUR_QUIET));
    }
    if (top->look.taken) {
        print_daemon(top, to);
        print_totals(top, to);
    }
    if (top->note[0] != '\0') {
        fprintf(to, "%s%s%s\n", colour_begin(stdout, COLOUR_ALARM), top->note,
            colour_end(stdout, COLOUR_ALARM));
    }
    if (top->look.taken) {
        print_tables(top, to, lines);
    }
    if (fclose(to) != 0) {
        free(text);
        return NULL;
    }
    return text;
}
