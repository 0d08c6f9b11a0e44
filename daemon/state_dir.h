/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The directory of the state files: <socket>.state, of this daemon alone. Its files are numbered,
 * for the names of jobs and groups are their owners' and fit for no path. Used by state on the
 * loop.
 */
#ifndef F8_DAEMON_STATE_DIR_H
#define F8_DAEMON_STATE_DIR_H

#include "daemon/state_file.h"
#include "daemon/state_noted.h"

#define STATE_DIR_SUFFIX ".state"

struct state_dir {
    char path[128];
    int fd;                     /* owned, locked; -1 until the directory is there */
    uint64_t last;              /* the highest number that was found in use */
    struct state_noted damaged; /* set aside, also by an earlier start */
    struct state_noted newer;   /* of a newer form: left as they are */
    bool lacks;                 /* a file was there and is not used, from this start on */
};

void state_dir_init(struct state_dir *dir, const char *socket);

/* Takes a file over, or refuses it: F8_EEXIST: a second one of the same group; F8_ENOMEM. */
typedef int state_dir_taker(void *context, uint64_t number, const struct state_file *file);

/*
 * Gives every sound file to `take`, the highest number first; damaged ones are renamed to *.bad,
 * and logged; those of a newer form are logged and left as they are, for a daemon that reads it.
 * F8_OK too if there is no directory; else as state_store_open. F8_EIO also if a file
 * cannot be read, which is not damaged for that.
 */
int state_dir_load(
    struct state_dir *dir, state_dir_taker *take, void *context, struct reason *reason);

/*
 * Opens and locks a directory that is this uid's alone. F8_ENOENT: there is none; F8_EPERM: it is
 * another uid's or open to others; F8_EBUSY: another daemon has it; F8_EIO.
 */
int state_dir_open(const char *path, int *ret_fd, struct reason *reason);

/* Writes a file with its values under that counter, in the place of the one of that number, and
 * makes the directory if need be. */
int state_dir_write(struct state_dir *dir, uint64_t number, const struct state_form *form,
    uint32_t counter, struct state_file *ret_file, struct reason *reason);

void state_dir_remove(struct state_dir *dir, uint64_t number);

/* Closes; removes the directory if it is empty. */
void state_dir_done(struct state_dir *dir);

#endif
