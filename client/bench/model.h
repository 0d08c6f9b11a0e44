/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What f8bench gathers: a list of weights in buckets, either of a built-in model of true shapes or
 * of safetensors files. Built by main before any process is forked; read-only from then on.
 */
#ifndef F8BENCH_MODEL_H
#define F8BENCH_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "client/bench/error.h"
#include "client/bench/safetensors.h"
#include "client/f8client.h"

struct model_weight {
    char *name; /* owned */
    uint32_t ndim;
    uint64_t shape[F8_MAX_DIMS];
    enum f8_dtype dtype;
    enum f8_flavour flavour;
    const void *data; /* borrowed: from a safetensors file; NULL: to be filled at random */
};

struct model_bucket {
    char *name; /* owned */
    uint32_t first;
    uint32_t count;
};

/* A rectangle of a weight: rows of dimension 0, and elements of each row. */
struct model_part {
    uint64_t first_row;
    uint64_t num_rows;
    uint64_t first_col;
    uint64_t num_cols;
};

/* Zero-initialise; model_done frees, also half-built. */
struct model {
    char *name;                   /* owned */
    struct model_weight *weights; /* owned */
    uint32_t num_weights;
    struct model_bucket *buckets; /* owned */
    uint32_t num_buckets;
    char **skipped; /* owned: "NAME (I64)": tensors of the files that are not gathered */
    uint32_t num_skipped;
};

/* How to read a list of shapes as weights. */
struct model_options {
    enum f8_dtype dtype;     /* of built-in models */
    enum f8_flavour flavour; /* of the 2-D weights; all others are raw */
    uint32_t blocks;         /* of built-in models; 0: as many as it has by default */
};

/* The built-in model `name`; the error lists those that there are. */
int model_builtin(const char *name, const struct model_options *options, struct model *ret_model,
    struct bench_error *error);

/*
 * The float tensors of some files, which must stay open: 2-D ones with options->flavour, all
 * others raw, in buckets by layer, the part of the name up to its first number.
 */
int model_from_files(const struct safetensors_file *files, uint32_t num_files,
    const struct model_options *options, struct model *ret_model, struct bench_error *error);

void model_done(struct model *model);

/* The i-th built-in model's name; NULL past the last. */
const char *model_builtin_name(uint32_t i);

/* Elements of a row of dimension 0, and of the whole weight; bytes of a source element. */
uint64_t model_cols(const struct model_weight *weight);
uint64_t model_elements(const struct model_weight *weight);
uint32_t model_source_size(const struct model_weight *weight);

/* All of a weight, and the elements of a part. */
struct model_part model_whole(const struct model_weight *weight);
uint64_t model_part_size(const struct model_part *part);

/* Whether it is gathered as float8, and so has a scale. */
bool model_is_float8(const struct model_weight *weight);

/* Bytes of a gathered element. */
uint32_t model_wire_size(const struct model_weight *weight);

#endif
