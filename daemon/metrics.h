/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the daemon counts, as OpenMetrics text, made on demand: of the daemon, of the groups that
 * have a name there, and, if asked for, of their weights. Called by session on the loop, for f8ctl
 * and for HTTP.
 */
#ifndef F8_DAEMON_METRICS_H
#define F8_DAEMON_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/collective.h"
#include "daemon/registry.h"
#include "daemon/state_saver.h"

/* Weights whose own metrics are shown at most: the text is made between two events of the loop. */
#define METRICS_MAX_WEIGHTS 2048

/* Where all of it comes from. */
struct metrics_source {
    const struct registry *registry;             /* borrowed */
    const struct collective_context *collective; /* borrowed */
    const struct state_saver *saver;             /* borrowed; NULL: there is none */
    uint64_t uptime_ms;
    uint32_t connections;
};

/* A text that grows. */
struct metrics_text {
    char *bytes; /* owned */
    size_t size, capacity;
    bool failed; /* memory was short, and what came after is not there */
};

/* Makes the text: ended with free(ret_text->bytes). F8_ENOMEM. */
int metrics_make(const struct metrics_source *source, bool weights, struct metrics_text *ret_text);

#endif
