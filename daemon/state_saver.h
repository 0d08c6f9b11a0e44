/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When states are saved: every --snapshot-interval, on demand, when a snapshot was removed, and at
 * the end, in passes over all states that have changed. States are copied on the loop, one after
 * the other; a thread of the saver's own writes them, so that a slow disk delays neither the loop
 * nor the pool that casts. Opened by server, asked by session, on the loop.
 */
#ifndef F8_DAEMON_STATE_SAVER_H
#define F8_DAEMON_STATE_SAVER_H

#include "daemon/state.h"

struct state_saver;

/* What a pass did; of one that failed, what it did all the same. */
struct state_pass {
    int status;
    struct reason reason; /* of the first failure */
    uint32_t states;      /* that were written */
    uint64_t bytes;
    uint64_t held_up_ns;   /* the longest that the loop was held up */
    uint64_t begun, ended; /* loop time, ms */
    uint64_t succeeded;    /* the end of the last one that did not fail; 0: none has ended yet */
    uint64_t ns;
};

/* Waits for a pass that begins after it asked. */
struct state_waiter {
    struct state_waiter *next; /* borrowed: the saver's list */
    void (*done)(struct state_waiter *waiter, const struct state_pass *pass);
};

/* F8_ENOMEM. A store without snapshots has a saver too, which does nothing. */
int state_saver_new(uv_loop_t *loop, const struct config *config, struct state_store *store,
    struct state_saver **ret_saver, struct reason *reason);

/* `passed` is called after each pass that wrote something or failed; before the first. */
void state_saver_listen(struct state_saver *saver,
    void (*passed)(void *owner, const struct state_pass *pass), void *owner);

/* --snapshot-interval may have changed. */
void state_saver_reload(struct state_saver *saver);

/* F8_ENOENT: no snapshots are kept here. Else `done` is called once, later. */
int state_saver_ask(struct state_saver *saver, struct state_waiter *waiter, struct reason *reason);

/* The last pass that ended; begun is 0 if there was none. */
const struct state_pass *state_saver_last(const struct state_saver *saver);

/*
 * One more pass, for which the loop keeps running, and none after it. To be called when the states
 * change no more, and the loop run to its end before state_saver_close.
 */
void state_saver_finish(struct state_saver *saver);

/* No pass is under way. The loop must run once more. NULL allowed. */
void state_saver_close(struct state_saver *saver);

#endif
