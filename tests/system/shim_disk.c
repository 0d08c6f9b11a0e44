/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A preloaded shim that is a disk for the directory of snapshots: what is removed from it is gone
 * for good only once the directory is synced, and a power cut brings the rest back. The directory
 * $F8_SHIM_DISK, which tests/lib/slow_disk.h makes, says how it does: a sync waits as long as the
 * test has the lock "hold", and fails if there is a file "broken". Any thread.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int really_unlink(int directory, const char *name, int flags)
{
    return (int)syscall(SYS_unlinkat, directory, name, flags);
}

/* In the directory of the test; -1: there is none. */
static int open_here(const char *name, int flags)
{
    char path[256];
    const char *here = getenv("F8_SHIM_DISK");
    if (!here)
        return -1;
    (void)snprintf(path, sizeof(path), "%s/%s", here, name);
    return open(path, flags | O_CLOEXEC);
}

static int ends_with(const char *name, const char *end)
{
    size_t length = strlen(name), size = strlen(end);
    return length > size && strcmp(name + length - size, end) == 0;
}

/* Of a snapshot that counts one more name is kept until the sync. */
int unlinkat(int directory, const char *name, int flags)
{
    int lost = -1;
    if (ends_with(name, ".snapshot") || ends_with(name, ".previous"))
        lost = open_here("lost", O_RDONLY | O_DIRECTORY);
    if (lost >= 0) {
        (void)linkat(directory, name, lost, name, 0);
        (void)close(lost);
    }
    return really_unlink(directory, name, flags);
}

static void lose(void)
{
    DIR *lost = fdopendir(open_here("lost", O_RDONLY | O_DIRECTORY));
    for (struct dirent *entry; lost && (entry = readdir(lost));)
        (void)really_unlink(dirfd(lost), entry->d_name, 0);
    if (lost)
        (void)closedir(lost);
}

/* Tells the test that a sync is asked for, and waits until it may go on. */
static void wait_for_disk(void)
{
    int asked = open_here("asked", O_WRONLY | O_NONBLOCK);
    int hold = open_here("hold", O_RDONLY);
    if (asked >= 0) {
        (void)!write(asked, "s", 1);
        (void)close(asked);
    }
    if (hold >= 0) {
        while (flock(hold, LOCK_SH) < 0 && errno == EINTR)
            ;
        (void)close(hold);
    }
}

int fsync(int fd)
{
    struct stat what;
    if (fstat(fd, &what) < 0 || !S_ISDIR(what.st_mode))
        return (int)syscall(SYS_fsync, fd);
    wait_for_disk();
    int broken = open_here("broken", O_RDONLY);
    if (broken >= 0) {
        (void)close(broken);
        errno = EIO;
        return -1;
    }
    int status = (int)syscall(SYS_fsync, fd);
    if (status == 0)
        lose();
    return status;
}
