/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The figures of a run, computed from what its ranks left: sums, and per phase the median over
 * the steps of the slowest rank's time. Called by main after the run.
 */
#ifndef F8BENCH_SUMMARY_H
#define F8BENCH_SUMMARY_H

#include <stdbool.h>
#include <stdint.h>

#include "client/bench/run.h"

#define SUMMARY_MAX_PHASES 6

struct summary_phase {
    const char *name; /* a literal */
    double median_s;
    double gbps;         /* source bytes read + gathered bytes written; 0: it moves none */
    double memcpy_ratio; /* to plain memcpy, each step against its own; 0: it moves none */
};

struct summary {
    bool ok;
    uint64_t fp8_bytes;    /* gathered as float8, each step, without padding */
    uint64_t source_bytes; /* of the full weights */
    uint64_t wire_bytes;   /* gathered, each step, without padding */
    uint64_t checked_bytes;
    uint64_t mismatches;
    const char *first; /* borrowed: from the outcome: the first mismatch; NULL: none */
    double round_trips_per_bucket;
    double memcpy_gbps;
    double change_s; /* what the bench itself took to change the weights: not a phase */
    struct summary_phase phases[SUMMARY_MAX_PHASES];
    uint32_t num_phases;
};

/* A failed run has sums, but no phases. */
void summary_make(const struct options *options, const struct model *model,
    const struct outcome *outcome, struct summary *ret_summary);

#endif
