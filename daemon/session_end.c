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

/* The next one who waits, to be answered; false: there is none. NULL: that one is gone. */
static bool take_wait(
    struct session_context *context, struct session **ret_session, struct answer *answer)
{
    struct drain_wait *wait = context->drain_waits;
    if (!wait)
        return false;
    answer_begin(answer, wait->later.id);
    *ret_session = later_end(&wait->later);
    context->drain_waits = wait->next;
    free(wait);
    return true;
}

void session_end_drain(struct session_context *context, const struct reason *reason)
{
    struct session *session;
    struct answer answer;
    context->draining = false;
    while (take_wait(context, &session, &answer)) {
        answer.reason = *reason;
        if (session)
            answer_send(session, &answer, F8_ECANCELED);
    }
}

static void tell_cut(struct session_context *context, const struct group *group)
{
    struct round_head head;
    struct reason text;
    struct event event = {.kind = F8_PROTO_EVENT_ROUND_FAILED,
        .job = group->job->name,
        .uid = group->job->uid,
        .group = group->name,
        .text = text.text};
    (void)reason_set(&text, F8_OK, "cut: f8gatherd ends, and has waited for %.0f s (--drain)",
        (double)registry_config(context->registry)->drain_ms / 1000);
    if (collective_head(group, &head)) {
        event.value = (double)head.run.number;
        if (head.run.kind == ROUND_GATHER)
            event.bucket = group->list->buckets[head.run.bucket].name;
    }
    events_tell(context->collective.events, &event);
}

void session_cut(struct session_context *context)
{
    struct reason first = {.text = ""};
    uint32_t open = session_open_groups(context, &first);
    struct session *session;
    struct answer answer;
    if (open == 0)
        return;
    for (struct job *job = registry_jobs(context->registry); job; job = job->next)
        for (struct group *group = job->groups; group; group = group->next)
            if (!collective_is_past_mark(group))
                tell_cut(context, group);
    while (take_wait(context, &session, &answer)) {
        F8__DrainReply *reply = &answer.body.drain;
        f8__drain_reply__init(reply);
        reply->groups = open;
        reply->first = first.text;
        reply->limit_ms = registry_config(context->registry)->drain_ms;
        answer.reply.body_case = F8__REPLY__BODY_DRAIN;
        answer.reply.drain = reply;
        if (session)
            answer_send(session, &answer, F8_OK);
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
