/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the daemon says about a run while its ranks hold their group: asked as f8ctl asks, over a
 * connection of the parent's own.
 */
#ifndef F8BENCH_PROBE_H
#define F8BENCH_PROBE_H

#include <stdbool.h>
#include <stdint.h>

struct probe {
    bool known; /* false: the daemon lets only others look */
    char daemon_version[64];
    uint64_t arena_bytes;                    /* of the jobs' groups, here and below */
    uint64_t engine_sent, engine_received;   /* bytes of groups over hosts, since they have met: */
    uint64_t control_sent, control_received; /* by the engine and by control connections */
};

/* Adds what the daemon has for a job. */
void probe_daemon(const char *socket, const char *job, struct probe *probe);

#endif
