/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counting and telling in the world of the links' explorer: none. Numbers that only grow, and
 * times, would make a new state of each that has been seen.
 */
#include "daemon/collective_private.h"

int collective_count_init(struct collective *collective)
{
    (void)collective;
    return 0;
}

void collective_count_done(struct collective *collective)
{
    (void)collective;
}

void collective_count_restart(struct collective *collective)
{
    (void)collective;
}

int collective_ask_round(
    struct collective *collective, uint32_t rank, const struct round_request *request)
{
    return round_ask(collective->rounds, uv_now(collective->context->loop), rank, request);
}

void collective_count_met(struct collective *collective, struct findings *findings, uint32_t weight,
    const struct f8k_counts *counts, bool stale)
{
    (void)collective;
    (void)findings;
    (void)weight;
    (void)counts;
    (void)stale;
}

void collective_count_gather(struct collective *collective)
{
    (void)collective;
}

void collective_count_failed(struct collective *collective, enum round_trouble trouble)
{
    (void)collective;
    (void)trouble;
}

void collective_tell_rank(const struct member *member, enum f8_proto_event kind)
{
    (void)member;
    (void)kind;
}

void collective_tell_sealed(const struct group *group)
{
    (void)group;
}

void collective_tell_broken(
    const struct collective *collective, const struct round_cause *cause, bool at_rest)
{
    (void)collective;
    (void)cause;
    (void)at_rest;
}

int collective_prepare_told(struct collective *collective)
{
    (void)collective;
    return 0;
}

void collective_drop_told(struct collective *collective)
{
    (void)collective;
}

void collective_tell_findings(
    struct collective *collective, uint32_t bucket, const struct findings *findings)
{
    (void)collective;
    (void)bucket;
    (void)findings;
}
