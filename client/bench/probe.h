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
    uint64_t arena_bytes; /* of the job's groups */
};

void probe_daemon(const char *socket, const char *job, struct probe *ret_probe);

#endif
