/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Amaxes over the ranks of another group: under data x tensor parallelism each gather group (a
 * source) holds a part of every weight, and the scale follows from all parts. The amax group's
 * table says which weight of which source an entry of its list is; precompute and sync go over
 * the table, and gathers that must find a scale exchange their amaxes here. On the loop.
 */
#include "daemon/collective_hosts.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "status.h"

void collective_drop_table(struct collective *collective)
{
    struct amax_table *table = &collective->table;
    for (uint32_t s = 0; s < table->num_sources; s++)
        free(table->sources[s].weights);
    free(table->sources);
    free(table->seats);
    free(table->sharers);
    free(table->posted);
    free(table->posted_here);
    free(table->amaxes);
    *table = (struct amax_table){0};
}

void collective_drop_entries(struct collective *collective)
{
    free(collective->entries);
    collective->entries = NULL;
}

const struct member *collective_shard_of(
    const struct collective *collective, uint32_t rank, uint32_t weight, uint32_t *ret_weight)
{
    const struct amax_table *table = &collective->table;
    if (table->num_sources == 0) {
        *ret_weight = weight;
        return collective->run.members[rank];
    }
    uint32_t s = 0;
    while (table->sources[s].weights[weight] == AMAX_NONE ||
           table->seats[rank * table->num_sources + s] == AMAX_NONE)
        s++; /* the seal saw to it that there is one */
    *ret_weight = table->sources[s].weights[weight];
    return collective->run.sources[rank * table->num_sources + s];
}

void collective_set_sources(struct collective *collective)
{
    const struct amax_table *table = &collective->table;
    for (uint32_t r = 0; r < collective->group->world_size; r++)
        for (uint32_t s = 0; s < table->num_sources; s++) {
            uint32_t seat = table->seats[r * table->num_sources + s];
            collective->run.sources[r * table->num_sources + s] =
                seat == AMAX_NONE ? NULL : group_member_of(table->sources[s].group, seat);
        }
}

void collective_push(struct collective *collective, uint32_t entry)
{
    const struct amax_table *table = &collective->table;
    const struct group *group = collective->group;
    for (uint32_t s = 0; s < table->num_sources; s++) {
        uint32_t weight = table->sources[s].weights[entry];
        if (weight != AMAX_NONE)
            scaling_follow(&table->sources[s].group->scalings[weight], &group->scalings[entry],
                &group->list->weights[entry]);
    }
}

uint32_t collective_local_amax(const struct collective *collective, uint32_t entry)
{
    const struct amax_table *table = &collective->table;
    uint32_t amax = 0;
    for (uint32_t s = 0; s < table->num_sources; s++) {
        uint32_t weight = table->sources[s].weights[entry];
        if (weight == AMAX_NONE)
            continue;
        uint32_t local = table->sources[s].group->scalings[weight].delayed.local;
        amax = local > amax ? local : amax;
    }
    return amax;
}

/* The amax group's bucket that the source's running gather is of. */
static uint32_t exchanged_bucket(const struct collective *source)
{
    const struct run *run = &source->run;
    const struct weight_list *list = source->group->amax_group->list;
    uint32_t w = run->first;
    while (source->entries[w] == AMAX_NONE)
        w++;
    return list->weights[source->entries[w]].bucket;
}

bool collective_must_exchange(const struct collective *collective)
{
    const struct run *run = &collective->run;
    for (uint32_t w = run->first; collective->entries && w < run->first + run->count; w++)
        if (collective->entries[w] != AMAX_NONE && collective_wants_amax(collective, w))
            return true;
    return false;
}

/* Whether the source has the amax group's bucket, so that its exchange waits for it. */
static bool has_bucket(const struct collective *source, uint32_t bucket)
{
    const struct group *group = source->group->amax_group;
    const struct amax_table *table = &group->collective->table;
    uint32_t s = 0;
    while (table->sources[s].group != source->group)
        s++;
    return table->sources[s].weights[group->list->buckets[bucket].first] != AMAX_NONE;
}

/* Another source that waits for us in another bucket, as we would for it: neither would go on. */
static const struct collective *find_crossing(const struct collective *source, uint32_t bucket)
{
    const struct group *group = source->group->amax_group->sources;
    for (; group; group = group->next_source) {
        const struct collective *other = group->collective;
        if (other == source || !other->exchanging || exchanged_bucket(other) == bucket)
            continue;
        if (has_bucket(other, bucket) && has_bucket(source, exchanged_bucket(other)))
            return other;
    }
    return NULL;
}

static int crossing(struct collective *source, uint32_t bucket, const struct collective *other)
{
    const struct weight_list *list = source->group->amax_group->list;
    return reason_set(&source->refusal, F8_EMISMATCH,
        "group %s gathers %s where group %s gathers %s, and both need amaxes over group %s",
        source->group->name, list->buckets[bucket].name, other->group->name,
        list->buckets[exchanged_bucket(other)].name, source->group->amax_group->name);
}

static void post(struct collective *source, struct collective *amax, uint32_t bucket)
{
    const struct run *run = &source->run;
    for (uint32_t w = run->first; w < run->first + run->count; w++) {
        uint32_t entry = source->entries[w];
        if (entry == AMAX_NONE || !collective_wants_amax(source, w))
            continue;
        if (run->weights[w].amax > amax->table.amaxes[entry])
            amax->table.amaxes[entry] = run->weights[w].amax;
    }
    amax->table.posted[bucket]++;
    amax->table.posted_here[bucket]++;
    /* All of this host's have: the others wait for them. */
    uint32_t others = amax->hosts ? amax->hosts->num_hosts - 1 : 0;
    if (others > 0 && amax->table.posted_here[bucket] + others == amax->table.sharers[bucket]) {
        const struct bucket_info *info = &amax->group->list->buckets[bucket];
        hosts_tell_amax(amax->hosts, bucket, &amax->table.amaxes[info->first], info->count);
    }
}

/* All sources have posted: the scales follow, for all of them alike. */
static void commit(struct collective *amax, uint32_t bucket)
{
    struct group *group = amax->group;
    const struct bucket_info *info = &group->list->buckets[bucket];
    for (uint32_t e = info->first; e < info->first + info->count; e++) {
        const struct weight *weight = &group->list->weights[e];
        if (scaling_wants_amax(&group->scalings[e], weight)) {
            scaling_in_gather(&group->scalings[e], weight, amax->table.amaxes[e]);
            collective_push(amax, e);
        }
        amax->table.amaxes[e] = 0;
    }
    amax->table.posted[bucket] = 0;
    amax->table.posted_here[bucket] = 0;
    for (uint32_t h = 0; amax->hosts && h < amax->hosts->num_hosts; h++)
        if (amax->hosts->all[h].posted)
            amax->hosts->all[h].posted[bucket] = false;
}

/* Those that had posted before go on. */
static void resume(const struct collective *amax, uint32_t bucket)
{
    for (struct group *source = amax->group->sources; source; source = source->next_source) {
        struct collective *waiting = source->collective;
        if (!waiting->exchanging || exchanged_bucket(waiting) != bucket)
            continue;
        waiting->exchanging = false;
        round_resume(waiting->rounds);
        collective_go_on(waiting);
    }
}

void collective_withdraw(struct collective *collective)
{
    if (!collective->exchanging)
        return;
    collective->exchanging = false;
    struct collective *amax = collective->group->amax_group->collective;
    amax->table.posted[exchanged_bucket(collective)]--;
    amax->table.posted_here[exchanged_bucket(collective)]--;
}

/* ---- with other hosts ---- */

static bool has_posted(const struct collective *amax, uint32_t host, uint32_t bucket)
{
    const bool *posted = amax->hosts->all[host].posted;
    return posted && posted[bucket];
}

/*
 * The source waits in a bucket. A host that waits in another one, which the source has too, may
 * wait for the source, as the source does for it: whether what waits there has the source's bucket
 * only that host knows.
 */
static void tell_crossings(const struct collective *source, uint32_t host)
{
    const struct collective *amax = source->group->amax_group->collective;
    uint32_t awaited = exchanged_bucket(source);
    if (host == amax->hosts->here || has_posted(amax, host, awaited))
        return;
    for (uint32_t told = 0; told < amax->group->list->num_buckets; told++)
        if (has_posted(amax, host, told) && has_bucket(source, told))
            hosts_tell_crossing(amax->hosts, host, told, awaited, source->group);
}

bool collective_post_far(
    struct collective *amax, uint32_t host, uint32_t bucket, const uint32_t *amaxes)
{
    struct amax_table *table = &amax->table;
    const struct weight_list *list = amax->group->list;
    const struct bucket_info *info = &list->buckets[bucket];
    struct host *far = &amax->hosts->all[host];
    if (!far->posted)
        far->posted = calloc(list->num_buckets, sizeof(*far->posted));
    if (!far->posted || far->posted[bucket])
        return false;
    far->posted[bucket] = true;
    for (uint32_t i = 0; i < info->count; i++)
        if (amaxes[i] > table->amaxes[info->first + i])
            table->amaxes[info->first + i] = amaxes[i];
    if (++table->posted[bucket] < table->sharers[bucket]) {
        for (const struct group *s = amax->group->sources; s; s = s->next_source)
            if (s->collective->exchanging)
                tell_crossings(s->collective, host);
        return true;
    }
    commit(amax, bucket);
    resume(amax, bucket);
    return true;
}

void collective_cross_far(
    struct collective *amax, const char *host, const char *group, uint32_t told, uint32_t awaited)
{
    const struct weight_list *list = amax->group->list;
    struct reason reason;
    for (struct group *s = amax->group->sources; s; s = s->next_source) {
        struct collective *source = s->collective;
        if (!source->exchanging || exchanged_bucket(source) != told || !has_bucket(source, awaited))
            continue;
        (void)reason_set(&reason, F8_EMISMATCH,
            "group %.60s gathers %.60s where group %.60s on host %.64s gathers %.60s, and both "
            "need "
            "amaxes over group %.60s",
            s->name, list->buckets[told].name, group, host, list->buckets[awaited].name,
            amax->group->name);
        collective_break_later(source, F8_EMISMATCH, &reason);
    }
}

/* Why it cannot exchange: it is broken, or about to be for what another group has told it. */
static int broken_because(struct collective *source)
{
    bool about_to = !round_is_broken(source->rounds) && source->break_status < 0;
    source->refusal = about_to ? source->broken_by : source->group->cause;
    return about_to ? source->break_status : collective_cause_status(source);
}

void collective_exchange(struct collective *source)
{
    if (round_is_broken(source->rounds) || source->break_status < 0) {
        collective_fail(source, broken_because(source));
        return;
    }
    assert(source->entries); /* without a break they stay */
    uint32_t bucket = exchanged_bucket(source);
    const struct collective *other = find_crossing(source, bucket);
    if (other) {
        collective_fail(source, crossing(source, bucket, other));
        return;
    }
    struct collective *amax = source->group->amax_group->collective;
    post(source, amax, bucket);
    if (amax->table.posted[bucket] < amax->table.sharers[bucket]) {
        source->exchanging = round_pause(source->rounds);
        assert(source->exchanging);
        for (uint32_t h = 0; amax->hosts && h < amax->hosts->num_hosts; h++)
            tell_crossings(source, h);
        collective_settle(source);
        return;
    }
    commit(amax, bucket);
    resume(amax, bucket);
    collective_go_on(source);
}
