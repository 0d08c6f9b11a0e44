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
    struct model_part part = layout_part(run->options, what, rank->place.group);
    const uint8_t *full = source_weight(run->source, weight);
    uint64_t first = part.first_row * model_cols(what) + part.first_col;

    return (struct check_spec){.name = what->name,
        .source = full + first * model_source_size(what),
        .rows = part.num_rows,
        .cols = part.num_cols,
        .stride = model_cols(what),
        .amax_whole = full,
        .amax_count = model_elements(what),
        .world_size = layout_world_size(run->options),
        .dtype = what->dtype,
        .flavour = what->flavour,
        .format = run->options->format,
        .power_of_two = run->options->power_of_two,
        .precomputed = run->options->precompute,
        .static_scale = shared_static_scales(run->shared, run->index)[weight],
        .delayed = rank->delayed[weight]};
}

/* A byte that differs, and is not just another NaN. */
static uint8_t flipped(const struct check_spec *spec, uint8_t byte)
{
    return check_is_float8(spec) && isnan(check_decode(spec->format, byte)) ? byte ^ 0x40
                                                                            : byte ^ 0x01;
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

/* Copies what a view shows, its padding and its scale from the device. */
static int download(struct rank *rank, const struct check_spec *spec, const struct f8_view *view,
    struct check_got *got)
{
    uint64_t size = got->size + check_padding_size(spec);
    int status;

    if (size > rank->gathered_size) {
        free(rank->gathered);
        rank->gathered = malloc(size);
        rank->gathered_size = rank->gathered != NULL ? size : 0;
        if (rank->gathered == NULL) {
            return rank_no_memory(rank, spec->name);
        }
    }
    status = gpu_download(rank->gpu, rank->gathered, view->data, size);
    if (status == F8_OK && view->scale != NULL) {
        status = gpu_download(rank->gpu, &got->scale, view->scale, sizeof(got->scale));
    }
    got->data = rank->gathered;
    return status == F8_OK ? 0 : rank_fail(rank, status, "copy from the device", spec->name);
}

/* What the checker is to compare. */
static int take_view(struct rank *rank, const struct check_spec *spec, const struct f8_view *view,
    struct check_got *ret_got)
{
    *ret_got = (struct check_got){.data = view->data, .size = view->size, .scale = NAN};
    if (rank->gpu != NULL) {
        return download(rank, spec, view, ret_got);
    }
    if (view->scale != NULL) {
        ret_got->scale = *view->scale;
    }
    return 0;
}

int rank_check_bucket(struct rank *rank, uint32_t step, uint32_t bucket)
{
    const struct model_bucket *what = &rank->run->model->buckets[bucket];
    const struct plan *plan = &rank->run->plan;

    for (uint32_t i = what->first; i < what->first + what->count; i++) {
        struct check_spec spec = spec_of(rank, i);
        struct check_got got;
        uint8_t *copy = NULL;
        if (take_view(rank, &spec, &rank->views[i], &got) != 0) {
            return -1;
        }
        if (plan->plant != PLANT_NONE && plan->step == step && plan->weight == i &&
            plan->group == rank->place.group && plant(rank, &spec, &got, &copy) != 0) {
            return -1;
        }
        checker_compare(rank->checker, &spec, &got, &rank->result->check);
        free(copy);
    }
    return 0;
}

static float whole_amax(const struct run *run, uint32_t weight)
{
    const struct model_weight *what = &run->model->weights[weight];

    return check_amax(what->dtype, source_weight(run->source, weight), model_elements(what));
}

void rank_static_scales(struct rank *rank)
{
    const struct run *run = rank->run;
    float *scales = shared_static_scales(run->shared, run->index);

    for (uint32_t i = rank->place.rank % rank->crew; i < run->model->num_weights; i += rank->crew) {
        const struct model_weight *what = &run->model->weights[i];
        if (what->flavour == F8_STATIC) {
            scales[i] =
                check_scale(whole_amax(run, i), what->dtype, run->options->format, false, false);
        }
    }
}

int rank_delayed_new(struct rank *rank)
{
    const struct options *options = rank->run->options;
    const struct model *model = rank->run->model;

    rank->delayed = calloc(model->num_weights, sizeof(struct check_delayed *));
    for (uint32_t i = 0; rank->delayed != NULL && i < model->num_weights; i++) {
        if (model->weights[i].flavour != F8_DELAYED) {
            continue;
        }
        rank->delayed[i] = check_delayed_new(model->weights[i].dtype, options->format,
            options->power_of_two, options->history, options->history_length);
        if (rank->delayed[i] == NULL) {
            return rank_no_memory(rank, "the histories of a rank");
        }
    }
    return rank->delayed != NULL ? 0 : rank_no_memory(rank, "the histories of a rank");
}

void rank_take_amaxes(struct rank *rank)
{
    const struct run *run = rank->run;
    float *amaxes = shared_amaxes(run->shared, run->index);

    for (uint32_t i = rank->place.rank % rank->crew; i < run->model->num_weights; i += rank->crew) {
        if (rank->delayed[i] != NULL) {
            amaxes[i] = whole_amax(run, i);
        }
    }
}

void rank_follow_gathers(struct rank *rank)
{
    const struct run *run = rank->run;
    const float *amaxes = shared_amaxes(run->shared, run->index);

    for (uint32_t i = 0; i < run->model->num_weights; i++) {
        if (rank->delayed[i] != NULL) {
            check_delayed_gather(rank->delayed[i], amaxes[i]);
        }
    }
}

void rank_follow_sync(struct rank *rank)
{
    for (uint32_t i = 0; i < rank->run->model->num_weights; i++) {
        if (rank->delayed[i] != NULL) {
            check_delayed_sync(rank->delayed[i]);
        }
    }
}
