/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a fabric's helper: see fabric.h. It is spawned, killed and reaped here. Every way to
 * fail goes through the reaping, because only then does nobody write into the arena any more, and
 * so that a listener is never called from inside a call of its own.
 */
#include "daemon/fabric.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/beside.h"
#include "daemon/fabric_private.h"
#include "proto/status.h"

const char *fabric_doing(const struct fabric *fabric)
{
    switch (fabric->command) {
    case FABRIC_OPEN:
        return "start";
    case FABRIC_CONNECT:
        return "connect to the other hosts";
    case FABRIC_MAP:
        return "map the arena";
    case FABRIC_REDUCE:
        return "reduce over the hosts";
    case FABRIC_EXCHANGE:
        break;
    }
    return "exchange with the other hosts";
}

/* ---- the end ---- */

static void after_close(uv_handle_t *handle)
{
    struct fabric *fabric = handle->data;
    if (--fabric->open_handles > 0)
        return;
    if (fabric->socket >= 0)
        (void)close(fabric->socket);
    fabric_out_done(&fabric->out);
    free(fabric->opened);
    free(fabric);
}

static void close_handle(struct fabric *fabric, void *handle)
{
    ((uv_handle_t *)handle)->data = fabric;
    fabric->open_handles++;
    uv_close(handle, after_close);
}

static void close_handles(struct fabric *fabric)
{
    close_handle(fabric, &fabric->process);
    close_handle(fabric, &fabric->poll);
    close_handle(fabric, &fabric->deadline);
}

/* Nothing is heard of the helper but its end. */
static void kill_helper(struct fabric *fabric)
{
    (void)uv_poll_stop(&fabric->poll);
    (void)uv_timer_stop(&fabric->deadline);
    if (fabric->running)
        (void)uv_process_kill(&fabric->process, SIGKILL);
}

void fabric_fail(struct fabric *fabric, int status, const char *format, ...)
{
    if (fabric->status == F8_OK) {
        va_list args;
        va_start(args, format);
        (void)vsnprintf(fabric->reason.text, sizeof(fabric->reason.text), format, args);
        va_end(args);
        reason_trim(&fabric->reason);
        fabric->status = status;
    }
    kill_helper(fabric);
}

/* It ended by itself. */
static void describe_end(struct fabric *fabric, int64_t exit_status, int signal)
{
    char open[96] = "";
    if (fabric->busy)
        (void)snprintf(open, sizeof(open), " when it was to %s", fabric_doing(fabric));
    if (signal != 0)
        fabric_fail(fabric, F8_EIO,
            "the engine (" FABRIC_HELPER ", pid %d) was killed by signal %d (%s)%s",
            fabric->process.pid, signal, strsignal(signal), open);
    else
        fabric_fail(fabric, F8_EIO,
            "the engine (" FABRIC_HELPER ", pid %d) ended with status %" PRId64 "%s",
            fabric->process.pid, exit_status, open);
}

static void after_exit(uv_process_t *process, int64_t exit_status, int signal)
{
    struct fabric *fabric = process->data;
    fabric->running = false;
    describe_end(fabric, exit_status, signal);
    fabric->busy = false;
    if (fabric->closed)
        close_handles(fabric);
    else
        fabric->listener->failed(fabric, fabric->status, &fabric->reason);
}

void fabric_close(struct fabric *fabric)
{
    if (!fabric)
        return;
    assert(!fabric->closed);
    fabric->closed = true;
    kill_helper(fabric);
    if (!fabric->running)
        close_handles(fabric);
}

/* ---- the socket ---- */

static void on_socket(uv_poll_t *poll, int status, int events)
{
    struct fabric *fabric = poll->data;
    if (status < 0)
        events = UV_READABLE; /* reading says what it is */
    if ((events & UV_WRITABLE) && fabric->out.data)
        fabric_flush(fabric);
    if ((events & UV_READABLE) && fabric->status == F8_OK)
        fabric_read(fabric);
}

void fabric_watch(struct fabric *fabric)
{
    int events = UV_READABLE | (fabric->out.data ? UV_WRITABLE : 0);
    int r = uv_poll_start(&fabric->poll, events, on_socket);
    if (r < 0)
        fabric_fail(fabric, F8_EIO, "cannot watch the socket of the engine: %s", uv_strerror(r));
}

/* ---- the beginning ---- */

static int spawn(
    uv_loop_t *loop, struct fabric *fabric, const char *path, int its_end, struct reason *reason)
{
    char *arguments[] = {FABRIC_HELPER, NULL};
    uv_stdio_container_t stdio[FABRIC_SOCKET + 1] = {
        [STDIN_FILENO] = {.flags = UV_IGNORE},
        [STDOUT_FILENO] = {.flags = UV_IGNORE},
        [STDERR_FILENO] = {.flags = UV_INHERIT_FD, .data.fd = STDERR_FILENO},
        [FABRIC_SOCKET] = {.flags = UV_INHERIT_FD, .data.fd = its_end},
    };
    uv_process_options_t options = {.file = path,
        .args = arguments,
        .exit_cb = after_exit,
        .stdio = stdio,
        .stdio_count = FABRIC_SOCKET + 1};
    int r = uv_spawn(loop, &fabric->process, &options);
    if (r < 0)
        return reason_set(reason,
            r == UV_ENOENT   ? F8_ENOENT
            : r == UV_ENOMEM ? F8_ENOMEM
                             : F8_EIO,
            "cannot start the engine of groups over hosts, %s: %s", path, uv_strerror(r));
    fabric->running = true;
    return F8_OK;
}

/* Half-built, too: all handles can be closed after it. */
static int start(uv_loop_t *loop, struct fabric *fabric, const char *path, struct reason *reason)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        return reason_set(reason, errno == EMFILE || errno == ENFILE ? F8_ELIMIT : F8_EIO,
            "no socket for the engine of groups over hosts: %s", strerror(errno));
    fabric->socket = ends[0];
    int r = uv_poll_init(loop, &fabric->poll, fabric->socket);
    if (r < 0) {
        (void)close(ends[0]);
        (void)close(ends[1]);
        return reason_set(
            reason, F8_EIO, "cannot watch the socket of the engine: %s", uv_strerror(r));
    }
    (void)uv_timer_init(loop, &fabric->deadline); /* cannot fail */
    fabric->process.data = fabric->poll.data = fabric->deadline.data = fabric;
    r = spawn(loop, fabric, path, ends[1], reason);
    (void)close(ends[1]);
    if (r < 0)
        close_handles(fabric); /* frees it, too */
    return r;
}

static void set_text(char *text, size_t size, const char *from)
{
    assert(strlen(from) < size);
    (void)snprintf(text, size, "%s", from);
}

int fabric_open(uv_loop_t *loop, const struct fabric_shape *shape, uint64_t deadline_ms,
    struct fabric **ret_fabric, struct reason *reason)
{
    char path[PATH_MAX + sizeof(FABRIC_HELPER)];
    int r = beside_path(FABRIC_HELPER, path, sizeof(path), reason);
    if (r < 0)
        return r;
    if (access(path, F_OK) < 0)
        return reason_set(reason, F8_ENOENT,
            "no engine for groups over hosts: %s is not there; it is built where libgloo is", path);
    struct fabric *fabric = calloc(1, sizeof(*fabric));
    if (!fabric)
        return reason_set(reason, F8_ENOMEM, "no memory for the record of an engine");
    fabric->listener = shape->listener;
    fabric->owner = shape->owner;
    fabric->out.fd = -1;
    fabric->hosts = shape->hosts;
    r = start(loop, fabric, path, reason);
    if (r < 0)
        return r;
    struct fabric_open open = {
        .hosts = shape->hosts, .here = shape->here, .silence_ms = shape->silence_ms};
    set_text(open.interface, sizeof(open.interface), shape->interface);
    set_text(open.address, sizeof(open.address), shape->address);
    fabric_ask_open(fabric, &open, deadline_ms);
    *ret_fabric = fabric;
    return F8_OK;
}

void fabric_hand_over(struct fabric *fabric, const struct fabric_listener *listener, void *owner)
{
    fabric->listener = listener;
    fabric->owner = owner;
}

void *fabric_owner(const struct fabric *fabric)
{
    return fabric->owner;
}

pid_t fabric_pid(const struct fabric *fabric)
{
    return fabric->process.pid;
}

bool fabric_is_busy(const struct fabric *fabric)
{
    return fabric->busy;
}

const uint8_t *fabric_address(const struct fabric *fabric, size_t *ret_size)
{
    *ret_size = fabric->opened_size - sizeof(FABRIC_VERSION);
    return fabric->opened + sizeof(FABRIC_VERSION);
}

void fabric_traffic(const struct fabric *fabric, uint64_t *ret_sent, uint64_t *ret_received)
{
    *ret_sent = fabric->sent;
    *ret_received = fabric->received;
}
