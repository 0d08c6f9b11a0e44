/* SPDX-License-Identifier: Apache-2.0 */
/* The families of the daemon as a whole: see metrics.h. */
#include "daemon/metrics_private.h"

#include <stdlib.h>

#include "daemon/state.h"
#include "kernels/kernels.h"

static void one_count(struct metrics_text *text, enum metrics_family family, uint64_t value)
{
    metrics_family(text, family);
    metrics_count(text, family, NULL, value);
}

static void labelled(struct metrics_text *text, enum metrics_family family, const char *name,
    const char *value, uint64_t count)
{
    struct metrics_labels labels = {.size = 0};
    metrics_label(&labels, name, value);
    metrics_count(text, family, &labels, count);
}

static void build(struct metrics_text *text, const struct metrics_source *source)
{
    struct metrics_labels labels = {.size = 0};
    metrics_family(text, METRICS_BUILD);
    metrics_label(&labels, "version", F8_VERSION);
    metrics_label(&labels, "kernels", f8k_ops()->name);
    metrics_count(text, METRICS_BUILD, &labels, 1);
    metrics_family(text, METRICS_UPTIME);
    metrics_value(text, METRICS_UPTIME, NULL, (double)source->uptime_ms / 1000);
}

static void holdings(struct metrics_text *text, const struct metrics_source *source,
    const struct metrics_groups *groups)
{
    struct registry_totals totals;
    struct state_totals states;
    registry_count(source->registry, &totals);
    state_store_count(source->collective->states, &states);
    one_count(text, METRICS_CONNECTIONS, source->connections);
    one_count(text, METRICS_JOBS, totals.jobs);
    metrics_family(text, METRICS_GROUPS);
    labelled(text, METRICS_GROUPS, "state", "forming", groups->by_state[GROUP_FORMING]);
    labelled(text, METRICS_GROUPS, "state", "sealed", groups->by_state[GROUP_SEALED]);
    labelled(text, METRICS_GROUPS, "state", "broken", groups->by_state[GROUP_BROKEN]);
    one_count(text, METRICS_WEIGHTS, totals.weights);
    one_count(text, METRICS_REGION_BYTES, totals.region_bytes);
    one_count(text, METRICS_ARENA_BYTES, totals.arena_bytes);
    one_count(text, METRICS_STATE_BYTES, states.bytes);
    metrics_family(text, METRICS_STATES);
    labelled(text, METRICS_STATES, "use", "held", states.held);
    labelled(text, METRICS_STATES, "use", "lingering", states.lingering);
}

static void unused(struct metrics_text *text, const char *place, const char *cause, uint64_t files)
{
    struct metrics_labels labels = {.size = 0};
    metrics_label(&labels, "place", place);
    metrics_label(&labels, "cause", cause);
    metrics_count(text, METRICS_UNUSED, &labels, files);
}

/* A daemon whose passes have never succeeded is as late as it is old. */
static void age(struct metrics_text *text, const struct metrics_source *source)
{
    const struct state_pass *last = source->saver ? state_saver_last(source->saver) : NULL;
    uint64_t now = uv_now(source->collective->loop);
    metrics_family(text, METRICS_SNAPSHOT_AGE);
    if (!last || source->collective->config->state_dir[0] == '\0')
        return;
    uint64_t ms = last->succeeded > 0 ? now - last->succeeded : source->uptime_ms;
    metrics_value(text, METRICS_SNAPSHOT_AGE, NULL, (double)ms / 1000);
}

static void snapshots(struct metrics_text *text, const struct metrics_source *source)
{
    struct state_saved saved;
    struct state_counts counts = {0};
    state_store_saved(source->collective->states, &saved);
    if (source->saver)
        counts = state_saver_counts(source->saver);
    one_count(text, METRICS_SNAPSHOTS, saved.states);
    one_count(text, METRICS_SNAPSHOT_BYTES, saved.bytes);
    age(text, source);
    one_count(text, METRICS_SNAPSHOT_WRITTEN, counts.bytes);
    one_count(text, METRICS_SNAPSHOT_FAILED, counts.failed);
    metrics_family(text, METRICS_UNUSED);
    unused(text, "snapshot", "damaged", saved.damaged->count);
    unused(text, "snapshot", "newer", saved.newer->count);
    unused(text, "live", "damaged", saved.live_damaged->count);
    unused(text, "live", "newer", saved.live_newer->count);
}

static void work(struct metrics_text *text, const struct collective_context *collective)
{
    static const char *const causes[COUNTERS_CAUSES] = {
#define CAUSE_ROW(name, label) [COUNTERS_##name] = label,
        COUNTERS_CAUSE_LIST(CAUSE_ROW)
#undef CAUSE_ROW
    };
    const struct counters *counters = &collective->counters;
    one_count(text, METRICS_GATHERS, collective->gathers);
    metrics_family(text, METRICS_GATHERED_BYTES);
    for (int w = 0; w < COUNTERS_WIRES; w++)
        labelled(text, METRICS_GATHERED_BYTES, "wire",
            f8_proto_wire_name(counters_wire_proto((enum counters_wire)w)), counters->bytes[w]);
    one_count(text, METRICS_SATURATED, counters->saturated);
    one_count(text, METRICS_NAN, counters->nan);
    one_count(text, METRICS_STALE, counters->stale);
    metrics_family(text, METRICS_FAILED);
    for (int c = 0; c < COUNTERS_CAUSES; c++)
        labelled(text, METRICS_FAILED, "cause", causes[c], counters->failed[c]);
}

static void times(
    struct metrics_text *text, const struct counters *counters, const struct metrics_groups *groups)
{
    metrics_family(text, METRICS_ROUNDS);
    labelled(text, METRICS_ROUNDS, "state", "waiting", groups->waiting);
    labelled(text, METRICS_ROUNDS, "state", "running", groups->running);
    metrics_family(text, METRICS_OLDEST);
    metrics_value(text, METRICS_OLDEST, NULL, (double)groups->oldest_ms / 1000);
    one_count(text, METRICS_LEASES, groups->all_leases.count);
    metrics_family(text, METRICS_OLDEST_LEASE);
    metrics_value(text, METRICS_OLDEST_LEASE, NULL, (double)groups->all_leases.oldest_ms / 1000);
    metrics_histogram(text, METRICS_GATHER_TIME, &counters->gather);
    metrics_histogram(text, METRICS_WAIT_TIME, &counters->wait);
    metrics_histogram(text, METRICS_RPC_TIME, &counters->rpc);
}

int metrics_make(const struct metrics_source *source, bool weights, struct metrics_text *ret_text)
{
    struct metrics_text text = {0};
    struct metrics_groups groups;
    metrics_find_groups(source, &groups);
    build(&text, source);
    holdings(&text, source, &groups);
    snapshots(&text, source);
    work(&text, source->collective);
    times(&text, &source->collective->counters, &groups);
    metrics_group_families(&text, source, &groups);
    if (weights)
        metrics_weight_families(&text, source, &groups);
    metrics_end(&text);
    if (text.failed) {
        free(text.bytes);
        return F8_ENOMEM;
    }
    *ret_text = text;
    return F8_OK;
}
