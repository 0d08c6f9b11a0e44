/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ring of events and those who wait for them: see events.h. Whoever tells an event may be in
 * the midst of anything, so waiters are only called from a timer of the loop; several events at
 * once wake them once.
 */
#include "daemon/events.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "status.h"

struct events {
    uv_timer_t timer;                        /* of the waiters */
    struct events_record *kept[EVENTS_KEPT]; /* owned: by sequence modulo; NULL: none */
    uint64_t newest;                         /* sequence; 0: nothing has happened */
    struct events_waiter *waiters;           /* borrowed list */
    bool woken;                              /* the timer is due at once */
    bool closed;
};

static void on_timer(uv_timer_t *timer);

int events_new(uv_loop_t *loop, struct events **ret_events)
{
    struct events *events = calloc(1, sizeof(*events));
    if (!events)
        return F8_ENOMEM;
    (void)uv_timer_init(loop, &events->timer); /* cannot fail */
    events->timer.data = events;
    *ret_events = events;
    return F8_OK;
}

void events_free(struct events *events)
{
    if (!events)
        return;
    for (uint32_t i = 0; i < EVENTS_KEPT; i++)
        free(events->kept[i]);
    free(events);
}

/* ---- the ring ---- */

static size_t size_of(const char *text)
{
    return text ? strlen(text) + 1 : 0;
}

/* Copies a text to where the record has room for it. */
static const char *put(char **at, const char *text)
{
    if (!text)
        return NULL;
    char *copy = *at;
    *at = stpcpy(copy, text) + 1;
    return copy;
}

/* The event in one block; NULL: memory is short. */
static struct events_record *record_new(const struct event *event)
{
    size_t size = sizeof(struct events_record) + size_of(event->job) + size_of(event->group) +
                  size_of(event->bucket) + size_of(event->weight) + size_of(event->host) +
                  size_of(event->text);
    struct events_record *record = malloc(size);
    if (!record)
        return NULL;
    char *at = (char *)(record + 1);
    record->event = *event;
    record->event.job = put(&at, event->job);
    record->event.group = put(&at, event->group);
    record->event.bucket = put(&at, event->bucket);
    record->event.weight = put(&at, event->weight);
    record->event.host = put(&at, event->host);
    record->event.text = put(&at, event->text);
    return record;
}

static void wake(struct events *events)
{
    if (!events->waiters || events->woken || events->closed)
        return;
    events->woken = true;
    (void)uv_timer_start(&events->timer, on_timer, 0, 0);
}

void events_tell(struct events *events, const struct event *event)
{
    struct timespec now;
    if (!events)
        return;
    uint64_t sequence = ++events->newest;
    struct events_record **place = &events->kept[sequence % EVENTS_KEPT];
    free(*place);
    *place = record_new(event);
    wake(events);
    if (!*place)
        return;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    (*place)->sequence = sequence;
    (*place)->time_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    (*place)->monotonic_ns = uv_hrtime();
}

void events_tell_snapshot(
    struct events *events, int status, uint64_t bytes, const struct reason *why)
{
    events_tell(
        events, &(struct event){
                    .kind = status < 0 ? F8_PROTO_EVENT_SNAPSHOT_FAILED : F8_PROTO_EVENT_SNAPSHOT,
                    .value = status < 0 ? 0 : (double)bytes,
                    .text = why->text,
                });
}

void events_begin(const struct events *events, struct events_reader *reader)
{
    uint64_t dropped = events->newest > EVENTS_KEPT ? events->newest - EVENTS_KEPT : 0;
    if (reader->after == F8_PROTO_FROM_NOW)
        reader->after = events->newest;
    if (reader->after > events->newest) {
        reader->restarted = true;
        reader->after = 0;
    }
    if (reader->after < dropped) {
        reader->lost += dropped - reader->after;
        reader->after = dropped;
    }
}

static bool wants(const struct events_reader *reader, const struct event *event)
{
    if (reader->kinds && !(reader->kinds & 1U << event->kind))
        return false;
    return reader->job[0] == '\0' || !event->job || fnmatch(reader->job, event->job, 0) == 0;
}

const struct events_record *events_next(const struct events *events, struct events_reader *reader)
{
    while (reader->after < events->newest) {
        const struct events_record *record = events->kept[++reader->after % EVENTS_KEPT];
        if (!record)
            reader->lost++; /* there was no memory for it */
        else if (wants(reader, &record->event))
            return record;
    }
    return NULL;
}

bool events_has_news(const struct events *events, const struct events_reader *reader)
{
    struct events_reader copy = *reader;
    return copy.restarted || events_next(events, &copy) || copy.lost > 0;
}

/* ---- those who wait ---- */

static void join_list(struct events_waiter **list, struct events_waiter *waiter)
{
    waiter->next = *list;
    waiter->link = list;
    if (waiter->next)
        waiter->next->link = &waiter->next;
    *list = waiter;
}

void events_stop_waiting(struct events_waiter *waiter)
{
    *waiter->link = waiter->next;
    if (waiter->next)
        waiter->next->link = waiter->link;
}

/* The timer goes off when the first waiter's time is over. */
static void set_timer(struct events *events)
{
    uint64_t now = uv_now(events->timer.loop), first = UINT64_MAX;
    events->woken = false;
    for (const struct events_waiter *w = events->waiters; w; w = w->next)
        first = w->due < first ? w->due : first;
    if (first == UINT64_MAX)
        (void)uv_timer_stop(&events->timer);
    else
        (void)uv_timer_start(&events->timer, on_timer, first > now ? first - now : 0, 0);
}

/* What it has seen and does not want, it need not see again; what it missed meanwhile counts. */
static bool is_ready(const struct events *events, struct events_waiter *waiter, uint64_t now)
{
    events_begin(events, &waiter->reader);
    if (waiter->due <= now || events_has_news(events, &waiter->reader))
        return true;
    waiter->reader.after = events->newest;
    return false;
}

/* One by one: what a call does may end the wait of another. */
static void tell_those(struct events_waiter **list)
{
    while (*list) {
        struct events_waiter *waiter = *list;
        events_stop_waiting(waiter);
        waiter->ready(waiter);
    }
}

static void on_timer(uv_timer_t *timer)
{
    struct events *events = timer->data;
    struct events_waiter *ready = NULL, *next;
    uint64_t now = uv_now(timer->loop);
    for (struct events_waiter *w = events->waiters; w; w = next) {
        next = w->next;
        if (!is_ready(events, w, now))
            continue;
        events_stop_waiting(w);
        join_list(&ready, w);
    }
    tell_those(&ready);
    set_timer(events);
}

void events_wait(struct events *events, struct events_waiter *waiter, uint32_t wait_ms)
{
    waiter->due = uv_now(events->timer.loop) + wait_ms;
    join_list(&events->waiters, waiter);
    if (!events->woken)
        set_timer(events);
}

void events_answer_all(struct events *events)
{
    tell_those(&events->waiters);
}

void events_close(struct events *events)
{
    events->closed = true;
    events_answer_all(events);
    uv_close((uv_handle_t *)&events->timer, NULL);
}
