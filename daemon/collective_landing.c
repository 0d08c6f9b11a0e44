/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the devices found, once it is here: amaxes and counts go to the scaling state, and those
 * who waited for that are woken. On the loop.
 */
#include "daemon/collective_device.h"

#include <stdlib.h>

#include "daemon/collective_hosts.h"

#include "status.h"

static void landed_free(struct landed *landed)
{
    if (!landed)
        return;
    free(landed->kinds);
    free(landed->landing.amaxes);
    free(landed->landing.reduced);
    free(landed->landing.counts);
    free(landed);
}

static void results_landed(struct backend_landing *landing, int status);

static struct landed *landed_new(struct collective *collective, uint32_t capacity)
{
    struct landed *landed = calloc(1, sizeof(*landed));
    if (!landed)
        return NULL;
    landed->collective = collective;
    landed->capacity = capacity;
    landed->landing.landed = results_landed;
    landed->landing.owner = landed;
    landed->kinds = calloc(capacity, sizeof(*landed->kinds));
    landed->landing.amaxes = calloc(capacity, sizeof(*landed->landing.amaxes));
    landed->landing.counts = calloc(capacity, sizeof(*landed->landing.counts));
    bool spans = collective->hosts != NULL;
    if (spans)
        landed->landing.reduced = calloc(capacity, sizeof(*landed->landing.reduced));
    if (landed->kinds && landed->landing.amaxes && landed->landing.counts &&
        (landed->landing.reduced || !spans))
        return landed;
    landed_free(landed);
    return NULL;
}

/* A spare one with enough room, or a new one, so that a steady step takes no memory. */
struct landed *collective_take_landed(struct collective *collective, uint32_t count)
{
    struct landed **link = &collective->device->spare;
    while (*link && (*link)->capacity < count)
        link = &(*link)->next_spare;
    struct landed *landed = *link;
    if (!landed)
        return landed_new(collective, count);
    *link = landed->next_spare;
    return landed;
}

void collective_spare_landed(struct landed *landed)
{
    struct device_run *device = landed->collective->device;
    landed->next_spare = device->spare;
    device->spare = landed;
}

/* What casts met since the last landing: the devices only give totals. */
static void take_counts(
    struct group *group, uint32_t weight, const struct f8k_counts *total, struct findings *findings)
{
    struct f8k_counts *seen = &group->arena_counts[weight];
    struct f8k_counts since = {
        .saturated = total->saturated - seen->saturated, .nan = total->nan - seen->nan};
    scaling_counted(&group->scalings[weight], &since);
    collective_count_met(group->collective, findings, weight, &since, false);
    *seen = *total;
}

/* The i-th weight's amax: of a delayed one over the ranks here, which a sync reduces. */
static uint32_t landed_amax(const struct landed *landed, uint32_t i)
{
    const struct backend_landing *landing = &landed->landing;
    bool here = landed->kinds[i] == LANDED_CAST || !landing->reduced;
    return here ? landing->amaxes[i] : landing->reduced[i];
}

static void take_landed_weight(
    struct collective *collective, uint32_t weight, enum landed_kind kind, uint32_t amax)
{
    struct group *group = collective->group;
    struct scaling *scaling = &group->scalings[weight];
    switch (kind) {
    case LANDED_NOTHING:
        break;
    case LANDED_PRECOMPUTE:
        scaling_precompute_landed(scaling, &group->list->weights[weight], amax);
        collective_push(collective, weight);
        break;
    case LANDED_IN_GATHER:
        scaling_in_gather(scaling, &group->list->weights[weight], amax);
        break;
    case LANDED_CAST:
        scaling_cast(scaling, amax);
        break;
    }
}

/* The devices failed: what they have gathered is no more to be trusted than what they will. */
static void break_group(struct collective *collective, int status, const struct reason *reason)
{
    collective_arena_failed(collective);
    collective_break(collective, status, reason);
}

/*
 * Syncs, quiesces and those who would enter anew wait for what is on its way. The last thing: the
 * group may be gone after it.
 */
static void wake(struct collective *collective)
{
    const struct group *group = collective->group;
    if (group->amax_group)
        collective_wake(group->amax_group->collective);
    round_poke(collective->rounds);
    collective_end_quiesces(collective);
    collective_settle(collective);
}

static void results_landed(struct backend_landing *landing, int status)
{
    struct landed *landed = landing->owner;
    struct collective *collective = landed->collective;
    struct group *group = collective->group;
    struct findings findings = {0};
    for (uint32_t i = 0; i < landing->count && status == F8_OK; i++) {
        take_landed_weight(
            collective, landing->first + i, landed->kinds[i], landed_amax(landed, i));
        if (landed->counts)
            take_counts(group, landing->first + i, &landing->counts[i], &findings);
    }
    if (landed->counts && landing->count > 0 && status == F8_OK)
        collective_tell_findings(
            collective, group->list->weights[landing->first].bucket, &findings);
    collective->device->open--;
    if (status < 0)
        break_group(collective, status, &landing->reason);
    collective_spare_landed(landed);
    wake(collective);
}

bool collective_awaits_landing(const struct group *group)
{
    return group->collective->device && group->collective->device->open > 0;
}

bool collective_awaits_sources(const struct group *group)
{
    bool awaits = collective_awaits_landing(group);
    for (const struct group *s = group->sources; s; s = s->next_source)
        awaits = awaits || collective_awaits_landing(s);
    return awaits;
}

void collective_free_landed(struct device_run *device)
{
    while (device->spare) {
        struct landed *landed = device->spare;
        device->spare = landed->next_spare;
        landed_free(landed);
    }
}
