/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search of round_explore.h, and the shapes that are explored.
 */
#include "tests/lib/round_explore.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/round_tables.h"

#define DEPTH_MAX 512

/* The hashes of the states that were seen: open addressing; 0 is an empty cell. */
struct visited {
    uint64_t *cells; /* owned */
    uint64_t mask, count;
};

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

static void *must_calloc(size_t count, size_t size)
{
    void *memory = calloc(count, size);
    if (!memory) {
        (void)fprintf(stderr, "round_explore: no memory for %zu x %zu bytes\n", count, size);
        exit(EXIT_FAILURE);
    }
    return memory;
}

static bool put(struct visited *visited, uint64_t hash)
{
    for (uint64_t at = hash & visited->mask;; at = (at + 1) & visited->mask) {
        if (visited->cells[at] == hash)
            return false;
        if (visited->cells[at] == 0) {
            visited->cells[at] = hash;
            visited->count++;
            return true;
        }
    }
}

static void grow(struct visited *visited)
{
    struct visited larger = {.mask = visited->mask * 2 + 1};
    larger.cells = must_calloc(larger.mask + 1, sizeof(*larger.cells));
    for (uint64_t i = 0; i <= visited->mask; i++)
        if (visited->cells[i] != 0)
            (void)put(&larger, visited->cells[i]);
    free(visited->cells);
    *visited = larger;
}

static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t size)
{
    const uint8_t *at = bytes;
    for (; size > 0; size -= size < 8 ? size : 8, at += 8) {
        uint64_t word = 0;
        memcpy(&word, at, size < 8 ? size : 8);
        hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
    }
    return hash;
}

/*
 * A copy of the machine without what it will not read again: records and tags of collectives that
 * have ended, the last place of a shared bucket that nobody uses. Else one state counts as many.
 */
static const void *canonical(struct search *search)
{
    memcpy(search->scratch, search->model.rounds, search->block_size);
    struct rounds *copy = (struct rounds *)search->scratch;
    for (uint64_t n = copy->tail; n < copy->head + copy->depth; n++) {
        memset(record_at(copy, n), 0, sizeof(struct record));
        memset(tag_at(copy, n, 0), 0, MODEL_RANKS * sizeof(uint64_t));
    }
    for (uint64_t n = copy->head; n < copy->tail; n++)
        for (uint32_t r = 0; r < MODEL_RANKS; r++)
            if (rank_at(copy, r)->next <= n)
                *tag_at(copy, n, r) = 0;
    for (uint32_t b = 0; b < MODEL_BUCKETS; b++) {
        bool used = copy->running;
        for (uint32_t r = 0; r < MODEL_RANKS; r++)
            used |= *use_at(copy, r, b) == USE_HELD;
        if (!used && bucket_at(copy, b)->shared)
            bucket_at(copy, b)->place = ROUND_NO_PLACE;
    }
    return copy;
}

/* Whether the present state is new. */
static bool enter_state(struct search *search)
{
    uint64_t hash = hash_bytes(1, canonical(search), search->block_size);
    hash = hash_bytes(hash, &search->model.state, sizeof(search->model.state));
    if (!put(&search->visited, hash ? hash : 1))
        return false;
    if (search->visited.count * 5 > search->visited.mask * 3)
        grow(&search->visited);
    return true;
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
    struct search search = {.result = ret_result, .visited = {.mask = (1u << 16) - 1}};
    *ret_result = (struct exploration){0};
    model_init(&search.model, shape);
    search.block_size = round_size(search.model.rounds);
    search.visited.cells = must_calloc(search.visited.mask + 1, sizeof(uint64_t));
    search.frames = must_calloc(DEPTH_MAX, sizeof(*search.frames));
    search.blocks = must_calloc(DEPTH_MAX, search.block_size);
    search.scratch = must_calloc(1, search.block_size);
    run(&search, states_max);
    ret_result->states = search.visited.count;
    ret_result->violation = search.model.violation;
    free(search.visited.cells);
    free(search.frames);
    free(search.blocks);
    free(search.scratch);
    model_done(&search.model);
}
