/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f8ctl stats: totals, rates and times of the daemon, or of each job that --job names; with --over
 * of a while from now on. Called by main with a connected channel.
 */
#include "client/ctl/stats_command.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "client/ctl/colour.h"
#include "client/ctl/columns.h"
#include "client/ctl/ctl.h"
#include "client/ctl/fetch.h"
#include "client/ctl/print_json.h"

/* ---- JSON ---- */

static json_t *json_of_counts(F8__CountInfo *const *list, size_t count)
{
    json_t *object = json_object();

    for (size_t i = 0; i < count; i++) {
        json_object_set_new(object, list[i]->name, json_integer((json_int_t)list[i]->count));
    }
    return object;
}

static json_t *json_of_seconds(double seconds, uint64_t count)
{
    return count > 0 && isfinite(seconds) ? json_real(seconds) : json_null();
}

static json_t *json_of_times(const struct stats_span *span)
{
    struct stats_time times[STATS_TIMES];
    size_t count = stats_times(span, times);
    json_t *object = json_object();

    for (size_t i = 0; i < count; i++) {
        const struct stats_time *time = &times[i];
        json_object_set_new(object, time->name,
            json_pack("{s:I, s:o, s:o, s:o}", "count", (json_int_t)time->count, "mean_s",
                json_of_seconds(time->mean, time->count), "p50_s",
                json_of_seconds(time->median, time->count), "p99_s",
                json_of_seconds(time->p99, time->count)));
    }
    return object;
}

static json_t *json_of_rates(const struct stats_span *span)
{
    static const struct {
        const char *row, *key;
    } keys[] = {{"gathers", "gathers"}, {"gathered", "bytes"}, {"saturated elements", "saturated"},
        {"NaN elements", "nan"}, {"stale gathers", "stale"}, {"failed rounds", "failed"}};
    struct stats_row rows[STATS_MAX_ROWS];
    size_t count = stats_rows(span, rows);
    json_t *object = json_object();

    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++) {
            if (strcmp(rows[i].name, keys[k].row) == 0) {
                json_object_set_new(
                    object, keys[k].key, rows[i].rated ? json_real(rows[i].rate) : json_null());
            }
        }
    }
    return object;
}

json_t *json_of_stats(const struct stats_span *span)
{
    const F8__StatsInfo *s = span->now;
    bool job = s->job[0] != '\0';

    return json_pack("{s:s?, s:o, s:I, s:f, s:I, s:o, s:I, s:I, s:I, s:o, s:o, s:o}", "job",
        job ? s->job : NULL, "uid", job ? json_integer((json_int_t)s->uid) : json_null(), "age_ms",
        (json_int_t)s->age_ms, "over_s", stats_seconds(span), "gathers", (json_int_t)s->gathers,
        "bytes", json_of_counts(s->bytes, s->n_bytes), "saturated", (json_int_t)s->saturated, "nan",
        (json_int_t)s->nan, "stale", (json_int_t)s->stale, "failed",
        json_of_counts(s->failed, s->n_failed), "per_second", json_of_rates(span), "times",
        job ? json_null() : json_of_times(span));
}

/* ---- text ---- */

static void print_heading(const struct stats_span *span)
{
    char age[TABLE_MAX_CELL], over[TABLE_MAX_CELL];

    table_duration(age, span->now->age_ms);
    table_duration(over, (uint64_t)(stats_seconds(span) * 1000));
    printf("%s", colour_begin(stdout, COLOUR_HEADING));
    if (span->now->job[0] != '\0') {
        printf("job %s, uid %" PRIu32, span->now->job, span->now->uid);
    } else {
        printf("f8gatherd");
    }
    printf("%s, since %s; ", colour_end(stdout, COLOUR_HEADING), age);
    if (span->before != NULL) {
        printf("rates and times of the last %s\n", over);
    } else if (span->now->job[0] != '\0') {
        printf("rates: --over SECONDS\n");
    } else {
        printf("rates and times of all of it\n");
    }
}

static void print_span(const struct stats_span *span)
{
    struct stats_row rows[STATS_MAX_ROWS];
    struct stats_time times[STATS_TIMES];
    const void *list[STATS_MAX_ROWS];
    size_t count = stats_rows(span, rows);

    print_heading(span);
    for (size_t i = 0; i < count; i++) {
        list[i] = &rows[i];
    }
    table_print(columns_stats.columns, columns_stats.count, list, count);
    count = stats_times(span, times);
    for (size_t i = 0; i < count; i++) {
        list[i] = &times[i];
    }
    if (count > 0) {
        printf("\n");
        table_print(columns_times.columns, columns_times.count, list, count);
    }
}

/* ---- the command ---- */

/* The same daemon's or job's of earlier; NULL if it was not there, or has begun anew since. */
static const F8__StatsInfo *earlier(const struct fetched *before, const F8__StatsInfo *now)
{
    for (size_t i = 0; i < before->num_rows; i++) {
        const F8__StatsInfo *stats = before->rows[i];
        if (strcmp(stats->job, now->job) == 0 && stats->uid == now->uid &&
            stats->age_ms <= now->age_ms) {
            return stats;
        }
    }
    return NULL;
}

static int print_all(struct ctl *ctl, const struct fetched *before, const struct fetched *now)
{
    json_t *array = ctl->json ? json_array() : NULL;

    for (size_t i = 0; i < now->num_rows; i++) {
        struct stats_span span = {.now = now->rows[i], .before = earlier(before, now->rows[i])};
        if (ctl->json) {
            json_t *object = json_of_stats(&span);
            json_array_append_new(array, object != NULL ? object : json_null());
        } else {
            printf("%s", i > 0 ? "\n" : "");
            print_span(&span);
        }
    }
    return ctl->json ? json_print(ctl, "stats", array) : CTL_OK;
}

static void wait_for(uint64_t ms)
{
    struct timespec left = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};

    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

int command_stats(struct ctl *ctl)
{
    struct fetched before = {0}, now = {0};
    int status = F8_OK, result;

    if (ctl->over_ms > 0) {
        status = fetch(ctl, F8__VIEW__STATS, NULL, &before);
        wait_for(status == F8_OK ? (uint64_t)ctl->over_ms : 0);
    }
    if (status == F8_OK) {
        status = fetch(ctl, F8__VIEW__STATS, NULL, &now);
    }
    if (status != F8_OK) {
        result = ctl_failed(status);
    } else if (now.num_rows == 0) {
        fprintf(
            stderr, "f8ctl: no job is called %s at %s\n", ctl->job, channel_socket(ctl->channel));
        result = CTL_REFUSED;
    } else {
        result = print_all(ctl, &before, &now);
    }
    fetch_done(&before);
    fetch_done(&now);
    return result;
}
