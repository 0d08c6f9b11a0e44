/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The form in which the scaling state of a group is kept, in files and in checkpoints: a header
 * that says whose state it is and of which weights, then their values. docs/state.md has it byte
 * by byte. Bytes in, bytes out, and every byte that comes in is checked; used by state and
 * state_file on the loop.
 */
#ifndef F8_DAEMON_STATE_FORM_H
#define F8_DAEMON_STATE_FORM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/reason.h"
#include "daemon/scaling.h"
#include "daemon/weights.h"

#define STATE_FORM_VERSION 1

/* The largest form, header and values: more weights or longer histories are refused. */
#define STATE_FORM_MAX_SIZE ((uint64_t)256 << 20)

/* Whose state it is, and who may continue it. */
struct state_owner {
    uid_t uid;
    const char *job;      /* borrowed */
    const char *group;    /* borrowed */
    const uint8_t *token; /* borrowed: the job's; NULL with size 0: it has none */
    size_t token_size;
    bool any_token; /* no job has taken it over yet: it came from a checkpoint */
};

/* A header that was checked; all pointers are borrowed from its bytes. */
struct state_head {
    struct state_owner owner;
    const uint8_t *table; /* one entry a weight */
    size_t table_size;
    uint32_t num_weights;
    size_t size; /* of the header: where the values begin, a multiple of 8 */
    size_t values_size;
};

/* A whole form in memory. */
struct state_form {
    uint8_t *bytes; /* owned: header and values */
    size_t size;
    struct state_head head;
};

/* Whether the state of the weight's group has an entry for it: it is delayed, and its amax is
 * taken over the group's own ranks. */
bool state_has(const struct weight *weight);

/* The number of the list's weights that a state has an entry for. */
uint32_t state_count(const struct weight_list *list);

/*
 * Makes the form of a group's state. `reason` names the group. F8_ENOMEM; F8_ELIMIT: larger than
 * STATE_FORM_MAX_SIZE.
 */
int state_form_make(const struct state_owner *owner, const struct weight_list *list,
    const struct scaling *scalings, uint64_t syncs, struct state_form *ret_form,
    struct reason *reason);

/* Makes the form of another owner with the same weights and values, its counter 0. F8_ENOMEM. */
int state_form_copy(const struct state_owner *owner, const struct state_head *head,
    const uint8_t *values, struct state_form *ret_form, struct reason *reason);

/* Frees the bytes. */
void state_form_done(struct state_form *form);

/*
 * Checks a header at the beginning of `size` bytes; what follows is not looked at. `what` begins
 * the reason: "the import of group dp". F8_EINVAL: damaged, cut, or no state at all;
 * F8_EVERSION: it is of a newer form, and its header is whole.
 */
int state_head_check(const uint8_t *bytes, size_t size, const char *what,
    struct state_head *ret_head, struct reason *reason);

/* Checks head.values_size bytes of values. F8_EINVAL. */
int state_values_check(
    const struct state_head *head, const uint8_t *values, const char *what, struct reason *reason);

/* Checks a whole form; *ret_head borrows from `bytes`. F8_EINVAL, F8_EVERSION. */
int state_form_check(const uint8_t *bytes, size_t size, const char *what,
    struct state_head *ret_head, struct reason *reason);

/*
 * Checks a form that somebody else may have made: state_form_check, and that no weight is there
 * twice and that its numbers are some that a daemon can have: scales above 0 and finite, or what
 * weights with a NaN or an infinity in them make of one, as docs/state.md says; amaxes without a
 * sign (an infinity and a NaN are what a gather may have met). What a daemon exports passes. The
 * daemon's own files are not held to that. F8_EINVAL, F8_EVERSION, F8_ENOMEM.
 */
int state_import_check(const uint8_t *bytes, size_t size, const char *what,
    struct state_head *ret_head, struct reason *reason);

/*
 * Whether the header's weights are those that the list has, in the same order; else the reason
 * names all that the state lacks, has besides, or has as another kind, as far as there is room;
 * those that have none are in the log, up to 100 of each. F8_EMISMATCH, F8_ENOMEM.
 */
int state_head_compare(const struct state_head *head, const struct weight_list *list,
    const char *what, struct reason *reason);

/* Writes the values of the list's weights: head.values_size bytes, checksum and all. */
void state_values_write(uint8_t *values, size_t size, uint32_t counter, uint64_t syncs,
    const struct weight_list *list, const struct scaling *scalings);

/* Puts values into the scalings of a list that compares equal. */
void state_values_read(
    const uint8_t *values, const struct weight_list *list, struct scaling *scalings);

/* Whether both, of lists that compare equal, give the same scales, now and from later syncs. */
bool state_values_same(
    const struct weight_list *list, const uint8_t *values, const uint8_t *others);

uint32_t state_values_counter(const uint8_t *values);
uint64_t state_values_syncs(const uint8_t *values);

#endif
