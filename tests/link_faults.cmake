# SPDX-License-Identifier: Apache-2.0
# Faults that are planted in copies of the collective's sources, each to be found by the explorer of
# links. Read by links.cmake, which makes a test of each, and by plant.cmake, which makes the copy.
# link_fault(NAME source "the invariant that must be reported" [[text in it]] [[text instead]])

link_fault(missed_poke collective "what can start does"
    [[    collective_poke_sources(collective);
    collective_serve_rest(]]
    [[    collective_serve_rest(]])

link_fault(fence_ignored collective_run
    "a gather comes after what its ranks had asked of their amax group"
    [[if (round->kind == ROUND_GATHER && collective_is_fenced(collective))]]
    [[if (round->kind == ROUND_GATHER && collective_is_fenced(collective) && false)]])

link_fault(fence_for_some collective_link
    "a gather comes after what its ranks had asked of their amax group"
    [[        if (group->members[r] && is_fenced(group->members[r]))]]
    [[        if (r == 0 && group->members[r] && is_fenced(group->members[r]))]])

link_fault(asked_during_gather collective
    "an amax group's collective and a gather do not run side by side"
    [[    status = collective_check_sources(member, reason);
    if (status < 0)
        return status;]]
    [[]])

link_fault(break_not_told collective_link "linked groups break together"
    [[    for (struct group *s = group->sources; s; s = s->next_source)
        break_later(s, group, status, at_rest);]]
    [[    (void)group;]])

link_fault(break_not_told_upwards collective_link "linked groups break together"
    [[    if (group->amax_group)
        break_later(group->amax_group, group, status, at_rest);]]
    [[]])

link_fault(break_left_in_queue collective_link
    "what one group does to another is done in the same event"
    [[    while (context->disturbed) {]]
    [[    if (context->disturbed) {]])

link_fault(post_not_withdrawn collective_early
    "a gather waits for others exactly while its amaxes are posted"
    [[    collective_withdraw(collective);]]
    [[]])

link_fault(post_kept collective_amax "no amax is left behind"
    [[        amax->table.amaxes[e] = 0;]]
    [[        amax->table.amaxes[e] += 0;]])

link_fault(others_not_resumed collective_amax
    "a gather waits for others exactly while its amaxes are posted"
    [[    resume(amax, bucket);
    collective_go_on(source);]]
    [[    collective_go_on(source);]])

link_fault(alone_at_once collective_amax
    "a cast takes the scale of all ranks' amaxes, as of now"
    [[    if (amax->table.posted[bucket] < amax->table.sharers[bucket]) {]]
    [[    if (amax->table.posted[bucket] < 1) {]])

link_fault(crossing_waits collective_amax "no two gathers wait for one another"
    [[        if (has_bucket(other, bucket) && has_bucket(source, exchanged_bucket(other)))]]
    [[        if (false && has_bucket(other, bucket) && has_bucket(source, exchanged_bucket(other)))]])

link_fault(scale_not_shared collective_amax
    "a cast takes the scale of all ranks' amaxes, as of now"
    [[            scaling_in_gather(&group->scalings[e], weight, amax->table.amaxes[e]);
            collective_push(amax, e);]]
    [[            scaling_in_gather(&group->scalings[e], weight, amax->table.amaxes[e]);]])
