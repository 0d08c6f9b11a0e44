/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How groups that share amaxes hang together: the order between the collectives of one and the
 * gathers of the other, and that they break together. What one does to another waits in a queue
 * until the event that caused it is over. On the loop.
 */
#include "daemon/collective_private.h"

#include "status.h"

void collective_wake(struct collective *collective)
{
    struct collective_context *context = collective->context;
    if (collective->queued)
        return;
    collective->queued = true;
    collective->next_event = NULL;
    struct collective **link = &context->disturbed;
    while (*link)
        link = &(*link)->next_event;
    *link = collective;
}

void collective_dequeue(struct collective *collective)
{
    struct collective **link = &collective->context->disturbed;
    while (*link && *link != collective)
        link = &(*link)->next_event;
    if (*link)
        *link = collective->next_event;
    collective->queued = false;
}

void collective_poke_sources(struct collective *collective)
{
    for (struct group *s = collective->group->sources; s; s = s->next_source)
        collective_wake(s->collective);
}

void collective_break_later(struct collective *collective, int status, const struct reason *reason)
{
    if (collective->group->state == GROUP_BROKEN || collective->break_status < 0)
        return;
    collective->break_status = status;
    collective->broken_at_rest = false;
    collective->broken_by = *reason;
    collective_wake(collective);
}

static void break_later(struct group *group, const struct group *first, int status, bool at_rest)
{
    struct collective *collective = group->collective;
    struct reason reason;
    if (group->state == GROUP_BROKEN || collective->break_status < 0)
        return;
    (void)reason_set(&reason, status,
        "group %.80s, which shares amaxes with group "
        "%.80s, broke: %.300s",
        first->name, group->name, first->cause.text);
    collective_break_later(collective, status, &reason);
    collective->broken_at_rest = at_rest;
}

void collective_break_linked(struct collective *collective, int status, bool at_rest)
{
    const struct group *group = collective->group;
    if (group->amax_group)
        break_later(group->amax_group, group, status, at_rest);
    for (struct group *s = group->sources; s; s = s->next_source)
        break_later(s, group, status, at_rest);
}

static void serve_event(struct collective *collective)
{
    int status = collective->break_status;
    struct round_head head;
    collective->break_status = 0;
    bool breaks =
        status < 0 && !round_is_broken(collective->rounds) &&
        (collective->group->state == GROUP_SEALED || round_head(collective->rounds, &head));
    if (breaks)
        round_break(collective->rounds, status);
    else
        round_poke(collective->rounds);
    collective_settle(collective);
}

void collective_serve_events(struct collective_context *context)
{
    if (context->serving)
        return;
    context->serving = true;
    while (context->disturbed) {
        struct collective *collective = context->disturbed;
        collective_dequeue(collective);
        serve_event(collective);
    }
    context->serving = false;
}

bool collective_hold(struct collective_context *context)
{
    bool held = context->serving;
    context->serving = true;
    return held;
}

void collective_let_go(struct collective_context *context, bool held)
{
    context->serving = held;
    collective_serve_events(context);
}

/* Whether the member has an open collective in its amax group, which its gathers come after. */
static bool is_fenced(const struct member *member)
{
    const struct group *amax_group = member->group->amax_group;
    const struct member *there =
        member->session ? group_member_for(amax_group, member->session) : NULL;
    return there && round_is_open(amax_group->collective->rounds, there->rank);
}

bool collective_is_fenced(const struct collective *collective)
{
    const struct group *group = collective->group;
    if (!group->amax_group)
        return false;
    for (uint32_t r = 0; r < group->world_size; r++)
        if (group->members[r] && is_fenced(group->members[r]))
            return true;
    return false;
}

int collective_check_sources(const struct member *member, struct reason *reason)
{
    const struct group *source = member->group->sources;
    for (; source; source = source->next_source) {
        const struct member *there = group_member_for(source, member->session);
        if (there && round_asked(source->collective->rounds, there->rank, ROUND_GATHER))
            return reason_set(reason, F8_EBUSY,
                "rank %u has an open gather in group %s, whose amaxes are taken over group %s: "
                "wait "
                "for it first",
                there->rank, source->name, member->group->name);
    }
    return F8_OK;
}

bool collective_reads_for(const struct member *member, enum round_kind kind)
{
    const struct group *amax_group = member->group->amax_group;
    const struct member *there =
        amax_group && member->session ? group_member_for(amax_group, member->session) : NULL;
    return there && round_asked(amax_group->collective->rounds, there->rank, kind);
}

bool collective_is_quiet(const struct group *group)
{
    struct round_head head;
    const struct group *amax_group = group->amax_group;
    bool read = amax_group && round_head(amax_group->collective->rounds, &head) && head.running;
    bool awaits =
        collective_awaits_landing(group) || (amax_group && collective_awaits_landing(amax_group));
    return !read && !awaits && round_drained(group->collective->rounds);
}
