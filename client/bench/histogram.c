/* SPDX-License-Identifier: Apache-2.0 */
/* Durations by the logarithm: see histogram.h. Filled by ranks, read by the parent. */
#include "histogram.h"

#include <math.h>

#define SHORTEST 1e-6

void histogram_add(struct histogram *histogram, double seconds)
{
    int step = seconds > SHORTEST ? (int)(log2(seconds / SHORTEST) * HISTOGRAM_OCTAVE) : 0;

    histogram->steps[step < HISTOGRAM_STEPS ? step : HISTOGRAM_STEPS - 1]++;
    histogram->count++;
}

void histogram_merge(struct histogram *into, const struct histogram *from)
{
    for (uint32_t i = 0; i < HISTOGRAM_STEPS; i++) {
        into->steps[i] += from->steps[i];
    }
    into->count += from->count;
}

double histogram_percentile(const struct histogram *histogram, double fraction)
{
    uint64_t wanted = (uint64_t)ceil(fraction * (double)histogram->count);
    uint64_t seen = 0;

    for (uint32_t i = 0; i < HISTOGRAM_STEPS; i++) {
        seen += histogram->steps[i];
        if (seen > 0 && seen >= wanted) {
            return SHORTEST * exp2((i + 0.5) / HISTOGRAM_OCTAVE);
        }
    }
    return 0;
}
