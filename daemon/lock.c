/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lock of a socket's path: see lock.h. An orderly end removes the file, so whoever locks one
 * must look whether it is still the one at the path. Of a daemon that was killed it stays, and is
 * locked by the next.
 */
#include "daemon/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "status.h"

/* How long a process may take from its fork to its exec, on a busy machine. */
#define LEFT_OVER_MS 5000
#define PAUSE_MS     10

/* The pid that the holder wrote; 0: it has not yet. */
static int holder_of(int fd)
{
    char text[16] = "";
    ssize_t length = pread(fd, text, sizeof(text) - 1, 0);
    return length > 0 ? (int)strtol(text, NULL, 10) : 0;
}

static int refuse(const struct lock *lock, int fd, const char *socket, struct reason *reason)
{
    if (errno != EWOULDBLOCK)
        return reason_set(reason, F8_EIO, "cannot lock %s: %s", lock->path, strerror(errno));
    return reason_set(reason, F8_EEXIST,
        "another daemon serves %s: pid %d holds %s; end it, or choose another socket", socket,
        holder_of(fd), lock->path);
}

/*
 * Whether the holder that is named is gone. Then a helper has the lock that it was starting as it
 * was killed, until the helper runs its own program.
 */
static bool is_left_over(int fd)
{
    int pid = holder_of(fd);
    return pid > 0 && kill(pid, 0) < 0 && errno == ESRCH;
}

/* Locks the file, for which only what is left over is waited for. 0, or -1 with errno. */
static int lock_file(int fd)
{
    for (int ms = 0; flock(fd, LOCK_EX | LOCK_NB) < 0; ms += PAUSE_MS) {
        if (errno != EWOULDBLOCK)
            return -1;
        if (!is_left_over(fd) || ms >= LEFT_OVER_MS) {
            errno = EWOULDBLOCK;
            return -1;
        }
        (void)poll(NULL, 0, PAUSE_MS);
    }
    return 0;
}

/* Whether the path still names the open file. */
static bool is_at(const char *path, int fd)
{
    struct stat open_file, at_path;
    return fstat(fd, &open_file) == 0 && lstat(path, &at_path) == 0 &&
           open_file.st_dev == at_path.st_dev && open_file.st_ino == at_path.st_ino;
}

/* For people, and for the words of a second daemon; the lock itself is the kernel's. */
static void write_holder(int fd)
{
    char text[16];
    int length = snprintf(text, sizeof(text), "%d\n", (int)getpid());
    ssize_t written = ftruncate(fd, 0) == 0 ? pwrite(fd, text, (size_t)length, 0) : -1;
    (void)written;
}

int lock_take(struct lock *lock, const char *socket, struct reason *reason)
{
    (void)snprintf(lock->path, sizeof(lock->path), "%s" LOCK_SUFFIX, socket);
    lock->fd = -1;
    for (;;) {
        int fd = open(lock->path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
        if (fd < 0)
            return reason_set(
                reason, F8_EIO, "cannot open the lock %s: %s", lock->path, strerror(errno));
        if (lock_file(fd) < 0) {
            int status = refuse(lock, fd, socket, reason);
            (void)close(fd);
            return status;
        }
        if (is_at(lock->path, fd)) {
            write_holder(fd);
            lock->fd = fd;
            return F8_OK;
        }
        (void)close(fd); /* its holder has just removed it */
    }
}

void lock_release(struct lock *lock)
{
    if (lock->fd < 0)
        return;
    if (is_at(lock->path, lock->fd))
        (void)unlink(lock->path);
    (void)close(lock->fd);
    lock->fd = -1;
}
