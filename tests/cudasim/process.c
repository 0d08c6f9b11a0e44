/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Other processes of the simulation, found by their ids in /proc: their descriptors, which stand
 * for what an IPC handle names, and whether they still live. May be called from any thread.
 */
#include "core.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

int process_open_fd(pid_t pid, int fd, ino_t inode)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/fd/%d", (long)pid, fd);
    int opened = open(path, O_RDWR | O_CLOEXEC);
    struct stat status;
    if (opened >= 0 && (fstat(opened, &status) || status.st_ino != inode)) {
        close(opened); /* the number has been used again */
        return -1;
    }
    return opened;
}

/* A zombie is dead: kill(pid, 0) would not say so. */
bool process_is_alive(pid_t pid)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd < 0)
        return errno != ESRCH && errno != EINVAL;
    struct pollfd end = {.fd = fd, .events = POLLIN};
    bool is_alive = poll(&end, 1, 0) == 0;
    close(fd);
    return is_alive;
}
