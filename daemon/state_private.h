/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the store share: state.c (which states there are, and for how long) and
 * state_saved.c (their snapshots). On the loop.
 */
#ifndef F8_DAEMON_STATE_PRIVATE_H
#define F8_DAEMON_STATE_PRIVATE_H

#include "daemon/state.h"
#include "daemon/state_dir.h"
#include "daemon/state_snapshot.h"

struct state {
    struct state_store *store; /* borrowed: owns this */
    struct state *next;        /* owned: the store's list */
    struct state_file file;
    uint64_t number; /* of its file */
    uint64_t
        order; /* ns since 1970 when it was let go, or last written: the lowest is the oldest */
    uint64_t since, expires; /* loop time, ms, while it lingers */
    bool held;
    uint64_t saved_as;      /* number of its snapshots; 0: it has none */
    uint32_t saved_counter; /* of the values in the newest one */
    bool saved;             /* there is one */
    uint64_t tried;         /* the pass that tried to save it last */
    uint64_t line;          /* of descent: what is older than this state's line is not its past */
};

struct state_store {
    uv_loop_t *loop;             /* borrowed */
    const struct config *config; /* borrowed */
    struct state_dir dir;
    struct snapshot_dir snapshots;
    struct state *first; /* owned list */
    uint64_t last;       /* number or line that was given out */
    uint64_t newest;     /* order */
    uint32_t counter;    /* of values of a new state: above that of any that was here before */
    uv_timer_t timer;    /* armed while something lingers */
    uint64_t removals;   /* of snapshots, that were made or are still to be tried again */
    uint64_t settled;    /* of them, those that are surely on the disk */
    void (*removed)(void *context, struct state_waiter *waiter); /* NULL: nobody is told */
    void *removed_context;                                       /* borrowed: for `removed` */
};

/* state.c: stores a form under its owner's names as a new state, with that counter. */
int state_add(struct state_store *store, const struct state_form *form, uint32_t counter,
    struct state **ret_state, struct reason *reason);

/* state.c: in the place of what the state has. */
int state_overwrite(
    struct state *state, const struct state_form *form, uint32_t counter, struct reason *reason);

/* state.c: it is as old as that until it is used. */
void state_see_written(struct state *state, uint64_t written_ns);

/* state.c: a counter was seen; new states begin above it, and with an even one. */
void state_see_counter(struct state_store *store, uint32_t counter);

/* state_saved.c: reads the snapshots, after the files beside the socket. */
int state_load_snapshots(struct state_store *store, struct reason *reason);

/* state_saved.c: its snapshots are not its past any more. */
void state_forget_snapshots(struct state *state);

#endif
