/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of states that a start did not use, as operators are told of them: how many, and the first
 * few by name. Within state; no state of its own, on the loop.
 */
#ifndef F8_DAEMON_STATE_NOTED_H
#define F8_DAEMON_STATE_NOTED_H

#include <stdint.h>
#include <stdio.h>

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

#endif
