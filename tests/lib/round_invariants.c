/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the model of round_model.h knows of its state, and what must hold in it between two events.
 */
#include <string.h>

#include "status.h"
#include "tests/lib/round_model.h"

uint64_t model_first(const struct model *model)
{
    return model->state.generation == 0 ? 3 : 1001;
}

uint64_t model_tag(const struct model *model, uint32_t rank, uint32_t number)
{
    return 10000 * (model->state.generation + 1ull) + 100 * (rank + 1ull) + number;
}

/* Differs by rank and number, so that a later collective can be due before an earlier one. */
uint64_t model_deadline_ms(uint32_t rank, uint32_t number)
{
    return 1000 + (rank * 37 + number * 53) % 100;
}

bool model_place_held(const struct model_state *state, uint32_t place)
{
    for (uint32_t r = 0; r < MODEL_RANKS; r++)
        for (uint32_t b = 0; b < MODEL_BUCKETS; b++)
            if (state->ranks[r].use[b] == MODEL_HELD && state->place_of[b] == place)
                return true;
    return false;
}

bool model_place_written(const struct model *model, uint32_t place)
{
    const struct model_state *state = &model->state;
    if (state->cleaning[place] || (state->running && state->run_place == place))
        return true;
    for (uint32_t r = 0; r < MODEL_RANKS; r++)
        for (uint32_t b = 0; b < MODEL_BUCKETS; b++)
            if (state->ranks[r].early[b] == MODEL_PREPARING && state->ranks[r].early_writes[b] &&
                model->shape->slots + b == place)
                return true;
    return false;
}

bool model_place_found(const struct model *model, uint32_t bucket)
{
    const struct model_state *state = &model->state;
    uint32_t own = model->shape->slots + bucket;
    if (!model->shape->shared[bucket])
        return !model_place_held(state, own) && !state->cleaning[own];
    for (uint32_t slot = 0; slot < model->shape->slots; slot++)
        if (!model_place_held(state, slot) && !model_place_written(model, slot))
            return true;
    return false;
}

/* The same, or it will be once it is clean. */
static bool place_coming(const struct model *model, uint32_t bucket)
{
    const struct model_state *state = &model->state;
    if (model_place_found(model, bucket))
        return true;
    if (!model->shape->shared[bucket])
        return state->cleaning[model->shape->slots + bucket];
    for (uint32_t slot = 0; slot < model->shape->slots; slot++)
        if (state->cleaning[slot])
            return true;
    return false;
}

bool model_needs_no_rank(const struct model *model)
{
    const struct model_state *state = &model->state;
    const struct model_rank *any = &state->ranks[0];
    uint32_t alive = 0;
    for (uint32_t r = 0; r < MODEL_RANKS; r++)
        alive += state->ranks[r].alive;
    return alive > 0 && model_complete(state, state->ended) &&
           (any->kinds[state->ended] != ROUND_GATHER ||
               place_coming(model, any->buckets[state->ended]));
}

uint32_t model_early_running(const struct model_state *state, uint32_t bucket)
{
    uint32_t running = 0;
    for (uint32_t r = 0; r < MODEL_RANKS; r++)
        running += state->ranks[r].early[bucket] == MODEL_PREPARING;
    return running;
}

bool model_working(const struct model_state *state)
{
    uint32_t early = 0;
    for (uint32_t b = 0; b < MODEL_BUCKETS; b++)
        early += model_early_running(state, b);
    return state->running || early > 0;
}

bool model_over(const struct model_state *state)
{
    return state->broken && !state->going_on && !model_working(state);
}

static bool cleaning(const struct model_state *state)
{
    static const uint8_t none[MODEL_PLACES];
    return memcmp(state->cleaning, none, sizeof(none)) != 0;
}

bool model_quiet(const struct model *model, uint32_t rank)
{
    const struct model_state *state = &model->state;
    const struct model_rank *r = &state->ranks[rank];
    if (state->broken && (model_working(state) || cleaning(state)))
        return false;
    for (uint32_t b = 0; b < MODEL_BUCKETS; b++)
        if (r->early[b] == MODEL_PREPARING)
            return false;
    return r->asked == r->answered;
}

bool model_complete(const struct model_state *state, uint32_t number)
{
    for (uint32_t r = 0; r < MODEL_RANKS; r++)
        if (state->ranks[r].asked <= number)
            return false;
    return true;
}

bool model_awaits_early(const struct model_state *state)
{
    uint32_t number = state->ended;
    return model_complete(state, number) && state->ranks[0].kinds[number] == ROUND_GATHER &&
           model_early_running(state, state->ranks[0].buckets[number]) > 0;
}

static int ask_status(const struct model *model, uint32_t r, bool gather, uint32_t bucket)
{
    const struct model_rank *rank = &model->state.ranks[r];
    if (model->state.broken)
        return F8_EBROKEN;
    if (rank->asked - model->state.ended >= (int)model->shape->depth)
        return F8_ELIMIT;
    if (!gather)
        return ROUND_PENDING;
    uint32_t slots_used = 0;
    for (uint32_t b = 0; b < MODEL_BUCKETS; b++)
        slots_used += model->shape->shared[b] && rank->use[b] != MODEL_UNUSED;
    if (model->shape->shared[bucket] && slots_used >= model->shape->slots)
        return F8_EBUSY;
    return rank->use[bucket] == MODEL_UNUSED ? ROUND_PENDING : F8_EBUSY;
}

static int prepare_status(const struct model *model, const struct model_rank *rank, uint32_t bucket)
{
    if (model->state.broken)
        return F8_EBROKEN;
    bool unused = rank->early[bucket] == MODEL_NO_EARLY && rank->use[bucket] == MODEL_UNUSED;
    return unused ? F8_OK : F8_EBUSY;
}

static int quiesce_status(const struct model *model, uint32_t r)
{
    if (model_quiet(model, r))
        return F8_OK;
    return model->state.ranks[r].quiescing ? F8_EBUSY : ROUND_PENDING;
}

int model_step_status(const struct model *model, uint32_t r)
{
    const struct model_rank *rank = &model->state.ranks[r];
    char step = model->shape->programs[r][rank->step];
    switch (step) {
    case 'E':
        return model->state.broken ? F8_EBROKEN : F8_OK;
    case 'P':
        return ask_status(model, r, false, 0);
    case 'A':
    case 'B':
    case 'C':
        return ask_status(model, r, true, (uint32_t)(step - 'A'));
    case 'a':
    case 'b':
    case 'c':
        return rank->use[step - 'a'] == MODEL_HELD ? F8_OK : F8_EORDER;
    case 'x':
    case 'y':
    case 'z':
        return prepare_status(model, rank, (uint32_t)(step - 'x'));
    case 'q':
        return quiesce_status(model, r);
    default:
        return F8_EINVAL; /* its end */
    }
}

/* Everybody who is still there has been told how each collective ended, and no more. */
static void check_answers(struct model *model)
{
    const struct model_state *state = &model->state;
    bool over = model_over(state);
    for (uint32_t r = 0; r < MODEL_RANKS; r++) {
        const struct model_rank *rank = &state->ranks[r];
        if (!rank->alive)
            continue;
        uint32_t due = over || rank->asked < state->ended ? rank->asked : state->ended;
        model_require(model, rank->answered == due, "what has ended is answered at once");
        model_require(model, !rank->quiescing || !model_quiet(model, r),
            "quiesce is answered as soon as nothing reads");
    }
}

static void check_progress(struct model *model)
{
    const struct model_state *state = &model->state;
    uint32_t number = state->ended;
    if ((state->broken && !state->going_on) || state->running || !model_complete(state, number))
        return;
    bool blocked =
        state->ranks[0].kinds[number] == ROUND_GATHER &&
        (model_awaits_early(state) || !model_place_found(model, state->ranks[0].buckets[number]));
    model_require(model, blocked, "what can start does");
}

/* A rank that lives may never come back: only our own work is waited for. */
static void check_patience(struct model *model)
{
    const struct model_state *state = &model->state;
    for (uint32_t r = 0; r < MODEL_RANKS && state->broken; r++)
        if (state->ranks[r].alive && state->ranks[r].answered < state->ranks[r].asked)
            model_require(model, model_working(state) || cleaning(state),
                "after a break nothing waits for a rank");
}

static void check_places(struct model *model)
{
    const struct model_state *state = &model->state;
    for (uint32_t p = 0; p < MODEL_PLACES; p++)
        model_require(model, state->dirty[p] == model_place_held(state, p),
            "a place let go of by all is cleaned, once");
}

static uint64_t deadline(const struct model *model)
{
    const struct model_state *state = &model->state;
    bool work = state->running || model_awaits_early(state);
    uint64_t nearest = ROUND_NEVER;
    for (uint32_t r = 0; r < MODEL_RANKS; r++)
        for (uint32_t n = state->ended; n < state->ranks[r].asked; n++) {
            bool exempt = work && (n == state->ended || model_complete(state, n));
            if (!exempt && model_deadline_ms(r, n) < nearest)
                nearest = model_deadline_ms(r, n);
        }
    return state->broken ? ROUND_NEVER : nearest;
}

static bool has_open(const struct model_rank *rank, enum round_kind kind)
{
    for (uint32_t n = rank->answered; n < rank->asked; n++)
        if (rank->kinds[n] == kind)
            return true;
    return false;
}

static void check_rank(struct model *model, uint32_t r)
{
    static const char truth[] = "the queries tell the truth";
    const struct model_rank *rank = &model->state.ranks[r];
    const struct rounds *rounds = model->rounds;
    bool over = model_over(&model->state);
    for (uint32_t b = 0; b < MODEL_BUCKETS; b++) {
        bool held = rank->use[b] == MODEL_HELD;
        bool asked = rank->use[b] == MODEL_ASKED;
        model_require(model, round_holds(rounds, r, b) == held, truth);
        if (model->state.broken && !over)
            continue; /* a mismatched request is no use of its bucket */
        bool reads = asked || (!over && rank->early[b] != MODEL_NO_EARLY);
        model_require(model, round_uses(rounds, r, b) == (held || asked), truth);
        model_require(model, round_reads(rounds, r, b) == reads, truth);
    }
    if (model->state.broken)
        return;
    uint64_t next = model_first(model) + rank->asked;
    model_require(model, round_missing(rounds, next, r), truth);
    model_require(model, rank->asked == 0 || !round_missing(rounds, next - 1, r), truth);
    for (enum round_kind kind = ROUND_SEAL; kind <= ROUND_GATHER; kind++)
        model_require(model, round_asked(rounds, r, kind) == has_open(rank, kind), truth);
}

static void check_head(struct model *model)
{
    static const char truth[] = "the head is told as it is";
    const struct model_state *state = &model->state;
    struct round_head head;
    bool open = false;
    for (uint32_t r = 0; r < MODEL_RANKS; r++)
        open |= state->ranks[r].asked > state->ended;
    if (model_over(state))
        open = false;
    bool has_head = round_head(model->rounds, &head);
    model_require(model, has_head == open, truth);
    bool drained = !open && !model_working(state) && !cleaning(state);
    model_require(model, round_drained(model->rounds) == drained, truth);
    if (!has_head)
        return;
    model_require(model, head.run.number == model_first(model) + state->ended, truth);
    model_require(model, head.running == state->running, truth);
    model_require(model, head.complete == model_complete(state, state->ended), truth);
}

void model_check(struct model *model)
{
    if (model->state.going_on && !model->state.running)
        model->state.going_on = model_needs_no_rank(model);
    check_patience(model);
    check_answers(model);
    check_progress(model);
    check_places(model);
    check_head(model);
    for (uint32_t r = 0; r < MODEL_RANKS; r++)
        if (model->state.ranks[r].alive)
            check_rank(model, r);
    model_require(
        model, round_deadline(model->rounds) == deadline(model), "the deadline is the nearest");
    model_require(model, round_is_broken(model->rounds) == model->state.broken,
        "the break is told as soon as it happens");
    model_require(
        model, round_completed(model->rounds) == model->state.ended, "what ends well is counted");
}
