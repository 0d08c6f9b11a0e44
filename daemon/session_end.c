/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of the daemon, as sessions see it: ranks that join are refused, and what is under way is
 * marked and watched until it has ended, unless it is called off. Called by server on the loop.
 */
#include "daemon/session_private.h"

#include <stdlib.h>

/* An operator who waits for the end. */
struct drain_wait {
    struct later_reply later;
    struct drain_wait *next; /* owned: the context's list */
};
static void tell_operators(struct session_context *context)
{
    struct reason first, text = {.text = "f8gatherd was told to end"};
    uint32_t open = session_open_groups(context, &first);
    if (open > 0)
        reason_append(
            &text, ": it waits for collectives of %u groups, of %.300s for one", open, first.text);
    struct events *events = context->collective.events;
    events_tell(
        events, &(struct event){.kind = F8_PROTO_EVENT_DRAIN, .value = open, .text = text.text});
    events_answer_all(events);
}

void session_drain(struct session_context *context)
{
    context->draining = true;
    for (struct job *job = registry_jobs(context->registry); job; job = job->next)
        for (struct group *group = job->groups; group; group = group->next)
            collective_mark(group);
    tell_operators(context);
}

int session_await_end(struct session *session, uint64_t id, struct reason *reason)
{
    struct session_context *context = session->context;
    struct drain_wait *wait = malloc(sizeof(*wait));
    if (!wait)
        return reason_set(reason, F8_ENOMEM, "out of memory waiting for the end");
    later_begin(&wait->later, session, id);
    wait->next = context->drain_waits;
    context->drain_waits = wait;
    return SESSION_PENDING;
}

void session_end_drain(struct session_context *context, const struct reason *reason)
{
    context->draining = false;
    while (context->drain_waits) {
        struct drain_wait *wait = context->drain_waits;
        struct session *session = later_end(&wait->later);
        struct answer answer;
        context->drain_waits = wait->next;
        if (session) {
            answer_begin(&answer, wait->later.id);
            answer.reason = *reason;
            answer_send(session, &answer, F8_ECANCELED);
        }
        free(wait);
    }
}

uint32_t session_open_groups(const struct session_context *context, struct reason *ret_first)
{
    uint32_t count = 0;
    for (struct job *job = registry_jobs(context->registry); job; job = job->next)
        for (struct group *group = job->groups; group; group = group->next)
            if (!collective_is_past_mark(group) && count++ == 0)
                (void)reason_set(ret_first, F8_OK, "group %s of job %s", group->name, job->name);
    return count;
}
