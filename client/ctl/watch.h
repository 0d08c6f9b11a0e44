/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks the daemon for events, by long polling, and hands each to whoever prints it. Called by the
 * commands watch and monitor.
 */
#ifndef F8CTL_WATCH_H
#define F8CTL_WATCH_H

#include "client/ctl/ctl.h"

/* What prints: an event; how many were lost; that the daemon is another one than that of --since.
 */
struct watch_printer {
    void (*event)(const struct ctl *ctl, const F8__Event *event);
    void (*lost)(const struct ctl *ctl, uint64_t lost);
    void (*restarted)(const struct ctl *ctl);
};

/*
 * Prints events until --count of them were there (CTL_OK), the daemon goes (CTL_NO_DAEMON), or a
 * signal ends f8ctl.
 */
int watch_run(struct ctl *ctl, const struct watch_printer *printer);

/* A line for people, and an object a line. */
extern const struct watch_printer watch_lines, watch_objects;

#endif
