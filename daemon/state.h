/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scaling states that the daemon keeps, one file each: of groups that have delayed weights,
 * and, for a while, of groups that are gone. Opened by server, used by collective and session on
 * the loop.
 *
 * A state is held while its group exists. Once released it lingers: it can be continued until
 * its time is up or its uid stores more than --max-states, when the oldest goes first.
 *
 * With --state-dir there are snapshots too, for a reboot: state_saver.h writes them, and here is
 * what it writes. A snapshot goes when its state goes.
 */
#ifndef F8_DAEMON_STATE_H
#define F8_DAEMON_STATE_H

#include <uv.h>

#include "daemon/config.h"
#include "daemon/state_form.h"
#include "daemon/state_snapshot.h"

struct state;
struct state_store;

/*
 * Loads what the directory <socket>.state has, if it is there; it is made when the first state is
 * stored. Damaged files are renamed to *.bad, and logged, those
 * of a newer form left as they are, and logged. Then the snapshots, which count where
 * they are newer or alone; damaged ones are renamed to *.damaged. F8_EPERM: a directory is another
 * uid's or open to others; F8_EBUSY: another daemon uses it; F8_EIO: also of a file that cannot be
 * read; F8_ENOMEM.
 */
int state_store_open(uv_loop_t *loop, const struct config *config, struct state_store **ret_store,
    struct reason *reason);

/*
 * For how long a state is kept that no group uses, in ms: --linger, or with snapshots the longer of
 * that and --snapshot-keep, for the run may be started again long after a reboot.
 */
uint64_t state_keep_ms(const struct config *config);

/* Settings may have changed. What lingers already is never kept for a shorter time than before. */
void state_store_reload(struct state_store *store);

/* Files stay, for the next daemon; an empty directory goes. The loop must run once more. NULL
 * allowed. */
void state_store_close(struct state_store *store);

/* Bytes of the files of a uid; `store` is a struct state_store. */
uint64_t state_store_held(const void *store, uid_t uid);

/* For operators: files that a group holds, those that linger, and the bytes of both. */
struct state_totals {
    uint32_t held, lingering;
    uint64_t bytes;
};
void state_store_count(const struct state_store *store, struct state_totals *ret_totals);

/* The states of one job, for operators. */
struct state_job {
    const char *job; /* borrowed: the store's, until a state is put anew or dropped */
    uid_t uid;
    uint32_t states;
    uint64_t bytes;   /* of their files */
    uint64_t left_ms; /* until the last one that lingers is forgotten; 0: none lingers */
};

/* All jobs that have states, in the order of state_job_compare; owned by the caller. F8_ENOMEM. */
int state_store_jobs(
    const struct state_store *store, struct state_job **ret_jobs, size_t *ret_count);

/* For qsort and bsearch: by uid and name. */
int state_job_compare(const void *a, const void *b);

/* Drops the oldest state of the uid that lingers; false if there is none. */
bool state_store_evict(struct state_store *store, uid_t uid);

/* Drops all states of the job that linger: how many, and their bytes. */
uint32_t state_store_drop_job(
    struct state_store *store, uid_t uid, const char *job, uint64_t *ret_bytes);

/* The state of that job and group, or NULL. */
struct state *state_find(
    const struct state_store *store, uid_t uid, const char *job, const char *group);

/* The group is there: nothing but the group changes its state. */
void state_hold(struct state *state);
/* The group is gone: the state lingers. */
void state_release(struct state *state);
bool state_is_held(const struct state *state);
/* Until it is forgotten, if nobody continues it; 0: it is held. */
uint64_t state_left_ms(const struct state *state);

/* Forgets the state, file and all. */
void state_drop(struct state *state);

/* Bytes that a form takes once it is stored. */
uint64_t state_stored_size(const struct state_form *form);

/*
 * Stores a form under its owner's names: a new state, which lingers, or in the place of the one
 * that is there. F8_EIO, F8_ELIMIT, F8_ENOMEM: what was stored before is still there.
 */
int state_put(struct state_store *store, const struct state_form *form, struct state **ret_state,
    struct reason *reason);

/* It was stored anew, and does not continue what was stored before: the snapshots of that go. */
void state_replaced(struct state *state);

/* Whether a job of this token may continue it. */
bool state_admits(const struct state *state, const uint8_t *token, size_t token_size);

/* Valid until the state is put anew or dropped. */
const struct state_head *state_head(const struct state *state);

/* The values as of the last sync; as state_head. */
const uint8_t *state_values(const struct state *state);

/* Takes in a sync. When this returns it is kept, whatever happens to the process. */
void state_sync(struct state *state, uint64_t syncs, const struct weight_list *list,
    const struct scaling *scalings);

/* A state as it was at one moment, to be written as its snapshot. */
struct state_copy {
    struct state_store *store; /* borrowed */
    uint8_t *bytes;            /* owned */
    size_t size;
    uint64_t number, line; /* which state it is of */
    uint32_t counter;
};

/*
 * Copies a state that its snapshot does not have, and that no earlier call for this pass gave;
 * passes are counted upwards from 1. F8_ENOENT: there is none (any more); F8_ENOMEM.
 */
int state_copy_due(
    struct state_store *store, uint64_t pass, struct state_copy *ret_copy, struct reason *reason);

/* Any thread: writes it to the disk, beside the snapshots that count. F8_EIO. */
int state_copy_write(const struct state_copy *copy, struct reason *reason);

/*
 * What was written is the state's snapshot now. F8_ENOENT, without a reason: the state is gone, or
 * another one by now, and what was written is too; F8_EIO.
 */
int state_copy_commit(const struct state_copy *copy, struct reason *reason);

void state_copy_done(struct state_copy *copy);

/* Any thread: what was committed or removed reaches the disk. F8_EIO; *ret_synced tells whether it
 * is there all the same, where only new files cannot be written. */
int state_store_sync(const struct state_store *store, bool *ret_synced, struct reason *reason);

/* Waits for a pass of the saver that begins after it asked. */
struct state_pass;
struct state_waiter {
    struct state_waiter *next; /* borrowed: the saver's list */
    void (*done)(struct state_waiter *waiter, const struct state_pass *pass);
};

/*
 * `removed` is called when snapshots were removed, which is to reach the disk soon; or with
 * somebody who waits until it has, and is told once, later. NULL: it is called no more.
 */
void state_store_watch_removals(struct state_store *store,
    void (*removed)(void *context, struct state_waiter *waiter), void *context);

/*
 * Whether a power cut could still bring back snapshots that were removed: then `done` is called
 * once, later, by when that is over, or is known to have failed (the pass is not settled). False:
 * it could not, and `done` is not called.
 */
bool state_store_settle(struct state_store *store, struct state_waiter *waiter);

/* Around a sync: the removals that one which begins now takes to the disk; it did. */
uint64_t state_store_removals(const struct state_store *store);
void state_store_settled(struct state_store *store, uint64_t removals);

/* Tries again to remove snapshots that could not be removed. F8_EIO. */
int state_store_retry(struct state_store *store, struct reason *reason);

/* The snapshots that there are; what it points to is the store's. */
struct state_saved {
    const char *path; /* empty: none are kept */
    uint32_t states;
    uint64_t bytes;
    const struct state_noted *damaged, *newer;           /* snapshots that are not used */
    const struct state_noted *live_damaged, *live_newer; /* nor these, beside the socket */
};
void state_store_saved(const struct state_store *store, struct state_saved *ret_saved);

#endif
