/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f8ctl drain: the daemon ends as after SIGTERM, or, with --cancel, goes on after all. With --wait
 * the command ends when the process has, whose pidfd is opened before it is told to. Called by main
 * with a connected channel.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "client/ctl/confirm.h"
#include "client/ctl/ctl.h"
#include "client/ctl/print_json.h"
#include "client/error.h"
#include "client/plural.h"

/* What the end itself may take after the drain's own limit, without --timeout. */
#define END_MS 10000

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int ask_drain(struct ctl *ctl, F8__Drain *message, F8__Reply **ret_reply)
{
    F8__Request request = F8__REQUEST__INIT;

    request.body_case = F8__REQUEST__BODY_DRAIN;
    request.drain = message;
    return ctl_ask_body(ctl, &request, F8__REPLY__BODY_DRAIN, ret_reply);
}

/* The end waits for the collectives of the reply's groups; or it has cut them. */
static void print_groups(const F8__DrainReply *reply, bool cut)
{
    double seconds = (double)reply->limit_ms * 1e-3;

    if (cut) {
        printf(", and has cut the collectives of %" PRIu32 " group%s after %.0f s, of %s for one",
            reply->groups, plural(reply->groups), seconds, reply->first);
    } else {
        printf(" once the collectives of %" PRIu32 " group%s have ended, of %s for one, or in "
               "%.0f s",
            reply->groups, plural(reply->groups), reply->first, seconds);
    }
}

static int print_drain(
    struct ctl *ctl, const char *state, const F8__DrainReply *reply, const char *text)
{
    if (ctl->json) {
        return json_print(ctl, "drain",
            json_pack("{s:s, s:i, s:I, s:s?, s:I}", "state", state, "pid",
                (int)channel_daemon_pid(ctl->channel), "groups", (json_int_t)reply->groups, "first",
                reply->groups > 0 ? reply->first : NULL, "limit_ms", (json_int_t)reply->limit_ms));
    }
    printf("f8gatherd (pid %d) at %s %s", (int)channel_daemon_pid(ctl->channel),
        channel_socket(ctl->channel), text);
    if (reply->groups > 0) {
        print_groups(reply, strcmp(state, "ended") == 0);
    }
    printf("\n");
    return CTL_OK;
}

static int cancel(struct ctl *ctl)
{
    F8__Drain message = F8__DRAIN__INIT;
    F8__Reply *reply;
    int result, status;

    message.cancel = true;
    status = ask_drain(ctl, &message, &reply);
    if (status != F8_OK) {
        return ctl_failed(status);
    }
    result = print_drain(ctl, "cancelled", reply->drain, "goes on");
    f8__reply__free_unpacked(reply, NULL);
    return result;
}

/* The process has ended: F8_OK. Without a pidfd the end of the connection must do. */
static int await_process(int pidfd, int64_t deadline)
{
    struct pollfd ended = {.fd = pidfd, .events = POLLIN};
    int64_t left = deadline - now_ms();
    int count = pidfd >= 0 ? poll(&ended, 1, left > 0 ? (int)left : 0) : 1;

    return count == 1 ? F8_OK : F8_EDEADLINE;
}

/*
 * A reply comes only if the drain is called off, or if collectives are cut, which it names; then
 * the connection ends, with the daemon. NULL: none are cut.
 */
static int await_end(struct ctl *ctl, int pidfd, int limit_ms, F8__Reply **ret_cut)
{
    F8__Drain message = F8__DRAIN__INIT;
    int64_t deadline = now_ms() + limit_ms;
    int status;

    message.wait = true;
    ctl->timeout_ms = limit_ms;
    *ret_cut = NULL;
    status = ask_drain(ctl, &message, ret_cut);
    if (status == F8_OK || status == F8_ECONN) {
        status = await_process(pidfd, deadline);
    }
    return status == F8_EDEADLINE
               ? error_set(F8_EBUSY, "f8gatherd (pid %d) has not ended in %d ms; it still drains",
                     (int)channel_daemon_pid(ctl->channel), limit_ms)
               : status;
}

static int drain_and_wait(struct ctl *ctl, const F8__DrainReply *drain, int pidfd)
{
    const F8__DrainReply none = F8__DRAIN_REPLY__INIT;
    F8__Reply *cut;
    int limit_ms = ctl->timeout_ms, status;

    if (!ctl->timeout_given && drain->limit_ms < INT32_MAX - END_MS) {
        limit_ms = (int)drain->limit_ms + END_MS;
    }
    status = await_end(ctl, pidfd, limit_ms, &cut);
    status = status == F8_OK
                 ? print_drain(ctl, "ended", cut != NULL ? cut->drain : &none, "has ended")
                 : ctl_failed(status);
    if (cut != NULL) {
        f8__reply__free_unpacked(cut, NULL);
    }
    return status;
}

static int drain(struct ctl *ctl)
{
    F8__Drain message = F8__DRAIN__INIT;
    F8__Reply *reply;
    int pidfd = (int)syscall(SYS_pidfd_open, channel_daemon_pid(ctl->channel), 0);
    int status = ask_drain(ctl, &message, &reply);
    int result;

    if (status != F8_OK) {
        result = ctl_failed(status);
    } else if (ctl->given & CTL_TAKES_WAIT) {
        result = drain_and_wait(ctl, reply->drain, pidfd);
        f8__reply__free_unpacked(reply, NULL);
    } else {
        result = print_drain(
            ctl, "draining", reply->drain, reply->drain->groups > 0 ? "ends" : "ends now");
        f8__reply__free_unpacked(reply, NULL);
    }
    if (pidfd >= 0) {
        close(pidfd);
    }
    return result;
}

int command_drain(struct ctl *ctl)
{
    int result;

    if (ctl->given & CTL_TAKES_CANCEL) {
        if (ctl->given & (CTL_TAKES_WAIT)) {
            fprintf(stderr, "f8ctl: drain: --cancel and --wait do not go together\n");
            return CTL_USAGE;
        }
        return cancel(ctl);
    }
    result = ctl_confirm(ctl, "ends f8gatherd (pid %d) at %s and all runs on this host",
        (int)channel_daemon_pid(ctl->channel), channel_socket(ctl->channel));
    return result == CTL_OK ? drain(ctl) : result;
}
