/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tensors of one index that are to go through a daemon, each with what must come out. Made by
 * daemon_cases.c row by row, run by daemon_run.c; the rank processes inherit them read-only.
 */
#ifndef F8_TESTS_CONFORMANCE_TENSORS_H
#define F8_TESTS_CONFORMANCE_TENSORS_H

#include "client/f8client.h"
#include "tests/conformance/vectors.h"

struct tensor {
    struct row row; /* where it comes from, for row_pass() and row_fail(); without its columns */
    char name[256]; /* "fsdp_w4.tsv:7 dynamic [64, 48]": unique in the index */
    uint32_t world;
    uint64_t rows, cols;
    uint32_t ndim; /* 1: [rows], 2: [rows, cols] */
    enum f8_dtype dtype;
    enum f8_format format;
    enum f8_flavour flavour;
    bool precompute;     /* the scale is computed by f8_precompute, not inside the gather */
    uint32_t scale_bits; /* that it must have; static: that it is given */
    uint8_t *source;     /* owned: rows * cols elements */
    uint8_t *want;       /* owned: rows * cols codes */
};

/* Zero-initialise. */
struct tensors {
    struct tensor *items; /* owned */
    size_t count;
};

/*
 * Appends a tensor and takes its source and want, in any case. Names it by row, path and shape.
 * False: out of memory, counted.
 */
bool tensors_add(const struct row *row, struct tensor tensor);

void tensors_done(struct tensors *tensors);

#endif
