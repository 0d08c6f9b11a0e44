/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What status tells of scaling states: for how long they are kept, their snapshots, and files that
 * the daemon found and does not use. Pure; called through the columns of columns.c.
 */
#include "client/ctl/columns_snapshots.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/ctl/columns_private.h"
#include "client/plural.h"

#define DAMAGED "damaged and set aside"
#define NEWER   "of a newer form and left as they are"

#define APPEND(cell, ...)                                                                          \
    snprintf((cell) + strlen(cell), TABLE_MAX_CELL - strlen(cell), __VA_ARGS__)

/* "; damaged and set aside: a, b and 3 more" */
static void append_names(
    char *cell, const char *what, char *const *names, size_t listed, uint32_t count)
{
    for (size_t i = 0; i < listed; i++) {
        if (i == 0) {
            APPEND(cell, "; %s:", what);
        }
        APPEND(cell, "%s %s", i == 0 ? "" : ",", names[i]);
    }
    if (count > listed) {
        APPEND(cell, " and %" PRIu32 " more", count - (uint32_t)listed);
    }
}

/* "3 groups (1.5 MiB) in /var/lib/f8gatherd, 12 s ago; the last try failed: ..." */
void status_snapshots(const void *row, char *cell)
{
    const F8__StatusInfo *status = row;
    char text[TABLE_MAX_CELL];

    strcpy(cell, "-");
    if (status->state_directory[0] == '\0') {
        return;
    }
    table_bytes(text, status->snapshot_bytes);
    snprintf(cell, TABLE_MAX_CELL, "%" PRIu32 " group%s (%.16s) in %.512s", status->snapshots,
        plural(status->snapshots), text, status->state_directory);
    if (status->snapshot_done) {
        table_duration(text, status->snapshot_age_ms);
        APPEND(cell, ", complete %.24s ago", text);
    }
    if (status->snapshot_reason[0] != '\0') {
        APPEND(cell, "; the last try failed: %s", status->snapshot_reason);
    }
    append_names(cell, DAMAGED, status->snapshots_damaged, status->n_snapshots_damaged,
        status->num_snapshots_damaged);
    append_names(cell, NEWER, status->snapshots_newer, status->n_snapshots_newer,
        status->num_snapshots_newer);
}

bool status_snapshots_alarm(const void *row)
{
    const F8__StatusInfo *status = row;

    return status->snapshot_reason[0] != '\0' || status->num_snapshots_damaged > 0 ||
           status->num_snapshots_newer > 0;
}

/* "kept for 7 d 0 h after their groups; damaged and set aside: ..." */
void status_states(const void *row, char *cell)
{
    const F8__StatusInfo *status = row;
    char text[TABLE_MAX_CELL];

    strcpy(cell, "go with their groups");
    if (status->state_keep_ms > 0) {
        table_duration(text, status->state_keep_ms);
        snprintf(cell, TABLE_MAX_CELL, "kept for %.24s after their groups", text);
    }
    append_names(cell, DAMAGED, status->states_damaged, status->n_states_damaged,
        status->num_states_damaged);
    append_names(
        cell, NEWER, status->states_newer, status->n_states_newer, status->num_states_newer);
}

bool status_states_alarm(const void *row)
{
    const F8__StatusInfo *status = row;

    return status->num_states_damaged > 0 || status->num_states_newer > 0;
}
