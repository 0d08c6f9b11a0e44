/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The figures of a run, computed from what its ranks left: sums, and per phase the median over
 * the steps of the slowest rank's time; for each job, and for all. Called by main after the run.
 */
#ifndef F8BENCH_SUMMARY_H
#define F8BENCH_SUMMARY_H

#include <stdbool.h>
#include <stdint.h>

#include "client/bench/layout.h"
#include "client/bench/run.h"
#include "client/bench/summary_hosts.h"

#define SUMMARY_MAX_PHASES 7

struct summary_phase {
    const char *name; /* a literal */
    double median_s;
    double gbps;         /* source bytes read + gathered bytes written; 0: it moves none */
    double memcpy_ratio; /* to plain memcpy, each step against its own; 0: it moves none */
};

/* What ranks found, of a job or of all. */
struct summary_counts {
    uint64_t checked_bytes;
    uint64_t mismatches;
    uint64_t gathers;  /* of buckets, by all ranks */
    uint64_t received; /* messages, during gathers */
    uint64_t syncs;    /* of each rank */
};

struct summary_times {
    double memcpy_gbps;
    double change_s; /* what the bench itself took to change the weights: not a phase */
    struct summary_phase phases[SUMMARY_MAX_PHASES];
    uint32_t num_phases;
};

struct summary_job {
    struct summary_counts counts;
    struct summary_times times;
    struct histogram gathers; /* of a bucket at a rank, from asking until its data are there */
};

/*
 * Of several jobs, bytes and counts are sums; each time and rate is that of the job where it is
 * worst, as rates of jobs that take turns do not add up.
 */
struct summary {
    bool ok;
    struct layout_bytes bytes; /* moved in each step, without padding */
    struct summary_counts counts;
    struct summary_times times;
    struct histogram gathers; /* of all jobs */
    const char *first;        /* borrowed: from the outcome: the first mismatch; NULL: none */
    double round_trips_per_bucket;
    struct summary_hosts hosts;
    struct summary_job *jobs; /* owned; NULL of a run that failed */
    uint32_t num_jobs;
};

/* What the slowest of some ranks took for some of the times of a step: bits 1 << TIME_... */
double summary_slowest(
    struct shared *shared, uint32_t first, uint32_t count, uint32_t step, unsigned times);

/* A failed run has sums, but no phases. To be ended with summary_done. */
void summary_make(const struct options *options, const struct model *model,
    const struct outcome *outcome, struct summary *ret_summary);
void summary_done(struct summary *summary);

#endif
