/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the state machine of rounds must do, said a second time and differently: a small model of
 * three ranks with programs, of places and of work in flight. It gives the machine its events,
 * is its ops, and holds every call, answer and state to the invariants; the first that does not
 * hold is named. round_explore.c drives it through all interleavings. Single-threaded.
 */
#ifndef F8_TESTS_ROUND_MODEL_H
#define F8_TESTS_ROUND_MODEL_H

#include "daemon/round.h"

#define MODEL_RANKS      3
#define MODEL_BUCKETS    3
#define MODEL_PLACES     5 /* up to two slots, then the own places */
#define MODEL_NUMBERS    8 /* collectives in a program, at most */
#define MODEL_EVENTS_MAX 40

/*
 * What is explored. A program is what a rank does, a letter a step: E enters; P asks for a
 * precompute; A, B, C for a gather; a, b, c release; x, y, z prepare A, B, C; q quiesces. A step
 * that is refused is taken later. After a break all begin their programs again, once.
 */
struct model_shape {
    const char *name;
    const char *programs[MODEL_RANKS];
    uint32_t slots, depth;
    bool shared[MODEL_BUCKETS]; /* whether the bucket takes a slot */
    bool poison;                /* whether places must be cleaned */
    bool idle;                  /* rank 2 begins nothing when it prepares */
    bool refused;               /* start() refuses the second collective */
};

enum model_use {
    MODEL_UNUSED,
    MODEL_ASKED,
    MODEL_HELD,
};

enum model_early {
    MODEL_NO_EARLY,
    MODEL_PREPARING,
    MODEL_PREPARED,
};

/* All bytes of the state are meaningful, so that it can be hashed. */
struct model_rank {
    uint8_t step; /* of its program */
    uint8_t entered, alive;
    uint8_t asked, answered;
    uint8_t quiescing;
    uint8_t use[MODEL_BUCKETS];          /* an enum model_use */
    uint8_t early[MODEL_BUCKETS];        /* an enum model_early */
    uint8_t early_writes[MODEL_BUCKETS]; /* whether that writes to the bucket's own place */
    uint8_t kinds[MODEL_NUMBERS];        /* what it asked for: an enum round_kind */
    uint8_t buckets[MODEL_NUMBERS];
};

struct model_state {
    struct model_rank ranks[MODEL_RANKS];
    uint8_t place_of[MODEL_BUCKETS];
    uint8_t dirty[MODEL_PLACES]; /* gathered into, and not let go of */
    uint8_t cleaning[MODEL_PLACES];
    int8_t outcomes[MODEL_NUMBERS]; /* status, or 1 */
    uint8_t generation;
    uint8_t running;
    uint8_t run_place;
    uint8_t ended; /* collectives that ended well; the next is the one to run */
    uint8_t broken;
    uint8_t going_on; /* broken by a death: what was complete may still run */
    int8_t status;    /* of the first cause */
};

enum model_event_kind {
    EVENT_STEP,     /* rank */
    EVENT_FINISHED, /* the run, well */
    EVENT_FAILED,   /* the run, badly */
    EVENT_PREPARED, /* rank, what: bucket */
    EVENT_CLEANED,  /* what: place */
    EVENT_RELEASE,  /* rank, what: bucket; after the break */
    EVENT_QUIESCE,  /* rank; after the break */
    EVENT_DEADLINE,
    EVENT_REJOIN,
    EVENT_DEATH, /* rank; rank 1 leaves instead */
};

struct model_event {
    uint8_t kind; /* an enum model_event_kind */
    uint8_t rank, what;
};

struct model {
    const struct model_shape *shape; /* borrowed: from the test */
    struct rounds *rounds;           /* owned */
    struct rounds *fresh[2];         /* owned; the machine of each generation before any event */
    struct model_state state;
    /* For the event that is under way: */
    struct model_event event;
    int ending;            /* the collective that it ended well, or -1 */
    int trouble;           /* the enum round_trouble that it must lead to, or -1 */
    bool probing;          /* nothing may happen */
    const char *violation; /* borrowed: static; the first invariant that did not hold */
};

/* Exits if memory is short. */
void model_init(struct model *model, const struct model_shape *shape);
void model_done(struct model *model);

/* All events that are possible, at most MODEL_EVENTS_MAX. */
int model_events(struct model *model, struct model_event *events);

/* Lets an event happen and checks all that follows. */
void model_apply(struct model *model, struct model_event event);

/* Tries all that must be refused or do nothing in this state. */
void model_probe(struct model *model);

/* An event as text. */
void model_event_text(const struct model *model, struct model_event event, char *text, size_t size);

/* ---- between round_model.c, which is the ops and the events, and round_invariants.c ---- */

extern const struct round_ops model_ops;

void model_require(struct model *model, bool holds, const char *invariant);

/* Checks the state between two events against what the machine says of itself. */
void model_check(struct model *model);

/* What round_ask and the other calls must return for a rank's next step. */
int model_step_status(const struct model *model, uint32_t rank);

uint64_t model_tag(const struct model *model, uint32_t rank, uint32_t number);
uint64_t model_first(const struct model *model);
uint64_t model_deadline_ms(uint32_t rank, uint32_t number);

bool model_place_held(const struct model_state *state, uint32_t place);
bool model_place_written(const struct model *model, uint32_t place);

/* A place that a gather of the bucket can take now. */
bool model_place_found(const struct model *model, uint32_t bucket);

/* Whether the collective to run next is complete, for someone, and waits for no rank's doing. */
bool model_needs_no_rank(const struct model *model);

/* Whether the machine is broken and nothing will run in it any more. */
bool model_over(const struct model_state *state);

uint32_t model_early_running(const struct model_state *state, uint32_t bucket);

/* Whether work is in flight: a run or an early part. */
bool model_working(const struct model_state *state);

/* Whether nothing reads shards of the rank. */
bool model_quiet(const struct model *model, uint32_t rank);

/* Whether all ranks have asked for collective `number`. */
bool model_complete(const struct model_state *state, uint32_t number);

/* Whether the collective to run next has all its ranks and waits for early parts. */
bool model_awaits_early(const struct model_state *state);

#endif
