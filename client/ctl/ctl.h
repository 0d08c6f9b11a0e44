/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the rooms of f8ctl share: the command line, the connection, and the exit statuses. f8ctl is
 * one thread, one connection, one command.
 */
#ifndef F8CTL_CTL_H
#define F8CTL_CTL_H

#include <stdbool.h>

#include "client/channel.h"

#define CTL_SCHEMA "f8ctl/1"

enum ctl_exit {
    CTL_OK = 0,
    CTL_REFUSED = 1, /* the daemon refused, or what was asked for is not there */
    CTL_USAGE = 2,
    CTL_NO_DAEMON = 3,
};

struct ctl {
    const char *socket; /* borrowed: from argv, as all strings here; NULL: look for it */
    const char *job;    /* glob; NULL: all */
    const char *name;   /* glob; NULL: all */
    const char *what;   /* of `show`: a name */
    bool json;
    int timeout_ms;
    struct channel *channel; /* owned: by main */
};

/*
 * X(name, ARGUMENT or NULL, "help"): the commands. Each is command_NAME of views.c, takes the
 * connected ctl, prints, and returns an exit status.
 */
#define CTL_COMMANDS(X)                                                                            \
    X(status, NULL, "what the daemon is, and what it holds")                                       \
    X(jobs, NULL, "training runs")                                                                 \
    X(groups, NULL, "groups of ranks, their state and their processes")                            \
    X(weights, NULL, "registered weights and how they are gathered")                               \
    X(scales, NULL, "scales: values, age, and what they did to the weights")                       \
    X(show, "NAME", "all that is known of the weights of that name")                               \
    X(rounds, NULL, "collectives under way: what waits for whom, since when")                      \
    X(ping, NULL, "whether the daemon answers, and how fast")                                      \
    X(version, NULL, "the versions of f8ctl and of the daemon")

#define CTL_DECLARE(name, argument, help) int command_##name(struct ctl *ctl);
CTL_COMMANDS(CTL_DECLARE)
#undef CTL_DECLARE

/* Tells on standard error why a call on the channel failed; the exit status for it. */
int ctl_failed(int status);

#endif
