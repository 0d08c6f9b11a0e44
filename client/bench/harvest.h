/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The report of one machine's ranks, on its way to host 0: what they have left in the shared
 * memory there, and what their daemon says. Called by the parents, when the ranks are through.
 */
#ifndef F8BENCH_HARVEST_H
#define F8BENCH_HARVEST_H

#include <stdint.h>

#include "client/bench/options.h"
#include "client/bench/probe.h"
#include "client/bench/shared.h"

/* The bytes of a host's report. */
uint64_t harvest_size(const struct options *options, uint32_t host);

/* This host's report: harvest_size bytes, which the caller frees; NULL: memory is out. */
uint8_t *harvest_pack(
    const struct options *options, struct shared *shared, const struct probe *probe);

/* A host's report, of the right size, into host 0's own memory. */
void harvest_unpack(const struct options *options, uint32_t host, const uint8_t *report,
    struct shared *shared, struct probe *ret_probe);

/* All reports being there: what was taken on the others' clocks is moved to host 0's. */
void harvest_set_clocks(const struct options *options, struct shared *shared);

#endif
