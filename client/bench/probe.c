/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks the daemon for its version and for the arena of the run's group, as an operator would.
 * Called by the parent once, after the last step.
 */
#include "probe.h"

#include <stdio.h>

#include "client/channel.h"

#define PATIENCE_MS 10000

static int ask(struct channel *channel, const char *job, struct probe *probe)
{
    F8__Request request = F8__REQUEST__INIT;
    F8__Inspect inspect = F8__INSPECT__INIT;
    F8__Reply *reply;

    inspect.view = F8__VIEW__GROUPS;
    inspect.job = (char *)job;
    request.body_case = F8__REQUEST__BODY_INSPECT;
    request.inspect = &inspect;
    if (channel_ask(channel, &request, PATIENCE_MS, &reply) != F8_OK) {
        return -1;
    }
    if (reply->body_case == F8__REPLY__BODY_INSPECT) {
        for (size_t i = 0; i < reply->inspect->n_groups; i++) {
            const F8__GroupInfo *group = reply->inspect->groups[i];
            probe->arena_bytes += group->arena_bytes;
            probe->engine_sent += group->bytes_sent;
            probe->engine_received += group->bytes_received;
            probe->control_sent += group->control_sent;
            probe->control_received += group->control_received;
        }
    }
    f8__reply__free_unpacked(reply, NULL);
    return 0;
}

void probe_daemon(const char *socket, const char *job, struct probe *probe)
{
    struct channel_options options = {.socket = socket, .role = F8__ROLE__ADMIN};
    struct channel *channel;

    if (channel_open(&options, &channel) == F8_OK) {
        snprintf(probe->daemon_version, sizeof(probe->daemon_version), "%s",
            channel_daemon_version(channel));
        probe->known = ask(channel, job, probe) == 0;
        channel_close(channel);
    }
}
