/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fills and changes the full weights of a run, shard by shard, reproducibly: no state but the
 * values themselves, so that any number of ranks gives the same weights. Called by the rank
 * processes, each on its own rows; source_open and source_close by the parent.
 */
#include "source.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "client/bench/check.h"

/* The standard deviation that transformers are initialised with. */
#define WEIGHT_STD 0.02F

/* Weights begin at multiples of this, as any vector likes it. */
#define ALIGNMENT 64

/* Elements that are changed together. Blocks are of the weight, not of a rank's part of it. */
#define BLOCK 256

/* The finaliser of splitmix64 (Steele, Lea, Flood 2014). */
uint64_t source_mix(uint64_t seed, uint64_t value)
{
    uint64_t x = seed + (value + 1) * 0x9e3779b97f4a7c15;

    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

/* About normal, mean 0, deviation 1, within +-3.5: the sum of four uniform numbers. */
static float normal(uint64_t random)
{
    int sum = (int)(random & 0xffff) + (int)(random >> 16 & 0xffff) + (int)(random >> 32 & 0xffff) +
              (int)(random >> 48);
    return (float)(sum - 131070) * (1 / 37837.2F);
}

static uint16_t to_bf16(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    bool nan = (bits & 0x7fffffff) > 0x7f800000;
    return (uint16_t)(nan ? bits >> 16 | 0x40 : rounded);
}

static uint16_t to_half(float value)
{
    uint32_t magnitude = check_bits(value) & 0x7fffffff;
    uint16_t sign = (uint16_t)(check_bits(value) >> 16 & 0x8000);

    if (isnan(value)) {
        return sign | 0x7e00;
    }
    if (magnitude >= 0x477ff000) { /* 65520 and more round to infinity */
        return sign | 0x7c00;
    }
    if (magnitude < 0x38800000) { /* below 2^-14: a subnormal, in units of 2^-24 */
        return sign | (uint16_t)lrintf(fabsf(value) * 0x1p24F);
    }
    magnitude += 0xfff + (magnitude >> 13 & 1);
    return sign | (uint16_t)((magnitude - 0x38000000) >> 13);
}

static void store(enum f8_dtype dtype, void *weight, uint64_t i, float value)
{
    switch (dtype) {
    case F8_F32:
        ((float *)weight)[i] = value;
        break;
    case F8_BF16:
        ((uint16_t *)weight)[i] = to_bf16(value);
        break;
    case F8_F16:
        ((uint16_t *)weight)[i] = to_half(value);
        break;
    }
}

void *source_weight(const struct source *source, uint32_t weight)
{
    return source->base + source->offsets[weight];
}

/* Elements that lie together: all of a part that has whole rows, else one row. */
struct range {
    uint64_t begin;
    uint64_t end;
};

static uint32_t num_ranges(const struct model_weight *weight, const struct model_part *part)
{
    bool whole_rows = part->num_cols == model_cols(weight);

    if (model_part_size(part) == 0) {
        return 0;
    }
    return whole_rows ? 1 : (uint32_t)part->num_rows;
}

static struct range range_of(
    const struct model_weight *weight, const struct model_part *part, uint32_t i)
{
    uint64_t begin = (part->first_row + i) * model_cols(weight) + part->first_col;
    uint64_t rows = num_ranges(weight, part) == 1 ? part->num_rows : 1;

    return (struct range){.begin = begin, .end = begin + rows * part->num_cols};
}

static void fill_range(const struct source *source, uint32_t weight, struct range range)
{
    const struct model_weight *what = &source->model->weights[weight];
    uint64_t key = source_mix(source->seed, weight);
    uint8_t *to = source_weight(source, weight);

    if (what->data != NULL) {
        uint32_t size = model_source_size(what);
        memcpy(to + range.begin * size, (const uint8_t *)what->data + range.begin * size,
            (range.end - range.begin) * size);
        return;
    }
    for (uint64_t i = range.begin; i < range.end; i++) {
        store(what->dtype, to, i, normal(source_mix(key, i)) * WEIGHT_STD);
    }
}

void source_fill(const struct source *source, uint32_t weight, const struct model_part *part)
{
    const struct model_weight *what = &source->model->weights[weight];

    for (uint32_t i = 0; i < num_ranges(what, part); i++) {
        fill_range(source, weight, range_of(what, part, i));
    }
}

uint64_t source_copy(
    const struct source *source, uint32_t weight, const struct model_part *part, void *to)
{
    const struct model_weight *what = &source->model->weights[weight];
    const uint8_t *full = source_weight(source, weight);
    uint32_t size = model_source_size(what);
    uint64_t copied = 0;

    for (uint32_t i = 0; i < num_ranges(what, part); i++) {
        struct range range = range_of(what, part, i);
        uint64_t bytes = (range.end - range.begin) * size;
        memcpy((uint8_t *)to + copied, full + range.begin * size, bytes);
        copied += bytes;
    }
    return copied;
}

/* Elements first .. first + count of a weight, as floats: the usual types in vectors. */
static void load_all(
    enum f8_dtype dtype, const void *weight, uint64_t first, uint32_t count, float *to)
{
    if (dtype == F8_F32) {
        memcpy(to, (const float *)weight + first, count * sizeof(float));
    } else if (dtype == F8_BF16) {
        const uint16_t *patterns = (const uint16_t *)weight + first;
        for (uint32_t i = 0; i < count; i++) {
            uint32_t bits = (uint32_t)patterns[i] << 16;
            memcpy(&to[i], &bits, sizeof(bits));
        }
    } else {
        for (uint32_t i = 0; i < count; i++) {
            to[i] = check_load(dtype, weight, first + i);
        }
    }
}

static void store_all(
    enum f8_dtype dtype, const float *from, uint64_t first, uint32_t count, void *weight)
{
    if (dtype == F8_F32) {
        memcpy((float *)weight + first, from, count * sizeof(float));
    } else if (dtype == F8_BF16) {
        uint16_t *patterns = (uint16_t *)weight + first;
        for (uint32_t i = 0; i < count; i++) {
            patterns[i] = to_bf16(from[i]);
        }
    } else {
        for (uint32_t i = 0; i < count; i++) {
            store(dtype, weight, first + i, from[i]);
        }
    }
}

/* What a block of values is multiplied by: evenly spread over middle +- 1/128. */
static void make_factors(uint64_t key, uint64_t block, float middle, float factors[BLOCK])
{
    int16_t noise[BLOCK];

    for (uint32_t i = 0; i < BLOCK; i += 4) {
        uint64_t random = source_mix(key, block * BLOCK + i);
        memcpy(&noise[i], &random, sizeof(random));
    }
    for (uint32_t i = 0; i < BLOCK; i++) {
        factors[i] = middle + (float)noise[i] * 0x1p-22F;
    }
}

static void change_range(
    const struct source *source, uint32_t weight, struct range range, uint32_t step)
{
    const struct model_weight *what = &source->model->weights[weight];
    uint64_t key = source_mix(source_mix(source->seed, weight), ~(uint64_t)step);
    void *elements = source_weight(source, weight);
    /*
     * All grow in one step and shrink in the next: every amax moves, and none drifts away. Each by
     * 1/133 at least, which even bf16 cannot round away.
     */
    float middle = (step + weight) % 2 == 0 ? 65 / 64.F : 64 / 65.F;
    float factors[BLOCK];
    float values[BLOCK];
    uint32_t count;

    for (uint64_t i = range.begin; i < range.end; i += count) {
        uint32_t skip = i % BLOCK;
        count = range.end - i < BLOCK - skip ? (uint32_t)(range.end - i) : BLOCK - skip;
        make_factors(key, i / BLOCK, middle, factors);
        load_all(what->dtype, elements, i, count, values);
        for (uint32_t k = 0; k < count; k++) {
            values[k] *= factors[skip + k];
        }
        store_all(what->dtype, values, i, count, elements);
    }
}

void source_change(
    const struct source *source, uint32_t weight, const struct model_part *part, uint32_t step)
{
    const struct model_weight *what = &source->model->weights[weight];

    for (uint32_t i = 0; i < num_ranges(what, part); i++) {
        change_range(source, weight, range_of(what, part, i), step);
    }
}

int source_open(
    const struct model *model, uint64_t seed, struct source *ret_source, struct bench_error *error)
{
    struct source source = {.model = model, .seed = seed};

    source.offsets = calloc(model->num_weights, sizeof(*source.offsets));
    if (source.offsets == NULL) {
        return bench_no_memory(error);
    }
    for (uint32_t i = 0; i < model->num_weights; i++) {
        const struct model_weight *weight = &model->weights[i];
        uint64_t bytes = model_elements(weight) * model_source_size(weight);
        source.offsets[i] = source.size;
        source.bytes += bytes;
        source.size += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    source.base = mmap(NULL, source.size, PROT_READ | PROT_WRITE,
        MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (source.base == MAP_FAILED) {
        free(source.offsets);
        return bench_fail(error, "no memory for the %llu bytes of the model's weights: %s",
            (unsigned long long)source.size, strerror(errno));
    }
    *ret_source = source;
    return 0;
}

void source_close(struct source *source)
{
    if (source->base != NULL) {
        munmap(source->base, source->size);
    }
    free(source->offsets);
    *source = (struct source){0};
}
