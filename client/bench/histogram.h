/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Durations in bounded memory, however many there are: counted in steps of 2 %, so that percentiles
 * are right to a hundredth. Plain memory that processes may share; one writer at a time.
 */
#ifndef F8BENCH_HISTOGRAM_H
#define F8BENCH_HISTOGRAM_H

#include <stdint.h>

/* 32 steps an octave: from a microsecond, or less, to an hour, or more. */
#define HISTOGRAM_OCTAVE 32
#define HISTOGRAM_STEPS  1024

/* Zero-initialise. */
struct histogram {
    uint64_t count;
    uint32_t steps[HISTOGRAM_STEPS];
};

void histogram_add(struct histogram *histogram, double seconds);
void histogram_merge(struct histogram *into, const struct histogram *from);

/* The duration that this fraction (0.99) of all does not exceed; 0 if there is none. */
double histogram_percentile(const struct histogram *histogram, double fraction);

#endif
