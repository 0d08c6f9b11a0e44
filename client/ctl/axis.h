/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The vertical axis of a plot of amaxes or scales: from where to where, in powers of two where the
 * values span several, and which lines of it are named. Called by plot.c and svg.c; pure.
 */
#ifndef F8CTL_AXIS_H
#define F8CTL_AXIS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What an fp32 value is to a plot: drawn, or a mark of its own. In the order of their weight. */
enum axis_kind { AXIS_DRAWN, AXIS_ZERO, AXIS_INFINITE, AXIS_NAN };

struct axis {
    bool log2;
    double low, high; /* of the values, or of their logarithms; low < high */
};

#define AXIS_MAX_TICKS 8
#define AXIS_LABEL     16

/* A line with a name, at 0 (lowest) to 1. */
struct axis_tick {
    double at;
    char label[AXIS_LABEL]; /* "0.25", or of a logarithmic axis its exponent: "-2" */
};

/* Negative values are drawn as their magnitude, since neither amaxes nor scales should be. */
enum axis_kind axis_kind(uint32_t bits);

/* Fits the values that are drawn; false if there is none. */
bool axis_fit(struct axis *axis, const uint32_t *bits, size_t count);

/* Where a value that is drawn lies: 0 to 1. */
double axis_at(const struct axis *axis, uint32_t bits);

/* At most `most` of them, from the lowest up; their number. */
size_t axis_ticks(const struct axis *axis, size_t most, struct axis_tick ticks[AXIS_MAX_TICKS]);

#endif
