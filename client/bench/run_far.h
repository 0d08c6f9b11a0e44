/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a run does because other machines take part in it: it meets them before it begins, watches
 * for what they say meanwhile, and reports to host 0. All do nothing in a run of one machine.
 * Private to run.c and run_watch.c.
 */
#ifndef F8BENCH_RUN_FAR_H
#define F8BENCH_RUN_FAR_H

#include "client/bench/run_private.h"

/* Waits for the f8benches of the other machines; then the job has its name. */
int run_far_open(struct runner *runner);

/* In the parent after each poll. */
int run_far_handle(struct runner *runner);

/* What is to be polled of other machines while it is found out what failed here; their number. */
nfds_t run_far_list_links(const struct runner *runner, struct pollfd *fds);

/*
 * Then: what other machines say of it, the nearest to the cause, is kept as the runner's failure.
 * True: there is no need to look on, as a process or host has ended there, or host 0 has said its
 * last word.
 */
bool run_far_knows(struct runner *runner);

/* The ranks of this machine are through, and its daemon was probed. */
int run_far_report(struct runner *runner);

/* Whether ranks may leave their groups: all of all machines are through. */
bool run_far_may_leave(const struct runner *runner);

/* After the run: tells the others of a failure, or hears of one that is nearer to the cause. */
void run_far_close(struct runner *runner);

#endif
