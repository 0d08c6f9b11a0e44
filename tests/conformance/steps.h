/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steps of delayed.tsv: a run is consecutive rows that count from step 0, of one weight with
 * one amax history; each step is a gather with the scale that holds, then a sync. Made row by row,
 * then gone through by delayed_kernel.c and, in rank processes that inherit them, delayed_rank.c.
 */
#ifndef F8_TESTS_CONFORMANCE_STEPS_H
#define F8_TESTS_CONFORMANCE_STEPS_H

#include "tests/conformance/vectors.h"

struct step {
    struct row row; /* where it comes from, for row_pass() and row_fail(); without its columns */
    size_t run;     /* counted from 0 */
    size_t number;  /* in its run, from 0 */
    size_t rows, cols;
    enum f8k_dtype dtype;
    enum f8k_format format;
    uint32_t scale_used;  /* bits, as all that follow: by the gather */
    uint32_t amax;        /* that the gather found */
    uint32_t scale_after; /* after the sync */
    uint32_t *history;    /* owned: after the sync, newest first */
    size_t history_length;
    uint8_t *input;  /* owned: rows * cols elements */
    uint8_t *output; /* owned: rows * cols codes */
};

/* Zero-initialise. */
struct steps {
    struct step *items; /* owned */
    size_t count, runs;
};

/* A case: appends the row's step to row->steps. */
row_fn step_row;

/* How many steps the run of item `first` has, which is its step 0. */
size_t steps_of_run(const struct steps *steps, size_t first);

/* The item that is the step 0 of a run. */
size_t steps_first(const struct steps *steps, size_t run);

void steps_done(struct steps *steps);

/* delayed_kernel.c: every run through every kernel variant, one count a step and variant. */
void delayed_kernels(const struct row *index);

#endif
