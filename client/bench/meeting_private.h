/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between the files of a meeting: the two ways there, host 0's and that of all others, which
 * meeting_open.c takes; and its links, for meeting_fail.c.
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

/* Links count from here to the number of hosts, but one each on the others. */
uint32_t meeting_first_link(const struct meeting *meeting);
uint32_t meeting_end_link(const struct meeting *meeting);

/* All messages that a link has now. -1: the run has failed. */
int meeting_read_link(struct meeting *meeting, uint32_t index, struct failure *failure);

#endif
