/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which jobs have states, for operators: see state.h. One walk and one sort, so that many states do
 * not hold up the loop. On the loop.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/state_private.h"
#include "status.h"

int state_job_compare(const void *a, const void *b)
{
    const struct state_job *one = a, *other = b;
    if (one->uid != other->uid)
        return one->uid < other->uid ? -1 : 1;
    return strcmp(one->job, other->job);
}

static struct state_job job_of(const struct state *state)
{
    const struct state_owner *owner = &state->file.head.owner;
    return (struct state_job){.job = owner->job,
        .uid = owner->uid,
        .states = 1,
        .bytes = state->file.size,
        .left_ms = state_left_ms(state)};
}

/* Neighbours of the same job become one; returns how many are left. */
static size_t merge(struct state_job *jobs, size_t count)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        struct state_job *last = kept > 0 ? &jobs[kept - 1] : NULL;
        if (!last || state_job_compare(last, &jobs[i]) != 0) {
            jobs[kept++] = jobs[i];
            continue;
        }
        last->states++;
        last->bytes += jobs[i].bytes;
        last->left_ms = jobs[i].left_ms > last->left_ms ? jobs[i].left_ms : last->left_ms;
    }
    return kept;
}

int state_store_jobs(
    const struct state_store *store, struct state_job **ret_jobs, size_t *ret_count)
{
    struct state_totals totals;
    state_store_count(store, &totals);
    size_t count = 0;
    struct state_job *jobs = calloc((size_t)totals.held + totals.lingering + 1, sizeof(*jobs));
    if (!jobs)
        return F8_ENOMEM;
    for (const struct state *state = store->first; state; state = state->next)
        jobs[count++] = job_of(state);
    qsort(jobs, count, sizeof(*jobs), state_job_compare);
    *ret_count = merge(jobs, count);
    *ret_jobs = jobs;
    return F8_OK;
}
