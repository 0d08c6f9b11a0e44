/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One client's requests: who may ask what, which object is meant, and exactly one reply to each.
 * Told messages by conn, it never touches a socket; replies go up through a callback. On the loop.
 */
#ifndef F8_DAEMON_SESSION_H
#define F8_DAEMON_SESSION_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/collective.h"
#include "daemon/metrics.h"
#include "daemon/registry.h"
#include "daemon/state_saver.h"
#include "f8gather.pb-c.h"

struct session;

/* The upward call to conn. */
struct session_link {
    /* Sends a reply; `fd` (borrowed, or -1) goes with it. May be called from any session call. */
    void (*send)(void *conn, const F8__Reply *reply, int fd);
};

/* The upward call to server, for an operator who would end the daemon. */
struct session_end {
    /* Begins the drain, as SIGTERM does, and returns: what comes of it comes later. */
    void (*drain)(void *owner, const char *who);
    /* Calls it off. F8_EORDER: there is none, or another than an operator has begun it. */
    int (*cancel)(void *owner, const char *who, struct reason *reason);
};

struct drain_wait;

/* What all sessions share; outlives them. */
struct session_context {
    struct registry *registry;            /* borrowed */
    struct collective_context collective; /* its listener is session_listener */
    const struct session_link *link;      /* borrowed: static */
    struct state_saver *saver;            /* borrowed */
    const struct session_end *end;        /* borrowed: static */
    void *end_owner;                      /* borrowed: outlives it */
    struct session *sessions;             /* borrowed list: all that are there */
    struct drain_wait *drain_waits;       /* owned list: who waits for the end */
    struct reason no_cuda;                /* why collective.cuda is NULL */
    const char *metrics;                  /* borrowed: where they are served over HTTP; NULL */
    uint64_t started;                     /* loop time, ms */
    uint32_t connections;
    bool draining; /* the daemon was told to end: nobody joins any more */
};

extern const struct collective_listener session_listener;

/* The peer, as the kernel vouches for it. */
struct session_peer {
    uid_t uid;
    uint32_t pid;
    bool admin; /* may inspect: root, the daemon's uid, the configured group */
};

/* NULL if memory is short. */
struct session *session_new(
    struct session_context *context, const struct session_peer *peer, void *conn);

/* Of the job that it has entered; NULL: none. */
const char *session_job_name(const struct session *session);

/* It has said Goodbye, or was never let in: its end is no death. */
bool session_is_leaving(const struct session *session);

/* The client is gone: its ranks leave, its regions go. Nothing is sent any more. */
void session_free(struct session *session, bool died);

/* In place of the number of descriptors: they came, but this process has no room for them. */
#define SESSION_FDS_LOST UINT32_MAX

/*
 * Serves a request; `fds` are the descriptors that came with it, the caller's to close. True if a
 * reply was sent or will be, false for a release, which has none.
 */
bool session_handle(
    struct session *session, const F8__Request *request, const int *fds, uint32_t num_fds);

/* Refuses ranks from now on, and marks the collectives under way, which session_open_groups counts.
 */
void session_drain(struct session_context *context);

/* The other way round; tells those who wait for the end that it does not come, with the reason. */
void session_end_drain(struct session_context *context, const struct reason *reason);

/*
 * The daemon ends though marked collectives are under way: operators are told which are cut, those
 * who watch and those who wait for the end.
 */
void session_cut(struct session_context *context);

/*
 * Groups in which a marked one has not ended; the first is named in `ret_first`, which is untouched
 * if there is none.
 */
uint32_t session_open_groups(const struct session_context *context, struct reason *ret_first);

/*
 * The text of metrics, with those of single weights or without: the caller's to end. F8_ENOMEM.
 * `context` is a struct session_context.
 */
int session_metrics_text(void *context, bool weights, struct metrics_text *ret_text);

#endif
