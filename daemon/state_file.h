/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One state as a mapped file: the header, a word, and two halves of values, of which the word says
 * which is whole. New values go into the other half, then the word flips: whoever is killed at
 * whatever moment leaves one whole half. Used by state on the loop.
 */
#ifndef F8_DAEMON_STATE_FILE_H
#define F8_DAEMON_STATE_FILE_H

#include "daemon/state_form.h"

struct state_file {
    uint8_t *data; /* owned: the mapping */
    size_t size;
    struct state_head head; /* borrows from data */
    uint64_t written_ns;    /* of a file that was opened: its mtime, since 1970 */
};

/* Bytes of the file that a form makes. */
uint64_t state_file_size(const struct state_head *head);

/*
 * Writes the form to a new file `temporary` of the directory, with all its room reserved and its
 * values under that counter, and renames it to `name`, which may exist and is replaced whole.
 * F8_EIO: nothing has changed.
 */
int state_file_create(int directory, const char *temporary, const char *name,
    const struct state_form *form, uint32_t counter, struct state_file *ret_file,
    struct reason *reason);

/* Opens and checks a file. F8_EINVAL: damaged; F8_EVERSION; F8_EIO: it cannot be read now. */
int state_file_open(
    int directory, const char *name, struct state_file *ret_file, struct reason *reason);

/* Unmaps; the file stays. */
void state_file_close(struct state_file *file);

/* The values that hold. */
const uint8_t *state_file_values(const struct state_file *file);

/* Their counter: one more than that of the values before. */
uint32_t state_file_counter(const struct state_file *file);

/* Writes new values into the other half, which do not hold before state_file_flip. */
void state_file_write(struct state_file *file, uint64_t syncs, const struct weight_list *list,
    const struct scaling *scalings);
void state_file_flip(struct state_file *file);

#endif
