/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The median of some numbers, for the figures of reports. Any thread.
 */
#ifndef F8BENCH_MEDIAN_H
#define F8BENCH_MEDIAN_H

#include <stdint.h>
#include <stdlib.h>

static inline int median_compare(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;

    return a < b ? -1 : a > b;
}

/* Sorts them; there is at least one. */
static inline double median(double *values, uint32_t count)
{
    qsort(values, count, sizeof(*values), median_compare);
    return count % 2 == 1 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

#endif
