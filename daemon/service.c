/* SPDX-License-Identifier: Apache-2.0 */
/*
 * systemd's protocols by libsystemd: see service.h. Built without it, the daemon says so where it
 * is run by someone who speaks them, for a service that is never ready is hard to explain.
 */
#include "daemon/service.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "daemon/log.h"
#include "status.h"

#ifdef F8_HAVE_SYSTEMD
#include <systemd/sd-daemon.h>
#else
/* What the functions below do where nobody speaks the protocols. */
#define SD_LISTEN_FDS_START 3

static int sd_listen_fds(int unset_environment)
{
    const char *pid = getenv("LISTEN_PID");
    (void)unset_environment;
    return pid && strtol(pid, NULL, 10) == (long)getpid() ? -ENOSYS : 0;
}

static int sd_is_socket(int fd, int family, int type, int listening)
{
    (void)fd;
    (void)family;
    (void)type;
    (void)listening;
    return 0;
}

static int sd_notify(int unset_environment, const char *state)
{
    (void)unset_environment;
    (void)state;
    return getenv("NOTIFY_SOCKET") ? -ENOSYS : 0;
}

static int sd_watchdog_enabled(int unset_environment, uint64_t *usec)
{
    (void)unset_environment;
    (void)usec;
    return 0;
}
#endif

/* What an end takes besides waiting, with much to save on a slow disk. */
#define END_MS ((uint64_t)90000)

/* For an error of the functions above. */
static const char *why(int error)
{
    return error == -ENOSYS ? "f8gatherd was built without libsystemd" : strerror(-error);
}

static int read_path(int fd, char *path, size_t size, struct reason *reason)
{
    struct sockaddr_un address = {0};
    socklen_t length = sizeof(address);
    if (getsockname(fd, (struct sockaddr *)&address, &length) < 0)
        return reason_set(
            reason, F8_EINVAL, "the passed socket has no address: %s", strerror(errno));
    size_t bytes = length - offsetof(struct sockaddr_un, sun_path);
    if (length <= offsetof(struct sockaddr_un, sun_path) || address.sun_path[0] != '/')
        return reason_set(reason, F8_EINVAL,
            "the passed socket is not bound to an absolute path: states are kept beside it");
    if (bytes >= size)
        bytes = size - 1;
    (void)snprintf(path, size, "%.*s", (int)bytes, address.sun_path);
    return F8_OK;
}

int service_take_socket(int *ret_fd, char *path, size_t size, struct reason *reason)
{
    int count = sd_listen_fds(1), fd = SD_LISTEN_FDS_START;
    if (count < 0)
        return reason_set(
            reason, F8_EINVAL, "sockets were passed (LISTEN_FDS), but %s", why(count));
    if (count == 0) {
        *ret_fd = -1;
        return F8_OK;
    }
    if (count > 1)
        return reason_set(reason, F8_EINVAL,
            "%d sockets were passed (LISTEN_FDS), f8gatherd listens at one", count);
    if (sd_is_socket(fd, AF_UNIX, SOCK_SEQPACKET, 1) <= 0)
        return reason_set(reason, F8_EINVAL,
            "the passed descriptor (LISTEN_FDS) is not a listening AF_UNIX socket of type "
            "SOCK_SEQPACKET: the socket unit must have ListenSequentialPacket=");
    int status = read_path(fd, path, size, reason);
    if (status == F8_OK)
        *ret_fd = fd;
    return status;
}

static void notify(const char *text)
{
    static struct log_limit limit;
    int result = sd_notify(0, text);
    if (result < 0 && log_allows(&limit, uv_hrtime() / 1000000))
        log_warning("the service manager (NOTIFY_SOCKET) cannot be told: %s", why(result));
}

static void on_watchdog(uv_timer_t *timer)
{
    (void)timer;
    notify("WATCHDOG=1");
}

void service_watch(uv_timer_t *timer, uv_loop_t *loop)
{
    uint64_t usec = 0;
    (void)uv_timer_init(loop, timer); /* cannot fail */
    uv_unref((uv_handle_t *)timer);
    if (sd_watchdog_enabled(0, &usec) <= 0)
        return;
    uint64_t half = usec / 2000;
    (void)uv_timer_start(timer, on_watchdog, 0, half > 0 ? half : 1);
}

static void notify_with(const char *what, const char *status)
{
    char text[REASON_SIZE + 64];
    (void)snprintf(text, sizeof(text), "%s\nSTATUS=%s", what, status);
    notify(text);
}

void service_status(const char *status)
{
    char text[REASON_SIZE + 16];
    (void)snprintf(text, sizeof(text), "STATUS=%s", status);
    notify(text);
}

void service_ready(const char *status)
{
    notify_with("READY=1", status);
}

void service_reloading(void)
{
    char text[96];
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    (void)snprintf(text, sizeof(text), "RELOADING=1\nMONOTONIC_USEC=%" PRIu64,
        (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000);
    notify_with(text, "reads its settings again");
}

/* A manager that waits for longer by itself takes nothing from that. */
void service_stopping(const char *status, uint64_t wait_ms)
{
    char text[96];
    (void)snprintf(
        text, sizeof(text), "STOPPING=1\nEXTEND_TIMEOUT_USEC=%" PRIu64, (wait_ms + END_MS) * 1000);
    notify_with(text, status);
}
