/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f8ctl unique-id: has the daemon make the id of a group over several hosts, for scripts that hand
 * it to all trainers. Called by main with a connected channel.
 */
#include <stdio.h>

#include "client/ctl/ctl.h"
#include "client/ctl/print_json.h"
#include "client/error.h"

#define DIGITS_SIZE (2 * F8_PROTO_UNIQUE_ID_SIZE + 1)

static int ask(struct ctl *ctl, char digits[DIGITS_SIZE])
{
    F8__Request request = F8__REQUEST__INIT;
    F8__UniqueId unique_id = F8__UNIQUE_ID__INIT;
    F8__Reply *reply;
    int status;

    request.body_case = F8__REQUEST__BODY_UNIQUE_ID;
    request.unique_id = &unique_id;
    status = channel_ask(ctl->channel, &request, ctl->timeout_ms, &reply);
    if (status != F8_OK) {
        return status;
    }
    if (reply->body_case == F8__REPLY__BODY_UNIQUE_ID &&
        reply->unique_id->unique_id.len == F8_PROTO_UNIQUE_ID_SIZE) {
        for (size_t i = 0; i < F8_PROTO_UNIQUE_ID_SIZE; i++) {
            snprintf(digits + 2 * i, 3, "%02x", reply->unique_id->unique_id.data[i]);
        }
    } else {
        status = error_set(
            F8_EPROTO, "the daemon answered without an id of %d bytes", F8_PROTO_UNIQUE_ID_SIZE);
    }
    f8__reply__free_unpacked(reply, NULL);
    return status;
}

int command_unique_id(struct ctl *ctl)
{
    char digits[DIGITS_SIZE];
    int status;

    if (!channel_can(ctl->channel, F8_CAPABILITY_HOSTS)) {
        return ctl_failed(
            error_set(F8_EVERSION, "f8gatherd %s at %s cannot do groups over several hosts",
                channel_daemon_version(ctl->channel), channel_socket(ctl->channel)));
    }
    status = ask(ctl, digits);
    if (status != F8_OK) {
        return ctl_failed(status);
    }
    if (ctl->json) {
        return json_print(ctl, "unique_id", json_string(digits));
    }
    printf("%s\n", digits);
    return CTL_OK;
}
