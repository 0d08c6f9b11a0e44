/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checker's comparison of one gathered weight with the full weight that it came from: scale,
 * every element, and the zero padding. For 16-bit sources the searched codes of all patterns are
 * kept for one scale. Called by the rank processes; one checker a thread.
 */
#include "check.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NUM_PATTERNS 65536

struct checker {
    uint8_t codes[NUM_PATTERNS]; /* of each 16-bit pattern times the scale below */
    bool filled;
    uint32_t scale_bits;
    enum f8_dtype dtype;
    enum f8_format format;
};

struct checker *checker_new(void)
{
    return calloc(1, sizeof(struct checker));
}

void checker_free(struct checker *checker)
{
    free(checker);
}

bool check_is_float8(const struct check_spec *spec)
{
    return spec->flavour == F8_DYNAMIC || spec->flavour == F8_DELAYED || spec->flavour == F8_STATIC;
}

static uint32_t source_size(const struct check_spec *spec)
{
    return spec->dtype == F8_F32 ? 4 : 2;
}

uint32_t check_element_size(const struct check_spec *spec)
{
    if (check_is_float8(spec)) {
        return 1;
    }
    return spec->flavour == F8_RAW_BF16 ? 2 : source_size(spec);
}

uint64_t check_padding_size(const struct check_spec *spec)
{
    uint64_t chunk = (spec->rows + spec->world_size - 1) / spec->world_size;
    return (chunk * spec->world_size - spec->rows) * spec->cols * check_element_size(spec);
}

/* Counts a mismatch, and keeps the text of the first. */
__attribute__((format(printf, 2, 3))) static void report(
    struct check_result *result, const char *format, ...)
{
    va_list args;

    if (result->mismatches++ > 0) {
        return;
    }
    va_start(args, format);
    vsnprintf(result->first, sizeof(result->first), format, args);
    va_end(args);
}

/* A row of the source. */
static const void *source_row(const struct check_spec *spec, uint64_t row)
{
    uint64_t stride = spec->stride > 0 ? spec->stride : spec->cols;
    return (const uint8_t *)spec->source + row * stride * source_size(spec);
}

static float expected_scale(const struct check_spec *spec)
{
    float amax;

    if (spec->flavour == F8_STATIC) {
        return spec->static_scale;
    }
    if (spec->flavour == F8_DELAYED) {
        return spec->delayed->scale;
    }
    amax = spec->amax_whole != NULL
               ? check_amax(spec->dtype, spec->amax_whole, spec->amax_count)
               : check_amax(spec->dtype, spec->source, spec->rows * spec->cols);
    return check_scale(amax, spec->dtype, spec->format, spec->precomputed, spec->power_of_two);
}

static void compare_scale(
    const struct check_spec *spec, float expected, float got, struct check_result *result)
{
    result->bytes += sizeof(got);
    if (check_bits(expected) == check_bits(got) || (isnan(expected) && isnan(got))) {
        return;
    }
    report(result, "weight %s: scale: expected 0x%08" PRIx32 " (%.9g), got 0x%08" PRIx32 " (%.9g)",
        spec->name, check_bits(expected), (double)expected, check_bits(got), (double)got);
}

static void fill_codes(struct checker *checker, const struct check_spec *spec, float scale)
{
    if (checker->filled && checker->scale_bits == check_bits(scale) &&
        checker->dtype == spec->dtype && checker->format == spec->format) {
        return;
    }
    for (uint32_t pattern = 0; pattern < NUM_PATTERNS; pattern++) {
        uint16_t source = (uint16_t)pattern;
        float y = check_load(spec->dtype, &source, 0) * scale;
        checker->codes[pattern] = check_encode(spec->format, y);
    }
    checker->filled = true;
    checker->scale_bits = check_bits(scale);
    checker->dtype = spec->dtype;
    checker->format = spec->format;
}

static void compare_code(const struct check_spec *spec, uint64_t index, uint8_t expected,
    uint8_t got, struct check_result *result)
{
    if (expected == got ||
        (isnan(check_decode(spec->format, expected)) && isnan(check_decode(spec->format, got)))) {
        return;
    }
    report(result,
        "weight %s: element %" PRIu64 " (row %" PRIu64 "): expected 0x%02x (%g), got 0x%02x (%g)",
        spec->name, index, index / spec->cols, expected, check_decode(spec->format, expected), got,
        check_decode(spec->format, got));
}

static void compare_float8(struct checker *checker, const struct check_spec *spec, float scale,
    const uint8_t *got, struct check_result *result)
{
    bool searched = spec->dtype != F8_F32;

    if (searched) {
        fill_codes(checker, spec, scale);
    }
    for (uint64_t row = 0; row < spec->rows; row++) {
        const void *source = source_row(spec, row);
        for (uint64_t col = 0; col < spec->cols; col++) {
            uint64_t i = row * spec->cols + col;
            uint8_t expected =
                searched ? checker->codes[((const uint16_t *)source)[col]]
                         : check_encode(spec->format, check_load(spec->dtype, source, col) * scale);
            compare_code(spec, i, expected, got[i], result);
        }
    }
}

static void compare_raw_row(
    const struct check_spec *spec, uint64_t row, const uint8_t *got, struct check_result *result)
{
    const uint8_t *source = source_row(spec, row);
    uint64_t size = spec->cols * source_size(spec);
    uint64_t begin = row * size;

    if (memcmp(source, got + begin, size) == 0) {
        return;
    }
    for (uint64_t i = 0; i < size; i++) {
        if (source[i] != got[begin + i]) {
            report(result,
                "weight %s: element %" PRIu64 ", byte %" PRIu64 ": expected 0x%02x, got 0x%02x",
                spec->name, (begin + i) / source_size(spec), i % source_size(spec), source[i],
                got[begin + i]);
        }
    }
}

static void compare_raw(
    const struct check_spec *spec, const uint8_t *got, struct check_result *result)
{
    for (uint64_t row = 0; row < spec->rows; row++) {
        compare_raw_row(spec, row, got, result);
    }
}

/* The bf16 nearest to x, ties to even: by the distance to both neighbours, not by bit tricks. */
static uint16_t nearest_bf16(float x)
{
    uint32_t low = check_bits(x) >> 16;
    double below = check_from_bits(low << 16);
    double above = check_from_bits((low + 1) << 16);
    double down = fabs((double)x - below);
    double up = fabs(above - (double)x);

    if (isinf(x)) {
        return (uint16_t)low;
    }
    if (isinf(above)) { /* as far away as the value after the last finite one would be */
        above = copysign(0x1p128, (double)x);
        up = fabs(above - (double)x);
    }
    return (uint16_t)(up < down || (up == down && (low & 1)) ? low + 1 : low);
}

static void compare_bf16(
    const struct check_spec *spec, const uint8_t *data, struct check_result *result)
{
    const uint16_t *got = (const uint16_t *)(const void *)data;

    for (uint64_t i = 0; i < spec->rows * spec->cols; i++) {
        float source = check_load(F8_F32, source_row(spec, i / spec->cols), i % spec->cols);
        uint16_t expected = nearest_bf16(source);
        if (isnan(source) ? !isnan(check_load(F8_BF16, got, i)) : expected != got[i]) {
            report(result, "weight %s: element %" PRIu64 ": expected bf16 0x%04x, got 0x%04x",
                spec->name, i, expected, got[i]);
        }
    }
}

static void compare_padding(const struct check_spec *spec, const uint8_t *padding, uint64_t size,
    struct check_result *result)
{
    for (uint64_t i = 0; i < size; i++) {
        if (padding[i] != 0) {
            report(result, "weight %s: byte %" PRIu64 " of the padding: expected 0x00, got 0x%02x",
                spec->name, i, padding[i]);
        }
    }
}

void checker_compare(struct checker *checker, const struct check_spec *spec,
    const struct check_got *got, struct check_result *result)
{
    uint64_t size = spec->rows * spec->cols * check_element_size(spec);
    uint64_t padding = check_padding_size(spec);

    if (got->size != size) {
        report(result, "weight %s: size: expected %" PRIu64 " bytes, got %" PRIu64, spec->name,
            size, got->size);
        return;
    }
    if (check_is_float8(spec)) {
        float scale = expected_scale(spec);
        compare_scale(spec, scale, got->scale, result);
        compare_float8(checker, spec, scale, got->data, result);
    } else if (spec->flavour == F8_RAW_BF16) {
        compare_bf16(spec, got->data, result);
    } else {
        compare_raw(spec, got->data, result);
    }
    compare_padding(spec, got->data + size, padding, result);
    result->bytes += size + padding;
}
