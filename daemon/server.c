/* SPDX-License-Identifier: Apache-2.0 */
/* Setting up, serving and taking down: see server.h. */
#include "daemon/server.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uv.h>

#include "daemon/backend_cuda.h"
#include "daemon/log.h"
#include "daemon/metrics_http.h"
#include "daemon/server_private.h"
#include "daemon/service.h"
#include "kernels/kernels.h"
#include "protocol.h"

/* Of a gather over hosts: much for the network, little to a large bucket. */
#define PIECE_BYTES ((uint64_t)16 << 20)

static void on_accepted(void *owner, int fd)
{
    struct server *server = owner;
    conn_open(&server->conns, fd);
}

/* Each client takes two descriptors; the soft limit is often 1024. */
static void raise_descriptor_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur == limit.rlim_max)
        return;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

static int set_up_rooms(struct server *server, const struct config *config)
{
    struct session_context *session = &server->session;
    int status = backend_host_new(&server->loop, config->threads, &server->backend);
    if (status == F8_OK)
        status = worlds_new(&server->loop, config, &server->worlds);
    if (status == F8_OK)
        status = events_new(&server->loop, &server->events);
    if (status < 0)
        return status;
    session->registry = registry_new(config);
    session->link = &conn_session_link;
    session->end = &server_session_end;
    session->end_owner = server;
    session->started = uv_now(&server->loop);
    session->collective = (struct collective_context){
        .loop = &server->loop,
        .backend = server->backend,
        .config = config,
        .listener = &session_listener,
        .worlds = server->worlds,
        .events = server->events,
        .piece_bytes = PIECE_BYTES,
    };
    return session->registry ? conn_context_init(&server->conns, &server->loop, config, session)
                             : F8_ENOMEM;
}

static void tell_snapshot(void *owner, const struct state_pass *pass)
{
    const struct server *server = owner;
    struct reason text = pass->reason;
    if (pass->status == F8_OK)
        (void)reason_set(&text, F8_OK, "%u state%s, %.1f KiB in %s", pass->states,
            pass->states == 1 ? "" : "s", (double)pass->bytes / 1024, server->config.state_dir);
    events_tell_snapshot(server->events, pass->status, pass->bytes, &text);
}

/* Only once the socket is ours: another daemon's states are not looked at. */
static int open_states(struct server *server, const struct config *config, struct reason *reason)
{
    /* A state that does not fit under RLIMIT_FSIZE is an error of its seal, not the end of all. */
    (void)signal(SIGXFSZ, SIG_IGN);
    int status = state_store_open(&server->loop, config, &server->states, reason);
    if (status < 0)
        return status;
    server->session.collective.states = server->states;
    status = state_saver_new(
        &server->loop, config, server->states, STATE_SAVER_PATIENCE_MS, &server->saver, reason);
    if (status < 0)
        return status;
    state_saver_listen(server->saver, tell_snapshot, server);
    server->session.saver = server->saver;
    registry_count_also(server->session.registry, state_store_held, server->states);
    return F8_OK;
}

static void log_devices(struct backend *cuda)
{
    struct backend_info info;
    cuda->ops->device->info(cuda, &info);
    for (uint32_t i = 0; i < info.num_devices; i++)
        log_info("device %u: %s at %s, %llu MiB", i, info.devices[i].name, info.devices[i].pci,
            (unsigned long long)(info.devices[i].memory >> 20));
    log_info("CUDA driver %u.%u, NCCL %s", info.driver_version / 1000,
        info.driver_version % 1000 / 10,
        info.nccl_version ? "for groups on several devices" : info.nccl_reason);
}

/*
 * After the socket is ours, as the states. Without GPUs the host's backend still serves, and the
 * reason is kept for those who ask for them.
 */
static int open_cuda(struct server *server, const struct config *config, struct reason *reason)
{
    struct reason *why = &server->session.no_cuda;
    if (config->cuda == CONFIG_CUDA_OFF)
        return reason_set(why, F8_OK, "it is switched off (--cuda off)");
    int status = backend_cuda_open(&server->loop, config, &server->cuda, why);
    server->session.collective.cuda = server->cuda;
    if (status == F8_OK)
        log_devices(server->cuda);
    else if (config->cuda == CONFIG_CUDA_REQUIRE)
        return reason_set(reason, status, "--cuda require: %.480s", why->text);
    else
        log_info("no GPUs: %s", why->text);
    return F8_OK;
}

/* The system's socket has a directory of its own, which a first start may have to make. */
static void make_directory(const char *socket)
{
    char directory[] = F8_PROTO_SOCKET;
    *strrchr(directory, '/') = '\0';
    if (strcmp(socket, F8_PROTO_SOCKET) == 0)
        (void)mkdir(directory, 0755); /* if it cannot be, the lock in it says so */
}

/* The socket that the service manager passed, else our own. The lock is taken in between. */
static int open_socket(struct server *server, struct reason *reason)
{
    char *path = server->config.socket, passed[sizeof(server->config.socket)];
    struct listener *listener = &server->listener;
    int fd, status = service_take_socket(&fd, passed, sizeof(passed), reason);
    if (status < 0)
        return status;
    if (fd >= 0 && strcmp(passed, path) != 0)
        log_info("the passed socket %s is used, and not %s", passed, path);
    if (fd >= 0)
        (void)strcpy(path, passed);
    else
        make_directory(path);
    status = lock_take(&server->lock, path, reason);
    if (status < 0) {
        if (fd >= 0)
            (void)close(fd);
        return status;
    }
    return fd >= 0 ? listener_adopt(listener, &server->loop, fd, path, reason)
                   : listener_open(listener, &server->loop, path, reason);
}

/* Last: nothing that can fail comes after it. */
static int open_metrics(struct server *server, const struct config *config, struct reason *reason)
{
    if (config->metrics[0] == '\0')
        return F8_OK;
    int status = metrics_http_open(
        &server->loop, config, session_metrics_text, &server->session, &server->http, reason);
    if (status == F8_OK)
        server->session.metrics = metrics_http_where(server->http);
    return status;
}

static int set_up(struct server *server, struct reason *reason)
{
    const struct config *config = &server->config;
    int status = set_up_rooms(server, config);
    if (status < 0)
        return reason_set(reason, status, "out of memory at the start");
    /* Before the socket: whoever can connect must find that a SIGTERM ends the daemon in order. */
    server_watch_signals(server);
    server->listener.owner = server;
    server->listener.accepted = on_accepted;
    status = open_socket(server, reason);
    if (status == F8_OK) {
        status = open_states(server, config, reason);
        if (status == F8_OK)
            status = open_cuda(server, config, reason);
        if (status == F8_OK)
            status = open_metrics(server, config, reason);
        if (status < 0)
            listener_close(&server->listener);
    }
    if (status < 0)
        server_stop_signals(server);
    return status;
}

static void close_any(uv_handle_t *handle, void *unused)
{
    (void)unused;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

/* The thread of the saver may come back at any time, and needs what would be freed. */
static void end_stuck(struct server *server)
{
    log_error("%s: ending without the snapshots that it has not taken",
        state_saver_last(server->saver)->reason.text);
    lock_release(&server->lock);
    log_close(LOG_CLOSE_AT_ONCE_MS);
    _exit(EXIT_FAILURE);
}

/* Of an end in order: that what is to outlive a reboot is on the disk. */
static int check_saved(const struct server *server, struct reason *reason)
{
    const struct state_pass *last = state_saver_last(server->saver);
    if (last->status == F8_OK)
        return F8_OK;
    return reason_set(reason, last->status,
        "the last snapshots failed: %.300s; the states are safe beside the socket until a reboot, "
        "and a daemon that starts before it saves them",
        last->reason.text);
}

/* F8_EIO, after an end in order only: not all is saved that is to outlive a reboot. */
static int take_down(struct server *server, struct reason *reason)
{
    int status = F8_OK;
    struct reason nobody = {.text = ""};
    session_end_drain(&server->session, &nobody); /* who waited is gone */
    backend_free(server->cuda);
    backend_free(server->backend);
    (void)uv_run(&server->loop, UV_RUN_DEFAULT);
    if (server->ending)
        state_saver_finish(server->saver);
    (void)uv_run(&server->loop, UV_RUN_DEFAULT);
    if (state_saver_is_stuck(server->saver))
        end_stuck(server);
    if (server->ending)
        status = check_saved(server, reason);
    state_saver_close(server->saver);
    state_store_close(server->states);
    uv_walk(&server->loop, close_any, NULL); /* what is left: the signals */
    (void)uv_run(&server->loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&server->loop);
    worlds_free(server->worlds);
    events_free(server->events);
    conn_context_done(&server->conns);
    registry_free(server->session.registry);
    lock_release(&server->lock);
    return status;
}

void server_say_ready(const struct server *server)
{
    struct reason status;
    (void)reason_set(&status, F8_OK, "serves at %s, %s", server->config.socket,
        server->cuda ? "hosts and GPUs" : "without GPUs");
    service_ready(status.text);
}

int server_run(const struct config *config, int argc, char **argv, struct reason *reason)
{
    struct server server;
    memset(&server, 0, sizeof(server));
    server.config = server.told = *config;
    server.argc = argc;
    server.argv = argv;
    server.lock.fd = -1;
    raise_descriptor_limit();
    /* libuv reads this when the pool begins; no thread that looks at the environment exists yet. */
    char threads[16];
    (void)snprintf(threads, sizeof(threads), "%u", config->threads);
    (void)setenv("UV_THREADPOOL_SIZE", threads, 1);
    if (uv_loop_init(&server.loop) < 0)
        return reason_set(reason, F8_EIO, "cannot make an event loop");
    int status = set_up(&server, reason);
    if (status == F8_OK) {
        log_info("f8gatherd %s listens at %s: kernels %s, %u threads", F8_VERSION,
            server.config.socket, f8k_ops()->name, config->threads);
        service_watch(&server.watchdog, &server.loop);
        server_say_ready(&server);
        (void)uv_run(&server.loop, UV_RUN_DEFAULT);
    }
    int end = take_down(&server, reason);
    return status < 0 ? status : end;
}
