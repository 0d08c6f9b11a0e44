/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks with programs over several groups, in the world of link_world.h, where the daemon's own
 * collectives run: gives them their events, hears their answers, and holds what follows to the
 * invariants of groups that share amaxes, said independently; the first that does not hold is
 * named. link_explore.c drives it through all interleavings. Single-threaded.
 */
#ifndef F8_TESTS_LINK_MODEL_H
#define F8_TESTS_LINK_MODEL_H

#include "tests/lib/link_world.h"

#define LINK_NUMBERS    40 /* collectives of a group over all generations, at most */
#define LINK_EVENTS_MAX 48
#define LINK_NOBODY     UINT8_MAX

/* A group: ranks of the world that are in it, in this order; a bucket of one weight a letter. */
struct link_group {
    char letter;         /* '\0': there is none */
    uint8_t ranks;       /* a bit each */
    char amax_group;     /* letter of the group that the weights name, or '\0' */
    const char *buckets; /* 'd' dynamic, 'y' delayed, 's' static; 'D', 'E': see names_of */
};

/*
 * What is explored. A program is what a rank does: jA joins group A, or joins it again once it is
 * broken; sA seals it, pA precomputes, yA syncs, iA invalidates; gA0 gathers its bucket 0, rA0
 * releases, xA0 pre-gathers, cA0 says that its values changed; '.' waits until all is answered; '|'
 * is where exploring begins. A step that is refused is taken later, or left out if it can never be;
 * after a failure a rank waits
 * for all answers, releases what it holds, and begins its program anew, once.
 */
struct link_shape {
    const char *name;
    struct link_group groups[LINK_GROUPS];
    const char *programs[LINK_RANKS];
    const char *again[LINK_RANKS]; /* what they begin anew with; NULL: the same */
    uint32_t faults; /* deaths, leaves, deadlines and failed reservations together, at most */
    bool deaths, leaves, deadlines, failures;
    bool hasty;   /* ranks begin anew before all is answered */
    bool crossed; /* ranks may wait for one another: only the deadline ends it */
};

/* All bytes are meaningful, so that it can be hashed. */
struct link_rank {
    uint64_t open; /* by position in the program: requests without an answer */
    uint8_t position, life, attempt;
    uint8_t alive, failed;
    uint8_t held[LINK_GROUPS]; /* a bit a bucket */
};

struct link_state {
    struct link_rank ranks[LINK_RANKS];
    int8_t outcomes[LINK_GROUPS][LINK_NUMBERS]; /* status, or 1 */
    uint64_t generations[LINK_GROUPS];          /* that what follows is of */
    uint8_t gathered[LINK_GROUPS][LINK_BUCKETS];
    uint32_t precomputed[LINK_GROUPS][LINK_BUCKETS]; /* amax bits */
    uint8_t faults, forced;
    uint8_t unused[6]; /* so that no byte is padding */
};

enum link_event_kind {
    LINK_STEP,    /* rank */
    LINK_WORK,    /* what: of the works in flight */
    LINK_RESERVE, /* what: of the reservations; well */
    LINK_FAILURE, /* the same; without memory */
    LINK_DEATH,   /* rank; what: 1 leaves the group it joined last first, as clients do */
    LINK_LEAVE,   /* the same, in peace */
    LINK_REVIVAL, /* rank: another process takes its part */
    LINK_DEADLINE /* what: group */
};

struct link_event {
    uint8_t kind; /* an enum link_event_kind */
    uint8_t rank, what;
};

struct link_model {
    const struct link_shape *shape; /* borrowed: from the test */
    struct link_state state;
    const char *violation; /* borrowed: static; the first invariant that did not hold */
};
extern struct link_model link_model;

/* A world in which all ranks have come to their '|'. */
void link_begin(const struct link_shape *shape);

/* All events that are possible, at most LINK_EVENTS_MAX; with `forced` deadlines alone. */
int link_events(struct link_event *events, bool forced);

/* Lets an event happen and checks all that follows. */
void link_apply(struct link_event event);

/* Nothing is possible any more: has everybody got what is due? */
void link_check_end(void);

/* Whether all programs came to their end; whether they did after something had gone wrong. */
bool link_all_ended(void);
bool link_recovered(void);

uint64_t link_hash(void);

void link_event_text(struct link_event event, char *text, size_t size);

/* ---- between link_model.c, link_steps.c and link_invariants.c ---- */

void link_require(bool holds, const char *invariant);
void link_check(void);

/* The program of a rank in its present attempt; from where it is. */
const char *link_program(uint32_t rank);
const char *link_token(uint32_t rank);

/* Takes a rank's next step; false if it was refused, or must wait. */
bool link_step(uint32_t rank);

uint32_t link_slot(char letter);
bool link_is_in(uint32_t group, uint32_t rank);
uint32_t link_rank_in(uint32_t group, uint32_t rank);

/* The live rank's member, or NULL. */
struct member *link_member(uint32_t group, uint32_t rank);

/* The group whose ranks the amaxes of a group's weights are taken over. */
uint32_t link_leader(uint32_t group);

/* Whether the rank waits for an answer of the group; to a gather, if `gathers`. */
bool link_waits(uint32_t rank, uint32_t group, bool gathers);

/* What the rank's shard has now, and the largest of all ranks' that count. */
uint32_t link_amax(uint32_t rank, uint32_t group, uint32_t bucket);
uint32_t link_amax_of_all(uint32_t group, uint32_t bucket);

#endif
