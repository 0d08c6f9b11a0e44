/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f8ctl reset-amax, evict and log-level: requests by which an operator changes something in the
 * daemon, each answered by what it did. Called by main with a connected channel.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/ctl/confirm.h"
#include "client/ctl/ctl.h"
#include "client/ctl/print_json.h"
#include "client/error.h"
#include "client/plural.h"

int ctl_ask_body(
    struct ctl *ctl, F8__Request *request, F8__Reply__BodyCase body, F8__Reply **ret_reply)
{
    F8__Reply *reply;
    int status = channel_ask(ctl->channel, request, ctl->timeout_ms, &reply);

    if (status == F8_EDEADLINE) {
        return error_set(status, "the daemon at %s did not answer within %d ms",
            channel_socket(ctl->channel), ctl->timeout_ms);
    }
    if (status == F8_OK && reply->body_case != body) {
        f8__reply__free_unpacked(reply, NULL);
        return error_set(F8_EPROTO, "the daemon answered with something else");
    }
    if (status == F8_OK) {
        *ret_reply = reply;
    }
    return status;
}

/* ---- reset-amax ---- */

static int print_reset(struct ctl *ctl, const F8__ResetAmaxReply *reply)
{
    if (ctl->json) {
        return json_print(ctl, "reset_amax",
            json_pack("{s:s, s:I, s:I}", "name", ctl->arguments[0], "weights",
                (json_int_t)reply->weights, "groups", (json_int_t)reply->groups));
    }
    printf("forgot the amax history of %" PRIu32 " weight%s in %" PRIu32
           " group%s; their next gather seeds it\n",
        reply->weights, plural(reply->weights), reply->groups, plural(reply->groups));
    return CTL_OK;
}

int command_reset_amax(struct ctl *ctl)
{
    F8__Request request = F8__REQUEST__INIT;
    F8__ResetAmax message = F8__RESET_AMAX__INIT;
    F8__Reply *reply;
    int status, result = ctl_confirm(ctl, "forgets the amax history of the delayed weights %s%s%s",
                    ctl->arguments[0], ctl->job != NULL ? " of jobs " : " of all jobs",
                    ctl->job != NULL ? ctl->job : "");

    if (result != CTL_OK) {
        return result;
    }
    message.job = (char *)(ctl->job != NULL ? ctl->job : "");
    message.name = (char *)ctl->arguments[0];
    request.body_case = F8__REQUEST__BODY_RESET_AMAX;
    request.reset_amax = &message;
    status = ctl_ask_body(ctl, &request, F8__REPLY__BODY_RESET_AMAX, &reply);
    if (status == F8_EDEADLINE) {
        status = error_set(F8_EBUSY,
            "in %d ms a group of these weights was never between two rounds (f8ctl rounds shows "
            "what runs): groups that were are reset, the others are not; --timeout waits longer",
            ctl->timeout_ms);
    }
    if (status != F8_OK) {
        return ctl_failed(status);
    }
    result = print_reset(ctl, reply->reset_amax);
    f8__reply__free_unpacked(reply, NULL);
    return result;
}

/* ---- evict ---- */

static int print_evicted(struct ctl *ctl, const F8__EvictReply *reply)
{
    if (ctl->json) {
        return json_print(ctl, "evict",
            json_pack("{s:s, s:I, s:I, s:I, s:I, s:I}", "job", ctl->arguments[0], "uid",
                (json_int_t)ctl->uid, "states", (json_int_t)reply->states, "bytes",
                (json_int_t)reply->bytes, "engines", (json_int_t)reply->engines, "communicators",
                (json_int_t)reply->communicators));
    }
    printf("evicted job %s of uid %" PRIu32 ": %" PRIu32 " scaling state%s of %" PRIu64
           " bytes, %" PRIu32 " connected engine%s, %" PRIu32 " warm communicator%s\n",
        ctl->arguments[0], ctl->uid, reply->states, plural(reply->states), reply->bytes,
        reply->engines, plural(reply->engines), reply->communicators, plural(reply->communicators));
    return CTL_OK;
}

int command_evict(struct ctl *ctl)
{
    F8__Request request = F8__REQUEST__INIT;
    F8__Evict message = F8__EVICT__INIT;
    F8__Reply *reply;
    int status, result = ctl_confirm(ctl, "drops all that is kept of job %s of uid %" PRIu32,
                    ctl->arguments[0], ctl->uid);

    if (result != CTL_OK) {
        return result;
    }
    message.job = (char *)ctl->arguments[0];
    message.uid = ctl->uid;
    request.body_case = F8__REQUEST__BODY_EVICT;
    request.evict = &message;
    status = ctl_ask_body(ctl, &request, F8__REPLY__BODY_EVICT, &reply);
    if (status != F8_OK) {
        return ctl_failed(status);
    }
    result = print_evicted(ctl, reply->evict);
    f8__reply__free_unpacked(reply, NULL);
    return result;
}

/* ---- log-level ---- */

static int print_level(struct ctl *ctl, const F8__LogLevelReply *reply)
{
    if (ctl->json) {
        return json_print(ctl, "log_level",
            json_pack("{s:s, s:s}", "level", reply->level, "before", reply->before));
    }
    if (ctl->arguments[0] == NULL) {
        printf("%s\n", reply->level);
    } else {
        printf("%s, was %s; until the settings are read again\n", reply->level, reply->before);
    }
    return CTL_OK;
}

/* NULL: it is only to be shown. */
static bool is_level(const char *word)
{
    static const char *const levels[] = {"error", "warning", "info", "debug"};

    for (size_t i = 0; word != NULL && i < sizeof(levels) / sizeof(levels[0]); i++) {
        if (strcmp(levels[i], word) == 0) {
            return true;
        }
    }
    return word == NULL;
}

int command_log_level(struct ctl *ctl)
{
    F8__Request request = F8__REQUEST__INIT;
    F8__LogLevel message = F8__LOG_LEVEL__INIT;
    F8__Reply *reply;
    int status, result;

    if (!is_level(ctl->arguments[0])) {
        fprintf(stderr,
            "f8ctl: log-level: %s is no log level: error, warning, info and debug are\n",
            ctl->arguments[0]);
        return CTL_USAGE;
    }
    message.level = (char *)(ctl->arguments[0] != NULL ? ctl->arguments[0] : "");
    request.body_case = F8__REQUEST__BODY_LOG_LEVEL;
    request.log_level = &message;
    status = ctl_ask_body(ctl, &request, F8__REPLY__BODY_LOG_LEVEL, &reply);
    if (status != F8_OK) {
        return ctl_failed(status);
    }
    result = print_level(ctl, reply->log_level);
    f8__reply__free_unpacked(reply, NULL);
    return result;
}
