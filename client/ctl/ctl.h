/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the rooms of f8ctl share: the command line, the connection, and the exit statuses. f8ctl is
 * one thread, one connection, one command.
 */
#ifndef F8CTL_CTL_H
#define F8CTL_CTL_H

#include <stdbool.h>
#include <stdint.h>

#include "client/channel.h"
#include "client/ctl/columns.h"

#define CTL_SCHEMA "f8ctl/1"

enum ctl_exit {
    CTL_OK = 0,
    CTL_REFUSED = 1, /* the daemon refused, what was asked for is not there, or a file failed */
    CTL_USAGE = 2,
    CTL_NO_DAEMON = 3,
};

/* Most arguments of a command. */
#define CTL_MAX_ARGUMENTS 3

struct ctl {
    const char *socket; /* borrowed: from argv, as all strings here; NULL: look for it */
    const char *job;    /* glob; NULL: all */
    const char *name;   /* glob; NULL: all */
    const char *arguments[CTL_MAX_ARGUMENTS];
    const char *sort; /* NULL: in the daemon's order */
    const struct table_column *sort_column;
    bool descending;
    bool json;
    bool help;          /* asked for in place of the command */
    const char *svg;    /* of history; NULL: none */
    int over_ms;        /* of stats; 0: since the beginning */
    const char *html;   /* of report; NULL: none */
    unsigned int given; /* of enum ctl_takes: the flags of single commands that are there */
    uint32_t uid;
    uint32_t top, last;   /* 0: all */
    const char *peer;     /* of doctor; NULL: none */
    const char *format;   /* of export: "binary" or "json"; NULL: binary */
    uint64_t since;       /* sequence of an event */
    uint32_t events;      /* bit k: f8_proto_event k; 0: all */
    uint32_t count;       /* of events or frames; 0: without end */
    uint32_t interval_ms; /* between two frames */
    int timeout_ms;
    bool timeout_given;
    struct channel *channel; /* owned: by main; NULL while a CTL_ALONE has opened none */
};

/* Flags that only some commands take, and whether main connects for them. */
enum ctl_takes {
    CTL_TAKES_SORT = 1 << 0, /* it and the next: all that have columns */
    CTL_TAKES_TOP = 1 << 1,
    CTL_TAKES_LAST = 1 << 2,
    CTL_TAKES_FORCE = 1 << 3,
    CTL_TAKES_UID = 1 << 4,
    CTL_TAKES_PEER = 1 << 5,
    CTL_TAKES_WEIGHTS = 1 << 6,
    CTL_TAKES_YES = 1 << 7, /* it asks by ctl_confirm */
    CTL_TAKES_WAIT = 1 << 8,
    CTL_TAKES_CANCEL = 1 << 9,
    CTL_TAKES_PLOT = 1 << 10,
    CTL_TAKES_TABLE = 1 << 11,
    CTL_TAKES_SVG = 1 << 12,
    CTL_TAKES_OVER = 1 << 13,
    CTL_TAKES_HTML = 1 << 14,
    CTL_TAKES_FORMAT = 1 << 15,
    CTL_TAKES_EVENTS = 1 << 16, /* it and the next: streams of events */
    CTL_TAKES_SINCE = 1 << 17,
    CTL_TAKES_COUNT = 1 << 18,
    CTL_TAKES_INTERVAL = 1 << 19,
    CTL_TAKES_JOB = 1 << 20, /* it and the next: filters */
    CTL_TAKES_NAME = 1 << 21,
    CTL_AWAITS_DISK = 1 << 29, /* its answer takes as long as a disk, which may hang */
    CTL_ALONE = 1 << 30,       /* it connects by itself, if at all */
};

/* Of what jobs have: both filters. */
#define CTL_TAKES_FILTERS (CTL_TAKES_JOB | CTL_TAKES_NAME)

/* Ways to show a history. */
#define CTL_TAKES_HISTORY (CTL_TAKES_PLOT | CTL_TAKES_TABLE | CTL_TAKES_SVG | CTL_TAKES_FORCE)

/*
 * X(name, "ARGUMENTS" or NULL, &columns that --sort may name or NULL, what it takes, "help"): the
 * commands; an argument in brackets may be left out. Each is command_NAME, of views.c or of a file
 * of its own, takes the connected ctl, prints, and returns an exit status.
 */
#define CTL_COMMANDS(X)                                                                            \
    X(status, NULL, NULL, 0, "what the daemon is, and what it holds")                              \
    X(jobs, NULL, &columns_jobs, CTL_TAKES_JOB, "training runs")                                   \
    X(groups, NULL, &columns_groups, CTL_TAKES_FILTERS,                                            \
        "groups of ranks, their state and their processes")                                        \
    X(weights, NULL, &columns_weights, CTL_TAKES_FILTERS,                                          \
        "registered weights and how they are gathered")                                            \
    X(scales, NULL, &columns_scales, CTL_TAKES_FILTERS,                                            \
        "scales: values, age, and what they did to the weights")                                   \
    X(amax, NULL, &columns_amax, CTL_TAKES_FILTERS,                                                \
        "amaxes, their history as a sparkline, and syncs")                                         \
    X(buckets, NULL, &columns_buckets, CTL_TAKES_FILTERS,                                          \
        "buckets, sums over their weights, and who holds them")                                    \
    X(show, "NAME", NULL, CTL_TAKES_JOB, "all that is known of the weights of that name")          \
    X(history, "NAME", NULL, CTL_TAKES_JOB | CTL_TAKES_LAST | CTL_TAKES_HISTORY,                   \
        "amax of a delayed weight and the scale that followed, sync by sync")                      \
    X(rounds, NULL, &columns_rounds, CTL_TAKES_FILTERS,                                            \
        "collectives under way: what waits for whom, since when")                                  \
    X(hosts, NULL, &columns_hosts, CTL_TAKES_FILTERS,                                              \
        "hosts of groups that span several, and their heartbeats")                                 \
    X(export, "JOB GROUP FILE", NULL, CTL_TAKES_FORCE | CTL_TAKES_UID | CTL_TAKES_FORMAT,          \
        "write the scaling state of a group, as of its last sync")                                 \
    X(import, "JOB GROUP FILE", NULL, CTL_TAKES_UID | CTL_TAKES_YES | CTL_AWAITS_DISK,             \
        "store such a state, of either form, for a group that will continue it")                   \
    X(snapshot, NULL, NULL, CTL_AWAITS_DISK,                                                       \
        "save all scaling states that have changed, now, on the disk")                             \
    X(evict, "JOB", NULL, CTL_TAKES_UID | CTL_TAKES_YES | CTL_AWAITS_DISK,                         \
        "drop what is kept of a job that has no clients any more")                                 \
    X(drain, NULL, NULL, CTL_TAKES_YES | CTL_TAKES_WAIT | CTL_TAKES_CANCEL,                        \
        "end the daemon as SIGTERM does: nobody joins, what is under way ends first")              \
    X(doctor, NULL, NULL, CTL_TAKES_PEER | CTL_ALONE,                                              \
        "what is wrong here, and how to mend it; with --peer, on the way to another host")         \
    X(metrics, NULL, NULL, CTL_TAKES_WEIGHTS, "all that the daemon counts, as OpenMetrics text")   \
    X(stats, NULL, NULL, CTL_TAKES_JOB | CTL_TAKES_OVER,                                           \
        "totals, rates and times of the daemon; --job: of jobs")                                   \
    X(report, NULL, NULL, CTL_TAKES_FILTERS | CTL_TAKES_HTML | CTL_TAKES_TOP | CTL_TAKES_FORCE,    \
        "all of it at once: --html FILE, a page that needs nothing else")                          \
    X(completion, "SHELL", NULL, CTL_TAKES_FILTERS | CTL_ALONE,                                    \
        "the script by which bash, zsh or fish completes words")                                   \
    X(top, NULL, &columns_top, CTL_TAKES_FILTERS | CTL_TAKES_INTERVAL | CTL_TAKES_COUNT,           \
        "live: rates of groups and weights, and what waits; q ends it")                            \
    X(watch, NULL, NULL, CTL_TAKES_JOB | CTL_TAKES_EVENTS | CTL_TAKES_SINCE | CTL_TAKES_COUNT,     \
        "events as they happen, a line each")                                                      \
    X(monitor, NULL, NULL, CTL_TAKES_JOB | CTL_TAKES_EVENTS | CTL_TAKES_SINCE | CTL_TAKES_COUNT,   \
        "the same as JSON, one object a line")                                                     \
    X(ping, NULL, NULL, 0, "whether the daemon answers, and how fast")                             \
    X(version, NULL, NULL, CTL_ALONE, "the versions of f8ctl and of the daemon")

/* f8ctl unique-id, reset-amax and log-level, whose names are no words of C. */
int command_unique_id(struct ctl *ctl);
int command_reset_amax(struct ctl *ctl);
int command_log_level(struct ctl *ctl);

#define CTL_DECLARE(name, arguments, columns, takes, help) int command_##name(struct ctl *ctl);
CTL_COMMANDS(CTL_DECLARE)
#undef CTL_DECLARE

/*
 * Digits of a unique id, and back: 0, or -1 after standard error has said what is wrong with the
 * text.
 */
#define CTL_ID_DIGITS (2 * F8_PROTO_UNIQUE_ID_SIZE)
void ctl_id_text(const uint8_t id[F8_PROTO_UNIQUE_ID_SIZE], char digits[CTL_ID_DIGITS + 1]);
int ctl_id_parse(const char *text, uint8_t ret_id[F8_PROTO_UNIQUE_ID_SIZE]);

/* Connects as ADMIN within --timeout, if it is not done yet: F8_OK, or what error_text() explains.
 */
int ctl_connect(struct ctl *ctl);

/* Tells on standard error why a call on the channel failed; the exit status for it. */
int ctl_failed(int status);

/* Copies all that is in `from`, from its begin; F8_EIO, and `what` is named. In transfer.c. */
int ctl_copy_all(int from, int to, const char *what, uint64_t *ret_size);

/*
 * Sends a request and waits as long as --timeout allows. Takes no descriptor over; the reply's is
 * the caller's. In transfer.c.
 */
int ctl_ask(struct ctl *ctl, F8__Request *request, int memfd, struct channel_reply *ret_reply);

/* The same for requests without a descriptor: the whole reply, which must have that body. In
 * admin.c.
 */
int ctl_ask_body(
    struct ctl *ctl, F8__Request *request, F8__Reply__BodyCase body, F8__Reply **ret_reply);
/* Values of flags, into ctl: 0, or -1 after standard error has said what is wrong. options_live.c
 */
int ctl_take_events(const char *text, struct ctl *ctl);
int ctl_take_since(const char *text, struct ctl *ctl);
int ctl_take_interval(const char *text, struct ctl *ctl);

/* A name as a glob that matches nothing else; owned by the caller. NULL if memory is out. */
char *ctl_escaped(const char *name);

#endif
