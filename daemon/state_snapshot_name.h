/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The names of snapshot files: a number of 16 digits and what the file is, for the names of jobs
 * and groups are their owners' and fit for no path. Within state; no state, any thread.
 */
#ifndef F8_DAEMON_STATE_SNAPSHOT_NAME_H
#define F8_DAEMON_STATE_SNAPSHOT_NAME_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "daemon/state_snapshot.h"

enum snapshot_kind {
    SNAPSHOT_CURRENT,
    SNAPSHOT_PREVIOUS,
    SNAPSHOT_NEW, /* not whole yet */
    SNAPSHOT_NUM_KINDS,
};

#define SNAPSHOT_ASIDE ".damaged"

static inline char *snapshot_name(
    uint64_t number, enum snapshot_kind kind, char name[SNAPSHOT_NAME_SIZE])
{
    static const char *const suffixes[SNAPSHOT_NUM_KINDS] = {".snapshot", ".previous", ".new"};
    (void)snprintf(name, SNAPSHOT_NAME_SIZE, "%016" PRIx64 "%s", number, suffixes[kind]);
    return name;
}

/* Whether it is a number and one of the kinds; `aside`: of a file that was set aside. */
static inline bool snapshot_parse(
    const char *name, uint64_t *ret_number, enum snapshot_kind *ret_kind, bool *ret_aside)
{
    char again[SNAPSHOT_NAME_SIZE];
    uint64_t number;
    if (sscanf(name, "%16" SCNx64, &number) != 1)
        return false;
    for (int kind = 0; kind < SNAPSHOT_NUM_KINDS; kind++) {
        size_t length = strlen(snapshot_name(number, (enum snapshot_kind)kind, again));
        if (strncmp(name, again, length) != 0)
            continue;
        *ret_aside = strcmp(name + length, SNAPSHOT_ASIDE) == 0;
        *ret_number = number;
        *ret_kind = (enum snapshot_kind)kind;
        return *ret_aside || name[length] == '\0';
    }
    return false;
}

#endif
