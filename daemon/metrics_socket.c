/* SPDX-License-Identifier: Apache-2.0 */
/* Binding and listening: see metrics_socket.h. */
#include "daemon/metrics_socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/log.h"
#include "daemon/owner.h"
#include "status.h"

#define BACKLOG 64

/* A socket that nobody listens at was left by a daemon that is gone. Nothing else is removed. */
static int clear_path(const struct config_address *address, struct reason *reason)
{
    const char *path = ((const struct sockaddr_un *)&address->address)->sun_path;
    struct stat st;
    if (lstat(path, &st) < 0)
        return F8_OK; /* bind says what else is wrong */
    if (!S_ISSOCK(st.st_mode))
        return reason_set(reason, F8_EIO,
            "--metrics %s is in the way and no socket: remove it or choose another path", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int result = connect(fd, (const struct sockaddr *)&address->address, address->size);
    int error = result < 0 ? errno : 0;
    (void)close(fd);
    if (error != ECONNREFUSED || owner_lives(path))
        return reason_set(reason, F8_EEXIST, "--metrics %s: another process serves there", path);
    (void)unlink(path);
    log_info("%s was left by a daemon that is gone: replaced", path);
    return F8_OK;
}

static int bind_and_listen(int fd, const struct config_address *address)
{
    int yes = 1;
    bool is_path = address->address.ss_family == AF_UNIX;
    if (!is_path)
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    mode_t mask = umask(0117); /* owner and group, as the daemon's socket */
    int result = bind(fd, (const struct sockaddr *)&address->address, address->size);
    int error = errno;
    (void)umask(mask);
    errno = error;
    return result < 0 ? result : listen(fd, BACKLOG);
}

/* With the port that the kernel chose, if it was to. */
static void describe(struct metrics_socket *socket)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } name = {.any.sa_family = AF_UNSPEC};
    socklen_t size = sizeof(name);
    char host[INET6_ADDRSTRLEN] = "";
    (void)getsockname(socket->fd, &name.any, &size);
    if (socket->path) {
        (void)snprintf(socket->where, sizeof(socket->where), "%s", socket->path);
    } else if (name.any.sa_family == AF_INET) {
        (void)inet_ntop(AF_INET, &name.v4.sin_addr, host, sizeof(host));
        (void)snprintf(socket->where, sizeof(socket->where), "http://%s:%u/metrics", host,
            ntohs(name.v4.sin_port));
        if (ntohl(name.v4.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET)
            (void)snprintf(socket->host, sizeof(socket->host), "%s", host);
    } else {
        (void)inet_ntop(AF_INET6, &name.v6.sin6_addr, host, sizeof(host));
        (void)snprintf(socket->where, sizeof(socket->where), "http://[%s]:%u/metrics", host,
            ntohs(name.v6.sin6_port));
        if (IN6_IS_ADDR_LOOPBACK(&name.v6.sin6_addr))
            (void)snprintf(socket->host, sizeof(socket->host), "[%s]", host);
    }
}

/* "NAME" or "NAME:PORT". */
static bool names(const char *host, const char *name)
{
    size_t length = strlen(name);
    if (strncasecmp(host, name, length) != 0)
        return false;
    const char *port = host + length;
    return *port == '\0' || (*port == ':' && port[1 + strspn(port + 1, "0123456789")] == '\0');
}

bool metrics_socket_takes_host(const struct metrics_socket *socket, const char *host)
{
    return socket->host[0] == '\0' || !host || names(host, socket->host) ||
           names(host, "localhost") || names(host, "127.0.0.1") || names(host, "[::1]");
}

int metrics_socket_open(
    const struct config *config, struct metrics_socket *ret_socket, struct reason *reason)
{
    struct config_address address;
    struct stat st;
    config_metrics_address(config, &address);
    int family = address.address.ss_family;
    int status = family == AF_UNIX ? clear_path(&address, reason) : F8_OK;
    if (status < 0)
        return status;
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind_and_listen(fd, &address) < 0) {
        status = reason_set(reason, errno == EADDRINUSE ? F8_EEXIST : F8_EIO,
            "--metrics %s cannot be served: %s", config->metrics, strerror(errno));
        if (fd >= 0)
            (void)close(fd);
        return status;
    }
    *ret_socket =
        (struct metrics_socket){.fd = fd, .path = family == AF_UNIX ? config->metrics : NULL};
    describe(ret_socket);
    if (ret_socket->path && lstat(ret_socket->path, &st) == 0) {
        ret_socket->device = st.st_dev;
        ret_socket->inode = st.st_ino;
    }
    return F8_OK;
}

void metrics_socket_remove(const struct metrics_socket *socket)
{
    struct stat st;
    if (socket->path && lstat(socket->path, &st) == 0 && st.st_dev == socket->device &&
        st.st_ino == socket->inode)
        (void)unlink(socket->path);
}
