/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model out of safetensors files: which tensors are weights, how they are gathered, and which
 * bucket each belongs to. Called by main, once.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/bench/model.h"
#include "client/bench/model_build.h"

/* The longest name that the protocol takes. */
#define MAX_NAME 255

/* A tensor with the bucket that its name says. */
struct candidate {
    const struct safetensors_tensor *tensor; /* borrowed: from the file */
    const char *path;                        /* borrowed: from the file */
    char bucket[MAX_NAME + 1];
};

/*
 * "encoder.layer.3.attention.weight" belongs to "encoder.layer.3": the components up to the first
 * that is a number. Without one: "other".
 */
static void layer_of(const char *name, char bucket[MAX_NAME + 1])
{
    const char *component = name;

    while (*component != '\0') {
        size_t length = strcspn(component, ".");
        if (length > 0 && strspn(component, "0123456789") == length) {
            snprintf(bucket, MAX_NAME + 1, "%.*s", (int)(component + length - name), name);
            return;
        }
        component += length + (component[length] == '.');
    }
    snprintf(bucket, MAX_NAME + 1, "other");
}

static enum f8_dtype dtype_of(const struct safetensors_tensor *tensor)
{
    if (strcmp(tensor->dtype, "F32") == 0) {
        return F8_F32;
    }
    if (strcmp(tensor->dtype, "BF16") == 0) {
        return F8_BF16;
    }
    return strcmp(tensor->dtype, "F16") == 0 ? F8_F16 : (enum f8_dtype)0;
}

/* By layer, numbers by their value, then by name. */
static int compare(const void *left, const void *right)
{
    const struct candidate *a = left;
    const struct candidate *b = right;
    int order = strverscmp(a->bucket, b->bucket);

    return order != 0 ? order : strverscmp(a->tensor->name, b->tensor->name);
}

static int skip(struct model *model, const struct safetensors_tensor *tensor)
{
    const char *why = tensor->size == 0 ? "empty" : tensor->dtype;
    char *text;

    if (asprintf(&text, "%s (%s)", tensor->name, why) < 0) {
        return -1;
    }
    model->skipped[model->num_skipped++] = text;
    return 0;
}

/* Sorts the tensors of all files into candidates and those that are skipped. */
static int collect(const struct safetensors_file *files, uint32_t num_files, struct model *model,
    struct candidate *candidates, uint32_t *ret_count, struct bench_error *error)
{
    uint32_t count = 0;

    for (uint32_t f = 0; f < num_files; f++) {
        for (uint32_t i = 0; i < files[f].num_tensors; i++) {
            const struct safetensors_tensor *tensor = &files[f].tensors[i];
            if (strlen(tensor->name) > MAX_NAME || tensor->name[0] == '\0') {
                return bench_fail(error, "%s: tensor %.255s: names have 1 to %d bytes",
                    files[f].path, tensor->name, MAX_NAME);
            }
            if (dtype_of(tensor) == 0 || tensor->size == 0) {
                if (skip(model, tensor) != 0) {
                    return bench_no_memory(error);
                }
                continue;
            }
            candidates[count].tensor = tensor;
            candidates[count].path = files[f].path;
            layer_of(tensor->name, candidates[count++].bucket);
        }
    }
    *ret_count = count;
    return 0;
}

static int append(
    struct model *model, const struct candidate *candidate, const struct model_options *options)
{
    const struct safetensors_tensor *tensor = candidate->tensor;
    struct model_weight weight = {.name = tensor->name,
        .ndim = tensor->ndim > 0 ? tensor->ndim : 1,
        .shape = {1},
        .dtype = dtype_of(tensor),
        .flavour = tensor->ndim == 2 ? options->flavour : F8_RAW,
        .data = tensor->data};

    for (uint32_t i = 0; i < tensor->ndim; i++) {
        weight.shape[i] = tensor->shape[i];
    }
    return model_append(model, candidate->bucket, &weight);
}

static int append_all(struct model *model, const struct candidate *candidates, uint32_t count,
    const struct model_options *options, struct bench_error *error)
{
    for (uint32_t i = 0; i < count; i++) {
        if (i > 0 && strcmp(candidates[i].tensor->name, candidates[i - 1].tensor->name) == 0) {
            return bench_fail(error, "tensor %s is in both %s and %s", candidates[i].tensor->name,
                candidates[i - 1].path, candidates[i].path);
        }
        if (append(model, &candidates[i], options) != 0) {
            return bench_no_memory(error);
        }
    }
    if (count == 0) {
        return bench_fail(error, "%s: no tensor of F32, BF16 or F16 in it", model->name);
    }
    return 0;
}

static int build(const struct safetensors_file *files, uint32_t num_files,
    const struct model_options *options, struct model *model, struct bench_error *error)
{
    struct candidate *candidates;
    uint32_t total = 1;
    uint32_t count = 0;
    int result;

    for (uint32_t i = 0; i < num_files; i++) {
        total += files[i].num_tensors;
    }
    candidates = calloc(total, sizeof(*candidates));
    model->skipped = calloc(total, sizeof(*model->skipped));
    if (candidates == NULL || model->skipped == NULL ||
        model_reserve(model, basename(files[0].path), total) != 0) {
        free(candidates);
        return bench_no_memory(error);
    }
    result = collect(files, num_files, model, candidates, &count, error);
    if (result == 0) {
        qsort(candidates, count, sizeof(*candidates), compare);
        result = append_all(model, candidates, count, options, error);
    }
    free(candidates);
    return result;
}

int model_from_files(const struct safetensors_file *files, uint32_t num_files,
    const struct model_options *options, struct model *ret_model, struct bench_error *error)
{
    struct model model = {0};

    if (build(files, num_files, options, &model, error) != 0) {
        model_done(&model);
        return -1;
    }
    *ret_model = model;
    return 0;
}
