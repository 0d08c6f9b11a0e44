/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What operators see of the states: their snapshots, and which jobs have some, also without
 * clients. On the loop; as inspect.c.
 */
#include "daemon/inspect_private.h"

#include <stdlib.h>
#include <string.h>

static void list_names(struct page *page, const struct state_noted *noted, char ***ret_names,
    size_t *ret_listed, uint32_t *ret_count)
{
    uint32_t listed = state_noted_listed(noted);
    char **names = inspect_grab(page, (listed + 1) * sizeof(*names));
    *ret_count = noted->count;
    if (!names)
        return;
    for (uint32_t i = 0; i < listed; i++)
        names[i] = (char *)noted->names[i];
    *ret_names = names;
    *ret_listed = listed;
}

void inspect_saved(struct page *page, F8__StatusInfo *info)
{
    const struct session_context *context = page->session->context;
    const struct config *config = registry_config(context->registry);
    const struct state_pass *last = state_saver_last(context->saver);
    struct state_saved saved;
    state_store_saved(context->collective.states, &saved);
    info->state_directory = (char *)saved.path;
    info->snapshots = saved.states;
    info->snapshot_bytes = saved.bytes;
    info->snapshot_done = last->succeeded > 0;
    info->snapshot_age_ms = info->snapshot_done ? inspect_now(page) - last->succeeded : 0;
    info->snapshot_interval_ms = config->snapshot_interval_ms;
    info->state_keep_ms = state_keep_ms(config);
    if (last->status < 0)
        info->snapshot_reason = (char *)last->reason.text;
    list_names(page, saved.damaged, &info->snapshots_damaged, &info->n_snapshots_damaged,
        &info->num_snapshots_damaged);
    list_names(page, saved.newer, &info->snapshots_newer, &info->n_snapshots_newer,
        &info->num_snapshots_newer);
    list_names(page, saved.live_damaged, &info->states_damaged, &info->n_states_damaged,
        &info->num_states_damaged);
    list_names(page, saved.live_newer, &info->states_newer, &info->n_states_newer,
        &info->num_states_newer);
}

int inspect_stored_begin(struct page *page)
{
    const struct state_store *store = page->session->context->collective.states;
    return state_store_jobs(store, &page->stored, &page->num_stored);
}

static struct state_job *find(struct page *page, uid_t uid, const char *job)
{
    const struct state_job key = {.job = job, .uid = uid};
    return bsearch(&key, page->stored, page->num_stored, sizeof(key), state_job_compare);
}

static void fill(F8__JobInfo *info, const struct state_job *stored)
{
    info->states = stored->states;
    info->state_bytes = stored->bytes;
    info->left_ms = stored->left_ms;
}

void inspect_stored_of(struct page *page, F8__JobInfo *info)
{
    const struct state_job *stored = find(page, info->uid, info->name);
    if (stored)
        fill(info, stored);
}

static bool is_alone(const struct page *page, const struct state_job *stored)
{
    const struct job *job = registry_jobs(page->session->context->registry);
    while (job && !(job->uid == stored->uid && strcmp(job->name, stored->job) == 0))
        job = job->next;
    return !job;
}

void inspect_stored_alone(struct page *page)
{
    for (size_t i = 0; i < page->num_stored && !page->full; i++) {
        const struct state_job *stored = &page->stored[i];
        if (!session_matches(page->ask->job, stored->job) || !is_alone(page, stored) ||
            !inspect_wants_row(page))
            continue;
        F8__JobInfo *info = inspect_grab(page, sizeof(*info));
        if (!info)
            return;
        f8__job_info__init(info);
        info->name = (char *)stored->job;
        info->uid = stored->uid;
        fill(info, stored);
        inspect_put_row(page, info, (void ***)&page->reply->jobs, &page->reply->n_jobs);
    }
}
