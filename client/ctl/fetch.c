/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's lists come in pages; here they become one array of rows. Called by the commands;
 * the channel is main's.
 */
#include "client/ctl/fetch.h"

#include <stdlib.h>
#include <time.h>

#include "client/error.h"

/* Where the rows of a view are in a reply. */
static size_t rows_of(F8__View view, F8__InspectReply *reply, void ***ret_rows)
{
    switch (view) {
    case F8__VIEW__JOBS:
        *ret_rows = (void **)reply->jobs;
        return reply->n_jobs;
    case F8__VIEW__GROUPS:
        *ret_rows = (void **)reply->groups;
        return reply->n_groups;
    case F8__VIEW__WEIGHTS:
    case F8__VIEW__AMAX:
        *ret_rows = (void **)reply->weights;
        return reply->n_weights;
    case F8__VIEW__BUCKETS:
        *ret_rows = (void **)reply->buckets;
        return reply->n_buckets;
    case F8__VIEW__HISTORY:
        *ret_rows = (void **)reply->histories;
        return reply->n_histories;
    case F8__VIEW__HOSTS:
        *ret_rows = (void **)reply->hosts;
        return reply->n_hosts;
    case F8__VIEW__STATS:
        *ret_rows = (void **)reply->stats;
        return reply->n_stats;
    case F8__VIEW__ROUNDS:
        *ret_rows = (void **)reply->rounds;
        return reply->n_rounds;
    default:
        *ret_rows = (void **)&reply->status;
        return reply->status != NULL;
    }
}

static int ask(
    struct ctl *ctl, F8__View view, const char *name, uint64_t cursor, F8__Reply **ret_reply)
{
    F8__Request request = F8__REQUEST__INIT;
    F8__Inspect inspect = F8__INSPECT__INIT;
    int status;

    inspect.view = view;
    inspect.job = (char *)(ctl->job != NULL ? ctl->job : "");
    inspect.name = (char *)(name != NULL ? name : "");
    inspect.cursor = cursor;
    request.body_case = F8__REQUEST__BODY_INSPECT;
    request.inspect = &inspect;
    status = channel_ask(ctl->channel, &request, ctl->timeout_ms, ret_reply);
    if (status == F8_EDEADLINE) {
        return error_set(status, "the daemon at %s did not answer within %d ms",
            channel_socket(ctl->channel), ctl->timeout_ms);
    }
    if (status == F8_OK && (*ret_reply)->body_case != F8__REPLY__BODY_INSPECT) {
        f8__reply__free_unpacked(*ret_reply, NULL);
        return error_set(F8_EPROTO, "the daemon answered an Inspect with something else");
    }
    return status;
}

/* Takes the reply, also on failure. */
static int append(struct fetched *fetched, F8__View view, F8__Reply *reply)
{
    void **rows;
    size_t count = rows_of(view, reply->inspect, &rows);
    F8__Reply **replies =
        realloc(fetched->replies, (fetched->num_replies + 1) * sizeof(*fetched->replies));
    const void **all;

    if (replies == NULL) {
        f8__reply__free_unpacked(reply, NULL);
        return error_set(F8_ENOMEM, "no memory for a list of the daemon");
    }
    fetched->replies = replies;
    fetched->replies[fetched->num_replies++] = reply;
    all = realloc(fetched->rows, (fetched->num_rows + count + 1) * sizeof(*fetched->rows));
    if (all == NULL) {
        return error_set(F8_ENOMEM, "no memory for a list of the daemon");
    }
    fetched->rows = all;
    for (size_t i = 0; i < count; i++) {
        fetched->rows[fetched->num_rows++] = rows[i];
    }
    return F8_OK;
}

int fetch(struct ctl *ctl, F8__View view, const char *name, struct fetched *ret_fetched)
{
    struct fetched fetched = {0};
    uint64_t cursor = 0;
    int status;

    do {
        F8__Reply *reply;
        uint64_t before = cursor;
        status = ask(ctl, view, name != NULL ? name : ctl->name, cursor, &reply);
        if (status == F8_OK) {
            cursor = reply->inspect->cursor;
            status = append(&fetched, view, reply);
        }
        if (status == F8_OK && cursor != 0 && cursor == before) {
            status = error_set(F8_EPROTO, "the daemon's list does not go on at cursor %llu",
                (unsigned long long)cursor);
        }
    } while (status == F8_OK && cursor != 0);
    if (status != F8_OK) {
        fetch_done(&fetched);
        return status;
    }
    *ret_fetched = fetched;
    return F8_OK;
}

void fetch_done(struct fetched *fetched)
{
    for (size_t i = 0; i < fetched->num_replies; i++) {
        f8__reply__free_unpacked(fetched->replies[i], NULL);
    }
    free(fetched->replies);
    free(fetched->rows);
    *fetched = (struct fetched){0};
}

int fetch_ping(struct ctl *ctl, uint64_t *ret_uptime_ms, double *ret_seconds)
{
    F8__Request request = F8__REQUEST__INIT;
    F8__Ping ping = F8__PING__INIT;
    F8__Reply *reply;
    struct timespec begin, end;
    int status;

    request.body_case = F8__REQUEST__BODY_PING;
    request.ping = &ping;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    status = channel_ask(ctl->channel, &request, ctl->timeout_ms, &reply);
    clock_gettime(CLOCK_MONOTONIC, &end);
    if (status != F8_OK) {
        return status;
    }
    if (reply->body_case == F8__REPLY__BODY_PING) {
        *ret_uptime_ms = reply->ping->uptime_ms;
        *ret_seconds =
            (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) * 1e-9;
    } else {
        status = error_set(F8_EPROTO, "the daemon answered a Ping with something else");
    }
    f8__reply__free_unpacked(reply, NULL);
    return status;
}
