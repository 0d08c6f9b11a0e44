/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An operator's request for snapshots, which is answered when they are on the disk: see session.h.
 */
#include <stdlib.h>

#include "daemon/session_private.h"

/* A reply that waits for a pass over the states. */
struct saved_reply {
    struct later_reply later;
    struct state_waiter waiter;
    struct state_store *store; /* borrowed */
};

static void fill(
    F8__SnapshotReply *reply, const struct state_pass *pass, const struct state_store *store)
{
    struct state_saved saved;
    state_store_saved(store, &saved);
    f8__snapshot_reply__init(reply);
    reply->directory = (char *)saved.path;
    reply->written = pass->states;
    reply->written_bytes = pass->bytes;
    reply->states = saved.states;
    reply->bytes = saved.bytes;
    reply->nanoseconds = pass->ns;
}

static void on_saved(struct state_waiter *waiter, const struct state_pass *pass)
{
    struct saved_reply *reply =
        (struct saved_reply *)((char *)waiter - offsetof(struct saved_reply, waiter));
    struct session *session = later_end(&reply->later);
    if (session) {
        struct answer answer;
        answer_begin(&answer, reply->later.id);
        fill(&answer.body.snapshot, pass, reply->store);
        answer.reason = pass->reason;
        answer.reply.body_case = F8__REPLY__BODY_SNAPSHOT;
        answer.reply.snapshot = &answer.body.snapshot;
        answer_send(session, &answer, pass->status);
    }
    free(reply);
}

int session_snapshot(
    struct session *session, const struct incoming *incoming, struct answer *answer)
{
    struct session_context *context = session->context;
    struct saved_reply *reply = malloc(sizeof(*reply));
    if (!reply)
        return reason_set(&answer->reason, F8_ENOMEM, "out of memory asking for snapshots");
    *reply =
        (struct saved_reply){.waiter = {.done = on_saved}, .store = context->collective.states};
    int status = state_saver_ask(context->saver, &reply->waiter, &answer->reason);
    if (status < 0) {
        free(reply);
        return status;
    }
    later_begin(&reply->later, session, incoming->request->id);
    return SESSION_PENDING;
}
