/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A report holds a probe, the findings of each rank, and step by step what passed the interface
 * and the times of each rank, all as they lie in memory: both programs have said before that they
 * are of one build. Called by run_far.c.
 */
#include "harvest.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/bench/layout.h"

static uint32_t ranks_of(const struct options *options, uint32_t host)
{
    return layout_first_rank(options, host + 1) - layout_first_rank(options, host);
}

static uint64_t step_size(const struct options *options, uint32_t host)
{
    return sizeof(struct network_traffic) +
           (uint64_t)ranks_of(options, host) * NUM_TIMES * sizeof(double);
}

uint64_t harvest_size(const struct options *options, uint32_t host)
{
    return sizeof(struct probe) + ranks_of(options, host) * sizeof(struct shared_rank) +
           options->steps * step_size(options, host);
}

uint8_t *harvest_pack(
    const struct options *options, struct shared *shared, const struct probe *probe)
{
    uint32_t host = options->host;
    uint32_t first = layout_first_rank(options, host);
    uint32_t ranks = ranks_of(options, host);
    uint8_t *report = malloc(harvest_size(options, host));
    uint8_t *at = report;

    if (report == NULL) {
        return NULL;
    }
    at = mempcpy(at, probe, sizeof(*probe));
    at = mempcpy(at, &shared->ranks[first], ranks * sizeof(struct shared_rank));
    for (uint32_t step = 0; step < options->steps; step++) {
        at = mempcpy(at, shared_traffic_of(shared, step, host), sizeof(struct network_traffic));
        at =
            mempcpy(at, shared_time_of(shared, step, first, 0), ranks * NUM_TIMES * sizeof(double));
    }
    return report;
}

/* The first begin of some ranks; infinite if none has one. */
static double first_begin(
    struct shared *shared, uint32_t step, uint32_t first, uint32_t end, enum shared_time begin)
{
    double least = INFINITY;

    for (uint32_t rank = first; rank < end; rank++) {
        double at = *shared_time_of(shared, step, rank, begin);
        least = at > 0 && at < least ? at : least;
    }
    return least;
}

/*
 * Machines' clocks count from when they were started. A yardstick begins on all hosts when they
 * have met, so where host 0's ranks began it is taken to have begun.
 */
static void set_clock(const struct options *options, struct shared *shared, uint32_t step,
    uint32_t host, enum shared_time begin)
{
    uint32_t first = layout_first_rank(options, host);
    uint32_t end = layout_first_rank(options, host + 1);
    double ours = first_begin(shared, step, 0, layout_first_rank(options, 1), begin);
    double theirs = first_begin(shared, step, first, end, begin);

    for (uint32_t rank = first; isfinite(ours) && isfinite(theirs) && rank < end; rank++) {
        double *from = shared_time_of(shared, step, rank, begin);
        double *to = shared_time_of(shared, step, rank, begin + 1);
        if (*from > 0) {
            *from += ours - theirs;
            *to += ours - theirs;
        }
    }
}

/* Texts of another machine end where ours would. */
static void end_texts(struct shared_rank *rank)
{
    rank->error.text[sizeof(rank->error.text) - 1] = '\0';
    rank->check.first[sizeof(rank->check.first) - 1] = '\0';
    rank->device[sizeof(rank->device) - 1] = '\0';
}

void harvest_unpack(const struct options *options, uint32_t host, const uint8_t *report,
    struct shared *shared, struct probe *ret_probe)
{
    uint32_t first = layout_first_rank(options, host);
    uint32_t ranks = ranks_of(options, host);
    uint64_t times = ranks * NUM_TIMES * sizeof(double);

    memcpy(ret_probe, report, sizeof(*ret_probe));
    ret_probe->daemon_version[sizeof(ret_probe->daemon_version) - 1] = '\0';
    report += sizeof(*ret_probe);
    memcpy(&shared->ranks[first], report, ranks * sizeof(struct shared_rank));
    report += ranks * sizeof(struct shared_rank);
    for (uint32_t rank = first; rank < first + ranks; rank++) {
        end_texts(&shared->ranks[rank]);
    }
    for (uint32_t step = 0; step < options->steps; step++) {
        memcpy(shared_traffic_of(shared, step, host), report, sizeof(struct network_traffic));
        memcpy(
            shared_time_of(shared, step, first, 0), report + sizeof(struct network_traffic), times);
        report += sizeof(struct network_traffic) + times;
    }
}

void harvest_set_clocks(const struct options *options, struct shared *shared)
{
    static const enum shared_time begins[] = {TIME_MEMCPY_BEGIN, TIME_RAW_BEGIN, TIME_TORCH_BEGIN};

    for (uint32_t host = 1; host < options->hosts; host++) {
        for (uint32_t step = 0; step < options->steps; step++) {
            for (size_t i = 0; i < sizeof(begins) / sizeof(begins[0]); i++) {
                set_clock(options, shared, step, host, begins[i]);
            }
        }
    }
}
