/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The events of the model of round_model.h: which are possible, and how each is told to the state
 * machine.
 */
#include "tests/lib/round_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "status.h"

static void begin_generation(struct model *model, uint8_t generation)
{
    model->state = (struct model_state){.generation = generation};
    for (uint32_t r = 0; r < MODEL_RANKS; r++)
        model->state.ranks[r].alive = true;
    memset(model->state.outcomes, 1, sizeof(model->state.outcomes));
    memcpy(model->rounds, model->fresh[generation], round_size(model->rounds));
}

static struct rounds *new_machine(struct model *model, uint8_t generation)
{
    model->state.generation = generation;
    struct round_shape shape = {
        .ranks = MODEL_RANKS,
        .buckets = MODEL_BUCKETS,
        .slots = model->shape->slots,
        .depth = model->shape->depth,
        .shared = model->shape->shared,
        .first = model_first(model),
        .sealed = true,
    };
    struct rounds *rounds = round_new(&shape, &model_ops, model);
    if (!rounds) {
        (void)fprintf(stderr, "round_model: no memory for a machine\n");
        exit(EXIT_FAILURE);
    }
    return rounds;
}

void model_init(struct model *model, const struct model_shape *shape)
{
    *model = (struct model){.shape = shape, .ending = -1, .trouble = -1};
    for (uint8_t generation = 0; generation < 2; generation++)
        model->fresh[generation] = new_machine(model, generation);
    model->rounds = new_machine(model, 0);
    begin_generation(model, 0);
}

void model_done(struct model *model)
{
    free(model->rounds);
    free(model->fresh[0]);
    free(model->fresh[1]);
}

static int add(
    struct model_event *events, int count, enum model_event_kind kind, uint32_t rank, uint32_t what)
{
    events[count] = (struct model_event){(uint8_t)kind, (uint8_t)rank, (uint8_t)what};
    return count + 1;
}

/* The end of whatever is in flight. */
static int add_ends(const struct model_state *state, struct model_event *events, int count)
{
    if (state->running) {
        count = add(events, count, EVENT_FINISHED, 0, 0);
        count = add(events, count, EVENT_FAILED, 0, 0);
    }
    for (uint32_t r = 0; r < MODEL_RANKS; r++)
        for (uint32_t b = 0; b < MODEL_BUCKETS; b++)
            if (state->ranks[r].early[b] == MODEL_PREPARING)
                count = add(events, count, EVENT_PREPARED, r, b);
    for (uint32_t p = 0; p < MODEL_PLACES; p++)
        if (state->cleaning[p])
            count = add(events, count, EVENT_CLEANED, 0, p);
    return count;
}

/* What a rank can do after the break: let go of what it holds, and wait. */
static int add_late(const struct model *model, uint32_t r, struct model_event *events, int count)
{
    const struct model_rank *rank = &model->state.ranks[r];
    for (uint32_t b = 0; b < MODEL_BUCKETS; b++)
        if (rank->use[b] == MODEL_HELD)
            count = add(events, count, EVENT_RELEASE, r, b);
    if (strchr(model->shape->programs[r], 'q') && !rank->quiescing && !model_quiet(model, r))
        count = add(events, count, EVENT_QUIESCE, r, 0);
    return count;
}

static bool waits(const struct model_state *state)
{
    for (uint32_t r = 0; r < MODEL_RANKS; r++)
        if (state->ranks[r].alive &&
            (state->ranks[r].asked > state->ranks[r].answered || state->ranks[r].quiescing))
            return true;
    return false;
}

int model_events(struct model *model, struct model_event *events)
{
    const struct model_state *state = &model->state;
    int count = add_ends(state, events, 0);
    for (uint32_t r = 0; r < MODEL_RANKS; r++) {
        if (!state->ranks[r].alive)
            continue;
        if (state->broken)
            count = add_late(model, r, events, count);
        else if (model_step_status(model, r) >= 0)
            count = add(events, count, EVENT_STEP, r, 0);
    }
    if (round_deadline(model->rounds) != ROUND_NEVER)
        count = add(events, count, EVENT_DEADLINE, 0, 0);
    model_require(model, count > 0 || !waits(state), "nothing waits for ever");
    if (state->broken && state->generation == 0 && round_drained(model->rounds))
        count = add(events, count, EVENT_REJOIN, 0, 0);
    for (uint32_t r = 0; r < MODEL_RANKS; r++)
        if (state->ranks[r].alive && state->ranks[r].entered)
            count = add(events, count, EVENT_DEATH, r, 0);
    return count;
}

/* Whether the rank's next request disagrees with one of the same number. */
static bool disagrees(
    const struct model_state *state, uint32_t rank, enum round_kind kind, uint32_t bucket)
{
    uint32_t number = state->ranks[rank].asked;
    for (uint32_t r = 0; r < MODEL_RANKS; r++) {
        const struct model_rank *other = &state->ranks[r];
        if (other->asked > number &&
            (other->kinds[number] != kind ||
                (kind == ROUND_GATHER && other->buckets[number] != bucket)))
            return true;
    }
    return false;
}

static int ask(struct model *model, uint32_t r, enum round_kind kind, uint32_t bucket)
{
    struct model_rank *rank = &model->state.ranks[r];
    struct round_request request = {
        .tag = model_tag(model, r, rank->asked),
        .deadline_ms = model_deadline_ms(r, rank->asked),
        .kind = kind,
        .bucket = bucket,
    };
    if (model->probing)
        return round_ask(model->rounds, 0, r, &request);
    if (disagrees(&model->state, r, kind, bucket))
        model->trouble = ROUND_MISMATCH;
    rank->kinds[rank->asked] = (uint8_t)kind;
    rank->buckets[rank->asked] = (uint8_t)bucket;
    rank->asked++;
    if (kind == ROUND_GATHER)
        rank->use[bucket] = MODEL_ASKED;
    return round_ask(model->rounds, 0, r, &request);
}

static int release(struct model *model, uint32_t r, uint32_t bucket)
{
    if (!model->probing)
        model->state.ranks[r].use[bucket] = MODEL_UNUSED;
    return round_release(model->rounds, r, bucket);
}

static int quiesce(struct model *model, uint32_t r)
{
    int status = round_quiesce(model->rounds, r, r + 1);
    if (status == ROUND_PENDING)
        model->state.ranks[r].quiescing = true;
    return status;
}

/* Makes the rank's next step and gives what was returned. */
static int step(struct model *model, uint32_t r)
{
    struct model_rank *rank = &model->state.ranks[r];
    char letter = model->shape->programs[r][rank->step];
    switch (letter) {
    case 'E':
        rank->entered = true;
        round_enter(model->rounds, r);
        return F8_OK;
    case 'P':
        return ask(model, r, ROUND_PRECOMPUTE, 0);
    case 'A':
    case 'B':
    case 'C':
        return ask(model, r, ROUND_GATHER, (uint32_t)(letter - 'A'));
    case 'a':
    case 'b':
    case 'c':
        return release(model, r, (uint32_t)(letter - 'a'));
    case 'x':
    case 'y':
    case 'z':
        return round_prepare(model->rounds, r, (uint32_t)(letter - 'x'));
    default:
        return quiesce(model, r);
    }
}

static void finish(struct model *model, int status)
{
    struct model_state *state = &model->state;
    const struct model_rank *any = &state->ranks[0];
    uint32_t number = state->ended, bucket = any->buckets[number];
    state->running = false;
    state->dirty[state->run_place] |= any->kinds[number] == ROUND_GATHER;
    if (status < 0) {
        model->trouble = ROUND_RUN_FAILED;
        state->going_on = false;
    } else {
        model->ending = state->ended++;
        for (uint32_t r = 0; r < MODEL_RANKS && any->kinds[number] == ROUND_GATHER; r++)
            state->ranks[r].early[bucket] = MODEL_NO_EARLY;
    }
    state->run_place = 0;
    round_finished(model->rounds, status);
}

static void die(struct model *model, uint32_t r)
{
    struct model_rank *rank = &model->state.ranks[r];
    bool leaves = r == 1;
    rank->alive = false;
    rank->quiescing = false;
    memset(rank->use, MODEL_UNUSED, sizeof(rank->use));
    model->trouble = leaves ? ROUND_RANK_LEFT : ROUND_RANK_DIED;
    round_leave(model->rounds, r, !leaves);
}

static void take_step(struct model *model, uint32_t r)
{
    int expected = model_step_status(model, r);
    model_require(
        model, step(model, r) == expected, "a request is accepted or refused by the rules");
    model->state.ranks[r].step++;
}

static void give_event(struct model *model, struct model_event event)
{
    struct model_state *state = &model->state;
    switch ((enum model_event_kind)event.kind) {
    case EVENT_STEP:
        take_step(model, event.rank);
        break;
    case EVENT_FINISHED:
        finish(model, F8_OK);
        break;
    case EVENT_FAILED:
        finish(model, F8_EIO);
        break;
    case EVENT_PREPARED:
        state->ranks[event.rank].early[event.what] = MODEL_PREPARED;
        state->ranks[event.rank].early_writes[event.what] = false;
        round_prepared(model->rounds, event.rank, event.what);
        break;
    case EVENT_CLEANED:
        state->cleaning[event.what] = false;
        round_cleaned(model->rounds, event.what);
        break;
    case EVENT_RELEASE:
        model_require(model, release(model, event.rank, event.what) == F8_OK,
            "what is held can be released, also after the break");
        break;
    case EVENT_QUIESCE:
        model_require(model, quiesce(model, event.rank) == ROUND_PENDING,
            "quiesce waits, also after the break");
        break;
    case EVENT_DEADLINE:
        model->trouble = ROUND_OVERDUE;
        round_tick(model->rounds, round_deadline(model->rounds));
        break;
    case EVENT_REJOIN:
        begin_generation(model, 1);
        break;
    case EVENT_DEATH:
        die(model, event.rank);
        break;
    }
}

void model_apply(struct model *model, struct model_event event)
{
    model->event = event;
    model->ending = model->trouble = -1;
    give_event(model, event);
    model_require(model, model->trouble < 0 || model->state.broken, "a failure breaks the machine");
    model_check(model);
}

static void probe_rank(struct model *model, uint32_t r)
{
    static const char refused[] = "a request is accepted or refused by the rules";
    const struct model_rank *rank = &model->state.ranks[r];
    if (!rank->alive)
        round_leave(model->rounds, r, true);
    for (uint32_t b = 0; b < MODEL_BUCKETS; b++)
        if (rank->use[b] != MODEL_HELD)
            model_require(model, round_release(model->rounds, r, b) == F8_EORDER, refused);
    if (!rank->alive || !rank->entered)
        return;
    int expected = model_step_status(model, r);
    if (expected < 0 && expected != F8_EINVAL)
        model_require(model, step(model, r) == expected, refused);
    if (!model->state.broken)
        return;
    model_require(model, ask(model, r, ROUND_PRECOMPUTE, 0) == F8_EBROKEN, refused);
    model_require(model, round_prepare(model->rounds, r, 0) == F8_EBROKEN, refused);
}

void model_probe(struct model *model)
{
    model->probing = true;
    for (uint32_t r = 0; r < MODEL_RANKS; r++)
        probe_rank(model, r);
    round_tick(model->rounds, round_deadline(model->rounds) - 1);
    model->probing = false;
}

void model_event_text(const struct model *model, struct model_event event, char *text, size_t size)
{
    static const char *const names[] = {
        [EVENT_STEP] = "takes step",
        [EVENT_FINISHED] = "the run ends well",
        [EVENT_FAILED] = "the run fails",
        [EVENT_PREPARED] = "its early part ends, bucket",
        [EVENT_CLEANED] = "cleaned: place",
        [EVENT_RELEASE] = "releases bucket",
        [EVENT_QUIESCE] = "quiesces",
        [EVENT_DEADLINE] = "the deadline passes",
        [EVENT_REJOIN] = "all join again",
        [EVENT_DEATH] = "dies (rank 1: leaves)",
    };
    const char *name = names[event.kind];
    uint32_t step = model->state.ranks[event.rank].step;
    switch ((enum model_event_kind)event.kind) {
    case EVENT_STEP:
        (void)snprintf(text, size, "rank %u %s %c", event.rank, name,
            model->shape->programs[event.rank][step]);
        break;
    case EVENT_PREPARED:
    case EVENT_RELEASE:
        (void)snprintf(text, size, "rank %u: %s %c", event.rank, name, 'A' + event.what);
        break;
    case EVENT_CLEANED:
        (void)snprintf(text, size, "%s %u", name, event.what);
        break;
    case EVENT_QUIESCE:
    case EVENT_DEATH:
        (void)snprintf(text, size, "rank %u %s", event.rank, name);
        break;
    default:
        (void)snprintf(text, size, "%s", name);
    }
}
