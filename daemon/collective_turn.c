/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of what groups over hosts give to their devices. NCCL's operations of several groups
 * must come in one order on all hosts, or each host waits for what another has put behind. So each
 * round with such operations, and each forming of communicators, has a turn, in an order that all
 * daemons find alike though no two need have the same groups (Skeen's): when all hosts are ready
 * for it, each proposes a time by its own logical clock; the largest proposal is its time; and a
 * host begins it when nothing else that it has proposed a time for could still come before. A turn
 * ends when all is queued on the devices, not when they have done it.
 *
 * A host that is ready has begun the round, for its machine of rounds, and proposes a time as soon
 * as all are: so, while no host is lost, all of them queue it or none does. On the loop.
 */
#include "daemon/collective_hosts.h"

#include <assert.h>
#include <string.h>

/* Number of what runs: collectives of the era, the seal first. */
static uint64_t number_of(const struct hosts *hosts)
{
    return hosts_completed(hosts->collective) + 1;
}

void turn_ask(struct hosts *hosts)
{
    struct engine *engine = &hosts->engine;
    engine->step = ENGINE_AWAITS_TURN;
    engine->turn.number = number_of(hosts);
    engine->turn.proposed = false;
    hosts->all[hosts->here].ready_for = engine->turn.number;
    hosts_tell_turn(hosts, engine->turn.number, 0);
}

void turn_hear(struct hosts *hosts, uint32_t host, uint64_t number, uint64_t time)
{
    struct host *far = &hosts->all[host];
    struct collective_turns *turns = &hosts->context->turns;
    if (time == 0) {
        far->ready_for = number;
        return;
    }
    far->timed = number;
    far->time = time;
    turns->clock = time > turns->clock ? time : turns->clock;
}

static bool all_ready(const struct hosts *hosts)
{
    for (uint32_t h = 0; h < hosts->num_hosts; h++)
        if (hosts->all[h].ready_for != hosts->engine.turn.number)
            return false;
    return true;
}

static void propose(struct hosts *hosts)
{
    struct collective_turns *turns = &hosts->context->turns;
    struct turn *turn = &hosts->engine.turn;
    struct host *here = &hosts->all[hosts->here];
    here->timed = turn->number;
    here->time = ++turns->clock;
    turn->proposed = true;
    turn->next = turns->proposed;
    turns->proposed = hosts;
    hosts_tell_turn(hosts, turn->number, here->time);
}

/* The largest proposal so far; whether all hosts have made theirs. */
static bool find_time(const struct hosts *hosts, uint64_t *ret_time)
{
    bool all = true;
    *ret_time = 0;
    for (uint32_t h = 0; h < hosts->num_hosts; h++) {
        const struct host *host = &hosts->all[h];
        if (host->timed != hosts->engine.turn.number)
            all = false;
        else if (host->time > *ret_time)
            *ret_time = host->time;
    }
    return all;
}

/* Of two groups with the same time, which no host has proposed twice, the ids decide. */
static bool comes_before(
    const struct hosts *a, uint64_t a_time, const struct hosts *b, uint64_t b_time)
{
    return a_time != b_time ? a_time < b_time : memcmp(a->id, b->id, sizeof(a->id)) < 0;
}

static void unlink_proposed(struct hosts *hosts)
{
    struct hosts **link = &hosts->context->turns.proposed;
    while (*link && *link != hosts)
        link = &(*link)->engine.turn.next;
    if (*link)
        *link = hosts->engine.turn.next;
}

/* Gives the next turn, if it is certain whose that is. */
static void give_next(struct collective_context *context)
{
    struct collective_turns *turns = &context->turns;
    struct hosts *first = NULL;
    uint64_t first_time = 0;
    bool certain = false;
    for (struct hosts *hosts = turns->proposed; hosts; hosts = hosts->engine.turn.next) {
        uint64_t time;
        bool all = find_time(hosts, &time);
        if (first && !comes_before(hosts, time, first, first_time))
            continue;
        first = hosts;
        first_time = time;
        certain = all;
    }
    if (turns->holder || !first || !certain)
        return;
    unlink_proposed(first);
    turns->holder = first;
    collective_wake(first->collective);
}

bool turn_has_come(struct hosts *hosts)
{
    struct turn *turn = &hosts->engine.turn;
    if (hosts->engine.step != ENGINE_AWAITS_TURN)
        return false;
    if (!turn->proposed && all_ready(hosts))
        propose(hosts);
    if (turn->proposed)
        give_next(hosts->context);
    return hosts->context->turns.holder == hosts;
}

void turn_end(struct hosts *hosts)
{
    struct collective_turns *turns = &hosts->context->turns;
    if (hosts->engine.turn.number == 0)
        return;
    hosts->engine.turn.number = 0;
    unlink_proposed(hosts);
    if (turns->holder == hosts)
        turns->holder = NULL;
    give_next(hosts->context);
}
