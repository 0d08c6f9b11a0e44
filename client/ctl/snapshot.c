/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f8ctl snapshot: has the daemon save all scaling states that have changed, and waits until they
 * are on its disk. And what status tells of snapshots. Called by main with a connected channel, and
 * by the columns of columns.c.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/ctl/columns_snapshots.h"
#include "client/ctl/columns_private.h"
#include "client/ctl/ctl.h"
#include "client/ctl/print_json.h"
#include "client/error.h"
#include "client/plural.h"

static int print(struct ctl *ctl, const F8__SnapshotReply *reply)
{
    char written[TABLE_MAX_CELL], bytes[TABLE_MAX_CELL];
    double seconds = (double)reply->nanoseconds * 1e-9;

    if (ctl->json) {
        return json_print(ctl, "snapshot",
            json_pack("{s:s, s:I, s:I, s:I, s:I, s:f}", "directory", reply->directory, "written",
                (json_int_t)reply->written, "written_bytes", (json_int_t)reply->written_bytes,
                "groups", (json_int_t)reply->states, "bytes", (json_int_t)reply->bytes, "seconds",
                seconds));
    }
    table_bytes(written, reply->written_bytes);
    table_bytes(bytes, reply->bytes);
    printf("snapshot: wrote %" PRIu32 " group%s (%.16s) in %.3f s; %s has %" PRIu32
           " group%s (%.16s)\n",
        reply->written, plural(reply->written), written, seconds, reply->directory, reply->states,
        plural(reply->states), bytes);
    return CTL_OK;
}

int command_snapshot(struct ctl *ctl)
{
    F8__Request request = F8__REQUEST__INIT;
    F8__Snapshot snapshot = F8__SNAPSHOT__INIT;
    F8__Reply *reply;
    int result, status;

    request.body_case = F8__REQUEST__BODY_SNAPSHOT;
    request.snapshot = &snapshot;
    status = channel_ask(ctl->channel, &request, ctl->timeout_ms, &reply);
    if (status != F8_OK) {
        return ctl_failed(status);
    }
    result = reply->body_case == F8__REPLY__BODY_SNAPSHOT
                 ? print(ctl, reply->snapshot)
                 : ctl_failed(error_set(F8_EPROTO, "the daemon answered without a snapshot"));
    f8__reply__free_unpacked(reply, NULL);
    return result;
}

/* ---- status ---- */

#define APPEND(cell, ...)                                                                          \
    snprintf((cell) + strlen(cell), TABLE_MAX_CELL - strlen(cell), __VA_ARGS__)

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
    for (size_t i = 0; i < status->n_snapshots_damaged; i++) {
        APPEND(
            cell, "%s %s", i == 0 ? "; damaged and set aside:" : ",", status->snapshots_damaged[i]);
    }
    if (status->num_snapshots_damaged > status->n_snapshots_damaged) {
        APPEND(cell, " and %" PRIu32 " more",
            status->num_snapshots_damaged - (uint32_t)status->n_snapshots_damaged);
    }
}

bool status_snapshots_alarm(const void *row)
{
    const F8__StatusInfo *status = row;

    return status->snapshot_reason[0] != '\0' || status->num_snapshots_damaged > 0;
}
