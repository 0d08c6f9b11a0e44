/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What becomes of a file of a state that a start does not use: see state_noted.h. Called by
 * state_dir and state_snapshot_load while they load, on the loop.
 */
#include "daemon/state_noted.h"

#include <stdbool.h>

#include "daemon/log.h"
#include "status.h"

void state_set_aside(
    const struct state_place *place, const char *name, const char *why, struct state_noted *damaged)
{
    char aside[STATE_NOTED_SIZE + 16];
    (void)snprintf(aside, sizeof(aside), "%s%s", name, place->aside);
    bool moved = renameat(place->fd, name, place->fd, aside) == 0;
    log_error("%s%s/%s is not used: %s; it is %s%s", place->what, place->path, name, why,
        moved ? "renamed to *" : "left as it is", moved ? place->aside : "");
    state_note(damaged, moved ? aside : name);
}

void state_leave_newer(
    const struct state_place *place, const char *name, const char *why, struct state_noted *newer)
{
    log_error("%s%s/%s is not used, and left as it is: %s", place->what, place->path, name, why);
    state_note(newer, name);
}

int state_refuse_unread(
    const struct state_place *place, const struct reason *why, struct reason *reason)
{
    return reason_set(reason, F8_EIO,
        "%.200s in the state directory %s%s: it may be whole, so it is left as it is; see that it "
        "can be read, or move it away, and start again",
        why->text, place->path, place->option);
}
