/* SPDX-License-Identifier: Apache-2.0 */
/* Series of syncs: see series.h. */
#include "client/ctl/series.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/ctl/print_json.h"
#include "client/error.h"
#include "proto/status.h"

int series_init(struct series *series, const F8__HistoryInfo *history, uint32_t last)
{
    size_t count = history->n_amax < history->n_scale ? history->n_amax : history->n_scale;

    if (last > 0 && last < count) {
        count = last;
    }
    *series = (struct series){.first = history->newest + 1 - count, .count = count};
    series->amax = calloc(count + 1, sizeof(*series->amax));
    series->scale = calloc(count + 1, sizeof(*series->scale));
    if (series->amax == NULL || series->scale == NULL) {
        series_done(series);
        return error_set(F8_ENOMEM, "no memory for %zu syncs", count);
    }
    for (size_t i = 0; i < count; i++) { /* the daemon's begin with the newest */
        series->amax[i] = history->amax[count - 1 - i];
        series->scale[i] = history->scale[count - 1 - i];
    }
    return F8_OK;
}

void series_done(struct series *series)
{
    free(series->amax);
    free(series->scale);
    series->amax = series->scale = NULL;
    series->count = 0;
}

void series_heading(const F8__HistoryInfo *history, char *text, size_t size)
{
    snprintf(text, size, "%s, group %s of job %s, uid %" PRIu32, history->name, history->group,
        history->job, history->uid);
}

static json_t *json_of_sync(const struct series *series, size_t i)
{
    return json_pack("{s:I, s:o, s:o, s:o, s:o}", "sync", (json_int_t)(series->first + i), "amax",
        json_of_real(series->amax[i], true), "amax_bits", json_of_bits(series->amax[i], true),
        "scale", json_of_real(series->scale[i], true), "scale_bits",
        json_of_bits(series->scale[i], true));
}

json_t *json_of_series(const F8__HistoryInfo *history, const struct series *series)
{
    json_t *syncs = json_array();

    for (size_t i = 0; i < series->count; i++) {
        json_array_append_new(syncs, json_of_sync(series, i));
    }
    return json_pack("{s:s, s:I, s:s, s:s, s:o}", "job", history->job, "uid",
        (json_int_t)history->uid, "group", history->group, "name", history->name, "syncs", syncs);
}
