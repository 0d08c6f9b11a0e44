/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What operators do to the daemon beside looking at it: evict a dead job, end it or call that off,
 * change what is logged. Each is logged, with who asked. On the loop.
 */
#include "daemon/session_private.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/log.h"

const char *session_who(const struct session *session, char buffer[SESSION_WHO])
{
    (void)snprintf(buffer, SESSION_WHO, "uid %u, pid %u", (unsigned)session->peer.uid,
        (unsigned)session->peer.pid);
    return buffer;
}

/* ---- evict ---- */

static const struct job *find_job(const struct session *session, const F8__Evict *message)
{
    const struct job *job = registry_jobs(session->context->registry);
    while (job && !(job->uid == message->uid && strcmp(job->name, message->job) == 0))
        job = job->next;
    return job;
}

/* Names the clients by their pids: those are what must end first. */
static int refuse_alive(const struct session *session, const struct job *job, struct reason *reason)
{
    (void)reason_set(reason, F8_EBUSY, "job %.120s of uid %u is not dead, it has %u clients: pid",
        job->name, (unsigned)job->uid, job->clients);
    for (const struct session *s = session->context->sessions; s; s = s->next)
        if (s->job == job)
            reason_append(reason, " %u", s->peer.pid);
    return F8_EBUSY;
}

static int check_dead(
    const struct session *session, const F8__Evict *message, struct reason *reason)
{
    const struct job *job = find_job(session, message);
    if (job && job->clients > 0)
        return refuse_alive(session, job, reason);
    if (job)
        return reason_set(reason, F8_EBUSY,
            "job %.120s of uid %u has no clients, but the last work of its group %.120s still "
            "runs: it goes when that ends",
            job->name, (unsigned)job->uid, job->groups->name);
    return F8_OK;
}

int session_evict(struct session *session, const struct incoming *incoming, struct answer *answer)
{
    const F8__Evict *message = incoming->request->evict;
    struct collective_context *collective = &session->context->collective;
    char who[SESSION_WHO];
    int status = check_dead(session, message, &answer->reason);
    if (status < 0)
        return status;
    F8__EvictReply *reply = &answer->body.evict;
    f8__evict_reply__init(reply);
    reply->states =
        state_store_drop_job(collective->states, message->uid, message->job, &reply->bytes);
    reply->engines = collective_drop_warm(collective, message->uid, message->job);
    reply->communicators = collective_drop_communicators(collective, message->uid, message->job);
    if (reply->states + reply->engines + reply->communicators == 0)
        return reason_set(&answer->reason, F8_ENOENT,
            "nothing is kept of a job %.120s of uid %u (--uid says whose it is)%s", message->job,
            (unsigned)message->uid,
            strpbrk(message->job, "*?[") ? "; evict takes a job's name, no glob" : "");
    const struct log_fields fields = {.job = message->job, .pid = session->peer.pid};
    log_of(&fields, LOG_LEVEL_INFO,
        "job %s of uid %u is evicted by an operator (%s): %u states of %" PRIu64
        " bytes, %u engines, %u communicators",
        message->job, (unsigned)message->uid, session_who(session, who), reply->states,
        reply->bytes, reply->engines, reply->communicators);
    answer->reply.body_case = F8__REPLY__BODY_EVICT;
    answer->reply.evict = reply;
    return session_settle(session, incoming->request->id, answer);
}

/* ---- the log's level ---- */

/* Said at either level, and at least once: who looks for missing lines must find this one. */
static void change_level(const struct session *session, enum log_level before, enum log_level level)
{
    char who[SESSION_WHO];
    log_set_level(LOG_LEVEL_INFO);
    log_of(&(struct log_fields){.pid = session->peer.pid}, LOG_LEVEL_INFO,
        "log-level is \"%s\" now, it was \"%s\": set by an operator (%s), until the settings "
        "are read again",
        log_level_word(level), log_level_word(before), session_who(session, who));
    log_set_level(level);
}

int session_log_level(
    struct session *session, const struct incoming *incoming, struct answer *answer)
{
    const char *word = incoming->request->log_level->level;
    enum log_level before = log_get_level();
    int level = word[0] != '\0' ? log_level_parse(word) : (int)before;
    if (level < 0)
        return reason_set(&answer->reason, F8_EINVAL,
            "%.40s is no log level: error, warning, info and debug are", word);
    if (word[0] != '\0')
        change_level(session, before, (enum log_level)level);
    F8__LogLevelReply *reply = &answer->body.log_level;
    f8__log_level_reply__init(reply);
    reply->level = (char *)log_level_word((enum log_level)level);
    reply->before = (char *)log_level_word(before);
    answer->reply.body_case = F8__REPLY__BODY_LOG_LEVEL;
    answer->reply.log_level = reply;
    return F8_OK;
}

/* ---- drain ---- */

static int cancel_drain(struct session *session, struct reason *reason)
{
    struct session_context *context = session->context;
    char who[SESSION_WHO];
    return context->end->cancel(context->end_owner, session_who(session, who), reason);
}

/* What is waited for now. */
static void fill_drain(struct session *session, struct answer *answer)
{
    struct session_context *context = session->context;
    struct reason *first = answer->scratch = calloc(1, sizeof(*first));
    F8__DrainReply *reply = &answer->body.drain;
    f8__drain_reply__init(reply);
    if (first && context->draining) {
        reply->groups = session_open_groups(context, first);
        reply->first = first->text;
        reply->limit_ms = registry_config(context->registry)->drain_ms;
    }
    answer->reply.body_case = F8__REPLY__BODY_DRAIN;
    answer->reply.drain = reply;
}

int session_drain_asked(
    struct session *session, const struct incoming *incoming, struct answer *answer)
{
    const F8__Drain *message = incoming->request->drain;
    struct session_context *context = session->context;
    char who[SESSION_WHO];
    int status = F8_OK;
    if (message->cancel)
        status = cancel_drain(session, &answer->reason);
    else if (message->wait && !context->draining)
        status = reason_set(&answer->reason, F8_ECANCELED,
            "there is no drain to wait for: it was called off, or none has begun");
    else if (!context->draining)
        context->end->drain(context->end_owner, session_who(session, who));
    if (status < 0)
        return status;
    if (message->wait && !message->cancel) {
        log_debug("an operator (%s) waits for the end", session_who(session, who));
        return session_await_end(session, incoming->request->id, &answer->reason);
    }
    fill_drain(session, answer);
    return F8_OK;
}
