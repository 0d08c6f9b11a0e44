/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An operator has weights forget their amaxes: what a trainer's invalidate does to a whole group,
 * for some of its weights, and without the ranks. So it must find each group between two rounds,
 * which is waited for; and it cannot be done where other hosts have the same state, for they would
 * go on with another one. On the loop.
 */
#include "daemon/session_private.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/log.h"

struct reset;

/* What is to be done in one group. */
struct part {
    struct collective_rest rest;
    struct reset *reset; /* borrowed: holds it */
};

/* A request that waits for its groups. */
struct reset {
    struct later_reply later;
    char *name; /* owned: glob */
    uint32_t waiting, groups, weights;
    char who[SESSION_WHO];
    struct part parts[];
};

/* Groups that have such weights; the first that is on several hosts is a refusal. */
static int count_groups(const struct session *session, const F8__ResetAmax *message,
    uint32_t *ret_count, struct reason *reason)
{
    uint32_t count = 0;
    for (struct job *job = registry_jobs(session->context->registry); job; job = job->next) {
        if (!session_matches(message->job, job->name))
            continue;
        for (struct group *group = job->groups; group; group = group->next) {
            uint32_t weights = collective_count_delayed(group, message->name);
            if (weights > 0 && collective_spans_hosts(group))
                return reason_set(reason, F8_EORDER,
                    "group %.80s of job %.80s spans hosts, which must all forget at once: have its "
                    "trainer call f8_invalidate; nothing was reset",
                    group->name, job->name);
            count += weights > 0;
        }
    }
    if (count == 0)
        return reason_set(reason, F8_ENOENT,
            "no delayed weight is called %.200s%s%.120s (f8ctl amax lists those that have a "
            "history)",
            message->name, message->job[0] != '\0' ? " in a job like " : "", message->job);
    *ret_count = count;
    return F8_OK;
}

static void finish(struct reset *reset)
{
    struct session *session = later_end(&reset->later);
    if (session) {
        struct answer answer;
        answer_begin(&answer, reset->later.id);
        F8__ResetAmaxReply *reply = &answer.body.reset_amax;
        f8__reset_amax_reply__init(reply);
        reply->weights = reset->weights;
        reply->groups = reset->groups;
        answer.reply.body_case = F8__REPLY__BODY_RESET_AMAX;
        answer.reply.reset_amax = reply;
        answer_send(session, &answer, F8_OK);
    }
    free(reset->name);
    free(reset);
}

/* Nothing is done any more for an operator who has gone. */
static void at_rest(struct collective_rest *rest, struct group *group)
{
    struct reset *reset = ((struct part *)rest)->reset;
    if (group && reset->later.session) {
        uint32_t weights = collective_reset_amaxes(group, reset->name);
        const struct log_fields fields = {
            .job = group->job->name, .group = group->name, .pid = reset->later.session->peer.pid};
        log_of(&fields, LOG_LEVEL_INFO,
            "job %s, group %s: the amax history of %u weights is forgotten, as an operator (%s) "
            "had it",
            group->job->name, group->name, weights, reset->who);
        reset->weights += weights;
        reset->groups++;
    }
    if (--reset->waiting == 0)
        finish(reset);
}

static struct reset *reset_new(
    struct session *session, const struct incoming *incoming, uint32_t num_groups)
{
    struct reset *reset = calloc(1, sizeof(*reset) + num_groups * sizeof(reset->parts[0]));
    char *name = strdup(incoming->request->reset_amax->name);
    if (!reset || !name) {
        free(reset);
        free(name);
        return NULL;
    }
    reset->name = name;
    (void)session_who(session, reset->who);
    later_begin(&reset->later, session, incoming->request->id);
    return reset;
}

int session_reset_amax(
    struct session *session, const struct incoming *incoming, struct answer *answer)
{
    const F8__ResetAmax *message = incoming->request->reset_amax;
    uint32_t count = 0, next = 0;
    int status = count_groups(session, message, &count, &answer->reason);
    if (status < 0)
        return status;
    struct reset *reset = reset_new(session, incoming, count);
    if (!reset)
        return reason_set(&answer->reason, F8_ENOMEM, "out of memory resetting amaxes");
    /* One more, so that it does not end before all groups are asked. */
    reset->waiting = count + 1;
    for (struct job *job = registry_jobs(session->context->registry); job; job = job->next)
        for (struct group *group = job->groups; group; group = group->next)
            if (session_matches(message->job, job->name) &&
                collective_count_delayed(group, message->name) > 0) {
                struct part *part = &reset->parts[next++];
                *part = (struct part){.rest = {.at_rest = at_rest}, .reset = reset};
                collective_await_rest(group, &part->rest);
            }
    if (--reset->waiting == 0)
        finish(reset);
    return SESSION_PENDING;
}
