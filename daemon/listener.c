/* SPDX-License-Identifier: Apache-2.0 */
/* The listening socket: see listener.h. */
#include "daemon/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/log.h"
#include "daemon/owner.h"
#include "status.h"

#define BACKLOG 256

static int new_socket(void)
{
    return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

static bool is_socket(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && S_ISSOCK(st.st_mode);
}

/* Whether someone listens at the address: then its path is not ours to take. */
static int check_free(const struct sockaddr_un *address, struct reason *reason)
{
    int fd = new_socket();
    if (fd < 0)
        return reason_set(reason, F8_EIO, "cannot make a socket: %s", strerror(errno));
    int result = connect(fd, (const struct sockaddr *)address, sizeof(*address));
    int error = result < 0 ? errno : 0;
    (void)close(fd);
    if (error == ENOENT)
        return F8_OK;
    /* connect() says the same of a dead daemon's socket and of a file that was never one. */
    if (error == ECONNREFUSED && !is_socket(address->sun_path))
        return reason_set(reason, F8_EIO,
            "%s is in the way and no socket: remove it or choose another path", address->sun_path);
    if (error == ECONNREFUSED && owner_lives(address->sun_path))
        return reason_set(reason, F8_EEXIST,
            "%s belongs to a process that lives and does not listen there: see ss -xap, and choose "
            "another path or end it",
            address->sun_path);
    if (error == ECONNREFUSED && unlink(address->sun_path) == 0) {
        log_info("%s was left by a daemon that is gone: replaced", address->sun_path);
        return F8_OK;
    }
    if (error == 0 || error == EAGAIN)
        return reason_set(reason, F8_EEXIST, "another daemon answers at %s", address->sun_path);
    return reason_set(
        reason, F8_EIO, "the socket %s is in the way: %s", address->sun_path, strerror(error));
}

/* The socket is only ever there with its final permissions. */
static int bind_and_listen(int fd, const struct sockaddr_un *address, struct reason *reason)
{
    mode_t mask = umask(0117);
    int result = bind(fd, (const struct sockaddr *)address, sizeof(*address));
    int error = errno;
    (void)umask(mask);
    if (result < 0)
        return reason_set(reason, F8_EIO, "cannot bind %s: %s", address->sun_path, strerror(error));
    if (listen(fd, BACKLOG) < 0)
        return reason_set(
            reason, F8_EIO, "cannot listen at %s: %s", address->sun_path, strerror(errno));
    return F8_OK;
}

/* Out of descriptors: take the connection with the spare one, and let it go. */
static void refuse_one(struct listener *listener)
{
    if (log_allows(&listener->refusals, uv_now(listener->poll.loop)))
        log_error("out of file descriptors: a connection is refused (raise LimitNOFILE)");
    (void)close(listener->spare);
    int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0)
        (void)close(fd);
    listener->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void on_connection(uv_poll_t *poll, int status, int events)
{
    struct listener *listener = poll->data;
    (void)status;
    (void)events;
    int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0)
        listener->accepted(listener->owner, fd);
    else if (errno == EMFILE || errno == ENFILE)
        refuse_one(listener);
}

/* Takes over a socket that listens. */
static int start(
    struct listener *listener, uv_loop_t *loop, int fd, const char *path, struct reason *reason)
{
    if (uv_poll_init(loop, &listener->poll, fd) < 0) {
        (void)close(fd);
        return reason_set(reason, F8_EIO, "cannot poll the socket %s", path);
    }
    listener->fd = fd;
    listener->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
    listener->poll.data = listener;
    (void)uv_poll_start(&listener->poll, UV_READABLE, on_connection);
    return F8_OK;
}

int listener_open(
    struct listener *listener, uv_loop_t *loop, const char *path, struct reason *reason)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct stat st;
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    listener->fd = -1;
    listener->path = path;
    listener->passed = false;
    int status = check_free(&address, reason);
    if (status < 0)
        return status;
    int fd = new_socket();
    if (fd < 0)
        return reason_set(reason, F8_EIO, "cannot make a socket: %s", strerror(errno));
    status = bind_and_listen(fd, &address, reason);
    if (status < 0) {
        (void)close(fd);
        return status;
    }
    if (lstat(path, &st) == 0) {
        listener->device = st.st_dev;
        listener->inode = st.st_ino;
    }
    status = start(listener, loop, fd, path, reason);
    if (status < 0)
        (void)unlink(path);
    return status;
}

int listener_adopt(
    struct listener *listener, uv_loop_t *loop, int fd, const char *path, struct reason *reason)
{
    listener->fd = -1;
    listener->path = path;
    listener->passed = true;
    return start(listener, loop, fd, path, reason);
}

static void on_closed(uv_handle_t *handle)
{
    struct listener *listener = handle->data;
    (void)close(listener->fd);
    (void)close(listener->spare);
    listener->fd = -1;
}

/* Another daemon listens at the path if somebody removed our socket: it is not ours any more. */
static bool path_is_ours(const struct listener *listener)
{
    struct stat st;
    return !listener->passed && lstat(listener->path, &st) == 0 && st.st_dev == listener->device &&
           st.st_ino == listener->inode;
}

void listener_close(struct listener *listener)
{
    if (listener->fd < 0 || uv_is_closing((uv_handle_t *)&listener->poll))
        return;
    if (path_is_ours(listener))
        (void)unlink(listener->path);
    uv_close((uv_handle_t *)&listener->poll, on_closed);
}
