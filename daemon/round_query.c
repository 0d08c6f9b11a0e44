/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What can be asked of the rounds of a generation without changing them: see round.h.
 */
#include "daemon/round_tables.h"

size_t round_size(const struct rounds *rounds)
{
    return rounds->size;
}

uint64_t round_deadline(const struct rounds *rounds)
{
    uint64_t deadline = ROUND_NEVER;
    if (rounds->broken)
        return deadline;
    for (uint64_t n = rounds->head; n < rounds->tail; n++)
        if (round_is_timed(rounds, n) && record_at(rounds, n)->deadline < deadline)
            deadline = record_at(rounds, n)->deadline;
    return deadline;
}

bool round_drained(const struct rounds *rounds)
{
    return !rounds->running && rounds->early_running == 0 && rounds->cleaning == 0 &&
           rounds->head == rounds->tail;
}

bool round_is_broken(const struct rounds *rounds)
{
    return rounds->broken;
}

bool round_head(const struct rounds *rounds, struct round_head *ret_head)
{
    if (rounds->head == rounds->tail)
        return false;
    const struct record *record = record_at(rounds, rounds->head);
    *ret_head = (struct round_head){
        .run = run_of(rounds, rounds->head),
        .opened = record->opened,
        .deadline = record->deadline,
        .running = rounds->running,
        .complete = record->joined == rounds->num_ranks,
        .outside = rounds->paused || rounds->later,
    };
    return true;
}

bool round_missing(const struct rounds *rounds, uint64_t number, uint32_t rank)
{
    return rank_at(rounds, rank)->next <= number;
}

bool round_uses(const struct rounds *rounds, uint32_t rank, uint32_t bucket)
{
    return *use_at(rounds, rank, bucket) != USE_NONE;
}

bool round_holds(const struct rounds *rounds, uint32_t rank, uint32_t bucket)
{
    return *use_at(rounds, rank, bucket) == USE_HELD;
}

uint32_t round_num_held(const struct rounds *rounds)
{
    return rounds->held;
}

uint32_t round_place(const struct rounds *rounds, uint32_t rank, uint32_t bucket)
{
    bool held = bucket < rounds->num_buckets && round_holds(rounds, rank, bucket);
    return held ? bucket_at(rounds, bucket)->place : ROUND_NO_PLACE;
}

bool round_reads(const struct rounds *rounds, uint32_t rank, uint32_t bucket)
{
    return *use_at(rounds, rank, bucket) == USE_ASKED ||
           *early_at(rounds, rank, bucket) != EARLY_NONE;
}

bool round_asked(const struct rounds *rounds, uint32_t rank, enum round_kind kind)
{
    for (uint64_t n = rounds->head; n < rank_at(rounds, rank)->next; n++)
        if (record_at(rounds, n)->kind == kind)
            return true;
    return false;
}

bool round_is_open(const struct rounds *rounds, uint32_t rank)
{
    return rank_at(rounds, rank)->next > rounds->head;
}

uint64_t round_completed(const struct rounds *rounds)
{
    return rounds->completed;
}

uint64_t round_next_of(const struct rounds *rounds, uint32_t rank)
{
    return rank_at(rounds, rank)->next;
}

uint64_t round_next(const struct rounds *rounds)
{
    return rounds->tail;
}
