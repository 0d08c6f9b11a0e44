# SPDX-License-Identifier: Apache-2.0
# Faults that are planted in copies of daemon/round.c, each to be found by the explorer. Read by
# rounds.cmake, which makes a test of each, and by round_plant.cmake, which makes the copy.
# round_fault(NAME "the invariant that must be reported" [[text in round.c]] [[text instead]])

round_fault(held_place "a place is not written while it is held"
    [[return p->holders == 0 && !p->cleaning;]]
    [[return !p->cleaning;]])

round_fault(unclean_place "a place has one writer"
    [[return p->holders == 0 && !p->cleaning;]]
    [[return p->holders == 0;]])

round_fault(early_failure "failures are told when all work has ended"
    [[if (rounds->broken && !rounds->running && rounds->early_running == 0)]]
    [[if (rounds->broken && !rounds->running)]])

round_fault(failure_during_run "failures are told when all work has ended"
    [[if (rounds->broken && !rounds->running && rounds->early_running == 0)]]
    [[if (rounds->broken && rounds->early_running == 0)]])

round_fault(answered_dead "the dead are not answered"
    [[if (rank_at(rounds, r)->present && rank_at(rounds, r)->next > number)]]
    [[if (rank_at(rounds, r)->next > number)]])

round_fault(two_runs "one run at a time"
    [[if (!rounds->running && !rounds->broken && rounds->head < rounds->tail)]]
    [[if (!rounds->broken && rounds->head < rounds->tail)]])

round_fault(start_after_break "nothing begins after the break"
    [[if (!rounds->running && !rounds->broken && rounds->head < rounds->tail)]]
    [[if (!rounds->running && rounds->head < rounds->tail)]])

round_fault(lost_wakeup "what can start does"
    [[    end_use(rounds, rank, bucket);
    advance(rounds);]]
    [[    end_use(rounds, rank, bucket);]])

round_fault(blind_to_mismatch "a failure breaks the machine"
    [[if (!same_request(record, request)) {]]
    [[if (rank == 0 && !same_request(record, request)) {]])

round_fault(run_before_early_part "early parts of a bucket end before its run"
    [[if (place == ROUND_NO_PLACE || head_awaits_early(rounds))]]
    [[if (place == ROUND_NO_PLACE)]])

round_fault(second_cause "a machine breaks once: the first cause is kept"
    [[    if (rounds->broken)
        return;
    rounds->broken = true;]]
    [[    rounds->broken = true;]])

round_fault(dead_holder "a place let go of by all is cleaned, once"
    [[if (*use_at(rounds, rank, b) == USE_HELD)]]
    [[if (*use_at(rounds, rank, b) == USE_ASKED)]])

round_fault(early_slot "an early part writes to its own place only"
    [[    uint32_t place = ROUND_NO_PLACE;
    if (!bucket_at(rounds, bucket)->shared)
        place = find_place(rounds, bucket);]]
    [[    uint32_t place = find_place(rounds, bucket);]])

round_fault(deadline_of_head_only "a failure breaks the machine"
    [[for (uint64_t n = rounds->head; n < rounds->tail; n++) {]]
    [[for (uint64_t n = rounds->head; n < rounds->tail && n == rounds->head; n++) {]])
