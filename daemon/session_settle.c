/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators' requests that drop stored states, import and evict: they are answered when the
 * snapshots of what was dropped are gone from the disk, so that not even a power cut right after
 * the answer brings them back. On the loop.
 */
#include <stdlib.h>

#include "daemon/session_private.h"

/* An answer that waits for a pass over the states. */
struct settled_reply {
    struct later_reply later;
    struct state_waiter waiter;
    F8__EvictReply evict;
    F8__Reply__BodyCase body_case; /* of an evict, or none */
};

static int fail(const struct reason *cause, int status, struct reason *reason)
{
    return reason_set(reason, status,
        "it is done, but a power cut may still bring back what was stored before: %.400s",
        cause->text);
}

static void on_settled(struct state_waiter *waiter, const struct state_pass *pass)
{
    struct settled_reply *reply =
        (struct settled_reply *)((char *)waiter - offsetof(struct settled_reply, waiter));
    struct session *session = later_end(&reply->later);
    if (session) {
        struct answer answer;
        answer_begin(&answer, reply->later.id);
        answer.body.evict = reply->evict;
        answer.reply.body_case = reply->body_case;
        if (reply->body_case == F8__REPLY__BODY_EVICT)
            answer.reply.evict = &answer.body.evict;
        int status = pass->settled ? F8_OK : fail(&pass->reason, pass->status, &answer.reason);
        answer_send(session, &answer, status);
    }
    free(reply);
}

int session_settle(struct session *session, uint64_t id, struct answer *answer)
{
    static const struct reason no_memory = {.text = "out of memory waiting for the disk"};
    struct settled_reply *reply = calloc(1, sizeof(*reply));
    if (!reply)
        return fail(&no_memory, F8_ENOMEM, &answer->reason);
    reply->waiter.done = on_settled;
    if (answer->reply.body_case == F8__REPLY__BODY_EVICT)
        reply->evict = answer->body.evict;
    reply->body_case = answer->reply.body_case;
    if (!state_store_settle(session->context->collective.states, &reply->waiter)) {
        free(reply);
        return F8_OK;
    }
    later_begin(&reply->later, session, id);
    return SESSION_PENDING;
}
