/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a member says of its shards between collectives, and asks of them: that their values have
 * changed, that one lies elsewhere, that nothing reads them any more. On the loop.
 */
#include "daemon/collective_hosts.h"

#include <inttypes.h>
#include <stdlib.h>

#include "status.h"

/* Makes room for one more open quiesce. */
static int reserve_quiesce(struct member *member)
{
    if (member->num_quiesces < member->quiesces_capacity)
        return F8_OK;
    uint32_t capacity = 2 * member->quiesces_capacity + 4;
    uint64_t *tags = realloc(member->quiesces, capacity * sizeof(*tags));
    if (!tags)
        return F8_ENOMEM;
    member->quiesces = tags;
    member->quiesces_capacity = capacity;
    return F8_OK;
}

/* Several may be open: threads each wait, and a wait that a signal ended is begun anew. */
int collective_quiesce(struct member *member, uint64_t tag, struct reason *reason)
{
    struct group *group = member->group;
    if (member->generation != group->generation)
        return F8_OK; /* another began the next generation, so nothing of this one is left */
    if (reserve_quiesce(member) < 0)
        return reason_set(
            reason, F8_ENOMEM, "out of memory while rank %u waits for quiet", member->rank);
    if (round_quiesce(group->collective->rounds, member->rank, tag) == F8_OK &&
        !collective_awaits_landing(group))
        return F8_OK;
    member->quiesces[member->num_quiesces++] = tag;
    return ROUND_PENDING;
}

void collective_answer_quiesces(struct member *member)
{
    const struct collective *collective = member->group->collective;
    for (uint32_t i = 0; i < member->num_quiesces; i++)
        collective->context->listener->done(member, member->quiesces[i], F8_OK, NULL);
    member->num_quiesces = 0;
}

void collective_end_quiesces(struct collective *collective)
{
    const struct group *group = collective->group;
    if (collective_awaits_landing(group))
        return;
    for (uint32_t r = 0; r < group->world_size; r++) {
        struct member *member = group->members[r];
        if (member && member->num_quiesces > 0 &&
            round_quiesce(collective->rounds, r, member->quiesces[0]) == F8_OK)
            collective_answer_quiesces(member);
    }
}

/* The first bucket with an open request of the member that reads one of these weights. */
static int check_unread(const struct member *member, uint32_t first, uint32_t count,
    const char *what, struct reason *reason)
{
    const struct group *group = member->group;
    const struct rounds *rounds = group->collective->rounds;
    const struct weight_list *list = group->list;
    bool own = round_asked(rounds, member->rank, ROUND_PRECOMPUTE);
    bool foreign = collective_reads_for(member, ROUND_PRECOMPUTE);
    for (uint32_t w = first; w < first + count; w++) {
        const struct weight *weight = &list->weights[w];
        if (round_reads(rounds, member->rank, weight->bucket))
            return reason_set(reason, F8_EBUSY,
                "weight %s is read by the open gather of bucket %s: wait for it before %s",
                weight->name, list->buckets[weight->bucket].name, what);
        if (weight->flavour == F8_PROTO_DYNAMIC && (weight->amax_group ? foreign : own))
            return reason_set(reason, F8_EBUSY,
                "weight %s of bucket %s is read by an open precompute: wait for it before %s",
                weight->name, list->buckets[weight->bucket].name, what);
    }
    return F8_OK;
}

static int check_weights(
    const struct member *member, uint32_t first, uint32_t count, struct reason *reason)
{
    int status = collective_check_member(member, GROUP_SEALED, reason);
    if (status == F8_OK)
        status = collective_check_has_shards(member->group, reason);
    if (status < 0)
        return status;
    uint32_t num_weights = member->group->list->num_weights;
    if (first > num_weights || count > num_weights - first)
        return reason_set(reason, F8_ENOENT, "weights %u to %" PRIu64 ": group %s has %u weights",
            first, (uint64_t)first + count, member->group->name, num_weights);
    return F8_OK;
}

int collective_changed(struct member *member, uint32_t first, uint32_t count, struct reason *reason)
{
    int status = check_weights(member, first, count, reason);
    if (status == F8_OK)
        status = check_unread(member, first, count, "changing it", reason);
    if (status < 0)
        return status;
    for (uint32_t w = first; w < first + count; w++)
        member->versions[w]++;
    struct hosts *hosts = member->group->collective->hosts;
    if (hosts && count > 0) /* with none a rank only asks whether the group is whole */
        hosts_tell_changed(hosts, member, first, count);
    return F8_OK;
}

int collective_check_move(struct member *member, uint32_t weight, struct reason *reason)
{
    int status = check_weights(member, weight, 1, reason);
    return status < 0 ? status : check_unread(member, weight, 1, "moving it", reason);
}
