/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which weights a report shows first: those that casts clamped most, those gathered with old
 * scales, and of the delayed ones those whose history is worth a look. Pure; called by report.c.
 */
#include <stdlib.h>

#include "client/ctl/report.h"
#include "client/error.h"
#include "proto/protocol.h"

double report_saturated_share(const F8__WeightInfo *weight)
{
    double elements = (double)weight->gathers;

    for (size_t d = 0; d < weight->n_shape; d++) {
        elements *= (double)weight->shape[d];
    }
    return elements > 0 ? (double)weight->saturated / elements : 0;
}

/* Positive if the second is worse. */
static int compare_counts(uint64_t a, uint64_t b)
{
    return (a < b) - (a > b);
}

static int compare_shares(const F8__WeightInfo *a, const F8__WeightInfo *b)
{
    double share_a = report_saturated_share(a), share_b = report_saturated_share(b);

    return (share_a < share_b) - (share_a > share_b);
}

/* Orders of qsort; the daemon's order decides between equals, as the rows of a page ascend. */
static int by_saturation(const void *left, const void *right)
{
    const F8__WeightInfo *a = *(const void *const *)left, *b = *(const void *const *)right;
    int order = compare_shares(a, b);

    return order != 0 ? order : compare_counts(a->saturated, b->saturated);
}

static int by_stale(const void *left, const void *right)
{
    const F8__WeightInfo *a = *(const void *const *)left, *b = *(const void *const *)right;
    int order = compare_counts(a->stale, b->stale);

    return order != 0
               ? order
               : compare_counts(a->version - a->scale_version, b->version - b->scale_version);
}

static int by_all(const void *left, const void *right)
{
    const F8__WeightInfo *a = *(const void *const *)left, *b = *(const void *const *)right;
    int order = compare_counts(a->nan, b->nan);

    if (order == 0) {
        order = by_saturation(left, right);
    }
    if (order == 0) {
        order = compare_counts(a->stale, b->stale);
    }
    return order != 0 ? order : compare_counts(a->kept, b->kept);
}

static bool is_saturated(const F8__WeightInfo *weight)
{
    return weight->saturated > 0;
}

static bool is_stale(const F8__WeightInfo *weight)
{
    return weight->stale > 0;
}

static bool has_history(const F8__WeightInfo *weight)
{
    return weight->flavour == F8_PROTO_DELAYED;
}

static int rank(struct ranking *ranking, const struct fetched *weights, uint32_t top,
    bool (*belongs)(const F8__WeightInfo *weight), int (*order)(const void *, const void *))
{
    ranking->rows = calloc(weights->num_rows + 1, sizeof(*ranking->rows));
    if (ranking->rows == NULL) {
        return error_set(F8_ENOMEM, "no memory to rank %zu weights", weights->num_rows);
    }
    for (size_t i = 0; i < weights->num_rows; i++) {
        if (belongs(weights->rows[i])) {
            ranking->rows[ranking->all++] = weights->rows[i];
        }
    }
    qsort(ranking->rows, ranking->all, sizeof(*ranking->rows), order);
    ranking->count = ranking->all < top ? ranking->all : top;
    return F8_OK;
}

int report_rank(struct report *report, uint32_t top)
{
    int status = rank(&report->saturated, &report->weights, top, is_saturated, by_saturation);

    if (status == F8_OK) {
        status = rank(&report->stale, &report->weights, top, is_stale, by_stale);
    }
    if (status == F8_OK) {
        status = rank(&report->worst, &report->weights, top, has_history, by_all);
    }
    return status;
}
