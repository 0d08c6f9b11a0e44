/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ops of the model of round_model.h: each call from the state machine is held to the
 * invariants and then noted in the model's state.
 */
#include "status.h"
#include "tests/lib/round_model.h"

void model_require(struct model *model, bool holds, const char *invariant)
{
    if (!holds && !model->violation)
        model->violation = invariant;
}

static void require_event(struct model *model)
{
    model_require(model, !model->probing, "what is refused changes nothing");
}

/* The place of a gather that starts: of its sort, held by nobody, written by nobody. */
static void take_place(struct model *model, uint32_t bucket, uint32_t place)
{
    struct model_state *state = &model->state;
    uint32_t slots = model->shape->slots;
    bool fits = model->shape->shared[bucket] ? place < slots : place == slots + bucket;
    model_require(model, fits, "a gather gets a place of its bucket's sort");
    if (!fits)
        return;
    model_require(
        model, !model_place_held(state, place), "a place is not written while it is held");
    model_require(model, model_early_running(state, bucket) == 0,
        "early parts of a bucket end before its run");
    model_require(model, !model_place_written(model, place), "a place has one writer");
    state->place_of[bucket] = (uint8_t)place;
    state->run_place = (uint8_t)place;
}

static int start(void *context, const struct round_run *run)
{
    struct model *model = context;
    struct model_state *state = &model->state;
    model_require(model, !state->running, "one run at a time");
    require_event(model);
    model_require(model, !state->broken || state->going_on,
        "after a break only what was complete at a death begins");
    model_require(
        model, run->number == model_first(model) + state->ended, "collectives run in their order");
    for (uint32_t r = 0; r < MODEL_RANKS; r++) {
        const struct model_rank *rank = &state->ranks[r];
        bool same = (rank->alive || state->going_on) && rank->asked > state->ended &&
                    rank->kinds[state->ended] == run->kind &&
                    (run->kind != ROUND_GATHER || rank->buckets[state->ended] == run->bucket);
        model_require(model, same, "a collective runs when all have asked for the same");
    }
    if (model->shape->refused && state->ended == 1) {
        model->trouble = ROUND_RUN_FAILED;
        state->going_on = false;
        return F8_EIO;
    }
    if (run->kind == ROUND_GATHER)
        take_place(model, run->bucket, run->place);
    state->running = true;
    return F8_OK;
}

static bool prepare(void *context, uint32_t rank, uint32_t bucket, uint32_t place)
{
    struct model *model = context;
    struct model_rank *r = &model->state.ranks[rank];
    require_event(model);
    model_require(model, !model->state.broken, "nothing begins after the break");
    bool writes = place != ROUND_NO_PLACE;
    uint32_t own = model->shape->slots + bucket;
    model_require(model, !writes || (!model->shape->shared[bucket] && place == own),
        "an early part writes to its own place only");
    model_require(model, !writes || !model_place_held(&model->state, own),
        "a place is not written while it is held");
    model_require(model, !writes || !model->state.cleaning[own], "a place has one writer");
    bool can_write = !model->shape->shared[bucket] && model_place_found(model, bucket);
    model_require(model, writes == can_write, "an early part writes where it can");
    bool begins = !(model->shape->idle && rank == 2);
    r->early[bucket] = begins ? MODEL_PREPARING : MODEL_PREPARED;
    r->early_writes[bucket] = writes && begins;
    return begins;
}

static void cancel(void *context)
{
    struct model *model = context;
    require_event(model);
    model_require(model, model->state.broken, "early parts are stopped by a break only");
}

static bool clean(void *context, uint32_t place)
{
    struct model *model = context;
    struct model_state *state = &model->state;
    require_event(model);
    model_require(
        model, !model_place_held(state, place), "a place is not written while it is held");
    model_require(model, !model_place_written(model, place), "a place has one writer");
    model_require(model, state->dirty[place], "a place let go of by all is cleaned, once");
    state->dirty[place] = false;
    state->cleaning[place] = model->shape->poison;
    return model->shape->poison;
}

static bool mismatch_true(const struct model *model, const struct round_cause *cause)
{
    uint64_t number = cause->number - model_first(model);
    const struct model_rank *rank = &model->state.ranks[cause->rank];
    const struct model_rank *other = &model->state.ranks[cause->other_rank];
    if (cause->rank != model->event.rank || number >= rank->asked || number >= other->asked)
        return false;
    bool gathers = cause->kind == ROUND_GATHER && cause->other_kind == ROUND_GATHER;
    return rank->kinds[number] == cause->kind && other->kinds[number] == cause->other_kind &&
           (gathers ? cause->bucket == rank->buckets[number] &&
                          cause->other_bucket == other->buckets[number] &&
                          cause->bucket != cause->other_bucket
                    : cause->kind != cause->other_kind);
}

static bool overdue_true(const struct model *model, const struct round_cause *cause)
{
    const struct model_state *state = &model->state;
    uint32_t number = (uint32_t)(cause->number - model_first(model));
    if (!cause->place)
        return !model_complete(state, number);
    return model_complete(state, number) && number == state->ended && !state->running &&
           cause->kind == ROUND_GATHER && !model_awaits_early(state) &&
           !model_place_found(model, cause->bucket);
}

static bool cause_true(const struct model *model, const struct round_cause *cause)
{
    if (model->trouble < 0 || cause->trouble != (enum round_trouble)model->trouble)
        return false;
    switch (cause->trouble) {
    case ROUND_MISMATCH:
        return cause->status == F8_EMISMATCH && mismatch_true(model, cause);
    case ROUND_OVERDUE:
        return cause->status == F8_EDEADLINE && overdue_true(model, cause);
    case ROUND_RANK_DIED:
    case ROUND_RANK_LEFT:
        return cause->status == F8_ERANKDEAD && cause->rank == model->event.rank;
    case ROUND_OTHER_GROUP:
        return false; /* the model has one group */
    case ROUND_RUN_FAILED:
        return cause->status == F8_EIO && cause->number == model_first(model) + model->state.ended;
    }
    return false;
}

static void broken(void *context, const struct round_cause *cause)
{
    struct model *model = context;
    require_event(model);
    model_require(model, !model->state.broken, "a machine breaks once: the first cause is kept");
    model_require(model, cause_true(model, cause), "the cause is what happened");
    model->state.broken = true;
    model->state.going_on = cause->trouble == ROUND_RANK_DIED || cause->trouble == ROUND_RANK_LEFT;
    model->state.status = (int8_t)cause->status;
}

/* Whether the answer is about what the rank had asked for. */
static bool answer_true(
    const struct model *model, const struct model_rank *rank, const struct round_run *run)
{
    uint32_t number = rank->answered;
    return rank->kinds[number] == run->kind &&
           (run->kind != ROUND_GATHER || (rank->buckets[number] == run->bucket &&
                                             model->state.place_of[run->bucket] == run->place));
}

static void require_outcome(struct model *model, uint32_t number, int status)
{
    int8_t *outcome = &model->state.outcomes[number];
    model_require(
        model, *outcome == 1 || *outcome == status, "all live ranks get the same outcome");
    *outcome = (int8_t)status;
    if (status == F8_OK) {
        model_require(
            model, model->ending == (int)number, "nothing ends well but the run that had started");
        return;
    }
    model_require(model, model->state.broken, "the break is told before any failure");
    model_require(
        model, status == model->state.status, "all that fails fails with the first cause");
    model_require(
        model, !model_working(&model->state), "failures are told when all work has ended");
    model_require(model, !model->state.going_on || !model_needs_no_rank(model),
        "what can still run does not fail");
}

static void reply(void *context, uint32_t r, uint64_t tag, int status, const struct round_run *run)
{
    struct model *model = context;
    struct model_rank *rank = &model->state.ranks[r];
    require_event(model);
    model_require(model, rank->alive, "the dead are not answered");
    bool expected = rank->answered < rank->asked && tag == model_tag(model, r, rank->answered) &&
                    run->number == model_first(model) + rank->answered;
    model_require(model, expected, "each request is answered once, in the order of requests");
    if (!expected)
        return;
    require_outcome(model, rank->answered, status);
    model_require(model, status < 0 || answer_true(model, rank, run),
        "an answer is about what was asked for");
    if (rank->kinds[rank->answered] == ROUND_GATHER)
        rank->use[rank->buckets[rank->answered]] = status < 0 ? MODEL_UNUSED : MODEL_HELD;
    rank->answered++;
}

static void quiesced(void *context, uint32_t r, uint64_t tag)
{
    struct model *model = context;
    struct model_rank *rank = &model->state.ranks[r];
    require_event(model);
    model_require(model, rank->alive, "the dead are not answered");
    model_require(model, rank->quiescing && tag == r + 1 && model_quiet(model, r),
        "quiesce is answered when nothing reads");
    rank->quiescing = false;
}

const struct round_ops model_ops = {
    .start = start,
    .prepare = prepare,
    .cancel = cancel,
    .clean = clean,
    .broken = broken,
    .reply = reply,
    .quiesced = quiesced,
};
