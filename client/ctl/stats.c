/* SPDX-License-Identifier: Apache-2.0 */
/* Counts as rows: see stats.h. */
#include "client/ctl/stats.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

double stats_seconds(const struct stats_span *span)
{
    uint64_t before = span->before != NULL ? span->before->age_ms : 0;

    return span->now->age_ms > before ? (double)(span->now->age_ms - before) / 1000 : 0;
}

/* The average of a job's whole life would count what its state brought along from earlier runs. */
static bool is_rated(const struct stats_span *span)
{
    return stats_seconds(span) > 0 && (span->before != NULL || span->now->job[0] == '\0');
}

/* One more row; what went down, since groups ended, has no rate. */
static void add(const struct stats_span *span, struct stats_row *rows, size_t *count,
    const char *name, uint64_t total, uint64_t before)
{
    struct stats_row *row = &rows[*count];

    if (*count == STATS_MAX_ROWS) {
        return;
    }
    *row = (struct stats_row){.total = total};
    snprintf(row->name, sizeof(row->name), "%s", name);
    row->rated = is_rated(span) && total >= before;
    row->rate = row->rated ? (double)(total - before) / stats_seconds(span) : 0;
    (*count)++;
}

static uint64_t count_called(F8__CountInfo *const *list, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(list[i]->name, name) == 0) {
            return list[i]->count;
        }
    }
    return 0;
}

static uint64_t sum_of(F8__CountInfo *const *list, size_t count)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < count; i++) {
        sum += list[i]->count;
    }
    return sum;
}

/* The sum of a list, then each that is not 0 by its name. */
static void add_list(const struct stats_span *span, struct stats_row *rows, size_t *count,
    const char *name, const char *part, F8__CountInfo *const *now, size_t num_now,
    F8__CountInfo *const *before, size_t num_before)
{
    char text[64];

    add(span, rows, count, name, sum_of(now, num_now), sum_of(before, num_before));
    for (size_t i = 0; i < num_now; i++) {
        if (now[i]->count > 0 && strcmp(now[i]->name, "any") != 0) {
            snprintf(text, sizeof(text), "%s%s", part, now[i]->name);
            add(span, rows, count, text, now[i]->count,
                count_called(before, num_before, now[i]->name));
        }
    }
}

size_t stats_rows(const struct stats_span *span, struct stats_row rows[STATS_MAX_ROWS])
{
    static const F8__StatsInfo none = F8__STATS_INFO__INIT;
    const F8__StatsInfo *now = span->now, *before = span->before != NULL ? span->before : &none;
    size_t count = 0, first;

    add(span, rows, &count, "gathers", now->gathers, before->gathers);
    first = count;
    add_list(span, rows, &count, "gathered", "  as ", now->bytes, now->n_bytes, before->bytes,
        before->n_bytes);
    for (; first < count; first++) {
        rows[first].bytes = true;
    }
    add(span, rows, &count, "saturated elements", now->saturated, before->saturated);
    add(span, rows, &count, "NaN elements", now->nan, before->nan);
    add(span, rows, &count, "stale gathers", now->stale, before->stale);
    add_list(span, rows, &count, "failed rounds", "  by ", now->failed, now->n_failed,
        before->failed, before->n_failed);
    for (; first < count; first++) {
        rows[first].alarming = true;
    }
    return count;
}

/* ---- times ---- */

static uint64_t count_in(const F8__HistogramInfo *now, const F8__HistogramInfo *before, size_t i)
{
    uint64_t earlier = before != NULL && i < before->n_counts ? before->counts[i] : 0;

    return now->counts[i] > earlier ? now->counts[i] - earlier : 0;
}

/*
 * The duration that a share of all do not exceed, in seconds, as if those of one bucket were spread
 * evenly over it. INFINITY beyond the last bound.
 */
static double quantile(
    const F8__HistogramInfo *now, const F8__HistogramInfo *before, uint64_t total, double share)
{
    double wanted = share * (double)total, below = 0;

    for (size_t i = 0; i < now->n_bounds && i < now->n_counts; i++) {
        double here = (double)count_in(now, before, i);
        double low = i > 0 ? (double)now->bounds[i - 1] : 0, high = (double)now->bounds[i];
        if (here > 0 && below + here >= wanted) {
            return (low + (high - low) * (wanted - below) / here) / 1e9;
        }
        below += here;
    }
    return INFINITY;
}

static void add_time(const F8__HistogramInfo *now, const F8__HistogramInfo *before,
    const char *name, const char *help, struct stats_time *times, size_t *count)
{
    struct stats_time *time = &times[*count];
    uint64_t sum;

    if (now == NULL || now->n_bounds == 0) {
        return;
    }
    *time = (struct stats_time){.name = name, .help = help};
    for (size_t i = 0; i < now->n_counts; i++) {
        time->count += count_in(now, before, i);
    }
    sum = now->sum - (before != NULL && before->sum < now->sum ? before->sum : 0);
    time->bound = (double)now->bounds[now->n_bounds - 1] / 1e9;
    if (time->count > 0) {
        time->mean = (double)sum / (double)time->count / 1e9;
        time->median = quantile(now, before, time->count, 0.5);
        time->p99 = quantile(now, before, time->count, 0.99);
    }
    (*count)++;
}

size_t stats_times(const struct stats_span *span, struct stats_time times[STATS_TIMES])
{
    const F8__StatsInfo *now = span->now, *before = span->before;
    size_t count = 0;

    add_time(now->gather, before != NULL ? before->gather : NULL, "gather",
        "first rank's request to the end", times, &count);
    add_time(now->wait, before != NULL ? before->wait : NULL, "wait",
        "first rank's request to the last's", times, &count);
    add_time(now->rpc, before != NULL ? before->rpc : NULL, "rpc",
        "request to reply, if answered at once", times, &count);
    return count;
}
