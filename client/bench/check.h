/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checker: what gathered weights must be, computed from the definition of the formats and of
 * the scales and from nothing of kernels/, so that a defect there cannot hide here. It is slow and
 * plain on purpose. Called by the rank processes of f8bench and by tests; one checker a thread.
 */
#ifndef F8BENCH_CHECK_H
#define F8BENCH_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "client/f8client.h"

/* The value of a float8 code; NaN for its NaN codes. */
double check_decode(enum f8_format format, uint8_t code);

/*
 * The code nearest to y: ties go to the even code, what lies beyond the largest finite value (or
 * is infinite) becomes that value, NaN a NaN code.
 */
uint8_t check_encode(enum f8_format format, float y);

/* Element i of an array of a source type, as the fp32 value that it is exactly. */
float check_load(enum f8_dtype dtype, const void *source, uint64_t i);

/* max |x|: NaN if any element is, 0 for none. */
float check_amax(enum f8_dtype dtype, const void *source, uint64_t count);

/* The scale that follows from an amax; `precomputed`: by f8_precompute, not inside the gather. */
float check_scale(
    float amax, enum f8_dtype dtype, enum f8_format format, bool precomputed, bool power_of_two);

/* The scaling state of a delayed weight as it must be. */
struct check_delayed {
    bool seeded;
    float scale;
    float amax; /* of the last gather */
    enum f8_dtype dtype;
    enum f8_format format;
    bool power_of_two;
    enum f8_history algorithm;
    uint32_t length;
    float history[]; /* newest first; zeros where there is none yet */
};

/* A state before the first gather, to be ended with free(); NULL if memory is out. */
struct check_delayed *check_delayed_new(enum f8_dtype dtype, enum f8_format format,
    bool power_of_two, enum f8_history algorithm, uint32_t length);

/* The weight is gathered, and this is its amax: of all that its amax group gathers of it. */
void check_delayed_gather(struct check_delayed *delayed, float amax);
void check_delayed_sync(struct check_delayed *delayed);

/* A gathered weight as it must be: what it was made from, and how it was asked to be gathered. */
struct check_spec {
    const char *name;   /* borrowed: from the model */
    const void *source; /* borrowed: what is gathered, rows x cols elements of dtype */
    uint64_t rows;
    uint64_t cols;
    uint64_t stride;        /* elements from a row of the source to the next; 0: cols */
    const void *amax_whole; /* borrowed: amax_count elements, of which the source is a part and the
                               amax is taken; NULL: the source, without gaps */
    uint64_t amax_count;
    uint32_t world_size;
    enum f8_dtype dtype;
    enum f8_flavour flavour;
    enum f8_format format;
    bool power_of_two;
    bool precomputed;
    float static_scale;                  /* F8_STATIC */
    const struct check_delayed *delayed; /* F8_DELAYED; borrowed: from the rank */
};

/* A gathered weight as it is. */
struct check_got {
    const uint8_t *data; /* borrowed: with the padding rows that follow it */
    uint64_t size;       /* without them, as the view says */
    float scale;         /* float8 flavours */
};

/* What comparisons found so far. Zero-initialise. */
struct check_result {
    uint64_t bytes; /* compared, padding included */
    uint64_t mismatches;
    char first[512]; /* the first mismatch: weight, index, expected, got; empty if none */
};

/* Holds the table of the codes of all 16-bit patterns for one scale. */
struct checker;

/* NULL if memory is out. */
struct checker *checker_new(void);
void checker_free(struct checker *checker);

/* Compares scale, every element and the padding; adds what it finds to *result. */
void checker_compare(struct checker *checker, const struct check_spec *spec,
    const struct check_got *got, struct check_result *result);

/* Whether it is gathered as float8, and so has a scale. */
bool check_is_float8(const struct check_spec *spec);

/* Bytes of one gathered element, and of the padding rows at the end of the gathered weight. */
uint32_t check_element_size(const struct check_spec *spec);
uint64_t check_padding_size(const struct check_spec *spec);

/* The whole bits of a float, and back. */
uint32_t check_bits(float value);
float check_from_bits(uint32_t bits);

#endif
