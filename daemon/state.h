/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scaling states that the daemon keeps, one file each: of groups that have delayed weights,
 * and, for a while, of groups that are gone. Opened by server, used by collective and session on
 * the loop.
 *
 * A state is held while its group exists. Once released it lingers: it can be continued until
 * its time is up or its uid stores more than --max-states, when the oldest goes first.
 */
#ifndef F8_DAEMON_STATE_H
#define F8_DAEMON_STATE_H

#include <uv.h>

#include "daemon/config.h"
#include "daemon/state_form.h"

struct state;
struct state_store;

/*
 * Loads what the directory <socket>.state has, if it is there; it is made when the first state is
 * stored. Damaged files are renamed to *.bad, and logged. F8_EPERM: the directory is another
 * uid's or open to others; F8_EBUSY: another daemon uses it; F8_EIO, F8_ENOMEM.
 */
int state_store_open(uv_loop_t *loop, const struct config *config, struct state_store **ret_store,
    struct reason *reason);

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

/* Whether a job of this token may continue it. */
bool state_admits(const struct state *state, const uint8_t *token, size_t token_size);

/* Valid until the state is put anew or dropped. */
const struct state_head *state_head(const struct state *state);

/* The values as of the last sync; as state_head. */
const uint8_t *state_values(const struct state *state);

/* Takes in a sync. When this returns it is kept, whatever happens to the process. */
void state_sync(struct state *state, uint64_t syncs, const struct weight_list *list,
    const struct scaling *scalings);

#endif
