/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f8ctl unique-id: has the daemon make the id of a group over several hosts, for scripts that hand
 * it to all trainers; and ids as text. Called by main with a connected channel, and by doctor.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/ctl.h"
#include "client/ctl/print_json.h"
#include "client/error.h"

void ctl_id_text(const uint8_t id[F8_PROTO_UNIQUE_ID_SIZE], char digits[CTL_ID_DIGITS + 1])
{
    for (size_t i = 0; i < F8_PROTO_UNIQUE_ID_SIZE; i++) {
        snprintf(digits + 2 * i, 3, "%02x", id[i]);
    }
}

int ctl_id_parse(const char *text, uint8_t ret_id[F8_PROTO_UNIQUE_ID_SIZE])
{
    size_t good = strspn(text, "0123456789abcdefABCDEF");
    uint8_t id[F8_PROTO_UNIQUE_ID_SIZE];

    if (text[good] != '\0') {
        fprintf(stderr, "f8ctl: a unique id is hexadecimal; character %zu, %c, is not\n", good + 1,
            text[good]);
        return -1;
    }
    if (good != CTL_ID_DIGITS) {
        fprintf(stderr, "f8ctl: a unique id has %d hexadecimal digits, these are %zu\n",
            CTL_ID_DIGITS, good);
        return -1;
    }
    for (size_t i = 0; i < F8_PROTO_UNIQUE_ID_SIZE; i++) {
        char two[3] = {text[2 * i], text[2 * i + 1], '\0'};
        id[i] = (uint8_t)strtoul(two, NULL, 16);
    }
    memcpy(ret_id, id, sizeof(id));
    return 0;
}

static int ask(struct ctl *ctl, char digits[CTL_ID_DIGITS + 1])
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
        ctl_id_text(reply->unique_id->unique_id.data, digits);
    } else {
        status = error_set(
            F8_EPROTO, "the daemon answered without an id of %d bytes", F8_PROTO_UNIQUE_ID_SIZE);
    }
    f8__reply__free_unpacked(reply, NULL);
    return status;
}

int command_unique_id(struct ctl *ctl)
{
    char digits[CTL_ID_DIGITS + 1];
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
