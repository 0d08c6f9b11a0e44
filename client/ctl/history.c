/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f8ctl history: what each of the last syncs made of a delayed weight, the newest at the end, as
 * logs are read. Called by main with a connected channel.
 */
#include <stdio.h>
#include <stdlib.h>

#include "client/ctl/ctl.h"
#include "client/ctl/fetch.h"
#include "client/ctl/print_json.h"
#include "client/error.h"

/* How many of the syncs are wanted. */
static size_t wanted(const struct ctl *ctl, const F8__HistoryInfo *history)
{
    size_t count = history->n_amax < history->n_scale ? history->n_amax : history->n_scale;
    return ctl->last > 0 && ctl->last < count ? ctl->last : count;
}

/* The i-th newest. */
static struct sync_row sync_of(const F8__HistoryInfo *history, size_t i)
{
    return (struct sync_row){
        .number = history->newest - i, .amax = history->amax[i], .scale = history->scale[i]};
}

static json_t *json_of_sync(const struct sync_row *sync)
{
    return json_pack("{s:I, s:o, s:o, s:o, s:o}", "sync", (json_int_t)sync->number, "amax",
        json_of_real(sync->amax, true), "amax_bits", json_of_bits(sync->amax, true), "scale",
        json_of_real(sync->scale, true), "scale_bits", json_of_bits(sync->scale, true));
}

static int print_json(struct ctl *ctl, const struct fetched *fetched)
{
    json_t *histories = json_array();

    for (size_t h = 0; h < fetched->num_rows; h++) {
        const F8__HistoryInfo *history = fetched->rows[h];
        json_t *syncs = json_array();
        for (size_t i = wanted(ctl, history); i-- > 0;) {
            struct sync_row sync = sync_of(history, i);
            json_array_append_new(syncs, json_of_sync(&sync));
        }
        json_array_append_new(
            histories, json_pack("{s:s, s:I, s:s, s:s, s:o}", "job", history->job, "uid",
                           (json_int_t)history->uid, "group", history->group, "name", history->name,
                           "syncs", syncs));
    }
    return json_print(ctl, "histories", histories);
}

static int print_syncs(const struct ctl *ctl, const F8__HistoryInfo *history)
{
    size_t count = wanted(ctl, history);
    struct sync_row *syncs = calloc(count + 1, sizeof(*syncs));
    const void **rows = calloc(count + 1, sizeof(*rows));
    bool complete = syncs != NULL && rows != NULL;

    for (size_t i = 0; i < count && complete; i++) {
        syncs[i] = sync_of(history, count - 1 - i);
        rows[i] = &syncs[i];
    }
    if (complete) {
        printf("%s, group %s of job %s, uid %u\n", history->name, history->group, history->job,
            history->uid);
        table_print(columns_syncs.columns, columns_syncs.count, rows, count);
    }
    free(syncs);
    free(rows);
    return complete ? CTL_OK : ctl_failed(error_set(F8_ENOMEM, "no memory for %zu syncs", count));
}

static int print_histories(struct ctl *ctl, const struct fetched *fetched)
{
    int result = CTL_OK;

    if (fetched->num_rows == 0) {
        fprintf(stderr,
            "f8ctl: no delayed weight is called %s at %s; f8ctl weights --sort flavour lists "
            "them\n",
            ctl->arguments[0], channel_socket(ctl->channel));
        return CTL_REFUSED;
    }
    if (ctl->json) {
        return print_json(ctl, fetched);
    }
    for (size_t h = 0; h < fetched->num_rows && result == CTL_OK; h++) {
        printf("%s", h > 0 ? "\n" : "");
        result = print_syncs(ctl, fetched->rows[h]);
    }
    return result;
}

/* One weight may be there in several jobs and groups. */
int command_history(struct ctl *ctl)
{
    char *glob = ctl_escaped(ctl->arguments[0]);
    struct fetched fetched;
    int result;
    int status = glob != NULL ? fetch(ctl, F8__VIEW__HISTORY, glob, &fetched)
                              : error_set(F8_ENOMEM, "no memory for a name");

    free(glob);
    if (status != F8_OK) {
        return ctl_failed(status);
    }
    result = print_histories(ctl, &fetched);
    fetch_done(&fetched);
    return result;
}
