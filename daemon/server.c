/* SPDX-License-Identifier: Apache-2.0 */
/* Setting up, serving and taking down: see server.h. */
#include "daemon/server.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <uv.h>

#include "daemon/backend.h"
#include "daemon/backend_cuda.h"
#include "daemon/conn.h"
#include "daemon/listener.h"
#include "daemon/log.h"
#include "daemon/world.h"
#include "kernels/kernels.h"

struct server {
    uv_loop_t loop;
    uv_signal_t terminate, interrupt;
    struct listener listener;
    struct conn_context conns;
    struct session_context session;
    struct backend *backend;    /* owned: the host's */
    struct backend *cuda;       /* owned; NULL: no GPUs here */
    struct state_store *states; /* owned */
    struct worlds *worlds;      /* owned */
};

/* The loop may end though they are still watched. */
static void let_signals_go(struct server *server)
{
    uv_unref((uv_handle_t *)&server->terminate);
    uv_unref((uv_handle_t *)&server->interrupt);
}

/* Ranks leave, their last work ends, handles close: then the loop has nothing left to run. */
static void shut_down(struct server *server)
{
    listener_close(&server->listener);
    collective_context_close(&server->session.collective);
    conn_close_all(&server->conns);
    worlds_close(server->worlds);
    let_signals_go(server);
}

static void on_signal(uv_signal_t *signal, int number)
{
    struct server *server = signal->data;
    if (uv_is_closing((uv_handle_t *)&server->listener.poll)) {
        log_warning("%s again: ending at once", number == SIGTERM ? "SIGTERM" : "SIGINT");
        _exit(EXIT_FAILURE);
    }
    log_info("%s: ending", number == SIGTERM ? "SIGTERM" : "SIGINT");
    shut_down(server);
}

static void on_accepted(void *owner, int fd)
{
    struct server *server = owner;
    conn_open(&server->conns, fd);
}

static void watch_signal(struct server *server, uv_signal_t *signal, int number)
{
    (void)uv_signal_init(&server->loop, signal);
    signal->data = server;
    (void)uv_signal_start(signal, on_signal, number);
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
    if (status < 0)
        return status;
    session->registry = registry_new(config);
    session->link = &conn_session_link;
    session->started = uv_now(&server->loop);
    session->collective = (struct collective_context){
        .loop = &server->loop,
        .backend = server->backend,
        .config = config,
        .listener = &session_listener,
        .worlds = server->worlds,
    };
    return session->registry ? conn_context_init(&server->conns, &server->loop, config, session)
                             : F8_ENOMEM;
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

static int set_up(struct server *server, const struct config *config, struct reason *reason)
{
    int status = set_up_rooms(server, config);
    if (status < 0)
        return reason_set(reason, status, "out of memory at the start");
    /* Before the socket: whoever can connect must find that a SIGTERM ends the daemon in order. */
    watch_signal(server, &server->terminate, SIGTERM);
    watch_signal(server, &server->interrupt, SIGINT);
    server->listener.owner = server;
    server->listener.accepted = on_accepted;
    status = listener_open(&server->listener, &server->loop, config->socket, reason);
    if (status == F8_OK) {
        status = open_states(server, config, reason);
        if (status == F8_OK)
            status = open_cuda(server, config, reason);
        if (status < 0)
            listener_close(&server->listener);
    }
    if (status < 0)
        let_signals_go(server);
    return status;
}

static void close_any(uv_handle_t *handle, void *unused)
{
    (void)unused;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

static void take_down(struct server *server)
{
    backend_free(server->cuda);
    backend_free(server->backend);
    (void)uv_run(&server->loop, UV_RUN_DEFAULT);
    state_store_close(server->states);
    uv_walk(&server->loop, close_any, NULL); /* what is left: the signals */
    (void)uv_run(&server->loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&server->loop);
    worlds_free(server->worlds);
    conn_context_done(&server->conns);
    registry_free(server->session.registry);
}

int server_run(const struct config *config, struct reason *reason)
{
    struct server server;
    memset(&server, 0, sizeof(server));
    raise_descriptor_limit();
    /* libuv reads this when the pool begins; it is set before any thread exists. */
    char threads[16];
    (void)snprintf(threads, sizeof(threads), "%u", config->threads);
    (void)setenv("UV_THREADPOOL_SIZE", threads, 1);
    if (uv_loop_init(&server.loop) < 0)
        return reason_set(reason, F8_EIO, "cannot make an event loop");
    int status = set_up(&server, config, reason);
    if (status == F8_OK) {
        log_info("f8gatherd %s listens at %s: kernels %s, %u threads", F8_VERSION, config->socket,
            f8k_ops()->name, config->threads);
        (void)uv_run(&server.loop, UV_RUN_DEFAULT);
    }
    take_down(&server);
    return status;
}
