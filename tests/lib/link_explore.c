/* SPDX-License-Identifier: Apache-2.0 */
/* The search of link_explore.h. */
#include "tests/lib/link_explore.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/explored.h"

#define DEPTH_MAX 400

/* A state on the path, and which of its events are still to be tried. */
struct frame {
    struct link_state state;
    uint8_t *saved; /* owned: the world */
    size_t capacity;
    uint64_t hash;
    struct link_event events[LINK_EVENTS_MAX];
    int count, next;
    bool moved;  /* an event that is no fault led elsewhere */
    bool forced; /* the events are the deadlines that are left once nothing moves */
};

struct search {
    struct visited visited;
    struct frame *frames;            /* owned: DEPTH_MAX */
    struct link_exploration *result; /* borrowed: the caller's */
};

static void save(struct frame *frame, uint64_t hash)
{
    size_t size = world_size();
    if (size > frame->capacity) {
        free(frame->saved);
        frame->capacity = size * 2;
        frame->saved = must_calloc(1, frame->capacity);
    }
    world_save(frame->saved);
    frame->state = link_model.state;
    frame->hash = hash;
    frame->count = link_events(frame->events, false);
    frame->next = 0;
    frame->moved = false;
    frame->forced = false;
}

static void restore(const struct frame *frame)
{
    world_restore(frame->saved);
    link_model.state = frame->state;
}

static void tell_path(struct search *search, uint32_t depth)
{
    struct link_exploration *result = search->result;
    size_t used = 0;
    for (uint32_t d = 0; d <= depth && used + 1 < sizeof(result->path); d++) {
        const struct frame *frame = &search->frames[d];
        if (frame->next == 0)
            break;
        char text[64];
        restore(frame);
        link_event_text(frame->events[frame->next - 1], text, sizeof(text));
        used += (size_t)snprintf(result->path + used, sizeof(result->path) - used, "%s\n", text);
    }
}

static bool is_fault(uint8_t kind)
{
    return kind == LINK_FAILURE || kind == LINK_DEATH || kind == LINK_LEAVE ||
           kind == LINK_DEADLINE;
}

/* Tries the next event of the frame; true if it led to a new state, which is then a new frame. */
static bool try_next(struct search *search, uint32_t depth)
{
    struct frame *frame = &search->frames[depth];
    restore(frame);
    struct link_event event = frame->events[frame->next++];
    link_apply(event);
    search->result->transitions++;
    uint64_t hash = link_hash();
    if (hash != frame->hash && !is_fault(event.kind))
        frame->moved = true;
    if (link_model.violation || !visited_put(&search->visited, hash))
        return false;
    search->result->recovered += link_recovered();
    save(frame + 1, hash);
    return true;
}

/* All events were tried: true if only deadlines are left, which are then tried too. */
static bool come_to_end(struct frame *frame)
{
    if (frame->moved || frame->forced)
        return false;
    restore(frame);
    frame->forced = true;
    frame->next = 0;
    frame->count = link_events(frame->events, true);
    if (frame->count == 0)
        link_check_end();
    if (!link_model.shape->crossed && frame->state.faults == 0 && !frame->state.forced)
        link_require(link_all_ended(), "without a fault all programs come to their end");
    return frame->count > 0;
}

static void run(struct search *search, uint64_t states_max)
{
    uint32_t depth = 0;
    uint64_t hash = link_hash();
    (void)visited_put(&search->visited, hash);
    save(&search->frames[0], hash);
    while (!link_model.violation && !search->result->cut) {
        struct frame *frame = &search->frames[depth];
        if (frame->next < frame->count) {
            depth += try_next(search, depth);
            if (depth + 1 == DEPTH_MAX)
                link_require(false, "a path is longer than the explorer allows");
        } else if (!come_to_end(frame) && !link_model.violation && depth-- == 0) {
            break;
        }
        search->result->cut = search->visited.count >= states_max;
        if (depth > search->result->deepest)
            search->result->deepest = depth;
    }
    if (link_model.violation)
        tell_path(search, depth);
}

void link_explore(
    const struct link_shape *shape, uint64_t states_max, struct link_exploration *ret_result)
{
    struct search search = {.result = ret_result};
    *ret_result = (struct link_exploration){0};
    visited_init(&search.visited);
    search.frames = must_calloc(DEPTH_MAX, sizeof(*search.frames));
    link_begin(shape);
    if (!link_model.violation)
        run(&search, states_max);
    ret_result->states = search.visited.count;
    ret_result->violation = link_model.violation;
    for (uint32_t d = 0; d < DEPTH_MAX; d++)
        free(search.frames[d].saved);
    free(search.frames);
    visited_done(&search.visited);
}
