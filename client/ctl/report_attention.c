/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first thing on the report's page: what needs a look, the worst first, in sentences; or that
 * nothing does. Called by report_page.c.
 */
#include <inttypes.h>
#include <string.h>

#include "client/ctl/html.h"
#include "client/ctl/report.h"

/* A round that has waited so long is worth a word. */
#define LONG_WAIT_MS 10000

/* One entry, begun on the first call: `bad` ones are failures, others may be as they should. */
static void begin(FILE *to, bool bad, size_t *count)
{
    if ((*count)++ == 0) {
        fprintf(to, "<ul class=\"look\">\n");
    }
    fprintf(to, "<li%s>", bad ? " class=\"bad\"" : "");
}

/* "group dp of job run" */
static void group_of(FILE *to, const char *group, const char *job)
{
    fprintf(to, "group <b>");
    html_text(to, group);
    fprintf(to, "</b> of job <b>");
    html_text(to, job);
    fprintf(to, "</b>");
}

static void broken_groups(FILE *to, const struct report *report, size_t *count)
{
    for (size_t i = 0; i < report->groups.num_rows; i++) {
        const F8__GroupInfo *group = report->groups.rows[i];
        if (strcmp(group->state, "broken") == 0) {
            begin(to, true, count);
            fprintf(to, "The ");
            group_of(to, group->name, group->job);
            fprintf(to, " is broken: ");
            html_text(to, group->cause);
            fprintf(to, "</li>\n");
        }
    }
}

static void lost_hosts(FILE *to, const struct report *report, size_t *count)
{
    for (size_t i = 0; i < report->hosts.num_rows; i++) {
        const F8__HostInfo *host = report->hosts.rows[i];
        if (host->lost) {
            begin(to, true, count);
            fprintf(to, "Host <b>");
            html_text(to, host->name);
            fprintf(to, "</b> of ");
            group_of(to, host->group, host->job);
            fprintf(to, " is lost</li>\n");
        }
    }
}

static void waiting_rounds(FILE *to, const struct report *report, size_t *count)
{
    char cell[TABLE_MAX_CELL];

    for (size_t i = 0; i < report->rounds.num_rows; i++) {
        const F8__RoundInfo *round = report->rounds.rows[i];
        if (round->waited_ms < LONG_WAIT_MS) {
            continue;
        }
        begin(to, false, count);
        fprintf(to, "A ");
        html_text(to, round->kind);
        fprintf(to, " of ");
        group_of(to, round->group, round->job);
        table_duration(cell, round->waited_ms);
        fprintf(to, " is %s, for %s", round->state, cell);
        if (round->n_missing_ranks > 0) {
            table_numbers(cell, round->missing_ranks, round->n_missing_ranks);
            fprintf(to, "; missing: %s", cell);
        }
        fprintf(to, "</li>\n");
    }
}

/* "3 weights ..." with a link to where they are. */
static void counted(
    FILE *to, bool bad, size_t number, const char *what, const char *section, size_t *count)
{
    if (number > 0) {
        begin(to, bad, count);
        report_number(to, number);
        fprintf(to, " %s <a href=\"#%s\">%s</a></li>\n", number == 1 ? "weight" : "weights",
            section, what);
    }
}

static size_t count_nan(const struct fetched *weights)
{
    size_t count = 0;

    for (size_t i = 0; i < weights->num_rows; i++) {
        count += ((const F8__WeightInfo *)weights->rows[i])->nan > 0;
    }
    return count;
}

void report_attention(FILE *to, const struct report *report)
{
    const F8__StatusInfo *status = report->status.rows[0];
    size_t count = 0;

    broken_groups(to, report, &count);
    lost_hosts(to, report, &count);
    counted(to, true, count_nan(&report->weights), "had NaN elements", "weights", &count);
    waiting_rounds(to, report, &count);
    counted(to, false, report->saturated.all, "had elements clamped", "saturation", &count);
    counted(to, false, report->stale.all, "were gathered with an old scale", "stale", &count);
    if (status->failed_rounds > 0) {
        begin(to, false, &count);
        report_number(to, status->failed_rounds);
        fprintf(to, " %s failed since the daemon began <a href=\"#counts\">by cause</a></li>\n",
            status->failed_rounds == 1 ? "round" : "rounds");
    }
    fprintf(to, "%s", count > 0 ? "</ul>\n" : "<p class=\"good\">Nothing stands out.</p>\n");
}
