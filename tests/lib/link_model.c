/* SPDX-License-Identifier: Apache-2.0 */
/* The events of the model of link_model.h, and what the daemon's collectives tell it. */
#include "tests/lib/link_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "status.h"
#include "tests/lib/explored.h"

struct link_model link_model;

void link_require(bool holds, const char *invariant)
{
    if (!holds && !link_model.violation)
        link_model.violation = invariant;
}

/* ---- amaxes: every gather of a bucket meets others, so that old ones show ---- */

uint32_t link_amax(uint32_t rank, uint32_t group, uint32_t bucket)
{
    const struct link_state *state = &link_model.state;
    const struct group *leader = world.groups[link_leader(group)];
    uint32_t generation = leader ? (uint32_t)leader->generation : 0;
    float value =
        (float)(1000 - 100 * generation - 8 * state->gathered[group][bucket] + 4 * bucket + rank);
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

/* As if all had gathered the bucket as often as this group. */
uint32_t link_amax_of_all(uint32_t group, uint32_t bucket)
{
    uint32_t most = 0;
    for (uint32_t r = 0; r < LINK_RANKS; r++) {
        uint32_t amax = link_amax(r, group, bucket);
        if (link_is_in(link_leader(group), r) && amax > most)
            most = amax;
    }
    return most;
}

/* ---- what the daemon says ---- */

/* A request's own number in the program, from its tag. */
static uint32_t position_of(uint64_t tag)
{
    return (uint32_t)((tag - 1) % 100);
}

static void require_outcome(uint32_t slot, uint64_t number, int status)
{
    link_require(number < LINK_NUMBERS, "there are few collectives");
    int8_t *outcome = &link_model.state.outcomes[slot][number % LINK_NUMBERS];
    link_require(*outcome == 1 || *outcome == status, "all live ranks get the same outcome");
    *outcome = (int8_t)status;
}

/* A collective has ended well: what it was over is as of now. */
static void note_end(uint32_t slot, const struct round_run *run)
{
    struct link_state *state = &link_model.state;
    if (run->kind == ROUND_GATHER)
        state->gathered[slot][run->bucket]++;
    for (uint32_t g = 0; g < LINK_GROUPS && run->kind == ROUND_PRECOMPUTE; g++)
        for (uint32_t b = 0; link_model.shape->groups[g].letter && b < LINK_BUCKETS; b++)
            if (link_leader(g) == slot)
                state->precomputed[g][b] = link_amax_of_all(g, b);
}

static void done(struct member *member, uint64_t tag, int status, const struct round_run *run)
{
    uint32_t rank = world_rank_of(member->session);
    struct link_rank *r = &link_model.state.ranks[rank];
    uint32_t at = position_of(tag);
    if ((tag - 1) / 100 != r->attempt + 4u * r->life)
        return; /* of a hasty rank that waits for it no more */
    const char *token = link_program(rank) + at;
    uint32_t slot = link_slot(token[1]);
    link_require(r->alive && member == link_member(slot, rank), "the dead are not answered");
    link_require(r->open >> at & 1, "each request is answered once");
    r->open &= ~(1ull << at);
    bool first = link_model.state.outcomes[slot][run->number % LINK_NUMBERS] == 1;
    require_outcome(slot, run->number, status);
    if (status < 0) {
        r->failed = true;
        link_require(
            member->group->state == GROUP_BROKEN, "a failure breaks the group, and says why");
        link_require(member->group->cause.text[0], "a failure breaks the group, and says why");
        return;
    }
    if (run->kind == ROUND_GATHER)
        r->held[slot] |= (uint8_t)(1u << run->bucket);
    if (first)
        note_end(slot, run);
}

static void drained(struct group *group)
{
    if (!group_is_empty(group))
        return;
    for (uint32_t g = 0; g < LINK_GROUPS; g++)
        if (world.groups[g] == group) {
            world.groups[g] = NULL;
            link_model.state.generations[g] = 0;
        }
    collective_free(group);
    registry_free_group(group);
}

/* Casts of dynamic weights: with the scale that follows from all ranks that count, and no other. */
static void submitted(const struct backend_work *work)
{
    for (uint32_t t = 0; t < work->num_tasks; t++) {
        uint32_t rank, slot, bucket;
        const struct backend_task *task = &work->tasks[t];
        if (task->op != BACKEND_CAST)
            continue;
        world_place_of(task->src, &rank, &slot, &bucket);
        const struct group *group = world.groups[slot];
        if (group->list->weights[bucket].flavour != F8_PROTO_DYNAMIC)
            continue;
        const struct scaling *scaling = &group->scalings[bucket];
        uint32_t amax = link_model.state.precomputed[slot][bucket];
        if (!scaling->precomputed)
            amax = link_amax_of_all(slot, bucket);
        link_require(
            scaling->amax == amax, "a cast takes the scale of all ranks' amaxes, as of now");
        link_require(memcmp(&task->scale, &scaling->scale, sizeof(float)) == 0,
            "a cast takes the scale of all ranks' amaxes, as of now");
    }
}

/* ---- events ---- */

static bool add(struct link_event *events, int *count, uint8_t kind, uint32_t rank, uint32_t what)
{
    if (*count == LINK_EVENTS_MAX)
        link_require(false, "there are few events");
    else
        events[(*count)++] = (struct link_event){kind, (uint8_t)rank, (uint8_t)what};
    return true;
}

static void add_faults(struct link_event *events, int *count)
{
    const struct link_shape *shape = link_model.shape;
    const struct link_state *state = &link_model.state;
    for (uint32_t r = 0; r < LINK_RANKS; r++)
        for (uint32_t order = 0; order < 2 && state->ranks[r].alive; order++) {
            if (shape->deaths)
                add(events, count, LINK_DEATH, r, order);
            if (shape->leaves)
                add(events, count, LINK_LEAVE, r, order);
        }
    for (uint32_t i = 0; i < world.num_reserves && shape->failures; i++)
        add(events, count, LINK_FAILURE, 0, i);
}

static void add_deadlines(struct link_event *events, int *count)
{
    for (uint32_t g = 0; g < LINK_GROUPS; g++)
        if (world_timer(world.groups[g]))
            add(events, count, LINK_DEADLINE, 0, g);
}

int link_events(struct link_event *events, bool forced)
{
    int count = 0;
    const struct link_state *state = &link_model.state;
    if (forced) {
        add_deadlines(events, &count);
        return count;
    }
    for (uint32_t i = 0; i < world.num_works; i++)
        add(events, &count, LINK_WORK, 0, i);
    for (uint32_t i = 0; i < world.num_reserves; i++)
        add(events, &count, LINK_RESERVE, 0, i);
    for (uint32_t r = 0; r < LINK_RANKS; r++) {
        if (state->ranks[r].alive)
            add(events, &count, LINK_STEP, r, 0);
        else if (state->ranks[r].attempt == 0)
            add(events, &count, LINK_REVIVAL, r, 0);
    }
    if (state->faults == link_model.shape->faults)
        return count;
    add_faults(events, &count);
    if (link_model.shape->deadlines)
        add_deadlines(events, &count);
    return count;
}

static void leave(uint32_t rank, bool died, bool last_first)
{
    struct link_rank *r = &link_model.state.ranks[rank];
    for (uint32_t i = 0; i < LINK_GROUPS; i++) {
        struct member *member = link_member(last_first ? LINK_GROUPS - 1 - i : i, rank);
        if (member)
            collective_leave(member, died);
    }
    uint8_t life = r->life, attempt = r->attempt;
    memset(r, 0, sizeof(*r));
    r->life = life;
    r->attempt = attempt;
}

static void expire(uint32_t slot)
{
    struct link_state *state = &link_model.state;
    if (state->faults < link_model.shape->faults && link_model.shape->deadlines)
        state->faults++;
    else
        state->forced = true;
    world_expire(world_timer(world.groups[slot]));
}

static void happen(struct link_event event)
{
    struct link_state *state = &link_model.state;
    switch (event.kind) {
    case LINK_STEP:
        (void)link_step(event.rank);
        break;
    case LINK_WORK:
        world_end_work(event.what);
        break;
    case LINK_FAILURE:
        state->faults++;
        world_end_reserve(event.what, F8_ENOMEM);
        break;
    case LINK_RESERVE:
        world_end_reserve(event.what, F8_OK);
        break;
    case LINK_DEATH:
    case LINK_LEAVE:
        state->faults++;
        leave(event.rank, event.kind == LINK_DEATH, event.what);
        break;
    case LINK_REVIVAL:
        state->ranks[event.rank].alive = true;
        state->ranks[event.rank].life++;
        state->ranks[event.rank].attempt++;
        break;
    default:
        expire(event.what);
    }
}

void link_apply(struct link_event event)
{
    happen(event);
    link_check();
}

void link_event_text(struct link_event event, char *text, size_t size)
{
    static const char *const names[] = {
        "step", "work ends", "arena", "no arena", "death", "leave", "revival", "deadline of group"};
    bool rank = event.kind == LINK_STEP || event.kind == LINK_DEATH || event.kind == LINK_LEAVE ||
                event.kind == LINK_REVIVAL;
    if (event.kind == LINK_STEP)
        (void)snprintf(text, size, "rank %u: %.3s", event.rank, link_token(event.rank));
    else if (rank)
        (void)snprintf(text, size, "%s of rank %u (%u)", names[event.kind], event.rank, event.what);
    else
        (void)snprintf(text, size, "%s %u", names[event.kind], event.what);
}

static const struct collective_listener listener = {.done = done, .drained = drained};

/* Lets everybody come to the '|', always in the same order. */
static void come_to_the_bar(void)
{
    for (bool moved = true; moved && !link_model.violation;) {
        moved = false;
        for (uint32_t r = 0; r < LINK_RANKS; r++)
            if (*link_token(r) != '|')
                moved |= link_step(r);
        while (world.num_works + world.num_reserves > 0) {
            link_apply((struct link_event){world.num_works ? LINK_WORK : LINK_RESERVE, 0, 0});
            moved = true;
        }
    }
    for (uint32_t r = 0; r < LINK_RANKS; r++)
        link_require(*link_token(r) == '|', "all ranks come to where exploring begins");
}

void link_begin(const struct link_shape *shape)
{
    memset(&link_model, 0, sizeof(link_model));
    link_model.shape = shape;
    for (uint32_t r = 0; r < LINK_RANKS; r++)
        link_model.state.ranks[r].alive = true;
    world_begin(
        &(struct link_hooks){.listener = &listener, .submitted = submitted, .amax = link_amax});
    come_to_the_bar();
    link_check();
}
