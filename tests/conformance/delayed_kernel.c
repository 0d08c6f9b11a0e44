/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The runs of delayed.tsv through the kernels, with the arithmetic of the specification around
 * them: a plain array for the history, no more. Called by main.c; one thread.
 */
#include "tests/conformance/steps.h"

#include <stdlib.h>
#include <string.h>

/* What the specification says of a delayed weight. */
struct delayed {
    uint32_t *history; /* newest first */
    size_t length;
    uint32_t scale; /* bits */
};

static float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static void rescale(struct delayed *delayed, const struct step *step)
{
    uint32_t amax = 0;
    for (size_t i = 0; i < delayed->length; i++)
        amax = delayed->history[i] > amax ? delayed->history[i] : amax;
    delayed->scale = bits_of(f8k_scale(amax, step->dtype, step->format, F8K_SCALE_DIRECT, false));
}

static void sync(struct delayed *delayed, const struct step *step, uint32_t amax)
{
    memmove(
        delayed->history + 1, delayed->history, (delayed->length - 1) * sizeof(*delayed->history));
    delayed->history[0] = amax;
    if (amax > 0 && amax < 0x7f800000u)
        rescale(delayed, step);
}

/* Whether the gather is as the row says; else one failure is counted. */
static bool check_gather(const struct f8k_ops *ops, const struct delayed *delayed,
    const struct step *step, uint32_t amax)
{
    const struct row *row = &step->row;
    struct f8k_counts counts = {0};
    struct f8k_cast cast = {.src = step->input,
        .count = step->rows * step->cols,
        .scale = from_bits(delayed->scale),
        .dtype = step->dtype,
        .format = step->format};
    cast.dst = malloc(cast.count + 1);
    if (!cast.dst) {
        row_fail(row, "no memory for %zu bytes", cast.count);
        return false;
    }
    ops->cast(&cast, &counts);
    size_t at = first_difference(step->format, cast.dst, step->output, cast.count);
    bool right = false;
    if (!bits_equal(delayed->scale, step->scale_used))
        row_fail(row, "%s: scale %08x, want %08x", ops->name, delayed->scale, step->scale_used);
    else if (at < cast.count)
        row_fail(row, "%s: byte %zu is %02x, want %02x", ops->name, at, ((uint8_t *)cast.dst)[at],
            step->output[at]);
    else if (!bits_equal(amax, step->amax))
        row_fail(row, "%s: amax %08x, want %08x", ops->name, amax, step->amax);
    else
        right = true;
    free(cast.dst);
    return right;
}

static void check_sync(
    const struct f8k_ops *ops, const struct delayed *delayed, const struct step *step)
{
    size_t i = 0;
    while (i < delayed->length && bits_equal(delayed->history[i], step->history[i]))
        i++;
    if (!bits_equal(delayed->scale, step->scale_after))
        row_fail(&step->row, "%s: scale %08x after the sync, want %08x", ops->name, delayed->scale,
            step->scale_after);
    else if (i < delayed->length)
        row_fail(&step->row, "%s: entry %zu of the history is %08x, want %08x", ops->name, i,
            delayed->history[i], step->history[i]);
    else
        row_pass(&step->row);
}

static void play(const struct f8k_ops *ops, const struct step *steps, size_t count)
{
    struct delayed delayed = {.length = steps[0].history_length};
    delayed.history = calloc(delayed.length, sizeof(*delayed.history));
    if (!delayed.history) {
        row_fail(&steps[0].row, "no memory for a history");
        return;
    }
    for (size_t s = 0; s < count; s++) {
        uint32_t amax = ops->amax(steps[s].dtype, steps[s].input, steps[s].rows * steps[s].cols);
        if (s == 0) {
            delayed.history[0] = amax;
            rescale(&delayed, &steps[s]);
        }
        bool right = check_gather(ops, &delayed, &steps[s], amax);
        sync(&delayed, &steps[s], amax);
        if (right)
            check_sync(ops, &delayed, &steps[s]);
    }
    free(delayed.history);
}

void delayed_kernels(const struct row *index)
{
    const struct steps *steps = index->steps;
    for (size_t first = 0; first < steps->count; first += steps_of_run(steps, first))
        for (size_t i = 0; f8k_variant(i); i++)
            play(f8k_variant(i), &steps->items[first], steps_of_run(steps, first));
}
