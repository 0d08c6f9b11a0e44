/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The families of single groups: see metrics_private.h. A text names at most COUNTERS_MAX_GROUPS
 * of them; what the others count is one more, "other", so that jobs without number do not make
 * series without number.
 */
#include "daemon/metrics_private.h"

#include <stddef.h>
#include <stdio.h>

#include "daemon/world.h"

/* What the group is asked for next: it waits, or runs. */
static void look_at_head(
    const struct metrics_source *source, const struct group *group, struct metrics_groups *groups)
{
    struct round_head head;
    uint64_t now = uv_now(source->collective->loop);
    if (!collective_head(group, &head))
        return;
    groups->running += head.running;
    groups->waiting += !head.running;
    if (!head.running && now - head.opened > groups->oldest_ms)
        groups->oldest_ms = now - head.opened;
}

/* `to` stands for several groups. */
static void add_leases(struct collective_leases *to, const struct collective_leases *leases)
{
    to->count += leases->count;
    if (leases->oldest_ms > to->oldest_ms)
        to->oldest_ms = leases->oldest_ms;
}

static void list_or_add(const struct group *group, struct metrics_groups *groups)
{
    struct collective_leases leases;
    collective_leases(group, &leases);
    add_leases(&groups->all_leases, &leases);
    if (collective_is_listed(group)) {
        groups->leases[groups->num_listed] = leases;
        groups->listed[groups->num_listed++] = group;
    } else {
        add_leases(&groups->other_leases, &leases);
        groups->other_arena_bytes += group->arena_bytes;
    }
}

void metrics_find_groups(const struct metrics_source *source, struct metrics_groups *ret_groups)
{
    *ret_groups = (struct metrics_groups){.num_listed = 0};
    for (const struct job *job = registry_jobs(source->registry); job; job = job->next)
        for (const struct group *group = job->groups; group; group = group->next) {
            ret_groups->by_state[group->state]++;
            look_at_head(source, group, ret_groups);
            list_or_add(group, ret_groups);
        }
}

void metrics_group_labels(struct metrics_labels *ret_labels, const struct group *group)
{
    char uid[16] = "other";
    ret_labels->size = 0;
    if (group)
        (void)snprintf(uid, sizeof(uid), "%u", (unsigned)group->job->uid);
    metrics_label(ret_labels, "uid", uid);
    metrics_label(ret_labels, "run", group ? group->job->name : "other");
    metrics_label(ret_labels, "group", group ? group->name : "other");
}

/* One counter of all groups. */
static void counter_family(struct metrics_text *text, enum metrics_family family, size_t offset,
    const struct metrics_groups *groups, const struct counters *counters)
{
    struct metrics_labels labels;
    metrics_family(text, family);
    for (uint32_t g = 0; g < groups->num_listed; g++) {
        const struct counters_group *own = collective_counters(groups->listed[g]);
        metrics_group_labels(&labels, groups->listed[g]);
        metrics_count(text, family, &labels, *(const uint64_t *)((const char *)own + offset));
    }
    if (!counters->has_unlisted)
        return;
    metrics_group_labels(&labels, NULL);
    metrics_count(
        text, family, &labels, *(const uint64_t *)((const char *)&counters->other + offset));
}

static void arena_family(
    struct metrics_text *text, const struct metrics_groups *groups, const struct counters *counters)
{
    struct metrics_labels labels;
    metrics_family(text, METRICS_GROUP_ARENA);
    for (uint32_t g = 0; g < groups->num_listed; g++) {
        metrics_group_labels(&labels, groups->listed[g]);
        metrics_count(text, METRICS_GROUP_ARENA, &labels, groups->listed[g]->arena_bytes);
    }
    if (!counters->has_unlisted)
        return;
    metrics_group_labels(&labels, NULL);
    metrics_count(text, METRICS_GROUP_ARENA, &labels, groups->other_arena_bytes);
}

static void leases_families(
    struct metrics_text *text, const struct metrics_groups *groups, const struct counters *counters)
{
    struct metrics_labels labels;
    metrics_family(text, METRICS_GROUP_LEASES);
    for (uint32_t g = 0; g < groups->num_listed; g++) {
        metrics_group_labels(&labels, groups->listed[g]);
        metrics_count(text, METRICS_GROUP_LEASES, &labels, groups->leases[g].count);
    }
    metrics_group_labels(&labels, NULL);
    if (counters->has_unlisted)
        metrics_count(text, METRICS_GROUP_LEASES, &labels, groups->other_leases.count);
    metrics_family(text, METRICS_GROUP_OLDEST_LEASE);
    for (uint32_t g = 0; g < groups->num_listed; g++) {
        metrics_group_labels(&labels, groups->listed[g]);
        metrics_value(
            text, METRICS_GROUP_OLDEST_LEASE, &labels, (double)groups->leases[g].oldest_ms / 1000);
    }
    metrics_group_labels(&labels, NULL);
    if (counters->has_unlisted)
        metrics_value(text, METRICS_GROUP_OLDEST_LEASE, &labels,
            (double)groups->other_leases.oldest_ms / 1000);
}

/* Two samples of a group that differ in one more label. */
static void pair(struct metrics_text *text, enum metrics_family family, const struct group *group,
    const char *name, const char *const values[2], const uint64_t counts[2])
{
    for (int i = 0; i < 2; i++) {
        struct metrics_labels labels;
        metrics_group_labels(&labels, group);
        metrics_label(&labels, name, values[i]);
        metrics_count(text, family, &labels, counts[i]);
    }
}

static void hosts_of(struct metrics_text *text, const struct group *group)
{
    static const char *const states[2] = {"present", "lost"};
    uint64_t counts[2] = {0, 0};
    uint32_t num_hosts;
    const struct world *world = collective_world(group);
    if (!world)
        return;
    const struct world_host *hosts = world_hosts(world, &num_hosts);
    for (uint32_t h = 0; h < num_hosts; h++)
        counts[hosts[h].lost]++;
    pair(text, METRICS_GROUP_HOSTS, group, "state", states, counts);
}

static void engine_of(struct metrics_text *text, const struct group *group)
{
    static const char *const directions[2] = {"sent", "received"};
    struct collective_engine engine;
    if (!collective_world(group))
        return;
    collective_engine(group, &engine);
    if (engine.untold)
        return;
    pair(text, METRICS_GROUP_ENGINE, group, "direction", directions,
        (const uint64_t[2]){engine.sent, engine.received});
}

void metrics_group_families(struct metrics_text *text, const struct metrics_source *source,
    const struct metrics_groups *groups)
{
    static const struct {
        enum metrics_family family;
        size_t offset;
    } counted[] = {
        {METRICS_GROUP_GATHERS, offsetof(struct counters_group, gathers)},
        {METRICS_GROUP_BYTES, offsetof(struct counters_group, bytes)},
        {METRICS_GROUP_SATURATED, offsetof(struct counters_group, saturated)},
        {METRICS_GROUP_NAN, offsetof(struct counters_group, nan)},
        {METRICS_GROUP_STALE, offsetof(struct counters_group, stale)},
        {METRICS_GROUP_FAILED, offsetof(struct counters_group, failed)},
    };
    const struct counters *counters = &source->collective->counters;
    for (size_t i = 0; i < sizeof(counted) / sizeof(counted[0]); i++)
        counter_family(text, counted[i].family, counted[i].offset, groups, counters);
    arena_family(text, groups, counters);
    leases_families(text, groups, counters);
    metrics_family(text, METRICS_GROUP_HOSTS);
    for (uint32_t g = 0; g < groups->num_listed; g++)
        hosts_of(text, groups->listed[g]);
    metrics_family(text, METRICS_GROUP_ENGINE);
    for (uint32_t g = 0; g < groups->num_listed; g++)
        engine_of(text, groups->listed[g]);
}
