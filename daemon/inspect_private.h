/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the inspection share: inspect.c (views and their pages), inspect_device.c
 * (devices, and groups on them), inspect_hosts.c (groups over several hosts) and inspect_stats.c
 * (counts).
 */
#ifndef F8_DAEMON_INSPECT_PRIVATE_H
#define F8_DAEMON_INSPECT_PRIVATE_H

#include "daemon/session_private.h"

/* A page being filled. */
struct page {
    struct session *session; /* borrowed */
    const F8__Inspect *ask;  /* borrowed */
    F8__InspectReply *reply; /* borrowed: the answer's */
    char *scratch;           /* borrowed: the answer's */
    size_t used, bytes;
    uint64_t row;             /* of all that match, which comes next */
    struct state_job *stored; /* owned, of the JOBS view: jobs that have states */
    size_t num_stored;
    bool full;
};

/* Scratch memory for a row's parts, until the answer is sent; NULL: the page is full. */
void *inspect_grab(struct page *page, size_t size);

/*
 * What devices there are, or why there are none. A status is one page: devices are few, and all
 * fit it.
 */
void inspect_devices(struct page *page, F8__StatusInfo *info);

/*
 * Puts a row into a list of the reply, unless the page is full. Whether the next matching row
 * belongs on this page: not if it was on an earlier one. Loop time, ms.
 */
void inspect_put_row(struct page *page, void *message, void ***list, size_t *count);
bool inspect_wants_row(struct page *page);
uint64_t inspect_now(const struct page *page);

/*
 * The hosts that a group spans, where others reach this one, and what moves a group's bytes
 * between them: inspect_hosts.c.
 */
void inspect_hosts(struct page *page, const struct group *group);
void inspect_guests(struct page *page); /* hosts of groups that have not met */
void inspect_place(struct page *page, F8__StatusInfo *info);
void inspect_kept_engines(struct page *page, F8__StatusInfo *info);
void inspect_group_hosts(struct page *page, const struct group *group, F8__GroupInfo *info);
/* By rank, as GroupInfo's rank_hosts; NULL: the group is on one host, or the page is full. */
char **inspect_rank_hosts(struct page *page, const struct group *group);

/*
 * The states' snapshots; and, of the JOBS view, what is stored: begun before its rows, added to
 * each row of a job, and then rows of jobs that have nothing else. F8_ENOMEM. inspect_saved.c.
 */
void inspect_saved(struct page *page, F8__StatusInfo *info);
int inspect_stored_begin(struct page *page);
void inspect_stored_of(struct page *page, F8__JobInfo *info);
void inspect_stored_alone(struct page *page);

/* What the daemon has counted, and a job: inspect_stats.c. */
void inspect_stats(struct page *page);
void inspect_job_stats(struct page *page, const struct job *job);

/* On which devices the group is, and how these exchange bytes. False: the page is full. */
bool inspect_group_devices(struct page *page, const struct group *group, F8__GroupInfo *info);

#endif
