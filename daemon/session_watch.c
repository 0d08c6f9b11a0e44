/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events for operators, by long polling: a Watch is answered when there is something that its
 * client wants, when its time is over, or when the daemon begins to end. One waits at a time on a
 * connection, so that a client who asks and does not read holds no more than that. On the loop.
 */
#include "daemon/session_private.h"

#include <stdlib.h>
#include <string.h>

/* Events of one reply, and the bytes that they may fill of a packet. */
#define MAX_EVENTS 64
#define MAX_BYTES  (F8_PROTO_MAX_PACKET - 1024)

/* The longest wait: a client that is there asks again. */
#define MAX_WAIT_MS 3600000

struct session_watch {
    struct events_waiter waiter;
    struct session *session; /* borrowed: its owner */
    uint64_t id;             /* of the request that waits; 0: none */
    uint32_t max;
};

/* What a reply with events is made of, until it is sent. */
struct sheet {
    F8__Event messages[MAX_EVENTS];
    F8__Event *list[MAX_EVENTS];
};

static char *or_empty(const char *text)
{
    return (char *)(text ? text : "");
}

static void fill_event(F8__Event *message, const struct events_record *record)
{
    const struct event *event = &record->event;
    f8__event__init(message);
    message->sequence = record->sequence;
    message->time_ns = record->time_ns;
    message->monotonic_ns = record->monotonic_ns;
    message->kind = event->kind;
    message->job = or_empty(event->job);
    message->uid = event->uid;
    message->group = or_empty(event->group);
    message->bucket = or_empty(event->bucket);
    message->weight = or_empty(event->weight);
    message->has_rank = event->has_rank;
    message->rank = event->rank;
    message->pid = event->pid;
    message->host = or_empty(event->host);
    message->value = event->value;
    message->text = or_empty(event->text);
}

static void fill_reply(struct session_watch *watch, F8__WatchReply *reply, struct sheet *sheet)
{
    const struct session_context *context = watch->session->context;
    struct events_reader *reader = &watch->waiter.reader;
    size_t bytes = 0;
    f8__watch_reply__init(reply);
    events_begin(context->collective.events, reader);
    while (reply->n_events < watch->max) {
        struct events_reader before = *reader;
        const struct events_record *record = events_next(context->collective.events, reader);
        if (!record)
            break;
        F8__Event *message = &sheet->messages[reply->n_events];
        fill_event(message, record);
        bytes += f8__event__get_packed_size(message) + 8;
        if (bytes > MAX_BYTES) {
            *reader = before;
            break;
        }
        sheet->list[reply->n_events++] = message;
    }
    reply->events = sheet->list;
    reply->seen = reader->after;
    reply->lost = reader->lost;
    reply->restarted = reader->restarted;
    reply->ending = context->draining;
}

static int answer_watch(struct session_watch *watch, struct answer *answer)
{
    answer->scratch = malloc(sizeof(struct sheet));
    if (!answer->scratch)
        return reason_set(&answer->reason, F8_ENOMEM, "out of memory telling events");
    fill_reply(watch, &answer->body.watch, answer->scratch);
    answer->reply.body_case = F8__REPLY__BODY_WATCH;
    answer->reply.watch = &answer->body.watch;
    return F8_OK;
}

static void on_ready(struct events_waiter *waiter)
{
    struct session_watch *watch = (struct session_watch *)waiter;
    struct answer answer;
    answer_begin(&answer, watch->id);
    watch->id = 0;
    answer_send(watch->session, &answer, answer_watch(watch, &answer));
}

/* The session's, made at its first request. */
static struct session_watch *get_watch(struct session *session)
{
    if (!session->watch)
        session->watch = calloc(1, sizeof(*session->watch));
    if (session->watch)
        session->watch->session = session;
    return session->watch;
}

static int read_request(
    const F8__Watch *message, struct session_watch *watch, struct reason *reason)
{
    struct events_reader *reader = &watch->waiter.reader;
    if (strlen(message->job) >= sizeof(reader->job))
        return reason_set(reason, F8_EINVAL, "the glob for jobs has %zu bytes, the limit is %zu",
            strlen(message->job), sizeof(reader->job) - 1);
    *reader = (struct events_reader){.after = message->after};
    (void)strcpy(reader->job, message->job);
    for (size_t i = 0; i < message->n_kinds; i++) {
        if (!f8_proto_event_name(message->kinds[i]))
            return reason_set(reason, F8_EINVAL, "events of kind %u are not known to f8gatherd %s",
                message->kinds[i], F8_VERSION);
        reader->kinds |= 1U << message->kinds[i];
    }
    watch->max = message->max > 0 && message->max < MAX_EVENTS ? message->max : MAX_EVENTS;
    return F8_OK;
}

int session_watch(struct session *session, const struct incoming *incoming, struct answer *answer)
{
    const F8__Watch *message = incoming->request->watch;
    struct events *events = session->context->collective.events;
    struct session_watch *watch = get_watch(session);
    if (!watch)
        return reason_set(&answer->reason, F8_ENOMEM, "out of memory watching events");
    if (watch->id)
        return reason_set(
            &answer->reason, F8_EBUSY, "a Watch of this connection waits already: one at a time");
    int status = read_request(message, watch, &answer->reason);
    if (status < 0)
        return status;
    events_begin(events, &watch->waiter.reader);
    if (message->wait_ms == 0 || events_has_news(events, &watch->waiter.reader))
        return answer_watch(watch, answer);
    watch->id = incoming->request->id;
    watch->waiter.ready = on_ready;
    events_wait(
        events, &watch->waiter, message->wait_ms < MAX_WAIT_MS ? message->wait_ms : MAX_WAIT_MS);
    return SESSION_PENDING;
}

void session_end_watch(struct session *session)
{
    if (session->watch && session->watch->id)
        events_stop_waiting(&session->watch->waiter);
    free(session->watch);
}
