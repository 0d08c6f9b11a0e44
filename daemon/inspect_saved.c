/* SPDX-License-Identifier: Apache-2.0 */
/* What operators see of the states' snapshots. On the loop; as inspect.c. */
#include "daemon/inspect_private.h"

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
    if (last->status < 0)
        info->snapshot_reason = (char *)last->reason.text;
    info->num_snapshots_damaged = saved.num_damaged;
    size_t listed =
        saved.num_damaged < SNAPSHOT_MAX_DAMAGED ? saved.num_damaged : SNAPSHOT_MAX_DAMAGED;
    char **names = inspect_grab(page, (listed + 1) * sizeof(*names));
    if (!names)
        return;
    info->snapshots_damaged = names;
    for (; info->n_snapshots_damaged < listed; info->n_snapshots_damaged++)
        names[info->n_snapshots_damaged] = (char *)saved.damaged[info->n_snapshots_damaged];
}
