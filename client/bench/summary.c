/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the times and findings of the ranks to the figures of the report. Pure; called by main.
 */
#include "summary.h"

#include <math.h>
#include <stdlib.h>

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
    {"total", BIT(TIME_PRECOMPUTE) | GATHER | BIT(TIME_RELEASE), BYTES_GATHER},
};

static int compare(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;

    return a < b ? -1 : a > b;
}

/* Sorts them. */
static double median(double *values, uint32_t count)
{
    qsort(values, count, sizeof(*values), compare);
    return count % 2 == 1 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

/* What the slowest rank took for some of the times of a step. */
static double slowest(struct shared *shared, uint32_t step, unsigned times)
{
    double most = 0;

    for (uint32_t rank = 0; rank < shared->num_ranks; rank++) {
        double sum = 0;
        for (int time = 0; time < NUM_TIMES; time++) {
            sum += times & BIT(time) ? *shared_time_of(shared, step, rank, time) : 0;
        }
        most = sum > most ? sum : most;
    }
    return most;
}

static double median_of(struct shared *shared, uint32_t steps, unsigned times, double *values)
{
    for (uint32_t step = 0; step < steps; step++) {
        values[step] = slowest(shared, step, times);
    }
    return median(values, steps);
}

/* Bytes that all ranks' plain copies read and write in a step. */
static double copied_bytes(const struct shared *shared)
{
    double bytes = 0;

    for (uint32_t rank = 0; rank < shared->num_ranks; rank++) {
        bytes += 2 * (double)shared->ranks[rank].copied;
    }
    return bytes;
}

/* From the first rank's begin of its plain copy to the last one's end. */
static double copy_seconds(struct shared *shared, uint32_t step)
{
    double begin = *shared_time_of(shared, step, 0, TIME_MEMCPY_BEGIN);
    double end = *shared_time_of(shared, step, 0, TIME_MEMCPY_END);

    for (uint32_t rank = 1; rank < shared->num_ranks; rank++) {
        begin = fmin(begin, *shared_time_of(shared, step, rank, TIME_MEMCPY_BEGIN));
        end = fmax(end, *shared_time_of(shared, step, rank, TIME_MEMCPY_END));
    }
    return end - begin;
}

/* Bytes a second; 0 where nothing was moved, or the clock did not see it. */
static double rate(double bytes, double seconds)
{
    return seconds > 0 ? bytes / seconds : 0;
}

static uint64_t dynamic_bytes(const struct model *model)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < model->num_weights; i++) {
        const struct model_weight *weight = &model->weights[i];
        if (weight->flavour == F8_DYNAMIC) {
            bytes += model_elements(weight) * model_source_size(weight);
        }
    }
    return bytes;
}

/* The median over the steps of: the phase's rate, by the rate of the plain copy in that step. */
static double ratio(
    struct shared *shared, uint32_t steps, unsigned times, double bytes, double *values)
{
    double copied = copied_bytes(shared);

    for (uint32_t step = 0; step < steps; step++) {
        double plain = rate(copied, copy_seconds(shared, step));
        values[step] = rate(rate(bytes, slowest(shared, step, times)), plain);
    }
    return median(values, steps);
}

static double median_copy_rate(struct shared *shared, uint32_t steps, double *values)
{
    for (uint32_t step = 0; step < steps; step++) {
        values[step] = rate(copied_bytes(shared), copy_seconds(shared, step));
    }
    return median(values, steps);
}

static void make_phases(const struct options *options, const struct model *model,
    struct shared *shared, double *values, struct summary *summary)
{
    uint32_t steps = options->steps;
    double moved[] = {[BYTES_NONE] = 0,
        [BYTES_DYNAMIC] = (double)dynamic_bytes(model),
        [BYTES_GATHER] = (double)(summary->source_bytes + summary->wire_bytes)};

    summary->memcpy_gbps = median_copy_rate(shared, steps, values) * 1e-9;
    summary->change_s = median_of(shared, steps, BIT(TIME_CHANGE), values);
    for (uint32_t i = 0; i < SUMMARY_MAX_PHASES; i++) {
        struct summary_phase *phase = &summary->phases[summary->num_phases];
        double bytes = moved[phases[i].bytes];
        if (phases[i].times == BIT(TIME_PRECOMPUTE) && !options->precompute) {
            continue;
        }
        phase->name = phases[i].name;
        phase->median_s = median_of(shared, steps, phases[i].times, values);
        if (bytes > 0) {
            phase->gbps = rate(bytes, phase->median_s) * 1e-9;
            phase->memcpy_ratio = ratio(shared, steps, phases[i].times, bytes, values);
        }
        summary->num_phases++;
    }
}

/* Sums over the model. */
static void add_weights(const struct model *model, struct summary *summary)
{
    for (uint32_t i = 0; i < model->num_weights; i++) {
        const struct model_weight *weight = &model->weights[i];
        uint64_t gathered = model_elements(weight) * model_wire_size(weight);
        bool raw = weight->flavour == F8_RAW || weight->flavour == F8_RAW_BF16;
        summary->source_bytes += model_elements(weight) * model_source_size(weight);
        summary->wire_bytes += gathered;
        summary->fp8_bytes += raw ? 0 : gathered;
    }
}

/* Sums over the ranks. */
static void add_ranks(const struct shared *shared, struct summary *summary)
{
    uint64_t received = 0;
    uint64_t gathers = 0;

    for (uint32_t i = 0; i < shared->num_ranks; i++) {
        const struct shared_rank *rank = &shared->ranks[i];
        summary->checked_bytes += rank->check.bytes;
        summary->mismatches += rank->check.mismatches;
        if (summary->first == NULL && rank->check.mismatches > 0) {
            summary->first = rank->check.first;
        }
        received += rank->received;
        gathers += rank->gathers;
    }
    summary->round_trips_per_bucket = gathers > 0 ? (double)received / (double)gathers : 0;
}

void summary_make(const struct options *options, const struct model *model,
    const struct outcome *outcome, struct summary *ret_summary)
{
    struct summary summary = {.ok = false};
    double *values = calloc(options->steps, sizeof(*values));

    add_weights(model, &summary);
    if (outcome->shared != NULL) {
        add_ranks(outcome->shared, &summary);
    }
    if (!outcome->failed && values != NULL) {
        make_phases(options, model, outcome->shared, values, &summary);
    }
    free(values);
    summary.ok = !outcome->failed && summary.mismatches == 0 && summary.checked_bytes > 0 &&
                 options->plant == PLANT_NONE;
    *ret_summary = summary;
}
