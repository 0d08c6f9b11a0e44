/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The report's page: one file that asks nothing of anybody, from what needs a look down to every
 * weight. Called by report.c.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/ctl/columns.h"
#include "client/ctl/html.h"
#include "client/ctl/report.h"
#include "client/ctl/series.h"
#include "client/ctl/stats.h"
#include "client/ctl/svg.h"

/* Whatever a name manages to smuggle in, the browser loads nothing and runs no script but ours. */
static void print_head(FILE *to, const char *host)
{
    fprintf(to,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
        "style-src 'unsafe-inline'; script-src '%s'; base-uri 'none'; form-action 'none'\">\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
        "<meta name=\"color-scheme\" content=\"light dark\">\n"
        "<meta name=\"generator\" content=\"f8ctl " F8_VERSION "\">\n<title>f8gatherd on ",
        report_script_digest);
    html_text(to, host);
    fprintf(to,
        "</title>\n<style>\n%s%s</style>\n<noscript><style>tbody[hidden]{display:table-row-group}"
        "</style></noscript>\n</head>\n",
        svg_style, report_style);
}

static void print_tile(FILE *to, const char *name, const char *value, bool bad)
{
    fprintf(
        to, "<div%s><b>%s</b><span>%s</span></div>\n", bad ? " class=\"bad\"" : "", value, name);
}

static void print_count_tile(FILE *to, const char *name, uint64_t value, bool bad)
{
    fprintf(to, "<div%s><b>", bad ? " class=\"bad\"" : "");
    report_number(to, value);
    fprintf(to, "</b><span>%s</span></div>\n", name);
}

static uint64_t sum_of_saturated(const struct report *report)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < report->saturated.all; i++) {
        sum += ((const F8__WeightInfo *)report->saturated.rows[i])->saturated;
    }
    return sum;
}

static void print_tiles(FILE *to, const struct report *report)
{
    const F8__StatusInfo *status = report->status.rows[0];
    char cell[TABLE_MAX_CELL];

    fprintf(to, "<div class=\"tiles\">\n");
    print_count_tile(to, "jobs", status->jobs, false);
    print_count_tile(to, "groups", report->groups.num_rows, false);
    print_count_tile(to, "weights", report->weights.num_rows, false);
    print_count_tile(to, "gathers", status->gathers, false);
    print_count_tile(to, "failed rounds", status->failed_rounds, status->failed_rounds > 0);
    print_count_tile(to, "clamped elements", sum_of_saturated(report), false);
    table_bytes(cell, status->arena_bytes);
    print_tile(to, "of gathered weights in memory", cell, false);
    fprintf(to, "</div>\n");
}

static void print_top(FILE *to, const struct report *report, const char *host, int64_t now)
{
    const F8__StatusInfo *status = report->status.rows[0];
    char cell[TABLE_MAX_CELL], text[64] = "";
    time_t seconds = (time_t)now;
    struct tm utc;

    if (gmtime_r(&seconds, &utc) != NULL) {
        strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S UTC", &utc);
    }
    table_duration(cell, status->uptime_ms);
    fprintf(to, "<header>\n<h1>f8gatherd on ");
    html_text(to, host);
    fprintf(to, "</h1>\n<p>%s &middot; version ", text);
    html_text(to, status->version);
    fprintf(to, " &middot; pid %" PRIu32 " &middot; up %s</p>\n</header>\n", status->pid, cell);
}

/* ---- sections ---- */

static void begin_section(FILE *to, const char *id, const char *title, const char *help)
{
    fprintf(to, "<section id=\"%s\">\n<h2>%s</h2>\n", id, title);
    if (help != NULL) {
        fprintf(to, "<p class=\"help\">%s</p>\n", help);
    }
}

static void print_list(FILE *to, const char *id, const char *title, const char *help,
    const struct columns *columns, const void *const *rows, size_t count)
{
    begin_section(to, id, title, help);
    report_table(to, title, columns, rows, count);
    fprintf(to, "</section>\n");
}

/* The first rows of a ranking, and how many more there are. */
static void print_ranking(FILE *to, const char *id, const char *title, const char *help,
    const struct columns *columns, const struct ranking *ranking)
{
    begin_section(to, id, title, help);
    report_table(to, title, columns, ranking->rows, ranking->count);
    if (ranking->all > ranking->count) {
        fprintf(to, "<p class=\"more\">and ");
        report_number(to, ranking->all - ranking->count);
        fprintf(to, " more below</p>\n");
    }
    fprintf(to, "</section>\n");
}

static void print_devices(FILE *to, const F8__StatusInfo *status)
{
    struct device_row *devices = calloc(status->n_devices + 1, sizeof(*devices));
    const void **rows = calloc(status->n_devices + 1, sizeof(*rows));

    begin_section(to, "devices", "Devices", NULL);
    for (size_t d = 0; d < status->n_devices && devices != NULL && rows != NULL; d++) {
        devices[d] = (struct device_row){.number = (uint32_t)d, .device = status->devices[d]};
        rows[d] = &devices[d];
    }
    if (devices == NULL || rows == NULL) {
        fprintf(to, "<p class=\"none\">No memory to list them.</p>\n");
    } else if (status->n_devices == 0 && status->cuda[0] != '\0') {
        fprintf(to, "<p class=\"none\">None: ");
        html_text(to, status->cuda);
        fprintf(to, ".</p>\n");
    } else {
        report_table(to, "Devices", &columns_devices, rows, status->n_devices);
    }
    free(devices);
    free(rows);
    fprintf(to, "</section>\n");
}

static void print_plot(FILE *to, const struct report_plot *plot)
{
    struct series series;
    char heading[1024];

    if (series_init(&series, plot->history, 0) != F8_OK) {
        return;
    }
    series_heading(plot->history, heading, sizeof(heading));
    fprintf(to, "<figure>\n<figcaption><b>");
    html_text(to, plot->history->name);
    fprintf(to, "</b><span>group ");
    html_text(to, plot->history->group);
    fprintf(to, " of job ");
    html_text(to, plot->history->job);
    fprintf(to, "</span></figcaption>\n");
    svg_inline(to, &series, heading);
    fprintf(to, "</figure>\n");
    series_done(&series);
}

static void print_plots(FILE *to, const struct report *report)
{
    begin_section(to, "history", "Amax and scale over the last syncs",
        "Of the delayed weights that are worst: by NaNs, clamped elements, old scales and syncs "
        "that "
        "kept the scale. Bars: N is not a number, I infinite; marks on the ground are zeros.");
    if (report->num_plots == 0) {
        fprintf(to, "<p class=\"none\">No delayed weight has been synced.</p>\n");
    } else {
        fprintf(to, "<div class=\"plots\">\n");
        for (size_t p = 0; p < report->num_plots; p++) {
            print_plot(to, &report->plots[p]);
        }
        fprintf(to, "</div>\n");
        if (report->worst.all > report->worst.count) {
            fprintf(to, "<p class=\"more\">");
            report_number(to, report->worst.all - report->worst.count);
            fprintf(
                to, " more delayed weights are not drawn: f8ctl report --top, f8ctl history</p>\n");
        }
    }
    fprintf(to, "</section>\n");
}

static void print_counts(FILE *to, const struct report *report)
{
    const struct stats_span span = {
        .now = report->stats.num_rows > 0 ? report->stats.rows[0] : NULL};
    struct stats_row rows[STATS_MAX_ROWS];
    struct stats_time times[STATS_TIMES];
    const void *list[STATS_MAX_ROWS];
    size_t count = span.now != NULL ? stats_rows(&span, rows) : 0;

    begin_section(to, "counts", "Counts and times", "Of the daemon since it began.");
    for (size_t i = 0; i < count; i++) {
        list[i] = &rows[i];
    }
    report_table(to, "Counts", &columns_stats, list, count);
    count = span.now != NULL ? stats_times(&span, times) : 0;
    for (size_t i = 0; i < count; i++) {
        list[i] = &times[i];
    }
    if (count > 0) {
        report_table(to, "Times", &columns_times, list, count);
    }
    fprintf(to, "</section>\n");
}

static void print_rankings(FILE *to, const struct report *report)
{
    struct columns saturated = report_saturated_columns(), stale = report_stale_columns();

    print_ranking(to, "saturation", "Saturation",
        "Weights of which casts clamped the largest share of elements: their scales are too large.",
        &saturated, &report->saturated);
    print_ranking(to, "stale", "Stale scales",
        "Weights gathered with a scale from before their values changed.", &stale, &report->stale);
}

static void print_navigation(FILE *to)
{
    static const char *const links[][2] = {{"jobs", "Jobs"}, {"groups", "Groups"},
        {"rounds", "Rounds"}, {"hosts", "Hosts"}, {"devices", "Devices"},
        {"saturation", "Saturation"}, {"stale", "Stale scales"}, {"history", "History"},
        {"counts", "Counts"}, {"daemon", "Daemon"}, {"weights", "Weights"}};

    fprintf(to, "<nav aria-label=\"Sections\">\n");
    for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++) {
        fprintf(to, "<a href=\"#%s\">%s</a>\n", links[i][0], links[i][1]);
    }
    fprintf(to, "</nav>\n");
}

void report_page(FILE *to, const struct report *report, const char *host, int64_t now)
{
    struct columns weights = report_weight_columns();

    print_head(to, host);
    fprintf(to, "<body>\n");
    print_top(to, report, host, now);
    fprintf(to, "<main>\n");
    report_attention(to, report);
    print_tiles(to, report);
    print_navigation(to);
    print_list(to, "jobs", "Jobs", NULL, &columns_jobs, report->jobs.rows, report->jobs.num_rows);
    print_list(to, "groups", "Groups", NULL, &columns_groups, report->groups.rows,
        report->groups.num_rows);
    print_list(to, "rounds", "Rounds under way", NULL, &columns_rounds, report->rounds.rows,
        report->rounds.num_rows);
    print_list(
        to, "hosts", "Hosts", NULL, &columns_hosts, report->hosts.rows, report->hosts.num_rows);
    print_devices(to, report->status.rows[0]);
    print_rankings(to, report);
    print_plots(to, report);
    print_counts(to, report);
    begin_section(to, "daemon", "Daemon", NULL);
    report_record(to, &columns_status, report->status.rows[0]);
    fprintf(to, "</section>\n");
    print_list(
        to, "weights", "Weights", NULL, &weights, report->weights.rows, report->weights.num_rows);
    fprintf(to, "</main>\n<script>%s</script>\n</body>\n</html>\n", report_script);
}
