/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happened in the daemon, the newest of it: a bounded ring of events, and operators who wait
 * for the next ones. A slow reader costs nothing: it finds out later how many it has missed. Told
 * by collective, session and server where things happen; read by session. On the loop.
 */
#ifndef F8_DAEMON_EVENTS_H
#define F8_DAEMON_EVENTS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "daemon/reason.h"
#include "protocol.h"

/* Events that are kept. Each takes what its names and text need, 2 KiB at most. */
#define EVENTS_KEPT 1024

struct events;

struct event {
    enum f8_proto_event kind;
    uid_t uid; /* of the job */
    bool has_rank;
    uint32_t rank, pid;
    double value; /* what protocol.h says of the kind */
    /* Borrowed, for the call or from the ring; NULL: none. */
    const char *job, *group, *bucket, *weight, *host, *text;
};

/* An event as it is kept. */
struct events_record {
    struct event event;
    uint64_t sequence;     /* from 1 */
    uint64_t time_ns;      /* since 1970 */
    uint64_t monotonic_ns; /* since the host began */
};

/* What a reader wants, and how far it is. */
struct events_reader {
    char job[F8_PROTO_MAX_NAME + 1]; /* glob; empty: all. Events of no job are for all */
    uint32_t kinds;                  /* bit k: f8_proto_event k; 0: all */
    uint64_t after;                  /* sequence of the last event that was looked at */
    uint64_t lost;                   /* events that were dropped before it saw them */
    bool restarted;                  /* its `after` was of an earlier daemon */
};

/* A reader that waits. */
struct events_waiter {
    struct events_reader reader;
    /* Called from the loop once there is something for it, its time is over, or all are answered;
     * it waits no more then. */
    void (*ready)(struct events_waiter *waiter);
    uint64_t due; /* loop time, ms */
    struct events_waiter *next, **link;
};

/* F8_ENOMEM. */
int events_new(uv_loop_t *loop, struct events **ret_events);

/* Answers all who wait, and waits for nothing any more, so that the loop can run out. */
void events_close(struct events *events);

/* After the loop has run out. NULL allowed. */
void events_free(struct events *events);

/*
 * Something happened. Without memory it is counted as lost, and nothing else is disturbed. With
 * NULL nobody keeps events.
 */
void events_tell(struct events *events, const struct event *event);

/* A snapshot of scaling states was written, of so many bytes; or failed, and why. */
void events_tell_snapshot(
    struct events *events, int status, uint64_t bytes, const struct reason *why);

/* Finds what the reader has missed, as far as it can be known, and counts it. Before events_next.
 */
void events_begin(const struct events *events, struct events_reader *reader);

/*
 * The next event for the reader, which has seen it then; NULL: there is none, and it has seen all.
 * Borrowed: until the next events_tell.
 */
const struct events_record *events_next(const struct events *events, struct events_reader *reader);

/* Whether a Watch by this reader has something to say now. */
bool events_has_news(const struct events *events, const struct events_reader *reader);

/* The waiter, filled in but for `due`, is told when there is news or wait_ms have passed. */
void events_wait(struct events *events, struct events_waiter *waiter, uint32_t wait_ms);

/* It waits no more, and is not told. */
void events_stop_waiting(struct events_waiter *waiter);

/* Tells all who wait, whether there is anything for them or not. */
void events_answer_all(struct events *events);

#endif
