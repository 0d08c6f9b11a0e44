/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A meeting while ranks run: a star with host 0 in its middle. The first rank of each host gives
 * its parent bytes through a socket pair; the parents send them to host 0, which answers all when
 * all are there. Called by run_far.c; meeting_meet by ranks.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/bench/meeting_private.h"
#include "client/bench/shared.h"

/* Others give host 0, which can tell who is missing, so much longer to do so. */
#define GRACE_S 15

void meeting_name(const struct options *options, uint32_t host, char *name, size_t size)
{
    char text[INET6_ADDRSTRLEN];

    addresses_text(&options->addresses, host, text, sizeof(text));
    snprintf(name, size, "host %" PRIu32 " (%s)", host, text);
}

uint32_t meeting_first_link(const struct meeting *meeting)
{
    return meeting->host == 0 ? 1 : 0;
}

uint32_t meeting_end_link(const struct meeting *meeting)
{
    return meeting->host == 0 ? meeting->num_hosts : 1;
}

nfds_t meeting_list_links(const struct meeting *meeting, struct pollfd *fds)
{
    nfds_t count = 0;

    for (uint32_t i = meeting_first_link(meeting); i < meeting_end_link(meeting); i++) {
        fds[count++] = (struct pollfd){.fd = meeting->links[i].fd, .events = POLLIN};
    }
    return meeting->left ? 0 : count;
}

nfds_t meeting_list(const struct meeting *meeting, struct pollfd *fds)
{
    if (meeting->left) {
        return 0;
    }
    fds[0] = (struct pollfd){.fd = meeting->fd, .events = POLLIN};
    return 1 + meeting_list_links(meeting, fds + 1);
}

static double patience(const struct meeting *meeting)
{
    return meeting->options->deadline_s + (meeting->host == 0 ? 0 : GRACE_S);
}

int meeting_timeout(const struct meeting *meeting)
{
    double left = meeting->since + patience(meeting) - shared_now();

    if (meeting->since == 0 || meeting->left) {
        return -1;
    }
    return left > 0 ? (int)(left * 1000) + 1 : 0;
}

/* Fails the run because of a host. */
static int blame(struct meeting *meeting, uint32_t host, enum nearness nearness, const char *what,
    struct failure *failure)
{
    char name[80];

    meeting_name(meeting->options, host, name, sizeof(name));
    failure->nearness = nearness;
    failure->foreign = true;
    return bench_fail(&failure->error, "%s %.600s", name, what);
}

static int lost(
    struct meeting *meeting, uint32_t host, const struct bench_error *why, struct failure *failure)
{
    char text[640];

    snprintf(text, sizeof(text), "was lost: %.600s", why->text);
    return blame(meeting, host, NEAR_GONE, text, failure);
}

/* Nothing can be sent to a host. Why it has ended it may have said before. */
static int lost_sending(
    struct meeting *meeting, uint32_t host, const struct bench_error *why, struct failure *failure)
{
    struct failure said = {.nearness = NEAR_NOTHING};

    if (meeting_read_link(meeting, host, &said) != 0) {
        *failure = said;
        return -1;
    }
    return lost(meeting, host, why, failure);
}

/* Bytes of one host: they join those that are here. */
static int join(struct meeting *meeting, uint32_t host, const uint8_t *bytes, uint64_t size,
    struct failure *failure)
{
    if (meeting->since == 0) {
        meeting->since = shared_now();
        meeting->size = size;
        memset(meeting->joined, 0, MEETING_MAX_JOINED);
    }
    if (meeting->arrived[host] || size != meeting->size || size > MEETING_MAX_JOINED) {
        return blame(meeting, host, NEAR_ERROR, "is not where the others are", failure);
    }
    meeting->arrived[host] = true;
    for (uint64_t i = 0; i < size; i++) {
        meeting->joined[i] |= bytes[i];
    }
    return 0;
}

/* What all have joined, back to this host's first rank. */
static int answer_rank(
    struct meeting *meeting, const void *bytes, uint64_t size, struct failure *failure)
{
    uint8_t packet[1 + MEETING_MAX_JOINED] = {0};

    memcpy(packet + 1, bytes, size);
    meeting->since = 0;
    if (send(meeting->fd, packet, 1 + size, MSG_NOSIGNAL) != (ssize_t)(1 + size)) {
        failure->nearness = NEAR_HEARD;
        return bench_fail(
            &failure->error, "the first rank of this host is gone: %s", strerror(errno));
    }
    return 0;
}

/* On host 0: answers all once all are here. */
static int answer_all(struct meeting *meeting, struct failure *failure)
{
    struct bench_error error;

    for (uint32_t host = 0; host < meeting->num_hosts; host++) {
        if (!meeting->arrived[host]) {
            return 0;
        }
    }
    memset(meeting->arrived, 0, sizeof(meeting->arrived));
    for (uint32_t host = 1; host < meeting->num_hosts; host++) {
        if (link_send(&meeting->links[host], LINK_MEET, meeting->joined, meeting->size, &error) !=
            0) {
            return lost_sending(meeting, host, &error, failure);
        }
    }
    return answer_rank(meeting, meeting->joined, meeting->size, failure);
}

/* On host 0, all reports being there: lets all go. */
static int leave(struct meeting *meeting, struct failure *failure)
{
    const struct link_leave leave = {.mismatches = meeting->mismatches};
    struct bench_error error;

    for (uint32_t host = 0; host < meeting->num_hosts; host++) {
        if (!meeting->reported[host]) {
            return 0;
        }
    }
    for (uint32_t host = 1; host < meeting->num_hosts; host++) {
        if (link_send(&meeting->links[host], LINK_LEAVE, &leave, sizeof(leave), &error) != 0) {
            return lost_sending(meeting, host, &error, failure);
        }
    }
    meeting->left = true;
    return 0;
}

static int take_report(struct meeting *meeting, uint32_t host, const struct link_message *report,
    struct failure *failure)
{
    if (meeting->reported[host]) {
        return blame(meeting, host, NEAR_ERROR, "reports twice", failure);
    }
    failure->nearness = NEAR_ERROR;
    if (meeting->on_report(meeting->context, host, report, &failure->error) != 0) {
        return -1;
    }
    meeting->reported[host] = true;
    return leave(meeting, failure);
}

/* Another host's failure, which says which if it is host 0 that hands it on. */
static int take_failure(struct meeting *meeting, uint32_t host, const struct link_message *message,
    struct failure *failure)
{
    struct link_failed failed;

    if (message->size != sizeof(failed)) {
        return blame(meeting, host, NEAR_ERROR, "fails without saying why", failure);
    }
    memcpy(&failed, message->body, sizeof(failed));
    failed.text[sizeof(failed.text) - 1] = '\0';
    if (meeting->host == 0) {
        char name[80];
        meeting_name(meeting->options, host, name, sizeof(name));
        bench_fail(&failure->error, "%s: %.640s", name, failed.text);
    } else {
        bench_fail(&failure->error, "%.700s", failed.text);
    }
    failure->nearness = failed.nearness < NEAR_DEATH ? failed.nearness : NEAR_DEATH;
    failure->foreign = true;
    failure->final = host == 0;
    return -1;
}

/* A message on host 0. */
static int take_at_host_0(struct meeting *meeting, uint32_t host,
    const struct link_message *message, struct failure *failure)
{
    switch (message->type) {
    case LINK_MEET:
        return join(meeting, host, message->body, message->size, failure) != 0
                   ? -1
                   : answer_all(meeting, failure);
    case LINK_REPORT:
        return take_report(meeting, host, message, failure);
    case LINK_FAILED:
        return take_failure(meeting, host, message, failure);
    default:
        return blame(meeting, host, NEAR_ERROR, "says what only host 0 may", failure);
    }
}

/* A message from host 0. */
static int take_from_host_0(
    struct meeting *meeting, const struct link_message *message, struct failure *failure)
{
    struct link_leave leave;

    switch (message->type) {
    case LINK_MEET:
        return answer_rank(meeting, message->body, message->size, failure);
    case LINK_LEAVE:
        memcpy(
            &leave, message->body, message->size < sizeof(leave) ? message->size : sizeof(leave));
        meeting->mismatches = message->size == sizeof(leave) ? leave.mismatches : 1;
        meeting->left = true;
        return 0;
    case LINK_FAILED:
        return take_failure(meeting, 0, message, failure);
    default:
        return blame(meeting, 0, NEAR_ERROR, "says what it may not now", failure);
    }
}

/* A message on any host. -1: the run has failed. */
static int take(struct meeting *meeting, uint32_t index, struct failure *failure)
{
    const struct link_message *message = &meeting->links[index].message;
    struct bench_error error;

    switch (message->type) {
    case LINK_ASK:
        /* Who asks has failed, and may be gone by now; what it says of that comes by itself. */
        (void)link_send(&meeting->links[index], LINK_HERE, NULL, 0, &error);
        return 0;
    case LINK_HERE:
        meeting->answered[index] = true;
        return 0;
    default:
        return meeting->host == 0 ? take_at_host_0(meeting, index, message, failure)
                                  : take_from_host_0(meeting, message, failure);
    }
}

int meeting_read_link(struct meeting *meeting, uint32_t index, struct failure *failure)
{
    struct link *link = &meeting->links[index];
    uint64_t most = meeting->host == 0 ? meeting->report_size : MEETING_MAX_JOINED;
    struct bench_error error;
    int result;

    while ((result = link_read(
                link, most > MEETING_MAX_JOINED ? most : MEETING_MAX_JOINED, &error)) > 0) {
        int taken = take(meeting, index, failure);
        if (taken != 0 || meeting->left) {
            return taken;
        }
    }
    return result == 0 ? 0 : lost(meeting, index, &error, failure);
}

/* This host's first rank has come, or not. */
static int read_rank(struct meeting *meeting, struct failure *failure)
{
    uint8_t packet[1 + MEETING_MAX_JOINED];
    ssize_t got = recv(meeting->fd, packet, sizeof(packet), MSG_DONTWAIT);
    struct bench_error error;

    if (got < 1) {
        return 0; /* none; or the rank is gone, which the watch sees */
    }
    if (meeting->host == 0) {
        return join(meeting, 0, packet + 1, (uint64_t)got - 1, failure) != 0
                   ? -1
                   : answer_all(meeting, failure);
    }
    meeting->since = shared_now();
    if (link_send(&meeting->links[0], LINK_MEET, packet + 1, (uint64_t)got - 1, &error) != 0) {
        return lost_sending(meeting, 0, &error, failure);
    }
    return 0;
}

/* Whom the others wait for in vain. */
static int too_late(struct meeting *meeting, struct failure *failure)
{
    bool report = meeting->reported[meeting->host];
    uint32_t host = 0;
    char what[80];

    while (meeting->host == 0 && (report ? meeting->reported : meeting->arrived)[host]) {
        host++;
    }
    snprintf(what, sizeof(what), "has not %s within %.0f s",
        meeting->host > 0 ? "answered"
        : report          ? "reported"
                          : "come to where the others are",
        patience(meeting));
    return blame(meeting, host, NEAR_GONE, what, failure);
}

int meeting_handle(struct meeting *meeting, struct failure *failure)
{
    if (meeting->left) {
        return 0;
    }
    for (uint32_t i = meeting_first_link(meeting); i < meeting_end_link(meeting); i++) {
        if (meeting_read_link(meeting, i, failure) != 0) {
            return -1;
        }
        if (meeting->left) {
            return 0;
        }
    }
    if (read_rank(meeting, failure) != 0) {
        return -1;
    }
    return meeting_timeout(meeting) == 0 ? too_late(meeting, failure) : 0;
}

int meeting_report(
    struct meeting *meeting, const void *report, uint64_t size, struct failure *failure)
{
    struct bench_error error;

    meeting->reported[meeting->host] = true;
    meeting->since = shared_now();
    if (meeting->host == 0) {
        return leave(meeting, failure);
    }
    if (link_send(&meeting->links[0], LINK_REPORT, report, size, &error) != 0) {
        return lost_sending(meeting, 0, &error, failure);
    }
    return 0;
}

int meeting_meet(int ranks_fd, void *bytes, size_t size)
{
    uint8_t packet[1 + MEETING_MAX_JOINED] = {0};
    ssize_t got;

    if (size > 0) {
        memcpy(packet + 1, bytes, size);
    }
    if (send(ranks_fd, packet, 1 + size, MSG_NOSIGNAL) != (ssize_t)(1 + size)) {
        return -1;
    }
    do {
        got = recv(ranks_fd, packet, sizeof(packet), 0);
    } while (got < 0 && errno == EINTR);
    if (got != (ssize_t)(1 + size)) {
        return -1;
    }
    if (size > 0) {
        memcpy(bytes, packet + 1, size);
    }
    return 0;
}
