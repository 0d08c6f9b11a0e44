/* SPDX-License-Identifier: Apache-2.0 */
/* Vertical axes: see axis.h. */
#include "client/ctl/axis.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* From this ratio of the largest to the smallest on, equal steps would hide the small ones. */
#define LOG_RATIO 8

static double magnitude(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return fabs((double)value);
}

enum axis_kind axis_kind(uint32_t bits)
{
    double value = magnitude(bits);

    if (isnan(value)) {
        return AXIS_NAN;
    }
    if (isinf(value)) {
        return AXIS_INFINITE;
    }
    return value > 0 ? AXIS_DRAWN : AXIS_ZERO;
}

bool axis_fit(struct axis *axis, const uint32_t *bits, size_t count)
{
    double low = INFINITY, high = 0;

    for (size_t i = 0; i < count; i++) {
        if (axis_kind(bits[i]) == AXIS_DRAWN) {
            low = fmin(low, magnitude(bits[i]));
            high = fmax(high, magnitude(bits[i]));
        }
    }
    if (high <= 0) {
        return false;
    }
    axis->log2 = high / low >= LOG_RATIO;
    axis->low = axis->log2 ? floor(log2(low)) : low;
    axis->high = axis->log2 ? ceil(log2(high)) : high;
    if (axis->high - axis->low < axis->high * 1e-6) { /* one value: in the middle */
        axis->low = low * 0.5;
        axis->high = high * 1.5;
    }
    return true;
}

double axis_at(const struct axis *axis, uint32_t bits)
{
    double value = magnitude(bits);

    value = axis->log2 ? log2(value) : value;
    return fmin(1, fmax(0, (value - axis->low) / (axis->high - axis->low)));
}

/* The least of 1, 2, 5, 10, ... times a power of ten that needs no more than `most` lines. */
static double step_of(double span, size_t most)
{
    double step = pow(10, floor(log10(span / (double)most)));
    static const double factors[] = {1, 2, 5, 10, 20};

    for (size_t i = 0; i < sizeof(factors) / sizeof(factors[0]); i++) {
        if (span / (step * factors[i]) < (double)most) {
            return step * factors[i];
        }
    }
    return step * 50;
}

size_t axis_ticks(const struct axis *axis, size_t most, struct axis_tick ticks[AXIS_MAX_TICKS])
{
    size_t count = 0;
    double span = axis->high - axis->low;
    double step = step_of(span, most);
    double first;

    if (axis->log2) { /* exponents are whole */
        step = ceil(fmax(1, step));
    }
    first = ceil(axis->low / step - 1e-9);
    for (; count < most && count < AXIS_MAX_TICKS; count++) {
        double value = (first + (double)count) * step;
        if (value > axis->high + span * 1e-9) {
            break;
        }
        ticks[count].at = (value - axis->low) / span;
        snprintf(ticks[count].label, sizeof(ticks[count].label), "%.6g", value);
    }
    return count;
}
