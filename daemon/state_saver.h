/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When states are saved: every --snapshot-interval, on demand, when a snapshot was removed, and at
 * the end, in passes over all states that have changed. States are copied on the loop, one after
 * the other; a thread of the saver's own writes them, so that a slow disk delays neither the loop
 * nor the pool that casts. Opened by server, asked by session and, through the store, by
 * collective, on the loop.
 *
 * Nobody waits forever: once the disk has not answered for a time, the patience, all who wait are
 * told so. The pass goes on, and ends when the disk answers.
 */
#ifndef F8_DAEMON_STATE_SAVER_H
#define F8_DAEMON_STATE_SAVER_H

#include "daemon/state.h"

/* How long the disk is given for one file, or for a sync, in ms. */
#define STATE_SAVER_PATIENCE_MS 10000

struct state_saver;

/* What a pass did; of one that failed, what it did all the same. */
struct state_pass {
    int status;           /* F8_EIO also if it has not ended, as the disk does not answer */
    struct reason reason; /* of the first failure */
    bool settled;         /* snapshots that were removed before it began are so on the disk, too */
    uint32_t states;      /* that were written */
    uint64_t bytes;
    uint64_t held_up_ns;   /* the longest that the loop was held up */
    uint64_t begun, ended; /* loop time, ms */
    uint64_t succeeded;    /* the end of the last one that did not fail; 0: none has ended yet */
    uint64_t ns;
};

/* F8_ENOMEM. A store without snapshots has a saver too, which does nothing. */
int state_saver_new(uv_loop_t *loop, const struct config *config, struct state_store *store,
    uint64_t patience_ms, struct state_saver **ret_saver, struct reason *reason);

/* `passed` is called after each pass that wrote something or failed, and when the disk does not
 * answer; before the first. */
void state_saver_listen(struct state_saver *saver,
    void (*passed)(void *owner, const struct state_pass *pass), void *owner);

/* --snapshot-interval may have changed. */
void state_saver_reload(struct state_saver *saver);

/* F8_ENOENT: no snapshots are kept here. Else `done` is called once, later: the loop keeps running
 * until then. */
int state_saver_ask(struct state_saver *saver, struct state_waiter *waiter, struct reason *reason);

/* The last pass that ended, or the one whose disk does not answer; begun is 0 if there was none. */
const struct state_pass *state_saver_last(const struct state_saver *saver);

/* Since the daemon began. */
struct state_counts {
    uint64_t failed; /* passes */
    uint64_t bytes;  /* of snapshots that were written */
};
struct state_counts state_saver_counts(const struct state_saver *saver);

/*
 * One more pass, for which the loop keeps running as long as the disk answers, and none after it.
 * To be called when the states change no more, and the loop run to its end before
 * state_saver_close. If it fails, that is for the caller to tell (state_saver_last).
 */
void state_saver_finish(struct state_saver *saver);

/* The disk does not answer: a thread is in its hands, and neither the saver, the store nor the loop
 * can be closed. False for NULL. */
bool state_saver_is_stuck(const struct state_saver *saver);

/* No pass is under way and nobody waits. The loop must run once more. NULL allowed. */
void state_saver_close(struct state_saver *saver);

#endif
