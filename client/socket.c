/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the daemon's socket may be, in which order, and what to say when it is at none of them.
 * Never starts a daemon. Called by channel.c on the thread that connects.
 */
#include "client/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/error.h"
#include "proto/protocol.h"

#define MAX_CANDIDATES 2

/* The paths to try, and what has been said about those that failed. */
struct search {
    const char *paths[MAX_CANDIDATES]; /* borrowed: from the caller, the environment, runtime */
    int count;
    bool by_environment;    /* the only path is that of F8GATHERD_SOCKET */
    char runtime[PATH_MAX]; /* $XDG_RUNTIME_DIR/f8gatherd.sock */
    char tried[1024];
};

static void search_add(struct search *search, const char *path)
{
    if (path && path[0])
        search->paths[search->count++] = path;
}

/* Whoever names a socket means it: with a typing error in it, no other daemon may be taken. */
static void search_init(struct search *search, const char *path)
{
    const char *named = getenv(F8_PROTO_SOCKET_ENV);
    search->count = 0;
    search->tried[0] = '\0';
    search->by_environment = !path && named && named[0];
    if (path || search->by_environment) {
        search->paths[search->count++] = path ? path : named;
        return;
    }
    search_add(search, F8_PROTO_SOCKET);
    const char *directory = getenv("XDG_RUNTIME_DIR");
    if (directory && directory[0]) {
        snprintf(
            search->runtime, sizeof(search->runtime), "%s/%s", directory, F8_PROTO_SOCKET_NAME);
        search_add(search, search->runtime);
    }
}

static const char *reason_of(int error)
{
    switch (error) {
    case ENOENT:
        return "no such file; is f8gatherd running?";
    case ECONNREFUSED:
        return "nobody listens; f8gatherd has ended, start it again";
    case EACCES:
        return "permission denied; be in the group of the socket, or run your own f8gatherd";
    case EAGAIN:
        return "f8gatherd accepts no connections, it may be stopped";
    case EPROTOTYPE:
        return "a socket of another program";
    case ENAMETOOLONG:
        return "longer than the 107 bytes that a socket's path may have";
    default:
        return strerror(error);
    }
}

/* connect refuses a file or a directory as if it were a socket where nobody listens. */
static bool is_other(const char *path)
{
    struct stat there;
    return stat(path, &there) == 0 && !S_ISSOCK(there.st_mode);
}

static void search_note(struct search *search, const char *path, int error)
{
    size_t used = strlen(search->tried);
    snprintf(search->tried + used, sizeof(search->tried) - used, "%s%s (%s)", used ? ", " : "",
        path, is_other(path) ? "it is no socket" : reason_of(error));
}

/*
 * A connected descriptor or -errno. It connects in blocking mode, with a limit: a non-blocking
 * connect fails at once while a busy daemon's backlog is full.
 */
static int try_path(const char *path, int patience_ms)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(address.sun_path))
        return -ENAMETOOLONG;
    strcpy(address.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    struct timeval patience = {.tv_sec = patience_ms / 1000, .tv_usec = patience_ms % 1000 * 1000};
    int rc = setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    do {
        if (rc == 0)
            rc = connect(fd, (const struct sockaddr *)&address, sizeof(address));
    } while (rc != 0 && errno == EINTR);
    if (rc == 0)
        rc = fcntl(fd, F_SETFL, O_NONBLOCK);
    if (rc == 0)
        return fd;
    int error = errno;
    close(fd);
    return -error;
}

void socket_choose(const char *path, char *ret_path, size_t size)
{
    struct search search;
    int chosen = 0;
    search_init(&search, path);
    for (int i = search.count - 1; i >= 0; i--) {
        if (access(search.paths[i], F_OK) == 0 || (errno != ENOENT && errno != ENOTDIR))
            chosen = i;
    }
    snprintf(ret_path, size, "%s", search.paths[chosen]);
}

int socket_connect(const char *path, int patience_ms, int *ret_fd, char *ret_path, size_t size)
{
    struct search search;
    search_init(&search, path);
    for (int i = 0; i < search.count; i++) {
        int fd = try_path(search.paths[i], patience_ms);
        if (fd >= 0) {
            snprintf(ret_path, size, "%s", search.paths[i]);
            *ret_fd = fd;
            return F8_OK;
        }
        search_note(&search, search.paths[i], -fd);
        /* The first that exists decides: ranks must not end up at different daemons. */
        if (fd != -ENOENT && fd != -ENOTDIR)
            break;
    }
    return error_set(F8_ENODAEMON, "no daemon answers; tried %s%s", search.tried,
        search.by_environment ? ", as " F8_PROTO_SOCKET_ENV " says" : "");
}
