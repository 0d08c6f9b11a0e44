/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events as lines: for people, with the time, the kind and the sentence, coloured by how bad it is;
 * and for programs, one JSON object a line. Called by watch.c.
 */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <time.h>

#include "client/ctl/colour.h"
#include "client/ctl/print_json.h"
#include "client/ctl/watch.h"
#include "client/plural.h"
#include "proto/protocol.h"

#define TIME_TEXT 40

static enum colour colour_of(uint32_t kind)
{
    switch (kind) {
    case F8_PROTO_EVENT_RANK_DIED:
    case F8_PROTO_EVENT_ROUND_FAILED:
    case F8_PROTO_EVENT_HOST_LOST:
    case F8_PROTO_EVENT_SNAPSHOT_FAILED:
        return COLOUR_ALARM;
    case F8_PROTO_EVENT_SATURATION:
    case F8_PROTO_EVENT_STALE_SCALE:
    case F8_PROTO_EVENT_NAN_FOUND:
    case F8_PROTO_EVENT_DRAIN:
        return COLOUR_WARNING;
    case F8_PROTO_EVENT_GROUP_SEALED:
    case F8_PROTO_EVENT_DRAIN_CANCELLED:
        return COLOUR_GOOD;
    default:
        return COLOUR_NONE;
    }
}

/* A kind that a newer daemon has. */
static const char *name_of(const F8__Event *event, char buffer[16])
{
    const char *name = f8_proto_event_name(event->kind);

    snprintf(buffer, 16, "event-%" PRIu32, event->kind);
    return name != NULL ? name : buffer;
}

/* "14:03:07.123", of this host's zone. */
static void print_time(uint64_t time_ns)
{
    time_t seconds = (time_t)(time_ns / 1000000000);
    struct tm local;
    char text[TIME_TEXT];

    strftime(text, sizeof(text), "%T", localtime_r(&seconds, &local));
    printf("%s%s.%03d%s", colour_begin(stdout, COLOUR_QUIET), text, (int)(time_ns / 1000000 % 1000),
        colour_end(stdout, COLOUR_QUIET));
}

static void print_line(const struct ctl *ctl, const F8__Event *event)
{
    enum colour colour = colour_of(event->kind);
    char name[16], text[2048];

    (void)ctl;
    snprintf(text, sizeof(text), "%s%s%s%s%s", event->job, event->job[0] != '\0' ? "/" : "",
        event->job[0] != '\0' ? event->group : "", event->job[0] != '\0' ? ": " : "", event->text);
    f8_proto_make_printable(text);
    print_time(event->time_ns);
    printf("  %s%-15s%s  ", colour_begin(stdout, colour), name_of(event, name),
        colour_end(stdout, colour));
    printf("%s\n", text);
}

static void print_lost_line(const struct ctl *ctl, uint64_t lost)
{
    (void)ctl;
    printf("%slost %" PRIu64 " event%s%s: the daemon keeps only so many\n",
        colour_begin(stdout, COLOUR_WARNING), lost, plural(lost),
        colour_end(stdout, COLOUR_WARNING));
}

static void print_restarted_line(const struct ctl *ctl)
{
    printf("the daemon has begun anew since event %" PRIu64 ": all that it keeps follows\n",
        ctl->since);
}

const struct watch_printer watch_lines = {
    .event = print_line, .lost = print_lost_line, .restarted = print_restarted_line};

/* One object and its line; takes it over. */
static void print_object(json_t *object)
{
    if (object == NULL) {
        fprintf(stderr, "f8ctl: no memory for an event, or it has texts that are not UTF-8\n");
        return;
    }
    json_dumpf(object, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(object);
}

/* "2026-01-02T03:04:05.123456Z" */
static void utc_text(uint64_t time_ns, char text[TIME_TEXT])
{
    time_t seconds = (time_t)(time_ns / 1000000000);
    struct tm utc;
    size_t length = strftime(text, TIME_TEXT, "%FT%T", gmtime_r(&seconds, &utc));

    snprintf(text + length, TIME_TEXT - length, ".%06dZ", (int)(time_ns / 1000 % 1000000));
}

/* Names that the event does not have are null. */
static json_t *text_or_null(const char *text)
{
    return text[0] != '\0' ? json_string(text) : json_null();
}

static void print_event_object(const struct ctl *ctl, const F8__Event *event)
{
    char name[16], time[TIME_TEXT];

    (void)ctl;
    utc_text(event->time_ns, time);
    print_object(json_pack("{s:s, s:I, s:s, s:s, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:f, "
                           "s:s}",
        "schema", CTL_SCHEMA, "sequence", (json_int_t)event->sequence, "event",
        name_of(event, name), "time", time, "monotonic_ns", (json_int_t)event->monotonic_ns, "job",
        text_or_null(event->job), "uid",
        event->job[0] != '\0' ? json_integer(event->uid) : json_null(), "group",
        text_or_null(event->group), "bucket", text_or_null(event->bucket), "weight",
        text_or_null(event->weight), "rank",
        event->has_rank ? json_integer(event->rank) : json_null(), "pid",
        event->has_rank ? json_integer(event->pid) : json_null(), "host", text_or_null(event->host),
        "value", event->value, "text", event->text));
}

static void print_lost_object(const struct ctl *ctl, uint64_t lost)
{
    (void)ctl;
    print_object(json_pack(
        "{s:s, s:s, s:I}", "schema", CTL_SCHEMA, "event", "lost", "value", (json_int_t)lost));
}

static void print_restarted_object(const struct ctl *ctl)
{
    print_object(json_pack("{s:s, s:s, s:I}", "schema", CTL_SCHEMA, "event", "daemon-restarted",
        "value", (json_int_t)ctl->since));
}

const struct watch_printer watch_objects = {
    .event = print_event_object, .lost = print_lost_object, .restarted = print_restarted_object};
