/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The seal of a group over whose ranks the amaxes of others are taken: compares what its ranks
 * have registered there, and makes its list and table from that. On the loop.
 */
#include "daemon/collective_hosts.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "status.h"

/* Whether the rank is one of this host's: those of others are compared there. */
static bool is_here(const struct member *member)
{
    return member && !member->far;
}

/* A walk over the weights that name the amax group, as one rank of it registered them. */
struct walk {
    const struct group *amax_group; /* borrowed */
    const struct member *member;    /* borrowed: of the amax group */
    const struct group *source;     /* borrowed: where the walk is; NULL at its end */
    uint32_t weight;
};

static bool is_in(const struct walk *walk)
{
    return group_member_for(walk->source, walk->member->session) != NULL;
}

/* Goes on to the next weight that counts, from where the walk is. */
static void settle_walk(struct walk *walk)
{
    for (; walk->source; walk->source = walk->source->next_source, walk->weight = 0) {
        const struct weight_list *list = walk->source->list;
        for (; is_in(walk) && walk->weight < list->num_weights; walk->weight++)
            if (list->weights[walk->weight].amax_group == walk->amax_group->id)
                return;
    }
}

static struct walk walk_begin(const struct group *amax_group, const struct member *member)
{
    struct walk walk = {.amax_group = amax_group, .member = member, .source = amax_group->sources};
    settle_walk(&walk);
    return walk;
}

static void walk_next(struct walk *walk)
{
    walk->weight++;
    settle_walk(walk);
}

static const struct weight *walk_weight(const struct walk *walk)
{
    return &walk->source->list->weights[walk->weight];
}

static const char *walk_bucket(const struct walk *walk)
{
    return walk->source->list->buckets[walk_weight(walk)->bucket].name;
}

/* The amaxes of a bucket are exchanged at once, so its weights must have the same sources. */
static int check_buckets(
    const struct group *group, const struct member *member, struct reason *reason)
{
    struct walk before = walk_begin(group, member), walk = before;
    for (; walk.source; before = walk, walk_next(&walk))
        if (walk.source != before.source && strcmp(walk_bucket(&walk), walk_bucket(&before)) == 0)
            return reason_set(reason, F8_EINVAL,
                "amax group %s: rank %u (pid %u) has a bucket %.200s in group %s and in group %s: "
                "give them different names",
                group->name, member->rank, member->pid, walk_bucket(&walk), before.source->name,
                walk.source->name);
    return F8_OK;
}

/* Else the hosts would cast one weight by different scales. */
static int check_far(const struct group *group, const struct group *source, struct reason *reason)
{
    const struct hosts *over = group->collective->hosts;
    for (uint32_t r = 0; r < source->world_size; r++) {
        const struct member *member = source->members[r];
        char who[COLLECTIVE_WHO];
        if (member && member->far &&
            !(over && hosts_have(over, hosts_name_of(source->collective->hosts, member))))
            return reason_set(reason, F8_EINVAL,
                "%s of group %s is in no rank of its amax group %s, which is not on that host",
                collective_who(member, who), source->name, group->name);
    }
    return F8_OK;
}

static int check_source(
    const struct group *group, const struct group *source, struct reason *reason)
{
    if (source->state != GROUP_SEALED)
        return reason_set(reason, F8_EORDER,
            "group %s, whose weights name amax group %s, is not sealed: seal it first",
            source->name, group->name);
    for (uint32_t r = 0; r < source->world_size; r++)
        if (is_here(source->members[r]) && !group_member_for(group, source->members[r]->session))
            return reason_set(reason, F8_EINVAL,
                "rank %u (pid %u) of group %s is in no rank of its amax group %s", r,
                source->members[r]->pid, source->name, group->name);
    return check_far(group, source, reason);
}

/* Compares a rank's weights with those of the first; the first difference is named. */
static int compare_rank(const struct group *group, uint32_t rank, struct reason *reason)
{
    const struct member *first = group_first_here(group), *other = group->members[rank];
    struct walk a = walk_begin(group, first), b = walk_begin(group, other);
    for (; a.source && b.source; walk_next(&a), walk_next(&b)) {
        const struct weight *x = walk_weight(&a), *y = walk_weight(&b);
        if (strcmp(x->name, y->name) != 0 || strcmp(walk_bucket(&a), walk_bucket(&b)) != 0)
            return reason_set(reason, F8_EMISMATCH,
                "amax group %.80s: rank %u (pid %u) has weight %.80s (bucket %.60s) where rank %u "
                "(pid %u) has %.80s (bucket %.60s)",
                group->name, rank, other->pid, y->name, walk_bucket(&b), first->rank, first->pid,
                x->name, walk_bucket(&a));
        if (!weight_same_scaling(x, y))
            return reason_set(reason, F8_EMISMATCH,
                "amax group %s: rank %u (pid %u) registered weight %s with another type, flavour, "
                "format or history than rank %u (pid %u)",
                group->name, rank, other->pid, y->name, first->rank, first->pid);
    }
    if (a.source || b.source)
        return reason_set(reason, F8_EMISMATCH,
            "amax group %s: rank %u (pid %u) has weight %s, which names it, and rank %u (pid %u) "
            "has "
            "none such",
            group->name, a.source ? first->rank : rank, a.source ? first->pid : other->pid,
            walk_weight(a.source ? &a : &b)->name, a.source ? rank : first->rank,
            a.source ? other->pid : first->pid);
    return F8_OK;
}

/* Ends the bucket that is being filled, if it has weights. */
static int end_bucket(
    struct weight_list *list, const char *name, uint32_t first, struct reason *reason)
{
    if (first == list->num_weights)
        return F8_OK;
    return weights_add_bucket(list,
        &(struct bucket_info){.name = name, .first = first, .count = list->num_weights - first},
        reason);
}

/* The list of the first rank's weights that name the group: every rank's, now that they are
 * compared. */
static int fill_list(const struct group *group, struct weight_list *list, struct reason *reason)
{
    const char *bucket = NULL;
    const struct group *source = NULL;
    uint32_t first = 0;
    int status = F8_OK;
    struct walk walk = walk_begin(group, group_first_here(group));
    for (; walk.source && status == F8_OK; walk_next(&walk)) {
        struct weight copy = *walk_weight(&walk);
        /* Two sources may each have a bucket of that name: that is refused, for an exchange counts
           by bucket who has posted. */
        if (bucket && (walk.source != source || strcmp(bucket, walk_bucket(&walk)) != 0)) {
            status = end_bucket(list, bucket, first, reason);
            first = list->num_weights;
        }
        bucket = walk_bucket(&walk);
        source = walk.source;
        copy.amax_group = 0;
        if (status == F8_OK)
            status = weights_add(list, walk_weight(&walk)->name, &copy, UINT32_MAX, reason);
    }
    return status == F8_OK && bucket ? end_bucket(list, bucket, first, reason) : status;
}

int collective_compare_sources(struct collective *collective, struct weight_list **ret_list)
{
    const struct group *group = collective->group;
    struct reason *reason = &collective->refusal;
    int status = F8_OK;
    for (const struct group *s = group->sources; s && status == F8_OK; s = s->next_source)
        status = check_source(group, s, reason);
    for (uint32_t r = 0; r < group->world_size && status == F8_OK; r++) {
        const struct member *member = group->members[r];
        if (!is_here(member))
            continue;
        if (member->list->num_weights > 0)
            status = reason_set(reason, F8_EINVAL,
                "group %s is the amax group of others, but rank %u (pid %u) registered weights in "
                "it",
                group->name, r, member->pid);
        if (status == F8_OK)
            status = check_buckets(group, member, reason);
        if (status == F8_OK)
            status = compare_rank(group, r, reason);
    }
    if (status < 0)
        return status;
    struct weight_list *list = weights_new(group->world_size);
    if (!list)
        return reason_set(reason, F8_ENOMEM, "out of memory sealing group %s", group->name);
    status = fill_list(group, list, reason);
    if (status < 0)
        weights_unref(list);
    else
        *ret_list = list;
    return status;
}

/* Which weight of the source each entry is; both lists name each weight once. */
static void map_source(const struct group *group, struct amax_source *source)
{
    const struct weight_list *own = group->list, *list = source->group->list;
    uint32_t entry = 0;
    for (uint32_t e = 0; e < own->num_weights; e++)
        source->weights[e] = AMAX_NONE;
    for (uint32_t w = 0; w < list->num_weights; w++) {
        source->group->collective->entries[w] = AMAX_NONE;
        if (list->weights[w].amax_group != group->id)
            continue;
        /* Both are in the order of registration, so the search goes on from where it was. */
        uint32_t tries = 0;
        for (; tries < own->num_weights; tries++, entry++) {
            entry %= own->num_weights;
            if (strcmp(own->weights[entry].name, list->weights[w].name) == 0)
                break;
        }
        assert(tries < own->num_weights); /* the lists were compared, and sources are linked */
        source->weights[entry] = w;
        source->group->collective->entries[w] = entry;
    }
}

static int new_source(const struct group *group, struct group *from, struct amax_source *source)
{
    struct collective *collective = from->collective;
    collective_drop_entries(collective);
    source->group = from;
    source->weights = calloc(group->list->num_weights, sizeof(*source->weights));
    collective->entries = calloc(from->list->num_weights, sizeof(*collective->entries));
    if (!source->weights || !collective->entries)
        return F8_ENOMEM;
    map_source(group, source);
    return F8_OK;
}

static void seat_ranks(const struct group *group, struct amax_table *table)
{
    for (uint32_t r = 0; r < group->world_size; r++)
        for (uint32_t s = 0; s < table->num_sources; s++) {
            const struct member *member = group->members[r];
            const struct member *there =
                is_here(member) ? group_member_for(table->sources[s].group, member->session) : NULL;
            table->seats[r * table->num_sources + s] = there ? there->rank : AMAX_NONE;
        }
}

/* How many sources, and other hosts with their own, have each bucket: the exchange of its amaxes
 * waits for as many. */
static void count_sharers(const struct group *group, struct amax_table *table)
{
    const struct hosts *hosts = group->collective->hosts;
    for (uint32_t b = 0; b < group->list->num_buckets; b++) {
        table->sharers[b] = hosts ? hosts->num_hosts - 1 : 0;
        for (uint32_t s = 0; s < table->num_sources; s++)
            table->sharers[b] +=
                table->sources[s].weights[group->list->buckets[b].first] != AMAX_NONE;
    }
}

int collective_make_table(struct collective *collective)
{
    const struct group *group = collective->group;
    struct amax_table *table = &collective->table;
    uint32_t num_sources = 0;
    collective_drop_table(collective);
    for (const struct group *s = group->sources; s; s = s->next_source)
        num_sources++;
    if (num_sources == 0)
        return F8_OK;
    table->sources = calloc(num_sources, sizeof(*table->sources));
    table->seats = calloc((size_t)num_sources * group->world_size, sizeof(*table->seats));
    table->sharers = calloc(group->list->num_buckets, sizeof(*table->sharers));
    table->posted = calloc(group->list->num_buckets, sizeof(*table->posted));
    table->posted_here = calloc(group->list->num_buckets, sizeof(*table->posted_here));
    table->amaxes = calloc(group->list->num_weights, sizeof(*table->amaxes));
    if (!table->sources || !table->seats || !table->sharers || !table->posted ||
        !table->posted_here || !table->amaxes)
        return F8_ENOMEM;
    for (struct group *s = group->sources; s; s = s->next_source)
        if (new_source(group, s, &table->sources[table->num_sources++]) < 0)
            return F8_ENOMEM;
    seat_ranks(group, table);
    count_sharers(group, table);
    return F8_OK;
}
