/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a meeting that has failed: host 0 hears what the others know of it before it tells
 * all, the others tell host 0 and hear what it makes of that. Each asks whether the other end is
 * there at all, so that a host that hangs is named whoever gave up first: the meeting, a daemon or
 * a rank. Called by run_far.c and meeting_host.c, in the parent.
 */
#include <stdio.h>
#include <string.h>

#include "client/bench/meeting_private.h"
#include "client/bench/shared.h"

/* How long a host that failed waits for one that knows more. */
#define SETTLE_S 5

/* How long for an answer, as a machine may be busy; on host 0, and on those that wait for it. */
#define ANSWER_S       10
#define OTHER_ANSWER_S (2 * ANSWER_S)

/* What is heard of the others. */
struct hearing {
    struct meeting *meeting; /* borrowed: from run_far.c */
    struct failure *failure; /* borrowed: from run_far.c; the nearest so far */
    double since;
    bool said_all[NETWORK_MAX_HOSTS]; /* by link: that it has failed too, or its end */
};

/* The failure as other hosts are told it. */
static void text_for_others(
    const struct meeting *meeting, const struct failure *failure, char *text, size_t size)
{
    char name[80] = "";

    if (meeting->host == 0 && !failure->foreign) {
        meeting_name(meeting->options, 0, name, sizeof(name));
    }
    snprintf(text, size, "%s%s%.640s", name, name[0] != '\0' ? ": " : "", failure->error.text);
}

static void send_all(struct meeting *meeting, enum link_type type, const void *body, uint64_t size)
{
    struct bench_error error;

    for (uint32_t i = meeting_first_link(meeting); i < meeting_end_link(meeting); i++) {
        if (meeting->links[i].fd >= 0) {
            /* One that is gone needs no telling. */
            (void)link_send(&meeting->links[i], type, body, size, &error);
        }
    }
}

static void tell(struct meeting *meeting, const struct failure *failure)
{
    struct link_failed failed = {.nearness = failure->nearness};

    text_for_others(meeting, failure, failed.text, sizeof(failed.text));
    send_all(meeting, LINK_FAILED, &failed, sizeof(failed));
}

static bool is_silent(const struct hearing *hearing, uint32_t link)
{
    return hearing->meeting->links[link].fd >= 0 && !hearing->meeting->answered[link] &&
           !hearing->said_all[link];
}

static bool any_silent(const struct hearing *hearing)
{
    uint32_t i = meeting_first_link(hearing->meeting);

    while (i < meeting_end_link(hearing->meeting) && !is_silent(hearing, i)) {
        i++;
    }
    return i < meeting_end_link(hearing->meeting);
}

/* Until when others may say more, as things are. */
static double deadline(const struct hearing *hearing)
{
    if (hearing->meeting->host > 0) {
        return hearing->since + OTHER_ANSWER_S; /* host 0's word is the last */
    }
    return hearing->since + (any_silent(hearing) ? ANSWER_S : SETTLE_S);
}

/* The links that more may come from; their number. */
static nfds_t list_links(const struct hearing *hearing, struct pollfd *fds, uint32_t *indices)
{
    const struct meeting *meeting = hearing->meeting;
    nfds_t count = 0;

    for (uint32_t i = meeting_first_link(meeting); i < meeting_end_link(meeting); i++) {
        if (meeting->links[i].fd >= 0 && !hearing->said_all[i]) {
            indices[count] = i;
            fds[count++] = (struct pollfd){.fd = meeting->links[i].fd, .events = POLLIN};
        }
    }
    return count;
}

static void hear_link(struct hearing *hearing, uint32_t link)
{
    struct failure other = {.nearness = NEAR_NOTHING};

    if (meeting_read_link(hearing->meeting, link, &other) == 0) {
        return;
    }
    hearing->said_all[link] = true;
    if (other.nearness > hearing->failure->nearness) {
        *hearing->failure = other;
    }
}

/* What the others say meanwhile, until a failure is near enough, all have, or time is up. */
static void hear(struct hearing *hearing)
{
    struct pollfd fds[NETWORK_MAX_HOSTS];
    uint32_t indices[NETWORK_MAX_HOSTS];
    nfds_t count;
    double left;

    while (hearing->failure->nearness < NEAR_GONE &&
           (left = deadline(hearing) - shared_now()) > 0 &&
           (count = list_links(hearing, fds, indices)) > 0) {
        poll(fds, count, (int)(left * 1000) + 1);
        for (nfds_t i = 0; i < count; i++) {
            if (fds[i].revents != 0) {
                hear_link(hearing, indices[i]);
            }
        }
    }
}

/* Adds the hosts that are not there, which are behind the failure. */
static void name_silent(const struct hearing *hearing)
{
    const struct meeting *meeting = hearing->meeting;
    struct failure *failure = hearing->failure;
    char names[240] = "";
    char text[sizeof(failure->error.text)];

    for (uint32_t i = meeting_first_link(meeting); i < meeting_end_link(meeting); i++) {
        size_t length = strlen(names);
        char name[80];
        if (is_silent(hearing, i)) {
            meeting_name(meeting->options, i, name, sizeof(name));
            snprintf(names + length, sizeof(names) - length, "%s%s", length > 0 ? ", " : "", name);
        }
    }
    text_for_others(meeting, failure, text, sizeof(text));
    bench_fail(&failure->error, "%.480s; %s: no answer from f8bench there for %d s", text, names,
        meeting->host == 0 ? ANSWER_S : OTHER_ANSWER_S);
    failure->nearness = NEAR_GONE;
    failure->foreign = true;
}

static void hear_all(struct meeting *meeting, struct failure *failure)
{
    struct hearing hearing = {.meeting = meeting, .failure = failure, .since = shared_now()};

    if (failure->nearness >= NEAR_GONE) {
        return;
    }
    memset(meeting->answered, 0, sizeof(meeting->answered));
    send_all(meeting, LINK_ASK, NULL, 0);
    hear(&hearing);
    if (failure->nearness < NEAR_GONE && any_silent(&hearing)) {
        name_silent(&hearing);
    }
}

void meeting_fail(struct meeting *meeting, struct failure *failure)
{
    if (meeting == NULL || meeting->left || failure->final) {
        return;
    }
    if (meeting->host == 0) {
        hear_all(meeting, failure);
        tell(meeting, failure);
    } else {
        tell(meeting, failure);
        hear_all(meeting, failure);
    }
}
