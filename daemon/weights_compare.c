/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Comparison of what two ranks registered, and the sentence that names the first difference: see
 * weights.h. Elsewhere such a difference is a hang in the first collective.
 */
#include "daemon/weights.h"

#include <string.h>

#define SHAPE_TEXT 96

/* A weight in words: "float32 [5, 7] dynamic e4m3fn". */
static void describe(const struct weight *weight, char *buffer, size_t size)
{
    char shape[SHAPE_TEXT];
    int used = snprintf(buffer, size, "%s %s %s %s%s", f8_proto_dtype_name(weight->dtype),
        weight_shape_text(weight, shape, sizeof(shape)), f8_proto_flavour_name(weight->flavour),
        f8_proto_wire_name(weight->wire), weight->power_of_two ? " power-of-two" : "");
    if (weight->flavour == F8_PROTO_DELAYED && used > 0 && (size_t)used < size)
        (void)snprintf(buffer + used, size - (size_t)used, " history %u %s", weight->history_length,
            f8_proto_history_name(weight->history_algorithm));
}

static bool same_shape(const struct weight *a, const struct weight *b)
{
    return a->ndim == b->ndim && memcmp(a->shape, b->shape, a->ndim * sizeof(a->shape[0])) == 0;
}

bool weight_same_scaling(const struct weight *a, const struct weight *b)
{
    return a->dtype == b->dtype && a->flavour == b->flavour && a->format == b->format &&
           a->power_of_two == b->power_of_two && a->history_length == b->history_length &&
           a->history_algorithm == b->history_algorithm;
}

static double static_scale(const struct weight *weight)
{
    float scale;
    memcpy(&scale, &weight->static_bits, sizeof(scale));
    return (double)scale;
}

/* One of the two. */
struct side {
    const struct weight_list *list; /* borrowed: from the party */
    bool parts;                     /* it has parts of the weights: their shapes are its own */
    char who[128];
};

static int compare_weight(
    const struct side *a, const struct side *b, uint32_t index, struct reason *reason)
{
    const struct weight *x = &a->list->weights[index], *y = &b->list->weights[index];
    if (strcmp(x->name, y->name) != 0)
        return reason_set(reason, F8_EMISMATCH,
            "%s registered %s as weight %u where %s registered %s", b->who, y->name, index, a->who,
            x->name);
    if (!weight_same_scaling(x, y) || (!a->parts && !same_shape(x, y))) {
        char of_x[2 * SHAPE_TEXT], of_y[2 * SHAPE_TEXT];
        describe(x, of_x, sizeof(of_x));
        describe(y, of_y, sizeof(of_y));
        return reason_set(reason, F8_EMISMATCH,
            "%s registered weight %s as %s where %s registered %s", b->who, y->name, of_y, a->who,
            of_x);
    }
    if (x->amax_group != y->amax_group)
        return reason_set(reason, F8_EMISMATCH,
            "%s gave weight %s the amax group %u where %s gave %u (0: its own)", b->who, y->name,
            y->amax_group, a->who, x->amax_group);
    if (x->static_bits != y->static_bits)
        return reason_set(reason, F8_EMISMATCH,
            "%s gave weight %s the static scale %.9g (0x%08x) where %s gave %.9g "
            "(0x%08x)",
            b->who, y->name, static_scale(y), y->static_bits, a->who, static_scale(x),
            x->static_bits);
    return F8_OK;
}

static int compare_bucket(
    const struct side *a, const struct side *b, uint32_t index, struct reason *reason)
{
    const struct bucket_info *x = &a->list->buckets[index], *y = &b->list->buckets[index];
    if (strcmp(x->name, y->name) != 0)
        return reason_set(reason, F8_EMISMATCH,
            "%s registered %s as bucket %u where %s registered %s", b->who, y->name, index, a->who,
            x->name);
    if (x->first != y->first || x->count != y->count || x->shared != y->shared)
        return reason_set(reason, F8_EMISMATCH,
            "%s registered bucket %s as %u%s weights from %u on where %s registered %u%s from %u "
            "on",
            b->who, y->name, y->count, y->shared ? " shared" : "", y->first, a->who, x->count,
            x->shared ? " shared" : "", x->first);
    return F8_OK;
}

static int compare_count(const struct side *a, const struct side *b, const char *what,
    uint32_t of_a, uint32_t of_b, struct reason *reason)
{
    if (of_a == of_b)
        return F8_OK;
    return reason_set(reason, F8_EMISMATCH, "%s registered %u %s where %s registered %u", b->who,
        of_b, what, a->who, of_a);
}

static uint32_t fewer(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static struct side side_of(const struct weights_party *party, bool parts)
{
    struct side side = {.list = party->list, .parts = parts};
    (void)snprintf(side.who, sizeof(side.who), "rank %u (pid %u%s%.64s)", party->rank, party->pid,
        party->host ? " on host " : "", party->host ? party->host : "");
    return side;
}

static int compare(const struct side *a, const struct side *b, struct reason *reason)
{
    int status = F8_OK;
    for (uint32_t w = 0; w < fewer(a->list->num_weights, b->list->num_weights) && !status; w++)
        status = compare_weight(a, b, w, reason);
    if (status == F8_OK)
        status = compare_count(a, b, "weights", a->list->num_weights, b->list->num_weights, reason);
    for (uint32_t i = 0; i < fewer(a->list->num_buckets, b->list->num_buckets) && !status; i++)
        status = compare_bucket(a, b, i, reason);
    if (status == F8_OK)
        status = compare_count(a, b, "buckets", a->list->num_buckets, b->list->num_buckets, reason);
    return status;
}

int weights_compare(
    const struct weights_party *a, const struct weights_party *b, struct reason *reason)
{
    if (a->list == b->list)
        return F8_OK;
    struct side side_a = side_of(a, false), side_b = side_of(b, false);
    return compare(&side_a, &side_b, reason);
}

int weights_compare_parts(
    const struct weights_party *a, const struct weights_party *b, struct reason *reason)
{
    struct side side_a = side_of(a, true), side_b = side_of(b, true);
    return compare(&side_a, &side_b, reason);
}
