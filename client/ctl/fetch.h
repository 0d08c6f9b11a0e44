/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fetches what the daemon shows, page by page. Called by the commands in views.c.
 */
#ifndef F8CTL_FETCH_H
#define F8CTL_FETCH_H

#include "client/ctl/ctl.h"

/* All rows of a view. The rows lie in the replies. */
struct fetched {
    const void **rows; /* owned: pointers to F8__...Info of the view */
    size_t num_rows;
    F8__Reply **replies; /* owned */
    size_t num_replies;
};

/*
 * Asks for a view with the filters of ctl, and `name` in place of ctl->name if it is not NULL.
 * F8_OK, or a status that error_text() explains.
 */
int fetch(struct ctl *ctl, F8__View view, const char *name, struct fetched *ret_fetched);
void fetch_done(struct fetched *fetched);

/* Sends a Ping; gives the daemon's uptime and how long the answer took. */
int fetch_ping(struct ctl *ctl, uint64_t *ret_uptime_ms, double *ret_seconds);

#endif
