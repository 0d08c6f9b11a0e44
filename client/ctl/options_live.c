/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The values of flags that only live commands have: see ctl.h. Called by options.c while the
 * command line is read.
 */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/ctl.h"

static void list_events(void)
{
#define NAME(name, number, text) " " text
    static const char names[] = F8_PROTO_EVENT_LIST(NAME);
#undef NAME

    fprintf(stderr, "events are:%s\n", names);
}

int ctl_take_events(const char *text, struct ctl *ctl)
{
    char name[32];

    for (const char *at = text; *at != '\0';) {
        size_t length = strcspn(at, ",");
        uint32_t event;

        snprintf(name, sizeof(name), "%.*s", (int)length, at);
        event = length < sizeof(name) ? f8_proto_event_of(name) : 0;
        if (event == 0) {
            fprintf(stderr, "f8ctl: --events %s: no event is called %.*s; ", text, (int)length, at);
            list_events();
            return -1;
        }
        ctl->events |= 1U << event;
        at += length + (at[length] == ',');
    }
    if (ctl->events == 0) {
        fprintf(stderr, "f8ctl: --events: names none; ");
        list_events();
        return -1;
    }
    return 0;
}

int ctl_take_since(const char *text, struct ctl *ctl)
{
    char *end;

    errno = 0;
    ctl->since = strtoull(text, &end, 10);
    if (!isdigit((unsigned char)text[0]) || *end != '\0' || errno != 0 ||
        ctl->since == F8_PROTO_FROM_NOW) {
        fprintf(stderr, "f8ctl: --since %s: must be the sequence of an event\n", text);
        return -1;
    }
    return 0;
}

int ctl_take_interval(const char *text, struct ctl *ctl)
{
    char *end;
    double seconds = strtod(text, &end);

    if (end == text || *end != '\0' || !(seconds >= 0.1) || seconds > 3600) {
        fprintf(stderr, "f8ctl: --interval %s: must be seconds, from 0.1 to 3600\n", text);
        return -1;
    }
    ctl->interval_ms = (uint32_t)lround(seconds * 1000);
    return 0;
}
