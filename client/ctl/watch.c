/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f8ctl watch and f8ctl monitor: events of the daemon as they come, a line each. Each request asks
 * for what is newer than the last reply; the daemon answers once there is something, or after
 * WAIT_MS, so that one that hangs is found out. Called by main with a connected channel.
 */
#include "client/ctl/watch.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "client/error.h"

#define WAIT_MS 10000

/* Kinds that --events names, as the request wants them. */
static size_t list_kinds(const struct ctl *ctl, uint32_t kinds[32])
{
    size_t count = 0;

    for (uint32_t kind = 0; kind < 32; kind++) {
        if ((ctl->events >> kind & 1) != 0) {
            kinds[count++] = kind;
        }
    }
    return count;
}

static int ask(struct ctl *ctl, uint64_t after, uint32_t wait_ms, F8__Reply **ret_reply)
{
    F8__Request request = F8__REQUEST__INIT;
    F8__Watch watch = F8__WATCH__INIT;
    uint32_t kinds[32];
    int status;

    watch.after = after;
    watch.kinds = kinds;
    watch.n_kinds = list_kinds(ctl, kinds);
    watch.job = (char *)(ctl->job != NULL ? ctl->job : "");
    watch.wait_ms = wait_ms;
    request.body_case = F8__REQUEST__BODY_WATCH;
    request.watch = &watch;
    status = channel_ask(ctl->channel, &request, (int)wait_ms + ctl->timeout_ms, ret_reply);
    if (status == F8_EDEADLINE) {
        return error_set(status, "the daemon at %s did not answer within %d ms",
            channel_socket(ctl->channel), (int)wait_ms + ctl->timeout_ms);
    }
    if (status == F8_OK && (*ret_reply)->body_case != F8__REPLY__BODY_WATCH) {
        f8__reply__free_unpacked(*ret_reply, NULL);
        return error_set(F8_EPROTO, "the daemon answered a Watch with something else");
    }
    return status;
}

/* Whether that was all that --count asks for. */
static bool print(struct ctl *ctl, const struct watch_printer *printer, const F8__WatchReply *reply,
    uint32_t *printed)
{
    if (reply->restarted) {
        printer->restarted(ctl);
    }
    if (reply->lost > 0) {
        printer->lost(ctl, reply->lost);
    }
    for (size_t i = 0; i < reply->n_events; i++) {
        printer->event(ctl, reply->events[i]);
        if (++*printed == ctl->count) {
            return true;
        }
    }
    return false;
}

int watch_run(struct ctl *ctl, const struct watch_printer *printer)
{
    bool since = (ctl->given & CTL_TAKES_SINCE) != 0, ends = false;
    uint64_t after = since ? ctl->since : F8_PROTO_FROM_NOW;
    uint32_t printed = 0, wait_ms = since ? WAIT_MS : 0;

    while (!ends) {
        F8__Reply *reply;
        int status = ask(ctl, after, wait_ms, &reply);

        if (status != F8_OK) {
            return ctl_failed(status);
        }
        wait_ms = WAIT_MS;
        after = reply->watch->seen;
        ends = print(ctl, printer, reply->watch, &printed);
        f8__reply__free_unpacked(reply, NULL);
        if (fflush(stdout) != 0) {
            fprintf(stderr, "f8ctl: standard output: %s\n", strerror(errno));
            return CTL_REFUSED;
        }
    }
    return CTL_OK;
}

int command_watch(struct ctl *ctl)
{
    return watch_run(ctl, ctl->json ? &watch_objects : &watch_lines);
}

int command_monitor(struct ctl *ctl)
{
    return watch_run(ctl, &watch_objects);
}
