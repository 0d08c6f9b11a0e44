/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulator's counters of other processes, for tests of whole processes: a folder of the test's
 * own, told to all that it starts from then on. Fails the test if a process has none.
 */
#ifndef F8_TESTS_CUDA_STATS_H
#define F8_TESTS_CUDA_STATS_H

#include <sys/types.h>

#include "tests/cudasim/cudasim.h"

/* Processes that are started from now on count. */
void stats_begin(void);

/* What a process has counted so far, even if it has ended. */
void stats_read(pid_t pid, struct cudasim_stats *ret_stats);

/* Removes all that was counted. */
void stats_end(void);

#endif
