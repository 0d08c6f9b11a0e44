/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run as a whole: the parent process, which starts the daemon and the ranks, watches them, and
 * ends and removes everything whatever happens. Called by main, once.
 */
#ifndef F8BENCH_RUN_H
#define F8BENCH_RUN_H

#include <stdbool.h>

#include "client/bench/model.h"
#include "client/bench/options.h"
#include "client/bench/probe.h"
#include "client/bench/shared.h"
#include "client/bench/source.h"

/* What a run leaves to be reported. */
struct outcome {
    struct shared *shared;                  /* owned; NULL if it failed early */
    struct probe probes[NETWORK_MAX_HOSTS]; /* by host; the first if there are none */
    char *ctl;                              /* owned: what f8ctl printed; NULL: it was not asked */
    bool mismatch_anywhere;                 /* on another machine, too */
    bool failed;                            /* error says why */
    bool interrupted;                       /* by SIGINT or SIGTERM: failed too */
    struct bench_error error;
};

/* Runs it all. The outcome is to be ended with run_outcome_done. */
void run_bench(
    const struct options *options, const struct model *model, struct outcome *ret_outcome);
void run_outcome_done(struct outcome *outcome);

#endif
