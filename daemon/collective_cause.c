/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sentences for what breaks a group: they name the rank, the pid, the bucket or weight, and
 * the collective, and are what every rank of the group gets to read. On the loop.
 */
#include "daemon/collective_hosts.h"

#include <inttypes.h>
#include <string.h>

#include "daemon/log.h"
#include "status.h"

#define NAME_TEXT 384

char *collective_describe(
    const struct group *group, enum round_kind kind, uint32_t bucket, char *buffer, size_t size)
{
    static const char *const names[] = {[ROUND_SEAL] = "the seal",
        [ROUND_PRECOMPUTE] = "precompute",
        [ROUND_SYNC] = "sync",
        [ROUND_INVALIDATE] = "invalidate"};
    if (kind == ROUND_GATHER)
        (void)snprintf(buffer, size, "gather of %s", group->list->buckets[bucket].name);
    else
        (void)snprintf(buffer, size, "%s", names[kind]);
    return buffer;
}

/* "pid 4711", "pid 4711 on host b"; a host that cannot see a rank's pid, as it is in a container of
 * its own, tells none: "on host b". */
#define WHERE_SIZE 96

static const char *place_of(
    const struct member *member, const struct hosts *hosts, char where[WHERE_SIZE])
{
    if (!member->far)
        (void)snprintf(where, WHERE_SIZE, "pid %u", member->pid);
    else if (member->pid == 0)
        (void)snprintf(where, WHERE_SIZE, "on host %.64s", hosts_name_of(hosts, member));
    else
        (void)snprintf(
            where, WHERE_SIZE, "pid %u on host %.64s", member->pid, hosts_name_of(hosts, member));
    return where;
}

const char *collective_who(const struct member *member, char buffer[COLLECTIVE_WHO])
{
    const struct hosts *hosts = member->group->collective->hosts;
    char where[WHERE_SIZE];
    (void)snprintf(
        buffer, COLLECTIVE_WHO, "rank %u (%s)", member->rank, place_of(member, hosts, where));
    return buffer;
}

void collective_append_rank(struct reason *reason, const struct group *group, uint32_t rank)
{
    const struct member *member = collective_holder(group, rank);
    const char *of = hosts_name_of_rank(group->collective->hosts, rank);
    char where[WHERE_SIZE];
    if (member)
        reason_append(reason, "rank %u (%s%s)", rank,
            place_of(member, group->collective->hosts, where),
            group_member_of(group, rank) ? "" : ", not re-joined");
    else
        reason_append(
            reason, "rank %u (not there%s%.64s)", rank, of ? ", of host " : "", of ? of : "");
}

static void mismatch_text(
    const struct group *group, const struct round_cause *cause, struct reason *reason)
{
    char wanted[NAME_TEXT], other[NAME_TEXT];
    collective_append_rank(reason, group, cause->rank);
    reason_append(reason, " asked for %s where ",
        collective_describe(group, cause->kind, cause->bucket, wanted, sizeof(wanted)));
    collective_append_rank(reason, group, cause->other_rank);
    reason_append(reason, " asked for %s, collective %" PRIu64 " of group %s",
        collective_describe(group, cause->other_kind, cause->other_bucket, other, sizeof(other)),
        cause->number, group->name);
}

/* Lists the ranks that have not asked for the collective. */
static void append_late(
    struct reason *reason, const struct collective *collective, const struct round_cause *cause)
{
    const struct group *group = collective->group;
    const char *separator = "";
    for (uint32_t r = 0; r < group->world_size; r++) {
        if (!round_missing(collective->rounds, cause->number, r))
            continue;
        reason_append(reason, "%s", separator);
        collective_append_rank(reason, group, r);
        if (cause->kind == ROUND_GATHER && round_holds(collective->rounds, r, cause->bucket))
            reason_append(reason, " still holding it");
        separator = ", ";
    }
}

/* Lists who holds what in the way of a gather: its bucket, or the slots. */
static void append_holders(
    struct reason *reason, const struct collective *collective, const struct round_cause *cause)
{
    const struct group *group = collective->group;
    const struct weight_list *list = group->list;
    const char *separator = "";
    for (uint32_t b = 0; b < list->num_buckets; b++)
        for (uint32_t r = 0; r < group->world_size; r++) {
            bool in_the_way =
                list->buckets[cause->bucket].shared ? list->buckets[b].shared : b == cause->bucket;
            if (!in_the_way || !round_holds(collective->rounds, r, b))
                continue;
            reason_append(reason, "%s", separator);
            collective_append_rank(reason, group, r);
            reason_append(reason, " holds %s", list->buckets[b].name);
            separator = ", ";
        }
}

static void overdue_text(
    const struct collective *collective, const struct round_cause *cause, struct reason *reason)
{
    char what[NAME_TEXT];
    const struct group *group = collective->group;
    reason_append(reason, "the deadline of %s, collective %" PRIu64 " of group %s, passed: ",
        collective_describe(group, cause->kind, cause->bucket, what, sizeof(what)), cause->number,
        group->name);
    if (cause->outside && cause->kind == ROUND_SEAL) {
        reason_append(reason, "its hosts have not met");
    } else if (cause->outside) {
        if (group->amax_group)
            reason_append(
                reason, "it waited for the ranks of amax group %s", group->amax_group->name);
        else
            reason_append(reason, "it waited for what its devices were to find");
    } else if (cause->place) {
        reason_append(reason, "no place became free, ");
        append_holders(reason, collective, cause);
    } else {
        append_late(reason, collective, cause);
        reason_append(reason, " did not ask for it");
    }
}

static void explain(
    const struct collective *collective, const struct round_cause *cause, struct reason *reason)
{
    const struct group *group = collective->group;
    reason->text[0] = '\0';
    switch (cause->trouble) {
    case ROUND_MISMATCH:
        mismatch_text(group, cause, reason);
        break;
    case ROUND_OVERDUE:
        overdue_text(collective, cause, reason);
        break;
    case ROUND_RANK_DIED:
    case ROUND_RANK_LEFT:
        collective_append_rank(reason, group, cause->rank);
        reason_append(reason, " %s; group %s is broken from collective %" PRIu64 " on",
            cause->trouble == ROUND_RANK_DIED ? "died" : "left", group->name, cause->number);
        break;
    case ROUND_OTHER_GROUP:
        *reason = collective->broken_by;
        break;
    case ROUND_RUN_FAILED:
        *reason = collective->refusal;
        break;
    }
}

/* What the other hosts do not find out by themselves. Of ranks that died or left they are told. */
static void tell_hosts(
    struct hosts *hosts, const struct round_cause *cause, const struct reason *reason)
{
    /* A rank that leaves as the group forms may be no loss where nobody has asked for the seal. */
    bool known = cause->trouble == ROUND_RANK_DIED ||
                 (cause->trouble == ROUND_RANK_LEFT && hosts->collective->was_sealed);
    if (!known && !hosts->broken_afar)
        hosts_tell_broke(hosts, cause->status, reason);
}

/*
 * With the rank that it came from, where it was one. A rank that leaves when nothing is open is how
 * a training run ends: the group is broken for those that go on, but nothing is amiss.
 */
static void log_cause(const struct group *group, const struct round_cause *cause, bool at_rest)
{
    struct log_fields fields = collective_fields(group);
    const struct member *member = NULL;
    struct reason who = {.text = ""};
    bool by_rank = cause->trouble == ROUND_RANK_DIED || cause->trouble == ROUND_RANK_LEFT;
    if (by_rank || cause->trouble == ROUND_MISMATCH) {
        fields.rank = LOG_RANK(cause->rank);
        member = collective_holder(group, cause->rank);
    }
    if (member) {
        fields.pid = member->pid;
        fields.host = member->far ? hosts_name_of(group->collective->hosts, member) : NULL;
    }
    if (cause->kind == ROUND_GATHER && !by_rank && cause->trouble != ROUND_OTHER_GROUP)
        fields.bucket = group->list->buckets[cause->bucket].name;
    if (!at_rest) {
        log_of(&fields, LOG_LEVEL_WARNING, "job %s, group %s: %s", group->job->name, group->name,
            group->cause.text);
        return;
    }
    if (cause->trouble == ROUND_RANK_LEFT)
        collective_append_rank(&who, group, cause->rank);
    log_of(&fields, LOG_LEVEL_INFO, "job %s, group %s: ended%s%s%s", group->job->name, group->name,
        who.text[0] != '\0' ? ": " : ", as a group did that it is linked to", who.text,
        who.text[0] != '\0' ? " left" : "");
}

void collective_broken(void *context, const struct round_cause *cause)
{
    struct collective *collective = context;
    struct group *group = collective->group;
    if (group->state == GROUP_BROKEN)
        return; /* a rank died while the seal ran: the cause is known */
    struct round_head head;
    bool at_rest = cause->trouble == ROUND_RANK_LEFT ||
                   (cause->trouble == ROUND_OTHER_GROUP && collective->broken_at_rest);
    at_rest = at_rest && !round_head(collective->rounds, &head);
    group->state = GROUP_BROKEN;
    collective->cause_status = cause->status;
    explain(collective, cause, &group->cause);
    if (collective->hosts)
        tell_hosts(collective->hosts, cause, &group->cause);
    log_cause(group, cause, at_rest);
    collective_tell_broken(collective, cause, at_rest);
    if (!at_rest)
        collective_count_failed(collective, cause->trouble);
    collective_break_linked(collective, cause->status, at_rest);
}

static uint64_t version_of(const struct collective *collective, uint32_t rank, uint32_t weight)
{
    uint32_t there;
    const struct member *member = collective_shard_of(collective, rank, weight, &there);
    return member->versions[there];
}

/* Of an amax group's ranks on other hosts it is not known here which shards they have. */
static bool has_version(const struct collective *collective, uint32_t rank)
{
    return collective->table.num_sources == 0 || !collective->run.members[rank]->far;
}

/* Two ranks say that they are at different values of a weight. */
static int version_mismatch(
    struct collective *collective, uint32_t weight, uint32_t rank, uint32_t other)
{
    const struct group *group = collective->group;
    const struct round_run *round = &collective->run.round;
    struct reason *reason = &collective->refusal;
    char what[NAME_TEXT];
    reason->text[0] = '\0';
    reason_append(reason, "weight %s: ", group->list->weights[weight].name);
    collective_append_rank(reason, group, rank);
    reason_append(
        reason, " is at version %" PRIu64 " where ", version_of(collective, rank, weight));
    collective_append_rank(reason, group, other);
    reason_append(reason, " is at version %" PRIu64 ", %s, collective %" PRIu64 " of group %s",
        version_of(collective, other, weight),
        collective_describe(group, round->kind, round->bucket, what, sizeof(what)), round->number,
        group->name);
    return F8_EMISMATCH;
}

/* The version that all ranks agree on; unknown as long as one does not know. */
static int agree_on_version(struct collective *collective, uint32_t weight, uint64_t *ret_version)
{
    uint32_t world_size = collective->group->world_size;
    uint32_t first = 0;
    while (!has_version(collective, first))
        first++;
    uint64_t version = version_of(collective, first, weight);
    for (uint32_t r = first; r < world_size; r++)
        if (has_version(collective, r) &&
            version_of(collective, r, weight) == SCALING_VERSION_UNKNOWN)
            version = SCALING_VERSION_UNKNOWN;
    for (uint32_t r = first + 1; r < world_size && version != SCALING_VERSION_UNKNOWN; r++)
        if (has_version(collective, r) && version_of(collective, r, weight) != version)
            return version_mismatch(collective, weight, r, first);
    *ret_version = version;
    return F8_OK;
}

int collective_check_versions(
    struct collective *collective, uint32_t first, uint32_t count, struct run_weight *weights)
{
    for (uint32_t w = first; w < first + count; w++) {
        int status = agree_on_version(collective, w, &weights[w].version);
        if (status < 0)
            return status;
    }
    return F8_OK;
}
