/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What was counted, for operators: the daemon's counters as metrics shows them, and of each job
 * the sums over its groups. On the loop; part of the inspection, see inspect_private.h.
 */
#include <string.h>

#include "daemon/inspect_private.h"
#include "protocol.h"

/* `size` counts with names, all 0, in a list of the row; NULL: the page is full. */
static F8__CountInfo **grab_counts(struct page *page, size_t size)
{
    F8__CountInfo **list = inspect_grab(page, size * sizeof(*list));
    F8__CountInfo *counts = list ? inspect_grab(page, size * sizeof(*counts)) : NULL;
    if (!counts)
        return NULL;
    for (size_t i = 0; i < size; i++) {
        f8__count_info__init(&counts[i]);
        list[i] = &counts[i];
    }
    return list;
}

static F8__StatsInfo *grab_stats(struct page *page, size_t causes)
{
    F8__StatsInfo *info = inspect_grab(page, sizeof(*info));
    if (!info)
        return NULL;
    f8__stats_info__init(info);
    info->bytes = grab_counts(page, COUNTERS_WIRES);
    info->failed = grab_counts(page, causes);
    if (!info->bytes || !info->failed)
        return NULL;
    info->n_bytes = COUNTERS_WIRES;
    info->n_failed = causes;
    for (int w = 0; w < COUNTERS_WIRES; w++)
        info->bytes[w]->name =
            (char *)f8_proto_wire_name(counters_wire_proto((enum counters_wire)w));
    return info;
}

/* The daemon's counters live as long as the answer is made; bounds and counts are not copied. */
static F8__HistogramInfo *grab_histogram(struct page *page, const struct histogram *histogram)
{
    F8__HistogramInfo *info = inspect_grab(page, sizeof(*info));
    if (!info)
        return NULL;
    f8__histogram_info__init(info);
    info->bounds = (uint64_t *)counters_bounds;
    info->n_bounds = COUNTERS_BOUNDS;
    info->counts = (uint64_t *)histogram->buckets;
    info->n_counts = COUNTERS_BOUNDS + 1;
    info->sum = histogram->sum_ns;
    return info;
}

void inspect_stats(struct page *page)
{
    static const char *const causes[COUNTERS_CAUSES] = {
#define CAUSE_ROW(name, label) [COUNTERS_##name] = label,
        COUNTERS_CAUSE_LIST(CAUSE_ROW)
#undef CAUSE_ROW
    };
    const struct session_context *context = page->session->context;
    const struct counters *counters = &context->collective.counters;
    F8__StatsInfo *info = inspect_wants_row(page) ? grab_stats(page, COUNTERS_CAUSES) : NULL;
    if (!info)
        return;
    info->age_ms = inspect_now(page) - context->started;
    info->gathers = context->collective.gathers;
    for (int w = 0; w < COUNTERS_WIRES; w++)
        info->bytes[w]->count = counters->bytes[w];
    for (int c = 0; c < COUNTERS_CAUSES; c++) {
        info->failed[c]->name = (char *)causes[c];
        info->failed[c]->count = counters->failed[c];
    }
    info->saturated = counters->saturated;
    info->nan = counters->nan;
    info->stale = counters->stale;
    info->gather = grab_histogram(page, &counters->gather);
    info->wait = grab_histogram(page, &counters->wait);
    info->rpc = grab_histogram(page, &counters->rpc);
    inspect_put_row(page, info, (void ***)&page->reply->stats, &page->reply->n_stats);
}

/* The weights of an amax group are those of others, which count them. */
static void add_group(F8__StatsInfo *info, const struct group *group)
{
    const struct counters_group *counters = collective_counters(group);
    info->gathers += group->gathers;
    info->failed[0]->count += counters ? counters->failed : group->state == GROUP_BROKEN;
    for (uint32_t w = 0; group->list && !group->sources && w < group->list->num_weights; w++) {
        const struct scaling *scaling = &group->scalings[w];
        const struct weight *weight = &group->list->weights[w];
        info->bytes[counters_wire(weight->wire)]->count +=
            scaling->gathers * weight_wire_bytes(weight);
        info->saturated += scaling->saturated;
        info->nan += scaling->nan;
        info->stale += scaling->stale;
    }
}

void inspect_job_stats(struct page *page, const struct job *job)
{
    F8__StatsInfo *info = inspect_wants_row(page) ? grab_stats(page, 1) : NULL;
    if (!info)
        return;
    info->job = job->name;
    info->uid = job->uid;
    info->age_ms = inspect_now(page) - job->opened;
    info->failed[0]->name = (char *)"any";
    for (const struct group *group = job->groups; group; group = group->next)
        add_group(info, group);
    inspect_put_row(page, info, (void ***)&page->reply->stats, &page->reply->n_stats);
}
