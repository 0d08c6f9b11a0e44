# SPDX-License-Identifier: Apache-2.0
# Faults that are planted in copies of daemon/round.c, each to be found by the explorer. Read by
# rounds.cmake, which makes a test of each, and by plant.cmake, which makes the copy.
# round_fault(NAME "the invariant that must be reported" [[text in round.c]] [[text instead]])

round_fault(held_place "a place is not written while it is held"
    [[return p->holders == 0 && !p->cleaning;]]
    [[return !p->cleaning;]])

round_fault(unclean_place "a place has one writer"
    [[return p->holders == 0 && !p->cleaning;]]
    [[return p->holders == 0;]])

# Found first where nobody is left to be told.
round_fault(early_failure "the head is told as it is"
    [[if (rounds->broken && !rounds->going_on && !rounds->running && rounds->early_running == 0)]]
    [[if (rounds->broken && !rounds->going_on && !rounds->running)]])

round_fault(failure_during_run "failures are told when all work has ended"
    [[if (rounds->broken && !rounds->going_on && !rounds->running && rounds->early_running == 0)]]
    [[if (rounds->broken && !rounds->going_on && rounds->early_running == 0)]])

round_fault(answered_dead "the dead are not answered"
    [[if (rank_at(rounds, r)->present && rank_at(rounds, r)->next > number)]]
    [[if (rank_at(rounds, r)->next > number)]])

round_fault(two_runs "one run at a time"
    [[if (open && !rounds->running && !rounds->paused)]]
    [[if (open)]])

round_fault(start_after_break "after a break only what was complete at a death begins"
    [[bool open = rounds->going_on || (!rounds->broken && rounds->head < rounds->tail);]]
    [[bool open = rounds->head < rounds->tail;]])

round_fault(start_after_failed_run "after a break only what was complete at a death begins"
    [[rounds->going_on = death && (rounds->going_on || !rounds->broken);]]
    [[rounds->going_on |= death && !rounds->broken;]])

round_fault(complete_one_fails "what can still run does not fail"
    [[rounds->going_on = death && (rounds->going_on || !rounds->broken);]]
    [[rounds->going_on = death && rounds->going_on;]])

round_fault(second_death_ends_all "what can still run does not fail"
    [[rounds->going_on = death && (rounds->going_on || !rounds->broken);]]
    [[rounds->going_on = death && !rounds->broken;]])

round_fault(waits_for_live_holder "after a break nothing waits for a rank"
    [[           (record->kind != ROUND_GATHER || place_coming(rounds, record->bucket));]]
    [[           (place_coming(rounds, record->bucket) || rounds->num_buckets > 0);]])

round_fault(waits_for_missing_rank "after a break nothing waits for a rank"
    [[    return record->joined == rounds->num_ranks &&
           (record->kind]]
    [[    return (record->kind]])

round_fault(cleaning_is_not_waited_for "what can still run does not fail"
    [[return place_at(rounds, rounds->num_slots + bucket)->holders == 0;]]
    [[return place_free(rounds, rounds->num_slots + bucket);]])

round_fault(failed_place "a place let go of by all is cleaned, once"
    [[vacate(rounds, run.place); /* it wrote a part */]]
    [[rounds->cleaning += 0;]])

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
