/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The directory of snapshots: of each state a file that outlives a reboot, and the one before it.
 * A file is the state's form, whole, with its token and its counter. Used by state on the loop;
 * what a thread may call says so.
 */
#ifndef F8_DAEMON_STATE_SNAPSHOT_H
#define F8_DAEMON_STATE_SNAPSHOT_H

#include "daemon/state_form.h"
#include "daemon/state_noted.h"

#define SNAPSHOT_NAME_SIZE STATE_NOTED_SIZE

struct snapshot_doomed;

struct snapshot_dir {
    char path[256];                 /* empty: no snapshots are kept */
    int fd;                         /* owned, locked; -1: not open */
    uint64_t last;                  /* the highest number in use */
    struct state_noted damaged;     /* set aside, also by an earlier start */
    struct state_noted newer;       /* of a newer form: left as they are */
    struct snapshot_doomed *doomed; /* owned list: what could not be removed yet */
};

/* Not open. */
void snapshot_dir_init(struct snapshot_dir *dir);

/*
 * Takes over what a file has, or refuses it: F8_EEXIST: another file has the state of the same job
 * and group; F8_EIO, F8_ENOMEM: it cannot be taken now, and the reason says why. The form is the
 * caller's. It was written at `written_ns`, since 1970.
 */
typedef int snapshot_taker(void *context, uint64_t number, const struct state_form *form,
    uint64_t written_ns, struct reason *reason);

/*
 * Opens the directory, makes it if need be, and gives of every number the newest sound snapshot to
 * `take`, the highest number first. Damaged ones are renamed to *.damaged, and logged; those
 * of a newer form are logged and left as they are, for a daemon that reads it. As
 * state_dir_open on failure, and what `take` gave. F8_EIO also if a file cannot be read, which is
 * not damaged for that.
 */
int snapshot_dir_open(struct snapshot_dir *dir, const char *path, snapshot_taker *take,
    void *context, struct reason *reason);

/* Any thread: writes the bytes of a form to a new file, all the way to the disk. F8_EIO. */
int snapshot_write(const struct snapshot_dir *dir, uint64_t number, const void *bytes, size_t size,
    struct reason *reason);

/* What was written counts from now on; what counted before is the one before. F8_EIO. */
int snapshot_commit(const struct snapshot_dir *dir, uint64_t number, struct reason *reason);

/* Forgets what was written and was not committed. */
void snapshot_cancel(const struct snapshot_dir *dir, uint64_t number);

/*
 * Any thread: commits and removals reach the disk, that is, the directory is still the one at its
 * path, is synced, and takes files. F8_EIO; *ret_synced tells whether they are there all the same,
 * as on a disk that is full.
 */
int snapshot_sync(const struct snapshot_dir *dir, bool *ret_synced, struct reason *reason);

/*
 * Removes both snapshots of a number. False: they cannot be removed now, and that is tried again;
 * nothing may be written under that number any more.
 */
bool snapshot_remove(struct snapshot_dir *dir, uint64_t number);

/* Tries again all that could not be removed. F8_EIO: some of it cannot; the reason has the first.
 */
int snapshot_retry(struct snapshot_dir *dir, struct reason *reason);

/* Closes; the files stay. */
void snapshot_dir_done(struct snapshot_dir *dir);

#endif
