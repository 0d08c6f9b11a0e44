/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Guarded memory and test values for the kernel tests; see kernel_support.h. Linked into each of
 * their programs; one thread.
 */
#include "tests/kernel_support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

const enum f8k_dtype all_dtypes[3] = {F8K_F32, F8K_BF16, F8K_F16};
const enum f8k_format all_formats[2] = {F8K_E4M3FN, F8K_E5M2};

struct guarded guarded_open(size_t min_size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct guarded g = {.size = (min_size + page - 1) / page * page};
    g.map_size = g.size + 2 * page;
    g.map = mmap(NULL, g.map_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (g.map == MAP_FAILED) {
        perror("guarded_open: mmap");
        exit(EXIT_FAILURE);
    }
    g.low = (uint8_t *)g.map + page;
    if (mprotect(g.low, g.size, PROT_READ | PROT_WRITE) != 0) {
        perror("guarded_open: mprotect");
        exit(EXIT_FAILURE);
    }
    return g;
}

void guarded_close(struct guarded *guarded)
{
    munmap(guarded->map, guarded->map_size);
    guarded->map = NULL;
}

void *guarded_at_end(const struct guarded *guarded, size_t bytes, size_t gap)
{
    return guarded->low + guarded->size - gap - bytes;
}

uint64_t rng_next(struct rng *rng)
{
    uint64_t z = rng->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

size_t rng_below(struct rng *rng, size_t limit)
{
    return (size_t)(rng_next(rng) % limit);
}

static const uint32_t f32_specials[] = {0, 0x80000000, 1, 0x80000001, 0x007fffff, 0x00800000,
    0x3f800000, 0xbf800000, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7f800001, 0x7fc00000,
    0xffc00000, 0xffffffff, 0x43e00000, 0x43e00001, 0xc3e80000, 0x47600000, 0x47600001, 0x3a800000,
    0x3a800001, 0x37000000, 0x37000001};
static const uint32_t bf16_specials[] = {0, 0x8000, 1, 0x8001, 0x007f, 0x0080, 0x3f80, 0xbf80,
    0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7f81, 0x7fc0, 0xffc0, 0xffff, 0x43e0, 0x43e1, 0xc3e8, 0x4760,
    0x4761, 0x3a80, 0x3a81, 0x3700, 0x3701};
static const uint32_t f16_specials[] = {0, 0x8000, 1, 0x8001, 0x03ff, 0x0400, 0x3c00, 0xbc00,
    0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7c01, 0x7e00, 0xfe00, 0xffff, 0x5f00, 0x5f01, 0xdf40, 0x7b00,
    0x7b01, 0x1400, 0x1401, 0x0100, 0x0101};

#define SPECIALS (sizeof(f32_specials) / sizeof(f32_specials[0]))
_Static_assert(sizeof(bf16_specials) == sizeof(f32_specials), "same specials in bf16");
_Static_assert(sizeof(f16_specials) == sizeof(f32_specials), "same specials in fp16");

const uint32_t *special_element(enum f8k_dtype dtype, size_t i)
{
    if (i >= SPECIALS)
        return NULL;
    if (dtype == F8K_F32)
        return &f32_specials[i];
    return dtype == F8K_BF16 ? &bf16_specials[i] : &f16_specials[i];
}

uint32_t random_element(struct rng *rng, enum f8k_dtype dtype)
{
    uint32_t bits = (uint32_t)rng_next(rng);
    switch (rng_below(rng, 8)) {
    case 0:
        return *special_element(dtype, rng_below(rng, SPECIALS));
    case 1:
        return dtype == F8K_F32 ? bits : bits & 0xffff;
    default: /* a magnitude below 2, as weights have it */
        if (dtype == F8K_F32)
            return (bits & 0x83ffffff) | 0x3c000000;
        return dtype == F8K_BF16 ? (bits & 0x83ff) | 0x3c00 : (bits & 0x9fff) | 0x2000;
    }
}

void set_element(enum f8k_dtype dtype, void *dst, size_t i, uint32_t bits)
{
    uint16_t half = (uint16_t)bits;
    if (dtype == F8K_F32)
        memcpy((char *)dst + 4 * i, &bits, 4);
    else
        memcpy((char *)dst + 2 * i, &half, 2);
}

/* 128 mantissas: multiples of 2^19 (ties of both formats among them), one off, ends, random. */
static uint32_t pattern_mantissa(struct rng *rng, unsigned i)
{
    uint32_t grid = (i % 16) << 19;
    switch (i / 16) {
    case 0:
        return grid;
    case 1:
        return grid + 1;
    case 2:
        return (grid - 1) & 0x7fffff;
    case 3:
        return (grid + 0x3ffff) & 0x7fffff;
    default:
        return (uint32_t)rng_next(rng) & 0x7fffff;
    }
}

void fill_patterns(enum f8k_dtype dtype, void *dst)
{
    struct rng rng = {.state = 32};
    for (uint32_t i = 0; i < PATTERNS; i++) {
        uint32_t sign_exponent = i / 128;
        bool wide = dtype == F8K_F32;
        uint32_t mantissa = wide ? pattern_mantissa(&rng, i % 128) : 0;
        set_element(dtype, dst, i, wide ? sign_exponent << 23 | mantissa : i);
    }
}

static const float special_scales[] = {0.0f, -0.0f, 1.0f, -1.0f, INFINITY, NAN, 448.0f, 57344.0f,
    4.48e14f, 65504.0f, 0x1p-149f, 0x1.fffffep+127f, 0x1.fffffep-1f, -163.2f, 163.22011f,
    0.0026758f};

#define SPECIAL_SCALES (sizeof(special_scales) / sizeof(special_scales[0]))

float random_scale(struct rng *rng)
{
    if (rng_below(rng, 4) == 0)
        return special_scales[rng_below(rng, SPECIAL_SCALES)];
    float fraction = 1.0f + (float)(rng_next(rng) >> 41) * 0x1p-23f;
    return ldexpf(fraction, (int)rng_below(rng, 64) - 24);
}

float pattern_scale(size_t i)
{
    if (i < SPECIAL_SCALES)
        return special_scales[i];
    i -= SPECIAL_SCALES;
    if (i < 139) /* every other power of two, subnormal ones too */
        return ldexpf(1.0f, 2 * (int)i - 149);
    struct rng rng = {.state = i};
    float fraction = 1.0f + (float)(rng_next(&rng) >> 41) * 0x1p-23f;
    return ldexpf(fraction, (int)rng_below(&rng, 120) - 60);
}

int count_variants(void)
{
    int count = 0;
    while (f8k_variant((size_t)count))
        count++;
    return count;
}
