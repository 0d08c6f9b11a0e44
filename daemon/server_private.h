/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Within server: the daemon's state, between setting up (server.c) and signals (server_end.c). On
 * the loop.
 */
#ifndef F8_DAEMON_SERVER_PRIVATE_H
#define F8_DAEMON_SERVER_PRIVATE_H

#include <uv.h>

#include "daemon/backend.h"
#include "daemon/config.h"
#include "daemon/conn.h"
#include "daemon/listener.h"
#include "daemon/lock.h"
#include "daemon/state_saver.h"
#include "daemon/world.h"

struct metrics_http;

struct server {
    uv_loop_t loop;
    struct config config; /* what all rooms see; SIGHUP changes it */
    struct config told;   /* what config read last, as far as it counts */
    int argc;             /* to read it again */
    char **argv;          /* borrowed: main's */
    uv_signal_t terminate, interrupt, hangup;
    uv_prepare_t drained; /* while SIGTERM waits for collectives: looks after each event */
    uv_timer_t patience;  /* how long it waits */
    uv_timer_t watchdog;
    bool ending; /* was told to end */
    bool called; /* by an operator alone, who may call it off */
    struct lock lock;
    struct listener listener;
    struct conn_context conns;
    struct session_context session;
    struct backend *backend;    /* owned: the host's */
    struct backend *cuda;       /* owned; NULL: no GPUs here */
    struct state_store *states; /* owned */
    struct state_saver *saver;  /* owned */
    struct worlds *worlds;      /* owned */
    struct events *events;      /* owned */
    struct metrics_http *http;  /* owned; NULL: metrics are not served over HTTP */
};

/* Signals are served from now on. */
void server_watch_signals(struct server *server);

/* For operators, who end the daemon by a request. */
extern const struct session_end server_session_end;

/* The loop may end though they are still watched. */
void server_let_signals_go(struct server *server);

/* Of a start that failed: one that came meanwhile finds nothing that it could end. */
void server_stop_signals(struct server *server);

/* A line for people: what it does while it does nothing else. */
void server_say_ready(const struct server *server);

#endif
