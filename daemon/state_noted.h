/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of states that a start did not use, as operators are told of them: how many, and the first
 * few by name, and what is done with them. Within state; no state of its own, on the loop.
 */
#ifndef F8_DAEMON_STATE_NOTED_H
#define F8_DAEMON_STATE_NOTED_H

#include <stdint.h>
#include <stdio.h>

#include "reason.h"

#define STATE_NOTED_MAX  8
#define STATE_NOTED_SIZE 48

struct state_noted {
    char names[STATE_NOTED_MAX][STATE_NOTED_SIZE];
    uint32_t count; /* may be more than have a place in the list */
};

static inline uint32_t state_noted_listed(const struct state_noted *noted)
{
    return noted->count < STATE_NOTED_MAX ? noted->count : STATE_NOTED_MAX;
}

static inline void state_note(struct state_noted *noted, const char *name)
{
    if (noted->count < STATE_NOTED_MAX)
        (void)snprintf(
            noted->names[noted->count], STATE_NOTED_SIZE, "%.*s", STATE_NOTED_SIZE - 1, name);
    noted->count++;
}

/* A directory of such files; strings are borrowed for the call. */
struct state_place {
    int fd;
    const char *path;
    const char *what;   /* one of its files, before the path: "the snapshot "; may be empty */
    const char *option; /* which names it, after the path; may be empty */
    const char *aside;  /* ends the name of what is set aside */
};

/* A damaged one: renamed, logged and noted. */
void state_set_aside(const struct state_place *place, const char *name, const char *why,
    struct state_noted *damaged);

/* One of a newer form: logged and noted, and left for a daemon that reads it. */
void state_leave_newer(
    const struct state_place *place, const char *name, const char *why, struct state_noted *newer);

/* One that cannot be read. F8_EIO: nothing is lost as long as nothing is renamed, nor written over.
 */
int state_refuse_unread(
    const struct state_place *place, const struct reason *why, struct reason *reason);

#endif
