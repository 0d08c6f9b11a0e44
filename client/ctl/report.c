/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f8ctl report: all that the daemon shows, at one time, as a page for people who cannot ask it
 * themselves, or as one JSON object. Called by main with a connected channel.
 */
#include "client/ctl/report.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/ctl/ctl.h"
#include "client/ctl/print_json.h"
#include "client/ctl/series.h"
#include "client/ctl/stats_command.h"
#include "client/ctl/whole_file.h"
#include "client/error.h"
#include "client/plural.h"

/* Rows of a ranking, and plots, unless --top says otherwise. */
#define DEFAULT_TOP 12

/* ---- what there is ---- */

/* The histories of one weight, by exact names. */
static int fetch_history(
    const struct ctl *ctl, const F8__WeightInfo *weight, struct fetched *ret_fetched)
{
    struct ctl narrow = *ctl;
    char *name = ctl_escaped(weight->name), *job = ctl_escaped(weight->job);
    int status = F8_ENOMEM;

    narrow.job = job;
    if (name != NULL && job != NULL) {
        status = fetch(&narrow, F8__VIEW__HISTORY, name, ret_fetched);
    } else {
        error_set(status, "no memory for a name");
    }
    free(name);
    free(job);
    return status;
}

/* That of the group which keeps the weight's state; NULL: it is gone, or it is drawn already. */
static const F8__HistoryInfo *history_of(
    const struct report *report, const struct fetched *fetched, const F8__WeightInfo *weight)
{
    const char *group = weight->amax_group[0] != '\0' ? weight->amax_group : weight->group;

    for (size_t p = 0; p < report->num_plots; p++) {
        const F8__HistoryInfo *drawn = report->plots[p].history;
        if (strcmp(drawn->name, weight->name) == 0 && strcmp(drawn->group, group) == 0 &&
            strcmp(drawn->job, weight->job) == 0 && drawn->uid == weight->uid) {
            return NULL;
        }
    }
    for (size_t i = 0; i < fetched->num_rows; i++) {
        const F8__HistoryInfo *history = fetched->rows[i];
        if (strcmp(history->group, group) == 0 && history->uid == weight->uid &&
            history->n_amax > 0) {
            return history;
        }
    }
    return NULL;
}

/* The worst ones that have a history to draw. */
static int fetch_plots(const struct ctl *ctl, struct report *report)
{
    report->plots = calloc(report->worst.count + 1, sizeof(*report->plots));
    if (report->plots == NULL) {
        return error_set(F8_ENOMEM, "no memory for %zu plots", report->worst.count);
    }
    for (size_t i = 0; i < report->worst.count; i++) {
        struct report_plot *plot = &report->plots[report->num_plots];
        int status;

        plot->weight = report->worst.rows[i];
        status = fetch_history(ctl, plot->weight, &plot->fetched);
        if (status != F8_OK) {
            return status;
        }
        plot->history = history_of(report, &plot->fetched, plot->weight);
        if (plot->history != NULL) {
            report->num_plots++;
        } else {
            fetch_done(&plot->fetched);
        }
    }
    return F8_OK;
}

/* The daemon's own counts; daemons of before it could tell them have none. */
static int fetch_stats(const struct ctl *ctl, struct report *report)
{
    struct ctl wide = *ctl;
    int status;

    wide.job = NULL;
    status = fetch(&wide, F8__VIEW__STATS, NULL, &report->stats);
    return status == F8_EUNKNOWN ? F8_OK : status;
}

/* --name is for weights: a list of groups that have no such name says nothing. */
static int fetch_all(struct ctl *ctl, struct report *report)
{
    const struct {
        F8__View view;
        const char *name;
        struct fetched *rows;
    } views[] = {{F8__VIEW__STATUS, "", &report->status}, {F8__VIEW__JOBS, "", &report->jobs},
        {F8__VIEW__GROUPS, "", &report->groups}, {F8__VIEW__ROUNDS, "", &report->rounds},
        {F8__VIEW__HOSTS, "", &report->hosts}, {F8__VIEW__WEIGHTS, NULL, &report->weights}};
    int status = F8_OK;

    for (size_t v = 0; v < sizeof(views) / sizeof(views[0]) && status == F8_OK; v++) {
        status = fetch(ctl, views[v].view, views[v].name, views[v].rows);
    }
    if (status == F8_OK && report->status.num_rows != 1) {
        status = error_set(F8_EPROTO, "the daemon told no status");
    }
    if (status == F8_OK) {
        status = fetch_stats(ctl, report);
    }
    if (status == F8_OK) {
        status = report_rank(report, ctl->top > 0 ? ctl->top : DEFAULT_TOP);
    }
    return status == F8_OK ? fetch_plots(ctl, report) : status;
}

static void report_done(struct report *report)
{
    for (size_t p = 0; p < report->num_plots; p++) {
        fetch_done(&report->plots[p].fetched);
    }
    free(report->plots);
    free(report->saturated.rows);
    free(report->stale.rows);
    free(report->worst.rows);
    fetch_done(&report->status);
    fetch_done(&report->jobs);
    fetch_done(&report->groups);
    fetch_done(&report->rounds);
    fetch_done(&report->hosts);
    fetch_done(&report->weights);
    fetch_done(&report->stats);
}

/* ---- JSON ---- */

static json_t *array_of(const struct fetched *fetched, json_t *(*object_of)(const void *row))
{
    json_t *array = json_array();

    for (size_t i = 0; i < fetched->num_rows; i++) {
        json_t *object = object_of(fetched->rows[i]);
        json_array_append_new(array, object != NULL ? object : json_null());
    }
    return array;
}

static json_t *array_of_plots(const struct report *report)
{
    json_t *array = json_array();

    for (size_t p = 0; p < report->num_plots; p++) {
        struct series series;
        if (series_init(&series, report->plots[p].history, 0) == F8_OK) {
            json_t *object = json_of_series(report->plots[p].history, &series);
            json_array_append_new(array, object != NULL ? object : json_null());
            series_done(&series);
        }
    }
    return array;
}

static int print_object(struct ctl *ctl, const struct report *report)
{
    const struct stats_span span = {
        .now = report->stats.num_rows > 0 ? report->stats.rows[0] : NULL};

    return json_print(ctl, "report",
        json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "status",
            json_of_status(report->status.rows[0]), "stats",
            span.now != NULL ? json_of_stats(&span) : json_null(), "jobs",
            array_of(&report->jobs, json_of_job), "groups",
            array_of(&report->groups, json_of_group), "rounds",
            array_of(&report->rounds, json_of_round), "hosts",
            array_of(&report->hosts, json_of_host), "weights",
            array_of(&report->weights, json_of_weight), "histories", array_of_plots(report)));
}

/* ---- the page ---- */

static int write_page(struct ctl *ctl, const struct report *report)
{
    char host[256] = "this host";
    struct whole_file file;
    int status = whole_file_open(&file, ctl->html, (ctl->given & CTL_TAKES_FORCE) != 0);

    if (status != F8_OK) {
        return ctl_failed(status);
    }
    gethostname(host, sizeof(host) - 1);
    report_page(file.stream, report, host, (int64_t)time(NULL));
    status = whole_file_close(&file, F8_OK);
    if (status != F8_OK) {
        return ctl_failed(status);
    }
    if (ctl->json) {
        return json_print(ctl, "report",
            json_pack("{s:s, s:I, s:I}", "file", ctl->html, "weights",
                (json_int_t)report->weights.num_rows, "plots", (json_int_t)report->num_plots));
    }
    if (strcmp(ctl->html, "-") != 0) {
        printf("wrote %s: %zu weight%s, %zu plot%s\n", ctl->html, report->weights.num_rows,
            plural(report->weights.num_rows), report->num_plots, plural(report->num_plots));
    }
    return CTL_OK;
}

static int check(const struct ctl *ctl)
{
    if (ctl->html == NULL && !ctl->json) {
        fprintf(stderr, "f8ctl: report: --html FILE or --json is missing\n");
        return CTL_USAGE;
    }
    if (ctl->html != NULL && strcmp(ctl->html, "-") == 0 && ctl->json) {
        fprintf(stderr, "f8ctl: report: --html - and --json both want standard output\n");
        return CTL_USAGE;
    }
    return CTL_OK;
}

int command_report(struct ctl *ctl)
{
    struct report report = {0};
    int result = check(ctl), status;

    if (result != CTL_OK) {
        return result;
    }
    status = fetch_all(ctl, &report);
    if (status != F8_OK) {
        result = ctl_failed(status);
    } else {
        result = ctl->html != NULL ? write_page(ctl, &report) : print_object(ctl, &report);
    }
    report_done(&report);
    return result;
}
