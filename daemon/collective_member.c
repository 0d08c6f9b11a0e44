/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Generations of a group, and who takes part in them: see collective.h. On the loop.
 */
#include "daemon/collective_hosts.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "status.h"

static int next_generation(struct collective *collective)
{
    struct group *group = collective->group;
    struct rounds *rounds = collective_forming(collective, round_next(collective->rounds));
    if (!rounds)
        return F8_ENOMEM;
    free(collective->rounds);
    collective->rounds = rounds;
    collective->was_sealed = false;
    collective->cause_status = 0;
    collective_drop_entries(collective);
    group_unlink(group);
    group->generation++;
    collective->warned_stale = false;
    group->state = GROUP_FORMING;
    if (collective->next_hosts) {
        hosts_release(collective->hosts);
        collective->hosts = collective->next_hosts;
        collective->next_hosts = NULL;
    } else if (collective->hosts) {
        hosts_next_era(collective->hosts);
    }
    return F8_OK;
}

/* Ranks of this host that have entered the generation. */
static const struct member *some_entered(const struct group *group, uint32_t *ret_count)
{
    const struct member *some = NULL;
    *ret_count = 0;
    for (uint32_t r = 0; r < group->world_size; r++) {
        const struct member *member = group->members[r];
        if (!member || member->far || member->generation != group->generation)
            continue;
        some = some ? some : member;
        (*ret_count)++;
    }
    return some;
}

static bool same_id(const struct hosts *hosts, const struct collective_span *span)
{
    return hosts && span->id && memcmp(hosts->id, span->id, sizeof(hosts->id)) == 0;
}

/* Another rank of this host has entered the generation: this one must agree with it. */
static int check_others(const struct group *group, uint32_t rank, bool again,
    const struct collective_span *span, struct reason *reason)
{
    const struct hosts *hosts = group->collective->hosts;
    uint32_t count;
    const struct member *other = some_entered(group, &count);
    bool as_it_was = again && !span->id && hosts && hosts->era > 1;
    if (as_it_was || (!hosts && !span->id))
        return F8_OK;
    if (!same_id(hosts, span))
        return reason_set(reason, F8_EMISMATCH,
            "rank %u enters group %s %s where rank %u (pid %u) did %s", rank, group->name,
            span->id ? "with a unique id" : "without a unique id", other->rank, other->pid,
            !hosts ? "without"
            : span->id
                ? "with another"
                : "with one: give the same, to f8_group_join_hosts or f8_group_rejoin_hosts");
    if (hosts->local_ranks != span->local_ranks)
        return reason_set(reason, F8_EMISMATCH,
            "rank %u says that group %s has %u ranks on this host where rank %u (pid %u) says %u",
            rank, group->name, span->local_ranks, other->rank, other->pid, hosts->local_ranks);
    if (!hosts_formed(hosts) && count == hosts->local_ranks)
        return reason_set(reason, F8_ELIMIT,
            "rank %u is one more than the %u ranks that group %s has on this host, as its ranks "
            "say",
            rank, count, group->name);
    return F8_OK;
}

/*
 * Whether the rank brings another unique id than those who have entered, without whom the group can
 * do nothing as they wait for it. Of two the one that comes last counts: they are made anew when
 * the one before is of no use any more.
 */
static bool supersedes(const struct group *group, uint32_t rank, const struct collective_span *span)
{
    const struct hosts *hosts = group->collective->hosts;
    uint32_t count;
    struct round_head head; /* no seal runs without this rank; that of a rank which left may */
    bool runs = round_head(group->collective->rounds, &head) && head.running;
    return group->state == GROUP_FORMING && some_entered(group, &count) && span->id && hosts &&
           !same_id(hosts, span) && !group_member_of(group, rank) && !runs;
}

/* Those who wait with the id before hear of it, on all hosts, instead of at their deadlines. */
static void supersede(struct group *group, uint32_t rank, const char *new_root)
{
    struct collective *collective = group->collective;
    struct reason reason, unheard;
    uint32_t count;
    char root[WORLD_ROOT_SIZE] = "?";
    const struct member *other = some_entered(group, &count);
    (void)world_check_id(collective->hosts->id, root, &unheard);
    (void)reason_set(&reason, F8_EMISMATCH,
        "rank %u enters group %.120s with the unique id of root %s, rank %u (pid %u) did with that "
        "of root %s: give the newest to f8_group_rejoin_hosts",
        rank, group->name, new_root, other->rank, other->pid, root);
    collective_break(collective, F8_EMISMATCH, &reason);
    collective_settle(collective);
}

/* A rank that comes to hosts that meet, or have met, must be one of those that this host has
 * reported. */
static int check_place(const struct group *group, uint32_t rank, struct reason *reason)
{
    const struct hosts *hosts = group->collective->hosts;
    if (hosts && hosts->over.text[0] != '\0')
        return reason_set(reason, F8_EORDER,
            "group %.100s needs a new unique id (f8_group_rejoin_hosts): %.380s", group->name,
            hosts->over.text);
    if (hosts && hosts->world && !world_has_here(hosts->world, rank))
        return reason_set(reason, F8_EEXIST,
            "rank %u of group %s is %s, until it has a new unique id", rank, group->name,
            hosts_formed(hosts) ? "on another host" : "none of those that meet from this host");
    return F8_OK;
}

/* The hosts are others from now on, or from the next generation. F8_ENOMEM. */
static int change_hosts(struct collective *collective, const struct collective_span *span)
{
    if (collective->group->state == GROUP_BROKEN)
        return hosts_new(collective, span, &collective->next_hosts);
    struct hosts *old = collective->hosts;
    /* No rank of this host takes part yet, but ranks of those before may have. */
    struct rounds *rounds = collective_forming(collective, round_next(collective->rounds));
    if (!rounds)
        return F8_ENOMEM;
    if (hosts_new(collective, span, &collective->hosts) < 0) {
        free(rounds);
        return F8_ENOMEM;
    }
    hosts_release(old);
    free(collective->rounds);
    collective->rounds = rounds;
    return F8_OK;
}

/* The span is to be that of the generation, or of the next one. */
static int begin_span(struct group *group, uint32_t rank, bool again,
    const struct collective_span *span, struct reason *reason)
{
    struct collective *collective = group->collective;
    char root[WORLD_ROOT_SIZE];
    if (!span->id && !again && collective->hosts)
        return reason_set(reason, F8_EMISMATCH,
            "rank %u enters group %s without a unique id, but it spans hosts", rank, group->name);
    if (!span->id || same_id(collective->hosts, span))
        return check_place(group, rank, reason);
    int status = world_check_id(span->id, root, reason);
    if (status < 0)
        return status;
    if (supersedes(group, rank, span))
        supersede(group, rank, root);
    hosts_release(collective->next_hosts);
    collective->next_hosts = NULL;
    if (change_hosts(collective, span) < 0)
        return reason_set(reason, F8_ENOMEM, "out of memory joining group %s", group->name);
    return F8_OK;
}

int collective_set_span(struct group *group, uint32_t rank, bool again,
    const struct collective_span *span, struct reason *reason)
{
    uint32_t entered;
    if (group->state == GROUP_BROKEN || !some_entered(group, &entered) ||
        supersedes(group, rank, span))
        return begin_span(group, rank, again, span, reason);
    int status = check_others(group, rank, again, span, reason);
    return status < 0 ? status : check_place(group, rank, reason);
}

int collective_enter(struct member *member)
{
    struct group *group = member->group;
    struct collective *collective = group->collective;
    assert(collective_is_open(group));
    int status = group->state == GROUP_BROKEN ? next_generation(collective) : F8_OK;
    if (status < 0)
        return status;
    member->generation = group->generation;
    free(member->seal.import);
    member->seal = (struct member_seal){0};
    member_forget_versions(member);
    round_enter(collective->rounds, member->rank);
    collective_tell_rank(member, F8_PROTO_EVENT_RANK_JOINED);
    if (collective->hosts) {
        hosts_entered(collective->hosts, member);
        collective_wake(collective); /* others may have entered before */
    }
    return F8_OK;
}

void collective_leave(struct member *member, bool died)
{
    struct group *group = member->group;
    struct collective *collective = group->collective;
    collective_tell_rank(member, died ? F8_PROTO_EVENT_RANK_DIED : F8_PROTO_EVENT_RANK_LEFT);
    if (member->generation == group->generation) {
        if (collective->hosts && collective->hosts->world)
            hosts_tell_gone(collective->hosts, member, died);
        round_leave(collective->rounds, member->rank, died);
    }
    group_remove_member(member);
    collective_settle(collective);
}
