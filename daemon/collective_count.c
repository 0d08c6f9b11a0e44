/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a group's collectives add to the daemon's counters: when a gather was first asked for, when
 * by the last rank, when it ended, what it met, and since when ranks hold what it gave. Called by
 * the other files of the collective on the loop. The rounds themselves read no clock and keep times
 * in milliseconds, which is longer than most gathers take.
 */
#include "daemon/collective_private.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "status.h"

/* Gathers that are open at once in most runs; more are found room for as they come. */
#define FIRST_TIMES 16

/* An open gather; number 0: free. */
struct asked {
    uint64_t number;
    uint64_t first_ns;
    uint32_t ranks; /* that have asked */
};

/* By number modulo `capacity`, a power of two. Open numbers follow one another. */
struct asked_times {
    struct asked *asked; /* owned */
    uint32_t capacity;
    uint64_t *given_ms; /* owned: by bucket, the loop's time as its last gather ended */
    uint32_t num_given;
};

int collective_count_init(struct collective *collective)
{
    struct counters *counters = &collective->context->counters;
    collective->times = calloc(1, sizeof(*collective->times));
    if (!collective->times)
        return F8_ENOMEM;
    collective->listed = counters->listed < COUNTERS_MAX_GROUPS;
    counters->listed += collective->listed;
    counters->has_unlisted = counters->has_unlisted || !collective->listed;
    return F8_OK;
}

void collective_count_done(struct collective *collective)
{
    collective->context->counters.listed -= collective->listed;
    free(collective->times->asked);
    free(collective->times->given_ms);
    free(collective->times);
}

const struct counters_group *collective_counters(const struct group *group)
{
    return &group->collective->counters;
}

bool collective_is_listed(const struct group *group)
{
    return group->collective->listed;
}

/* Adds to what the group has met, and, if it has no name in metrics, to what all such have. */
#define COUNT(collective, field, count)                                                            \
    do {                                                                                           \
        (collective)->counters.field += (count);                                                   \
        if (!(collective)->listed)                                                                 \
            (collective)->context->counters.other.field += (count);                                \
    } while (0)

void collective_count_restart(struct collective *collective)
{
    struct asked_times *times = collective->times;
    if (times->asked)
        memset(times->asked, 0, times->capacity * sizeof(*times->asked));
}

static struct asked *at(const struct asked_times *times, uint64_t number)
{
    return &times->asked[number & (times->capacity - 1)];
}

/* Twice the room. Without memory the gather's time is not taken; the gather goes on. */
static bool grow(struct asked_times *times)
{
    uint32_t capacity = times->capacity ? times->capacity * 2 : FIRST_TIMES;
    struct asked_times larger = {
        .asked = calloc(capacity, sizeof(*larger.asked)), .capacity = capacity};
    if (!larger.asked)
        return false;
    for (uint32_t i = 0; i < times->capacity; i++)
        if (times->asked[i].number)
            *at(&larger, times->asked[i].number) = times->asked[i];
    free(times->asked);
    times->asked = larger.asked;
    times->capacity = capacity;
    return true;
}

/* Where the collective's time is or begins; NULL: there is no room. */
static struct asked *find(struct asked_times *times, uint64_t number, uint64_t now)
{
    while (
        times->capacity == 0 || (at(times, number)->number && at(times, number)->number != number))
        if (!grow(times))
            return NULL;
    struct asked *asked = at(times, number);
    if (!asked->number)
        *asked = (struct asked){.number = number, .first_ns = now};
    return asked;
}

int collective_ask_round(
    struct collective *collective, uint32_t rank, const struct round_request *request)
{
    uint64_t number = round_next_of(collective->rounds, rank);
    /* Before the request: it may start the gather, or break the group. */
    uint64_t now = uv_hrtime();
    int status = round_ask(collective->rounds, uv_now(collective->context->loop), rank, request);
    if (status != ROUND_PENDING || request->kind != ROUND_GATHER)
        return status;
    struct asked *asked = find(collective->times, number, now);
    if (asked && ++asked->ranks == collective->group->world_size)
        histogram_observe(&collective->context->counters.wait, now - asked->first_ns);
    return status;
}

void collective_count_met(struct collective *collective, struct findings *findings, uint32_t weight,
    const struct f8k_counts *counts, bool stale)
{
    struct counters *all = &collective->context->counters;
    if (!counts->saturated && !counts->nan && !stale)
        return;
    all->saturated += counts->saturated;
    all->nan += counts->nan;
    all->stale += stale;
    COUNT(collective, saturated, counts->saturated);
    COUNT(collective, nan, counts->nan);
    COUNT(collective, stale, stale);
    collective_note(collective, findings, weight, counts, stale);
}

/* The bucket is the ranks' from now on. Without memory how long they have it is not known. */
static void note_given(struct collective *collective, uint32_t bucket)
{
    struct asked_times *times = collective->times;
    uint32_t num_buckets = collective->group->list->num_buckets;
    if (times->num_given < num_buckets) {
        uint64_t *given_ms = realloc(times->given_ms, num_buckets * sizeof(*given_ms));
        if (!given_ms)
            return;
        for (uint32_t b = times->num_given; b < num_buckets; b++)
            given_ms[b] = uv_now(collective->context->loop);
        times->given_ms = given_ms;
        times->num_given = num_buckets;
    }
    times->given_ms[bucket] = uv_now(collective->context->loop);
}

/* How many of this host's ranks hold the bucket. */
static uint32_t count_holders(const struct group *group, uint32_t bucket)
{
    uint32_t count = 0;
    for (uint32_t r = 0; r < group->world_size; r++)
        if (group->members[r] && !group->members[r]->far)
            count += round_place(group->collective->rounds, r, bucket) != ROUND_NO_PLACE;
    return count;
}

void collective_leases(const struct group *group, struct collective_leases *ret_leases)
{
    const struct collective *collective = group->collective;
    const struct asked_times *times = collective->times;
    uint32_t held = round_num_held(collective->rounds);
    uint64_t now = uv_now(collective->context->loop);
    *ret_leases = (struct collective_leases){.count = 0};
    for (uint32_t b = 0; ret_leases->count < held && b < group->list->num_buckets; b++) {
        uint32_t holders = count_holders(group, b);
        ret_leases->count += holders;
        if (holders > 0 && b < times->num_given && now - times->given_ms[b] > ret_leases->oldest_ms)
            ret_leases->oldest_ms = now - times->given_ms[b];
    }
}

void collective_count_gather(struct collective *collective)
{
    const struct run *run = &collective->run;
    struct counters *all = &collective->context->counters;
    for (uint32_t w = run->first; w < run->first + run->count; w++) {
        const struct weight *weight = &collective->group->list->weights[w];
        uint64_t bytes = weight_wire_bytes(weight);
        all->bytes[counters_wire(weight->wire)] += bytes;
        COUNT(collective, bytes, bytes);
    }
    note_given(collective, run->round.bucket);
    collective->group->gathers++;
    collective->context->gathers++;
    COUNT(collective, gathers, 1);
    struct asked *asked =
        collective->times->capacity ? at(collective->times, run->round.number) : NULL;
    if (!asked || asked->number != run->round.number)
        return;
    histogram_observe(&all->gather, uv_hrtime() - asked->first_ns);
    asked->number = 0;
}

void collective_count_failed(struct collective *collective, enum round_trouble trouble)
{
    static const enum counters_cause causes[] = {
        [ROUND_MISMATCH] = COUNTERS_MISMATCH,
        [ROUND_OVERDUE] = COUNTERS_DEADLINE,
        [ROUND_RANK_DIED] = COUNTERS_RANK_DIED,
        [ROUND_RANK_LEFT] = COUNTERS_RANK_LEFT,
        [ROUND_OTHER_GROUP] = COUNTERS_ELSEWHERE,
        [ROUND_RUN_FAILED] = COUNTERS_WORK,
    };
    collective->context->failed++;
    collective->context->counters.failed[causes[trouble]]++;
    COUNT(collective, failed, 1);
}
