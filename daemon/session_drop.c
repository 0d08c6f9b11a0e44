/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a client gets its device memory and events back: see session.h. It may free them only when
 * the devices are past all works that name them, so these replies come after a fence.
 */
#include "daemon/session_private.h"

#include <stdlib.h>

/* A reply that waits for a fence. */
struct fenced_reply {
    struct later_reply later;
    struct backend_fence fence;
};

static void passed(struct backend_fence *fence, int status)
{
    struct fenced_reply *reply = fence->owner;
    struct session *session = later_end(&reply->later);
    if (session) {
        struct answer answer;
        answer_begin(&answer, reply->later.id);
        if (status < 0)
            (void)reason_set(&answer.reason, status,
                "device memory or events of pid %u are still in use, by work that does not end",
                session->peer.pid);
        answer_send(session, &answer, status);
    }
    free(reply);
}

static void await_fence(void *owner)
{
    struct fenced_reply *reply = owner;
    struct backend *backend = reply->later.backend;
    backend->ops->device->fence(backend, &reply->fence);
}

static struct fenced_reply *reply_new(
    struct session *session, const struct incoming *incoming, struct reason *reason)
{
    struct fenced_reply *reply = malloc(sizeof(*reply));
    if (!reply) {
        (void)reason_set(reason, F8_ENOMEM, "out of memory giving device memory back");
        return NULL;
    }
    reply->fence =
        (struct backend_fence){.pid = session->peer.pid, .finished = passed, .owner = reply};
    later_begin(&reply->later, session, incoming->request->id);
    return reply;
}

int session_await_unmap(
    struct session *session, const struct incoming *incoming, struct answer *answer)
{
    struct fenced_reply *reply = reply_new(session, incoming, &answer->reason);
    if (!reply)
        return F8_ENOMEM;
    await_fence(reply);
    return SESSION_PENDING;
}

/* Members whose works still run are kept until these end, and their references with them. */
int session_device_drop(
    struct session *session, const struct incoming *incoming, struct answer *answer)
{
    struct device *device = session->device;
    if (!device)
        return reason_set(&answer->reason, F8_EORDER, "this client has added no device");
    struct fenced_reply *reply = reply_new(session, incoming, &answer->reason);
    if (!reply)
        return F8_ENOMEM;
    session_leave_groups(session, false);
    session_drop_regions(session);
    session->device = NULL;
    device->gone = await_fence;
    device->gone_owner = reply;
    device_unref(device);
    return SESSION_PENDING;
}
