/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What signals do: SIGHUP reads the settings again; SIGTERM and SIGINT end the daemon, once what
 * is under way has ended or its time is over, and a second one at once. On the loop.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "daemon/log.h"
#include "daemon/metrics_http.h"
#include "daemon/server_private.h"
#include "daemon/service.h"

void server_let_signals_go(struct server *server)
{
    uv_unref((uv_handle_t *)&server->terminate);
    uv_unref((uv_handle_t *)&server->interrupt);
    uv_unref((uv_handle_t *)&server->hangup);
}

void server_stop_signals(struct server *server)
{
    (void)uv_signal_stop(&server->terminate);
    (void)uv_signal_stop(&server->interrupt);
    (void)uv_signal_stop(&server->hangup);
}

/* Ranks leave, their last work ends, handles close: then the loop has nothing left to run. */
static void shut_down(struct server *server)
{
    (void)uv_prepare_stop(&server->drained);
    (void)uv_timer_stop(&server->patience);
    listener_close(&server->listener);
    metrics_http_close(server->http);
    server->session.metrics = NULL;
    collective_context_close(&server->session.collective);
    events_close(server->events);
    conn_close_all(&server->conns);
    worlds_close(server->worlds);
    server_let_signals_go(server);
}

static void on_event(uv_prepare_t *prepare)
{
    struct server *server = prepare->data;
    struct reason first;
    if (session_open_groups(&server->session, &first) > 0)
        return;
    log_info("all collectives that were under way have ended: ending");
    shut_down(server);
}

static void on_patience_ends(uv_timer_t *timer)
{
    struct server *server = timer->data;
    struct reason first;
    uint32_t open = session_open_groups(&server->session, &first);
    if (open > 0)
        log_warning("collectives of %u groups have not ended in %" PRIu64
                    " s (--drain), those of %s for one: ending all the same",
            open, server->config.drain_ms / 1000, first.text);
    session_cut(&server->session);
    shut_down(server);
}

/*
 * Waits for the collectives under way, if there are any and it may. A service manager is told when
 * the end is certain: it would not let the daemon go on after an operator calls the drain off.
 */
static void drain(struct server *server, const char *name)
{
    struct reason first, status;
    session_drain(&server->session);
    uint32_t open = session_open_groups(&server->session, &first);
    bool waits = open > 0 && server->config.drain_ms > 0;
    if (waits)
        (void)reason_set(&status, F8_OK,
            "waits at most %" PRIu64 " s (--drain) for collectives of %u groups, of %s for one",
            server->config.drain_ms / 1000, open, first.text);
    else
        (void)reason_set(&status, F8_OK, "%s", server->called ? "ending" : "ends");
    log_info("%s: %s", name, waits ? status.text : "ending");
    if (server->called)
        service_status(status.text);
    else
        service_stopping(status.text, waits ? server->config.drain_ms : 0);
    if (!waits && !server->called) {
        shut_down(server);
        return;
    }
    /* Not within an operator's request, whose reply must come first. */
    if (waits)
        (void)uv_prepare_start(&server->drained, on_event);
    (void)uv_timer_start(
        &server->patience, on_patience_ends, waits ? server->config.drain_ms : 0, 0);
}

static void on_end(uv_signal_t *signal, int number)
{
    struct server *server = signal->data;
    const char *name = number == SIGTERM ? "SIGTERM" : "SIGINT";
    if (server->ending && !server->called) {
        log_warning("%s again: ending at once", name);
        log_close(LOG_CLOSE_AT_ONCE_MS);
        _exit(EXIT_FAILURE);
    }
    server->ending = true;
    server->called = false;
    drain(server, name);
}

static void on_call(void *owner, const char *who)
{
    struct server *server = owner;
    char name[96];
    server->ending = server->called = true;
    (void)snprintf(name, sizeof(name), "told by an operator (%s)", who);
    drain(server, name);
}

static int on_call_off(void *owner, const char *who, struct reason *reason)
{
    struct server *server = owner;
    struct reason why;
    if (!server->ending)
        return reason_set(reason, F8_EORDER, "the daemon does not end: there is no drain");
    if (!server->called)
        return reason_set(reason, F8_EORDER,
            "the daemon ends because of a signal: only a drain by f8ctl can be called off");
    server->ending = server->called = false;
    (void)uv_prepare_stop(&server->drained);
    (void)uv_timer_stop(&server->patience);
    log_info("the drain is called off by an operator (%s)", who);
    (void)reason_set(&why, F8_OK, "the drain was called off by %s", who);
    events_tell(
        server->events, &(struct event){.kind = F8_PROTO_EVENT_DRAIN_CANCELLED, .text = why.text});
    session_end_drain(&server->session, &why);
    server_say_ready(server);
    return F8_OK;
}

const struct session_end server_session_end = {.drain = on_call, .cancel = on_call_off};

static void on_hangup(uv_signal_t *signal, int number)
{
    struct server *server = signal->data;
    struct reason reason;
    (void)number;
    if (server->ending)
        return;
    service_reloading();
    log_info("SIGHUP: reading the settings again");
    if (config_reload(server->argc, server->argv, &server->told, &server->config, &reason) < 0)
        log_error("SIGHUP: no setting is changed: %s", reason.text);
    log_set_level(server->config.log_level);
    state_saver_reload(server->saver);
    state_store_reload(server->states);
    server_say_ready(server);
}

static void watch(struct server *server, uv_signal_t *signal, int number, uv_signal_cb callback)
{
    (void)uv_signal_init(&server->loop, signal);
    signal->data = server;
    (void)uv_signal_start(signal, callback, number);
}

void server_watch_signals(struct server *server)
{
    (void)uv_prepare_init(&server->loop, &server->drained); /* neither can fail */
    (void)uv_timer_init(&server->loop, &server->patience);
    server->drained.data = server->patience.data = server;
    watch(server, &server->terminate, SIGTERM, on_end);
    watch(server, &server->interrupt, SIGINT, on_end);
    watch(server, &server->hangup, SIGHUP, on_hangup);
}
