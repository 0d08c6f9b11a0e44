/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f8ctl history: what each of the last syncs made of a delayed weight, the newest at the end, as
 * logs are read: as a table, a plot, an SVG or JSON. Called by main with a connected channel.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/ctl/colour.h"
#include "client/ctl/ctl.h"
#include "client/ctl/fetch.h"
#include "client/ctl/plot.h"
#include "client/ctl/print_json.h"
#include "client/ctl/series.h"
#include "client/ctl/svg.h"
#include "client/ctl/whole_file.h"
#include "client/error.h"

static struct sync_row sync_of(const struct series *series, size_t i)
{
    return (struct sync_row){
        .number = series->first + i, .amax = series->amax[i], .scale = series->scale[i]};
}

static int print_table(const struct series *series)
{
    struct sync_row *syncs = calloc(series->count + 1, sizeof(*syncs));
    const void **rows = calloc(series->count + 1, sizeof(*rows));
    bool complete = syncs != NULL && rows != NULL;

    for (size_t i = 0; i < series->count && complete; i++) {
        syncs[i] = sync_of(series, i);
        rows[i] = &syncs[i];
    }
    if (complete) {
        table_print(columns_syncs.columns, columns_syncs.count, rows, series->count);
    }
    free(syncs);
    free(rows);
    return complete ? F8_OK : error_set(F8_ENOMEM, "no memory for %zu syncs", series->count);
}

/* Whoever looks at a terminal wants to see how it went; a pipe wants the numbers. */
static bool wants_plot(const struct ctl *ctl)
{
    return (ctl->given & CTL_TAKES_PLOT) ||
           (isatty(STDOUT_FILENO) && !(ctl->given & CTL_TAKES_TABLE));
}

static int print_text(struct ctl *ctl, const F8__HistoryInfo *history, const struct series *series)
{
    char heading[1024];

    series_heading(history, heading, sizeof(heading));
    printf("%s%s%s\n", colour_begin(stdout, COLOUR_HEADING), heading,
        colour_end(stdout, COLOUR_HEADING));
    if (!wants_plot(ctl) || series->count == 0) {
        return print_table(series);
    }
    plot_print(series);
    return F8_OK;
}

/* What is asked for, of one after the other. */
struct output {
    struct whole_file svg;
    json_t *json; /* owned */
    size_t index;
};

static int put(struct ctl *ctl, struct output *output, const F8__HistoryInfo *history)
{
    struct series series;
    char heading[1024];
    int status = series_init(&series, history, ctl->last);

    if (status != F8_OK) {
        return status;
    }
    if (ctl->svg != NULL) {
        series_heading(history, heading, sizeof(heading));
        svg_add(output->svg.stream, output->index, &series, heading);
    }
    if (ctl->json) {
        json_array_append_new(output->json, json_of_series(history, &series));
    } else if (ctl->svg == NULL) {
        printf("%s", output->index > 0 ? "\n" : "");
        status = print_text(ctl, history, &series);
    }
    output->index++;
    series_done(&series);
    return status;
}

static int put_all(struct ctl *ctl, struct output *output, const struct fetched *fetched)
{
    int status = ctl->svg != NULL
                     ? whole_file_open(&output->svg, ctl->svg, (ctl->given & CTL_TAKES_FORCE) != 0)
                     : F8_OK;

    if (status != F8_OK) {
        return status;
    }
    if (ctl->svg != NULL) {
        svg_begin(output->svg.stream, fetched->num_rows);
    }
    for (size_t h = 0; h < fetched->num_rows && status == F8_OK; h++) {
        status = put(ctl, output, fetched->rows[h]);
    }
    if (ctl->svg != NULL) {
        svg_end(output->svg.stream);
        status = whole_file_close(&output->svg, status);
    }
    return status;
}

static int print_histories(struct ctl *ctl, const struct fetched *fetched)
{
    struct output output = {.json = ctl->json ? json_array() : NULL};
    int status;

    if (fetched->num_rows == 0) {
        fprintf(stderr,
            "f8ctl: no delayed weight is called %s at %s; f8ctl weights --sort flavour lists "
            "them\n",
            ctl->arguments[0], channel_socket(ctl->channel));
        json_decref(output.json);
        return CTL_REFUSED;
    }
    status = put_all(ctl, &output, fetched);
    if (status != F8_OK) {
        json_decref(output.json);
        return ctl_failed(status);
    }
    return ctl->json ? json_print(ctl, "histories", output.json) : CTL_OK;
}

/* Ways of showing that exclude each other. */
static int check(const struct ctl *ctl)
{
    bool plot = ctl->given & CTL_TAKES_PLOT, table = ctl->given & CTL_TAKES_TABLE;
    bool piped = ctl->svg != NULL && strcmp(ctl->svg, "-") == 0;

    if (plot + table + ctl->json > 1) {
        fprintf(stderr, "f8ctl: history: --plot, --table and --json are three ways to show it\n");
        return CTL_USAGE;
    }
    if ((piped && ctl->json) || (ctl->svg != NULL && plot + table > 0)) {
        fprintf(stderr, "f8ctl: history: --svg %s leaves no place for %s\n", ctl->svg,
            plot    ? "--plot"
            : table ? "--table"
                    : "--json on standard output");
        return CTL_USAGE;
    }
    return CTL_OK;
}

/* One weight may be there in several jobs and groups. */
int command_history(struct ctl *ctl)
{
    char *glob = ctl_escaped(ctl->arguments[0]);
    struct fetched fetched;
    int result = check(ctl);
    int status;

    if (result != CTL_OK) {
        free(glob);
        return result;
    }
    status = glob != NULL ? fetch(ctl, F8__VIEW__HISTORY, glob, &fetched)
                          : error_set(F8_ENOMEM, "no memory for a name");

    free(glob);
    if (status != F8_OK) {
        return ctl_failed(status);
    }
    result = print_histories(ctl, &fetched);
    fetch_done(&fetched);
    return result;
}
