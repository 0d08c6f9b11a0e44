/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the f8bench of each machine of one run must be told alike, as text that they compare before
 * they begin. Pure; called by the parent.
 */
#ifndef F8BENCH_SETTINGS_H
#define F8BENCH_SETTINGS_H

#include "client/bench/error.h"
#include "client/bench/model.h"
#include "client/bench/options.h"

/* A line for each: its name, a space, its value. The caller frees it. NULL: memory is out. */
char *settings_text(const struct options *options, const struct model *model);

/* 0 if they are alike; -1 with the first that is not: "--ranks is 4, not 2 as on host 0". */
int settings_compare(const char *theirs, const char *of_host_0, struct bench_error *error);

#endif
