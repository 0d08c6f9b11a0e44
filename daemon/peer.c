/* SPDX-License-Identifier: Apache-2.0 */
/* Who is at the other end of a socket: see peer.h. */
#include "daemon/peer.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "status.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5: free of the race between a pid and its reuse */
#endif

/* Of the flags in /proc/PID/stat: the process is on its way out. */
#define PF_EXITING 0x4u

static int open_pidfd(int socket, pid_t pid)
{
    int fd = -1;
    socklen_t size = sizeof(fd);
    if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &fd, &size) == 0)
        return fd;
    return pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
}

int peer_identify(struct peer *peer, int socket)
{
    struct ucred credentials;
    socklen_t size = sizeof(credentials);
    *peer = (struct peer){.pidfd = -1};
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) < 0)
        return F8_ECONN;
    peer->uid = credentials.uid;
    peer->gid = credentials.gid;
    peer->pid = (uint32_t)credentials.pid;
    peer->pidfd = open_pidfd(socket, credentials.pid);
    if (peer->pidfd < 0 && (errno == EMFILE || errno == ENFILE))
        return F8_ELIMIT;
    return peer->pidfd < 0 && errno == ESRCH ? F8_ECONN : F8_OK;
}

void peer_done(struct peer *peer)
{
    if (peer->pidfd >= 0)
        (void)close(peer->pidfd);
    peer->pidfd = -1;
}

/* The kernel closes a dying process's sockets a moment before its pidfd tells. */
static bool is_exiting(uint32_t pid)
{
    char path[64], line[512];
    (void)snprintf(path, sizeof(path), "/proc/%u/stat", pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return errno == ENOENT;
    bool read = fgets(line, sizeof(line), file) != NULL;
    (void)fclose(file);
    /* The name in parentheses may hold anything; flags are the seventh field after it. */
    const char *fields = read ? strrchr(line, ')') : NULL;
    unsigned flags;
    if (!fields || sscanf(fields, ") %*c %*d %*d %*d %*d %*d %u", &flags) != 1)
        return false;
    return flags & PF_EXITING;
}

static bool has_ended(const struct peer *peer)
{
    struct pollfd poll_fd = {.fd = peer->pidfd, .events = POLLIN};
    return poll(&poll_fd, 1, 0) > 0;
}

bool peer_is_dying(const struct peer *peer)
{
    if (peer->pidfd < 0)
        return false;
    /* Asked again at the end: it may end, and be reaped, while its file is being read. */
    return has_ended(peer) || is_exiting(peer->pid) || has_ended(peer);
}

static bool in_group(const struct peer *peer, int socket, gid_t gid)
{
    if (peer->gid == gid)
        return true;
    socklen_t size = 0;
    if (getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, NULL, &size) == 0 || errno != ERANGE)
        return false;
    gid_t *groups = malloc(size);
    bool found = false;
    if (groups && getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups, &size) == 0)
        for (size_t i = 0; i < size / sizeof(*groups); i++)
            found = found || groups[i] == gid;
    free(groups);
    return found;
}

bool peer_is_admin(const struct peer *peer, int socket, const struct config *config)
{
    return peer->uid == 0 || peer->uid == geteuid() ||
           (config->has_admin_gid && in_group(peer, socket, config->admin_gid));
}
