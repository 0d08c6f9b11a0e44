/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of weights and buckets, and the built-in models: true shapes of well-known
 * transformers, block by block, without their values. Called by main; read-only afterwards.
 */
#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/bench/model_build.h"

/* A weight of a template. cols == 0: one-dimensional. */
struct row {
    const char *bucket; /* part of the block; NULL: the block as a whole */
    const char *name;
    uint64_t rows;
    uint64_t cols;
};

/* A run of rows that is repeated for each block; or once, without a number. */
struct section {
    const char *prefix; /* "layers": its weights are called layers.0.NAME; NULL: not repeated */
    const struct row *rows;
    uint32_t num_rows;
};

struct template
{
    const char *name;
    uint32_t blocks; /* by default */
    const struct section *sections;
    uint32_t num_sections;
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define SECTION(prefix, rows)                                                                      \
    {                                                                                              \
        prefix, rows, COUNT(rows)                                                                  \
    }

/* Llama 3: model width, key and value width, feed-forward width. The norms go with their part. */
#define LLAMA_BLOCK(dim, kv, ffn)                                                                  \
    {                                                                                              \
        {"attention", "attention_norm.weight", dim, 0},                                            \
            {"attention", "attention.wq.weight", dim, dim},                                        \
            {"attention", "attention.wk.weight", kv, dim},                                         \
            {"attention", "attention.wv.weight", kv, dim},                                         \
            {"attention", "attention.wo.weight", dim, dim},                                        \
            {"feed_forward", "ffn_norm.weight", dim, 0},                                           \
            {"feed_forward", "feed_forward.w1.weight", ffn, dim},                                  \
            {"feed_forward", "feed_forward.w2.weight", dim, ffn},                                  \
            {"feed_forward", "feed_forward.w3.weight", ffn, dim},                                  \
    }

static const struct row llama3_8b_rows[] = LLAMA_BLOCK(4096, 1024, 14336);
static const struct row llama3_70b_rows[] = LLAMA_BLOCK(8192, 1024, 28672);

static const struct row gpt2_embeddings[] = {
    {"embeddings", "wte.weight", 50257, 768},
    {"embeddings", "wpe.weight", 1024, 768},
};

/* GPT-2 stores its linear layers as [in, out]. */
static const struct row gpt2_rows[] = {
    {NULL, "ln_1.weight", 768, 0},
    {NULL, "ln_1.bias", 768, 0},
    {NULL, "attn.c_attn.weight", 768, 2304},
    {NULL, "attn.c_attn.bias", 2304, 0},
    {NULL, "attn.c_proj.weight", 768, 768},
    {NULL, "attn.c_proj.bias", 768, 0},
    {NULL, "ln_2.weight", 768, 0},
    {NULL, "ln_2.bias", 768, 0},
    {NULL, "mlp.c_fc.weight", 768, 3072},
    {NULL, "mlp.c_fc.bias", 3072, 0},
    {NULL, "mlp.c_proj.weight", 3072, 768},
    {NULL, "mlp.c_proj.bias", 768, 0},
};

static const struct row gpt2_head[] = {
    {"head", "ln_f.weight", 768, 0},
    {"head", "ln_f.bias", 768, 0},
};

/* What cuts badly: fewer rows than ranks, odd rows, one row, and a length that no vector divides.
 */
static const struct row tiny_rows[] = {
    {"attention", "norm.weight", 7, 0},
    {"attention", "uneven.weight", 5, 7},
    {"attention", "short.weight", 3, 9},
    {"feed_forward", "single.weight", 1, 33},
    {"feed_forward", "odd.weight", 131, 61},
    {"feed_forward", "bias", 3, 0},
};

static const struct section llama3_8b[] = {SECTION("layers", llama3_8b_rows)};
static const struct section llama3_70b[] = {SECTION("layers", llama3_70b_rows)};
static const struct section gpt2[] = {
    SECTION(NULL, gpt2_embeddings), SECTION("h", gpt2_rows), SECTION(NULL, gpt2_head)};
static const struct section tiny[] = {SECTION("layers", tiny_rows)};

static const struct template templates[] = {
    {"llama3-8b-block", 1, llama3_8b, COUNT(llama3_8b)},
    {"llama3-70b-block", 1, llama3_70b, COUNT(llama3_70b)},
    {"gpt2-small", 12, gpt2, COUNT(gpt2)},
    {"tiny", 2, tiny, COUNT(tiny)},
};

const char *model_builtin_name(uint32_t i)
{
    return i < COUNT(templates) ? templates[i].name : NULL;
}

uint64_t model_cols(const struct model_weight *weight)
{
    uint64_t cols = 1;

    for (uint32_t i = 1; i < weight->ndim; i++) {
        cols *= weight->shape[i];
    }
    return cols;
}

uint64_t model_elements(const struct model_weight *weight)
{
    return weight->shape[0] * model_cols(weight);
}

struct model_part model_whole(const struct model_weight *weight)
{
    return (struct model_part){.num_rows = weight->shape[0], .num_cols = model_cols(weight)};
}

uint64_t model_part_size(const struct model_part *part)
{
    return part->num_rows * part->num_cols;
}

bool model_is_float8(const struct model_weight *weight)
{
    return weight->flavour != F8_RAW && weight->flavour != F8_RAW_BF16;
}

uint32_t model_source_size(const struct model_weight *weight)
{
    return weight->dtype == F8_F32 ? 4 : 2;
}

uint32_t model_wire_size(const struct model_weight *weight)
{
    switch (weight->flavour) {
    case F8_RAW:
        return model_source_size(weight);
    case F8_RAW_BF16:
        return 2;
    default:
        return 1;
    }
}

int model_reserve(struct model *model, const char *name, uint32_t num_weights)
{
    model->name = strdup(name);
    model->weights = calloc(num_weights, sizeof(*model->weights));
    model->buckets = calloc(num_weights, sizeof(*model->buckets));
    return model->name != NULL && model->weights != NULL && model->buckets != NULL ? 0 : -1;
}

int model_append(struct model *model, const char *bucket, const struct model_weight *weight)
{
    struct model_bucket *last =
        model->num_buckets > 0 ? &model->buckets[model->num_buckets - 1] : NULL;
    char *name = strdup(weight->name);

    if (name == NULL) {
        return -1;
    }
    model->weights[model->num_weights] = *weight;
    model->weights[model->num_weights++].name = name;
    if (last != NULL && strcmp(last->name, bucket) == 0) {
        last->count++;
        return 0;
    }
    last = &model->buckets[model->num_buckets];
    *last =
        (struct model_bucket){.name = strdup(bucket), .first = model->num_weights - 1, .count = 1};
    if (last->name == NULL) {
        return -1;
    }
    model->num_buckets++;
    return 0;
}

/* Row `row` of block `block`, with its names made. */
static int append_row(struct model *model, const struct section *section, const struct row *row,
    uint32_t block, const struct model_options *options)
{
    char prefix[64] = "";
    char bucket[128];
    char name[128];
    struct model_weight weight = {.name = name,
        .ndim = row->cols > 0 ? 2 : 1,
        .shape = {row->rows, row->cols},
        .dtype = options->dtype,
        .flavour = row->cols > 0 ? options->flavour : F8_RAW};

    if (section->prefix != NULL) {
        snprintf(prefix, sizeof(prefix), "%s.%u", section->prefix, block);
    }
    snprintf(bucket, sizeof(bucket), "%s%s%s", prefix,
        section->prefix != NULL && row->bucket != NULL ? "." : "",
        row->bucket != NULL ? row->bucket : "");
    snprintf(name, sizeof(name), "%s%s%s", prefix, section->prefix != NULL ? "." : "", row->name);
    return model_append(model, bucket, &weight);
}

static int append_section(struct model *model, const struct section *section, uint32_t blocks,
    const struct model_options *options)
{
    uint32_t repeats = section->prefix != NULL ? blocks : 1;

    for (uint32_t block = 0; block < repeats; block++) {
        for (uint32_t i = 0; i < section->num_rows; i++) {
            if (append_row(model, section, &section->rows[i], block, options) != 0) {
                return -1;
            }
        }
    }
    return 0;
}

static int build(const struct template *template, const struct model_options *options,
    struct model *model, struct bench_error *error)
{
    uint32_t blocks = options->blocks > 0 ? options->blocks : template->blocks;
    uint32_t num_weights = 0;

    for (uint32_t i = 0; i < template->num_sections; i++) {
        const struct section *section = &template->sections[i];
        num_weights += section->num_rows * (section->prefix != NULL ? blocks : 1);
    }
    if (model_reserve(model, template->name, num_weights) != 0) {
        return bench_no_memory(error);
    }
    for (uint32_t i = 0; i < template->num_sections; i++) {
        if (append_section(model, &template->sections[i], blocks, options) != 0) {
            return bench_no_memory(error);
        }
    }
    return 0;
}

int model_builtin(const char *name, const struct model_options *options, struct model *ret_model,
    struct bench_error *error)
{
    char known[256] = "";

    for (uint32_t i = 0; i < COUNT(templates); i++) {
        struct model model = {0};
        if (strcmp(templates[i].name, name) != 0) {
            size_t used = strlen(known);
            snprintf(known + used, sizeof(known) - used, "%s%s", used > 0 ? ", " : "",
                templates[i].name);
            continue;
        }
        if (build(&templates[i], options, &model, error) != 0) {
            model_done(&model);
            return -1;
        }
        *ret_model = model;
        return 0;
    }
    return bench_fail(error, "no model is called %s; there are %s", name, known);
}

void model_done(struct model *model)
{
    for (uint32_t i = 0; i < model->num_weights; i++) {
        free(model->weights[i].name);
    }
    for (uint32_t i = 0; i < model->num_buckets; i++) {
        free(model->buckets[i].name);
    }
    for (uint32_t i = 0; i < model->num_skipped; i++) {
        free(model->skipped[i]);
    }
    free(model->weights);
    free(model->buckets);
    free(model->skipped);
    free(model->name);
    *model = (struct model){0};
}
