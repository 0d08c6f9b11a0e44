/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the times and findings of the ranks to the figures of the report. Pure; called by main.
 */
#include "summary.h"

#include <math.h>
#include <stdlib.h>

#include "client/bench/median.h"

/* The bytes that a phase moves. */
enum bytes {
    BYTES_NONE,
    BYTES_DYNAMIC, /* the sources of the dynamic weights, read */
    BYTES_GATHER,  /* all sources read, all gathered bytes written */
};

#define BIT(time) (1u << (time))
#define GATHER    (BIT(TIME_SEND) | BIT(TIME_POST_GATHER))

/* "gather" is the collective: what its two halves take, of which the first does not wait. */
static const struct {
    const char *name;
    unsigned times; /* that it is the sum of */
    enum bytes bytes;
} phases[] = {
    {"precompute", BIT(TIME_PRECOMPUTE), BYTES_DYNAMIC},
    {"gather", GATHER, BYTES_GATHER},
    {"send", BIT(TIME_SEND), BYTES_NONE},
    {"post_gather", BIT(TIME_POST_GATHER), BYTES_GATHER},
    {"release", BIT(TIME_RELEASE), BYTES_NONE},
    {"sync", BIT(TIME_SYNC), BYTES_NONE},
    {"total", BIT(TIME_PRECOMPUTE) | GATHER | BIT(TIME_RELEASE) | BIT(TIME_SYNC), BYTES_GATHER},
};

/* The ranks of one job. */
struct team {
    struct shared *shared; /* borrowed: from the outcome */
    uint32_t first;
    uint32_t count;
    uint32_t steps;
    double *values; /* owned by summary_make: room for one a step */
};

double summary_slowest(
    struct shared *shared, uint32_t first, uint32_t count, uint32_t step, unsigned times)
{
    double most = 0;

    for (uint32_t rank = first; rank < first + count; rank++) {
        double sum = 0;
        for (int time = 0; time < NUM_TIMES; time++) {
            sum += times & BIT(time) ? *shared_time_of(shared, step, rank, time) : 0;
        }
        most = sum > most ? sum : most;
    }
    return most;
}

static double slowest(const struct team *team, uint32_t step, unsigned times)
{
    return summary_slowest(team->shared, team->first, team->count, step, times);
}

static double median_of(const struct team *team, unsigned times)
{
    for (uint32_t step = 0; step < team->steps; step++) {
        team->values[step] = slowest(team, step, times);
    }
    return median(team->values, team->steps);
}

/* Bytes that the ranks' plain copies read and write in a step. */
static double copied_bytes(const struct team *team)
{
    double bytes = 0;

    for (uint32_t rank = team->first; rank < team->first + team->count; rank++) {
        bytes += 2 * (double)team->shared->ranks[rank].copied;
    }
    return bytes;
}

/* From the first rank's begin of its plain copy to the last one's end. */
static double copy_seconds(const struct team *team, uint32_t step)
{
    double begin = *shared_time_of(team->shared, step, team->first, TIME_MEMCPY_BEGIN);
    double end = *shared_time_of(team->shared, step, team->first, TIME_MEMCPY_END);

    for (uint32_t rank = team->first + 1; rank < team->first + team->count; rank++) {
        begin = fmin(begin, *shared_time_of(team->shared, step, rank, TIME_MEMCPY_BEGIN));
        end = fmax(end, *shared_time_of(team->shared, step, rank, TIME_MEMCPY_END));
    }
    return end - begin;
}

/* Bytes a second; 0 where nothing was moved, or the clock did not see it. */
static double rate(double bytes, double seconds)
{
    return seconds > 0 ? bytes / seconds : 0;
}

/* The median over the steps of: the phase's rate, by the rate of the plain copy in that step. */
static double ratio(const struct team *team, unsigned times, double bytes)
{
    double copied = copied_bytes(team);

    for (uint32_t step = 0; step < team->steps; step++) {
        double plain = rate(copied, copy_seconds(team, step));
        team->values[step] = rate(rate(bytes, slowest(team, step, times)), plain);
    }
    return median(team->values, team->steps);
}

static double median_copy_rate(const struct team *team)
{
    for (uint32_t step = 0; step < team->steps; step++) {
        team->values[step] = rate(copied_bytes(team), copy_seconds(team, step));
    }
    return median(team->values, team->steps);
}

static bool has_phase(const struct options *options, unsigned times)
{
    if (times == BIT(TIME_PRECOMPUTE)) {
        return options->precompute;
    }
    return times != BIT(TIME_SYNC) || options->flavour == F8_DELAYED;
}

static void make_times(const struct options *options, const struct layout_bytes *bytes,
    const struct team *team, struct summary_times *times)
{
    double moved[] = {[BYTES_NONE] = 0,
        [BYTES_DYNAMIC] = (double)bytes->dynamic,
        [BYTES_GATHER] = (double)(bytes->source + bytes->gathered)};

    times->memcpy_gbps = median_copy_rate(team) * 1e-9;
    times->change_s = median_of(team, BIT(TIME_CHANGE));
    for (uint32_t i = 0; i < SUMMARY_MAX_PHASES; i++) {
        struct summary_phase *phase = &times->phases[times->num_phases];
        double amount = moved[phases[i].bytes];
        if (!has_phase(options, phases[i].times)) {
            continue;
        }
        phase->name = phases[i].name;
        phase->median_s = median_of(team, phases[i].times);
        if (amount > 0) {
            phase->gbps = rate(amount, phase->median_s) * 1e-9;
            phase->memcpy_ratio = ratio(team, phases[i].times, amount);
        }
        times->num_phases++;
    }
}

/* Keeps the worst of one job's times and those so far. */
static void add_times(const struct summary_times *job, bool first, struct summary_times *all)
{
    if (first) {
        *all = *job;
        return;
    }
    all->memcpy_gbps = fmin(all->memcpy_gbps, job->memcpy_gbps);
    all->change_s = fmax(all->change_s, job->change_s);
    for (uint32_t i = 0; i < all->num_phases; i++) {
        struct summary_phase *phase = &all->phases[i];
        phase->median_s = fmax(phase->median_s, job->phases[i].median_s);
        phase->gbps = fmin(phase->gbps, job->phases[i].gbps);
        phase->memcpy_ratio = fmin(phase->memcpy_ratio, job->phases[i].memcpy_ratio);
    }
}

static void add_rank(const struct shared_rank *rank, struct summary_counts *counts)
{
    counts->checked_bytes += rank->check.bytes;
    counts->mismatches += rank->check.mismatches;
    counts->received += rank->received;
    counts->gathers += rank->gathers;
    counts->syncs = rank->syncs;
}

/* Sums over all ranks. */
static void add_ranks(const struct shared *shared, struct summary *summary)
{
    struct summary_counts *counts = &summary->counts;

    for (uint32_t i = 0; i < shared->num_ranks; i++) {
        const struct shared_rank *rank = &shared->ranks[i];
        add_rank(rank, counts);
        if (summary->first == NULL && rank->check.mismatches > 0) {
            summary->first = rank->check.first;
        }
    }
    summary->round_trips_per_bucket =
        counts->gathers > 0 ? (double)counts->received / (double)counts->gathers : 0;
}

static void make_job(const struct options *options, const struct layout_bytes *bytes,
    const struct team *team, struct summary_job *job)
{
    for (uint32_t rank = team->first; rank < team->first + team->count; rank++) {
        add_rank(&team->shared->ranks[rank], &job->counts);
        histogram_merge(&job->gathers, &team->shared->ranks[rank].gather_times);
    }
    make_times(options, bytes, team, &job->times);
}

/* -1 if memory is out. */
static int make_jobs(const struct options *options, const struct layout_bytes *bytes,
    struct team team, struct summary *summary)
{
    summary->jobs = calloc(options->jobs, sizeof(*summary->jobs));
    team.values = calloc(options->steps, sizeof(*team.values));
    if (summary->jobs == NULL || team.values == NULL) {
        free(team.values);
        return -1;
    }
    summary->num_jobs = options->jobs;
    for (uint32_t i = 0; i < options->jobs; i++) {
        team.first = i * options->ranks;
        make_job(options, bytes, &team, &summary->jobs[i]);
        histogram_merge(&summary->gathers, &summary->jobs[i].gathers);
        add_times(&summary->jobs[i].times, i == 0, &summary->times);
    }
    free(team.values);
    return 0;
}

void summary_make(const struct options *options, const struct model *model,
    const struct outcome *outcome, struct summary *ret_summary)
{
    struct layout_bytes bytes = layout_bytes(options, model);
    struct team team = {
        .shared = outcome->shared, .count = options->ranks, .steps = options->steps};
    struct summary summary = {.bytes = {.source = options->jobs * bytes.source,
                                  .dynamic = options->jobs * bytes.dynamic,
                                  .gathered = options->jobs * bytes.gathered,
                                  .float8 = options->jobs * bytes.float8}};
    bool failed = outcome->failed;
    bool partial = options->host > 0; /* host 0 has the figures of all machines */

    if (outcome->shared != NULL) {
        add_ranks(outcome->shared, &summary);
    }
    if (!failed && !partial) {
        failed = make_jobs(options, &bytes, team, &summary) != 0;
    }
    if (!failed && !partial && options->hosts > 0) {
        failed = summary_hosts_make(options, model, outcome->shared, &summary.hosts) != 0;
    }
    summary.ok = !failed && !outcome->mismatch_anywhere && summary.counts.mismatches == 0 &&
                 summary.counts.checked_bytes > 0 && options->plant == PLANT_NONE;
    *ret_summary = summary;
}

void summary_done(struct summary *summary)
{
    free(summary->jobs);
}
