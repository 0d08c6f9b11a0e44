/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a group's collectives tell operators of as events: ranks that come and go, seals, failures,
 * and what gathers found in the weights. Called by the other files of the collective on the loop.
 * What a gather finds again and again is told once a minute for a bucket.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "daemon/collective_hosts.h"

#include "status.h"

/* Between two events of one kind about one bucket. */
#define AGAIN_MS 60000

#define TEXT_SIZE 1024

/* Of a bucket: what was told last. */
struct told {
    uint64_t saturated, stale, nan; /* loop time, ms, plus one; 0: never */
    uint64_t stale_version;
};

static void tell(const struct group *group, struct event *event)
{
    event->job = group->job->name;
    event->uid = group->job->uid;
    event->group = group->name;
    events_tell(group->collective->context->events, event);
}

void collective_tell_rank(const struct member *member, enum f8_proto_event kind)
{
    static const char *const words[] = {[F8_PROTO_EVENT_RANK_JOINED] = "joined",
        [F8_PROTO_EVENT_RANK_LEFT] = "left",
        [F8_PROTO_EVENT_RANK_DIED] = "died: it ended without a goodbye"};
    struct reason text;
    (void)reason_set(&text, F8_OK, "rank %u (pid %u) %s", member->rank, member->pid, words[kind]);
    tell(member->group, &(struct event){.kind = kind,
                            .has_rank = true,
                            .rank = member->rank,
                            .pid = member->pid,
                            .value = (double)member->generation,
                            .text = text.text});
}

void collective_tell_sealed(const struct group *group)
{
    struct reason text;
    (void)reason_set(&text, F8_OK,
        "sealed, generation %" PRIu64 ": %u ranks, %u weights in %u buckets, %" PRIu64
        " bytes of arena",
        group->generation, group->world_size, group->list->num_weights, group->list->num_buckets,
        group->arena_bytes);
    tell(group, &(struct event){.kind = F8_PROTO_EVENT_GROUP_SEALED,
                    .value = group->list->num_weights,
                    .text = text.text});
}

/* Who is to blame: the rank that the cause names, or the first that is late; NULL: none of them. */
static const struct member *culprit(
    const struct collective *collective, const struct round_cause *cause)
{
    const struct group *group = collective->group;
    uint32_t rank = group->world_size;
    if (cause->trouble == ROUND_OVERDUE && !cause->outside && !cause->place)
        for (rank = 0; rank < group->world_size; rank++)
            if (round_missing(collective->rounds, cause->number, rank))
                break;
    if (cause->trouble == ROUND_MISMATCH || cause->trouble == ROUND_RANK_DIED ||
        cause->trouble == ROUND_RANK_LEFT)
        rank = cause->rank;
    return rank < group->world_size ? collective_holder(group, rank) : NULL;
}

void collective_tell_broken(
    const struct collective *collective, const struct round_cause *cause, bool at_rest)
{
    const struct group *group = collective->group;
    const struct member *member = culprit(collective, cause);
    bool gather = cause->kind == ROUND_GATHER && cause->trouble != ROUND_RANK_DIED &&
                  cause->trouble != ROUND_RANK_LEFT && cause->trouble != ROUND_OTHER_GROUP;
    struct round_head head;
    struct event event = {
        .kind = at_rest ? F8_PROTO_EVENT_GROUP_BROKEN : F8_PROTO_EVENT_ROUND_FAILED,
        .value = (double)cause->number,
        .text = group->cause.text,
    };
    if (member) {
        event.has_rank = true;
        event.rank = member->rank;
        event.pid = member->pid;
        event.host = member->far ? hosts_name_of(collective->hosts, member) : NULL;
    }
    if (gather)
        event.bucket = group->list->buckets[cause->bucket].name;
    else if (round_head(collective->rounds, &head) && head.run.kind == ROUND_GATHER)
        event.bucket = group->list->buckets[head.run.bucket].name;
    tell(group, &event);
}

void collective_tell_host_lost(
    const struct hosts *hosts, const struct world_host *host, const struct reason *why)
{
    if (hosts->collective)
        tell(hosts->collective->group, &(struct event){.kind = F8_PROTO_EVENT_HOST_LOST,
                                           .host = host->name,
                                           .value = host->num_ranks,
                                           .text = why->text});
}

/* ---- what gathers find ---- */

int collective_prepare_told(struct collective *collective)
{
    collective_drop_told(collective);
    collective->told = calloc(collective->group->list->num_buckets, sizeof(*collective->told));
    return collective->told ? F8_OK : F8_ENOMEM;
}

void collective_drop_told(struct collective *collective)
{
    free(collective->told);
    collective->told = NULL;
}

/* Elements of a weight that are cast on this host. */
static uint64_t count_here(const struct group *group, uint32_t weight)
{
    const struct weight *w = &group->list->weights[weight];
    uint64_t count = 0;
    if (!group->collective->hosts)
        return w->rows * w->cols;
    for (uint32_t r = 0; r < group->world_size; r++) {
        const struct member *member = group_member_of(group, r);
        if (member && !member->far)
            count += weight_shard_count(w, group->world_size, r);
    }
    return count;
}

/* Counts of devices may be those of several gathers. */
static double part_of(const struct group *group, uint32_t weight, uint64_t elements)
{
    uint64_t all = count_here(group, weight);
    return all > elements ? (double)elements / (double)all : 1;
}

void collective_note(const struct collective *collective, struct findings *findings,
    uint32_t weight, const struct f8k_counts *counts, bool stale)
{
    const struct group *group = collective->group;
    double part = counts->saturated ? part_of(group, weight, counts->saturated) : 0;
    if (part * 1e6 > collective->context->config->saturation_ppm) {
        findings->num_saturating++;
        if (part > findings->saturated) {
            findings->saturated = part;
            findings->saturating = weight;
        }
    }
    if (counts->nan > findings->nan) {
        findings->nan = counts->nan;
        findings->with_nan = weight;
    }
    if (stale) {
        uint64_t version = group->scalings[weight].version;
        if (findings->num_stale++ == 0)
            findings->stale = weight;
        if (version > findings->stale_version)
            findings->stale_version = version;
    }
}

/* Whether it is time to tell of this again, which is noted. */
static bool is_time(const struct collective *collective, uint64_t *last)
{
    uint64_t now = uv_now(collective->context->loop) + 1;
    if (*last && now - *last < AGAIN_MS)
        return false;
    *last = now;
    return true;
}

/* An event about a weight, which the text begins with. */
__attribute__((format(printf, 4, 5))) static void tell_weight(
    const struct group *group, struct event *event, uint32_t weight, const char *format, ...)
{
    const struct weight *w = &group->list->weights[weight];
    char text[TEXT_SIZE];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    event->text = text;
    event->weight = w->name;
    event->bucket = group->list->buckets[w->bucket].name;
    tell(group, event);
}

static void tell_saturation(const struct group *group, const struct findings *findings)
{
    char others[64] = "";
    if (findings->num_saturating > 1)
        (void)snprintf(others, sizeof(others), "; %u weights of the bucket are over the threshold",
            findings->num_saturating);
    tell_weight(group,
        &(struct event){.kind = F8_PROTO_EVENT_SATURATION, .value = findings->saturated},
        findings->saturating, "weight %s: %.3g %% of its elements saturated in a gather%s",
        group->list->weights[findings->saturating].name, findings->saturated * 100, others);
}

static void tell_stale(const struct group *group, const struct findings *findings)
{
    const struct scaling *scaling = &group->scalings[findings->stale];
    tell_weight(group,
        &(struct event){.kind = F8_PROTO_EVENT_STALE_SCALE, .value = findings->num_stale},
        findings->stale,
        "weight %s was gathered at version %" PRIu64 " with the scale of version %" PRIu64
        "; %u of the bucket's weights: precompute after each change",
        group->list->weights[findings->stale].name, scaling->version, scaling->scale_version,
        findings->num_stale);
}

static void tell_nan(const struct group *group, const struct findings *findings)
{
    tell_weight(group,
        &(struct event){.kind = F8_PROTO_EVENT_NAN_FOUND, .value = (double)findings->nan},
        findings->with_nan, "weight %s has %" PRIu64 " elements that are NaN",
        group->list->weights[findings->with_nan].name, findings->nan);
}

void collective_tell_findings(
    struct collective *collective, uint32_t bucket, const struct findings *findings)
{
    const struct group *group = collective->group;
    struct told *told = &collective->told[bucket];
    if (findings->num_saturating > 0 && is_time(collective, &told->saturated))
        tell_saturation(group, findings);
    if (findings->nan > 0 && is_time(collective, &told->nan))
        tell_nan(group, findings);
    if (findings->stale_version > told->stale_version && is_time(collective, &told->stale)) {
        told->stale_version = findings->stale_version;
        tell_stale(group, findings);
    }
}
