/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshot files as they are written, committed and removed: see state_snapshot.h. */
#include "daemon/state_snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/log.h"
#include "daemon/state_snapshot_name.h"
#include "status.h"

struct snapshot_doomed {
    struct snapshot_doomed *next; /* owned: the directory's list */
    uint64_t number;
};

void snapshot_dir_init(struct snapshot_dir *dir)
{
    *dir = (struct snapshot_dir){.fd = -1};
}

static int write_all(int fd, const uint8_t *bytes, size_t size)
{
    size_t done = 0;
    while (done < size) {
        ssize_t n = write(fd, bytes + done, size - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -1;
        done += (size_t)n;
    }
    return fsync(fd);
}

int snapshot_write(const struct snapshot_dir *dir, uint64_t number, const void *bytes, size_t size,
    struct reason *reason)
{
    char name[SNAPSHOT_NAME_SIZE];
    (void)snapshot_name(number, SNAPSHOT_NEW, name);
    /* Whoever wrote one of that name before was killed before it was whole. */
    (void)unlinkat(dir->fd, name, 0);
    int fd = openat(dir->fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return reason_set(
            reason, F8_EIO, "cannot make the snapshot %s/%s: %s", dir->path, name, strerror(errno));
    int status = F8_OK;
    if (write_all(fd, bytes, size) < 0)
        status = reason_set(reason, F8_EIO, "cannot write the %zu bytes of the snapshot %s/%s: %s",
            size, dir->path, name, strerror(errno));
    (void)close(fd);
    if (status < 0)
        (void)unlinkat(dir->fd, name, 0);
    return status;
}

void snapshot_cancel(const struct snapshot_dir *dir, uint64_t number)
{
    char name[SNAPSHOT_NAME_SIZE];
    (void)unlinkat(dir->fd, snapshot_name(number, SNAPSHOT_NEW, name), 0);
}

/* Between the two renames a death leaves the one before, which is whole. */
int snapshot_commit(const struct snapshot_dir *dir, uint64_t number, struct reason *reason)
{
    char written[SNAPSHOT_NAME_SIZE], current[SNAPSHOT_NAME_SIZE], before[SNAPSHOT_NAME_SIZE];
    (void)snapshot_name(number, SNAPSHOT_NEW, written);
    (void)snapshot_name(number, SNAPSHOT_CURRENT, current);
    (void)snapshot_name(number, SNAPSHOT_PREVIOUS, before);
    if ((renameat(dir->fd, current, dir->fd, before) < 0 && errno != ENOENT) ||
        renameat(dir->fd, written, dir->fd, current) < 0) {
        int status = reason_set(reason, F8_EIO, "cannot rename the snapshot %s/%s to %s: %s",
            dir->path, written, current, strerror(errno));
        snapshot_cancel(dir, number);
        return status;
    }
    return F8_OK;
}

/* What is written to a directory that was moved away, or mounted over, is found by no reboot. */
static int check_path(const struct snapshot_dir *dir, struct reason *reason)
{
    struct stat opened, found;
    if (stat(dir->path, &found) < 0)
        return reason_set(reason, F8_EIO, "cannot find the state directory %s any more: %s",
            dir->path, strerror(errno));
    if (fstat(dir->fd, &opened) < 0)
        return reason_set(
            reason, F8_EIO, "cannot fstat the state directory %s: %s", dir->path, strerror(errno));
    if (opened.st_dev == found.st_dev && opened.st_ino == found.st_ino)
        return F8_OK;
    return reason_set(reason, F8_EIO,
        "the state directory %s is another one than this daemon opened: put that one back, or "
        "restart the daemon",
        dir->path);
}

/* A sync alone succeeds on a file system that is read-only, and on one that is full. */
static int check_writable(const struct snapshot_dir *dir, struct reason *reason)
{
    char name[SNAPSHOT_NAME_SIZE];
    (void)snapshot_name(0, SNAPSHOT_NEW, name); /* no state has that number */
    int fd = openat(dir->fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    int status = F8_OK;
    if (fd < 0 || write(fd, "", 1) != 1)
        status = reason_set(reason, F8_EIO, "cannot write to the state directory %s: %s", dir->path,
            strerror(errno));
    if (fd >= 0)
        (void)close(fd);
    if (unlinkat(dir->fd, name, 0) < 0 && status == F8_OK)
        status =
            reason_set(reason, F8_EIO, "cannot remove %s/%s: %s", dir->path, name, strerror(errno));
    return status;
}

int snapshot_sync(const struct snapshot_dir *dir, bool *ret_synced, struct reason *reason)
{
    *ret_synced = false;
    int status = check_path(dir, reason);
    if (status < 0)
        return status;
    if (fsync(dir->fd) < 0)
        return reason_set(
            reason, F8_EIO, "cannot sync the state directory %s: %s", dir->path, strerror(errno));
    *ret_synced = true;
    return check_writable(dir, reason);
}

/* The one before goes first: a death in between must not make it the newest. */
static int remove_both(const struct snapshot_dir *dir, uint64_t number, struct reason *reason)
{
    static const enum snapshot_kind kinds[] = {SNAPSHOT_PREVIOUS, SNAPSHOT_CURRENT};
    char name[SNAPSHOT_NAME_SIZE];
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (unlinkat(dir->fd, snapshot_name(number, kinds[i], name), 0) < 0 && errno != ENOENT)
            return reason_set(reason, F8_EIO, "cannot remove the snapshot %s/%s: %s", dir->path,
                name, strerror(errno));
    return F8_OK;
}

bool snapshot_remove(struct snapshot_dir *dir, uint64_t number)
{
    struct reason reason;
    if (remove_both(dir, number, &reason) == F8_OK)
        return true;
    struct snapshot_doomed *doomed = malloc(sizeof(*doomed));
    log_error("%s: it will come back with the next reboot%s", reason.text,
        doomed ? ", unless a later try succeeds" : "");
    if (!doomed)
        return false;
    *doomed = (struct snapshot_doomed){.next = dir->doomed, .number = number};
    dir->doomed = doomed;
    return false;
}

int snapshot_retry(struct snapshot_dir *dir, struct reason *reason)
{
    int status = F8_OK;
    struct reason another;
    for (struct snapshot_doomed **at = &dir->doomed; *at;) {
        struct snapshot_doomed *doomed = *at;
        if (remove_both(dir, doomed->number, status < 0 ? &another : reason) < 0) {
            status = F8_EIO;
            at = &doomed->next;
            continue;
        }
        *at = doomed->next;
        free(doomed);
    }
    return status;
}

void snapshot_dir_done(struct snapshot_dir *dir)
{
    while (dir->doomed) {
        struct snapshot_doomed *doomed = dir->doomed;
        dir->doomed = doomed->next;
        free(doomed);
    }
    if (dir->fd >= 0)
        (void)close(dir->fd);
    dir->fd = -1;
}
