/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two ways to a meeting: host 0's and that of all others. Private to meeting_open.c, which
 * calls them.
 */
#ifndef F8BENCH_MEETING_PRIVATE_H
#define F8BENCH_MEETING_PRIVATE_H

#include "client/bench/meeting.h"

/* What a hello may have at most: settings are some hundred bytes, and a long list of addresses. */
#define MEETING_MAX_HELLO 8192

/* How long who connects may take to say hello, or host 0 to answer. */
#define MEETING_HELLO_S 10

/* On host 0: links to all others, once they are there. */
int meeting_await_others(
    struct meeting *meeting, const char *settings, int signal_fd, struct bench_error *error);

/* On the others: the link to host 0, once it has said that all are there; and the job's name. */
int meeting_join_others(
    struct meeting *meeting, const char *settings, int signal_fd, struct bench_error *error);

#endif
