/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search of round_explore.h, and the shapes that are explored.
 */
#include "tests/lib/round_explore.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/explored.h"

#define DEPTH_MAX 512

/* A state on the path, and which of its events are still to be tried. */
struct frame {
    struct model_state state;
    struct model_event events[MODEL_EVENTS_MAX];
    int count, next;
};

struct search {
    struct model model;
    struct visited visited;
    struct frame *frames; /* owned: DEPTH_MAX */
    uint8_t *blocks;      /* owned: the machine of each frame */
    uint8_t *scratch;     /* owned: one machine */
    size_t block_size;
    struct exploration *result; /* borrowed: the caller's */
};

/* A copy of the machine, of which two that behave alike are the same bytes. */
static const void *canonical(struct search *search)
{
    memcpy(search->scratch, search->model.rounds, search->block_size);
    make_canonical((struct rounds *)search->scratch);
    return search->scratch;
}

/* Whether the present state is new. */
static bool enter_state(struct search *search)
{
    uint64_t hash = hash_bytes(1, canonical(search), search->block_size);
    hash = hash_bytes(hash, &search->model.state, sizeof(search->model.state));
    return visited_put(&search->visited, hash);
}

static void save(struct search *search, uint32_t depth)
{
    struct frame *frame = &search->frames[depth];
    frame->state = search->model.state;
    memcpy(search->blocks + depth * search->block_size, search->model.rounds, search->block_size);
    frame->count = model_events(&search->model, frame->events);
    frame->next = 0;
}

static void restore(struct search *search, uint32_t depth)
{
    search->model.state = search->frames[depth].state;
    memcpy(search->model.rounds, search->blocks + depth * search->block_size, search->block_size);
}

/* In the state just saved: what must be refused is, and leaves no trace. */
static void probe(struct search *search, uint32_t depth)
{
    model_probe(&search->model);
    bool same =
        memcmp(search->model.rounds, search->blocks + depth * search->block_size,
            search->block_size) == 0 &&
        memcmp(&search->model.state, &search->frames[depth].state, sizeof(struct model_state)) == 0;
    model_require(&search->model, same, "what is refused changes nothing");
}

static void tell_path(struct search *search, uint32_t depth)
{
    struct exploration *result = search->result;
    size_t used = 0;
    for (uint32_t d = 0; d <= depth && used + 1 < sizeof(result->path); d++) {
        const struct frame *frame = &search->frames[d];
        if (frame->next == 0)
            break;
        char text[64];
        struct model at = search->model;
        at.state = frame->state;
        model_event_text(&at, frame->events[frame->next - 1], text, sizeof(text));
        int more = snprintf(result->path + used, sizeof(result->path) - used, "%s\n", text);
        used += (size_t)more;
    }
}

/* Tries the next event of the frame; true if it led to a new state, which is then a new frame. */
static bool try_next(struct search *search, uint32_t depth)
{
    struct frame *frame = &search->frames[depth];
    restore(search, depth);
    model_apply(&search->model, frame->events[frame->next++]);
    search->result->transitions++;
    if (search->model.violation || !enter_state(search))
        return false;
    save(search, depth + 1);
    probe(search, depth + 1);
    return true;
}

static void run(struct search *search, uint64_t states_max)
{
    uint32_t depth = 0;
    (void)enter_state(search);
    save(search, 0);
    for (;;) {
        if (search->frames[depth].next < search->frames[depth].count) {
            bool deeper = try_next(search, depth);
            depth += deeper;
            if (depth + 1 == DEPTH_MAX)
                model_require(&search->model, false, "a path is longer than the explorer allows");
        } else if (depth-- == 0) {
            break;
        }
        search->result->cut = search->visited.count >= states_max;
        if (search->model.violation || search->result->cut)
            break;
        if (depth > search->result->deepest)
            search->result->deepest = depth;
    }
    if (search->model.violation)
        tell_path(search, depth);
}

void explore(const struct model_shape *shape, uint64_t states_max, struct exploration *ret_result)
{
    struct search search = {.result = ret_result};
    *ret_result = (struct exploration){0};
    model_init(&search.model, shape);
    search.block_size = round_size(search.model.rounds);
    visited_init(&search.visited);
    search.frames = must_calloc(DEPTH_MAX, sizeof(*search.frames));
    search.blocks = must_calloc(DEPTH_MAX, search.block_size);
    search.scratch = must_calloc(1, search.block_size);
    run(&search, states_max);
    ret_result->states = search.visited.count;
    ret_result->violation = search.model.violation;
    visited_done(&search.visited);
    free(search.frames);
    free(search.blocks);
    free(search.scratch);
    model_done(&search.model);
}
