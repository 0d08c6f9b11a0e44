/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a rank process hands to the checker: the view of a gathered weight, the full weight beside
 * it, and, where the run plants a difference, a copy with that difference in it. Called by rank.c.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/bench/check.h"
#include "client/bench/rank.h"

static struct check_spec spec_of(const struct rank *rank, uint32_t weight)
{
    const struct run *run = rank->run;
    const struct model_weight *what = &run->model->weights[weight];

    return (struct check_spec){.name = what->name,
        .source = source_weight(run->source, weight),
        .rows = what->shape[0],
        .cols = model_cols(what),
        .world_size = run->options->ranks,
        .dtype = what->dtype,
        .flavour = what->flavour,
        .format = run->options->format,
        .power_of_two = run->options->power_of_two,
        .precomputed = run->options->precompute,
        .static_scale = run->shared->static_scales[weight]};
}

/* A byte that differs, and is not just another NaN. */
static uint8_t flipped(const struct check_spec *spec, uint8_t byte)
{
    bool float8 = spec->flavour == F8_DYNAMIC || spec->flavour == F8_STATIC;

    return float8 && isnan(check_decode(spec->format, byte)) ? byte ^ 0x40 : byte ^ 0x01;
}

/* Puts the planted difference into *got; gives the copied data to be freed, if any. */
static int plant(
    struct rank *rank, const struct check_spec *spec, struct check_got *got, uint8_t **ret_copy)
{
    const struct plan *plan = &rank->run->plan;
    uint64_t size = got->size + check_padding_size(spec);

    if (plan->plant == PLANT_SCALE) {
        uint32_t bits = check_bits(got->scale);
        got->scale = isnan(got->scale) ? 1 : check_from_bits(bits ^ 1);
        return 0;
    }
    *ret_copy = malloc(size);
    if (*ret_copy == NULL) {
        return rank_no_memory(rank, spec->name);
    }
    memcpy(*ret_copy, got->data, size);
    (*ret_copy)[plan->byte] = flipped(spec, (*ret_copy)[plan->byte]);
    got->data = *ret_copy;
    return 0;
}

int rank_check_bucket(struct rank *rank, uint32_t step, uint32_t bucket)
{
    const struct model_bucket *what = &rank->run->model->buckets[bucket];
    const struct plan *plan = &rank->run->plan;

    for (uint32_t i = what->first; i < what->first + what->count; i++) {
        struct check_spec spec = spec_of(rank, i);
        const struct f8_view *view = &rank->views[i];
        struct check_got got = {.data = view->data,
            .size = view->size,
            .scale = view->scale != NULL ? *view->scale : NAN};
        uint8_t *copy = NULL;
        if (plan->plant != PLANT_NONE && plan->step == step && plan->weight == i &&
            plant(rank, &spec, &got, &copy) != 0) {
            return -1;
        }
        checker_compare(rank->checker, &spec, &got, &rank->result->check);
        free(copy);
    }
    return 0;
}

void rank_static_scales(struct rank *rank)
{
    const struct run *run = rank->run;

    for (uint32_t i = rank->rank; i < run->model->num_weights; i += run->options->ranks) {
        const struct model_weight *what = &run->model->weights[i];
        float amax;
        if (what->flavour != F8_STATIC) {
            continue;
        }
        amax = check_amax(what->dtype, source_weight(run->source, i), model_elements(what));
        run->shared->static_scales[i] =
            check_scale(amax, what->dtype, run->options->format, false, false);
    }
}
