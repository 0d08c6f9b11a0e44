/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f8ctl snapshot: has the daemon save all scaling states that have changed, and waits until they
 * are on its disk. Called by main with a connected channel.
 */
#include <inttypes.h>
#include <stdio.h>

#include "client/ctl/ctl.h"
#include "client/ctl/print_json.h"
#include "client/ctl/print_table.h"
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
