/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is under way in a group when the daemon is told to end: see collective.h. What ranks ask for
 * later is served too, but nobody waits for it: a trainer always has asked for the next thing.
 */
#include "daemon/collective_private.h"

/* Nobody joins any more: what waits for a rank that is not there cannot begin. */
static bool can_begin(const struct group *group)
{
    return group->state != GROUP_FORMING || group_present(group) == group->world_size;
}

void collective_mark(struct group *group)
{
    struct collective *collective = group->collective;
    collective->mark = can_begin(group) ? round_next(collective->rounds) : 0;
}

bool collective_is_past_mark(const struct group *group)
{
    struct round_head head;
    const struct rounds *rounds = group->collective->rounds;
    return !round_head(rounds, &head) || head.run.number >= group->collective->mark;
}
