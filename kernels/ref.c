/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The specification of the kernels: one element after the other, no tricks. Every other variant
 * must give these bits. Called through the table of cpu.c and by vector kernels for the elements
 * that do not fill a vector; any thread.
 */
#include "kernels/fp8.h"
#include "kernels/variants.h"

uint32_t f8k_ref_amax(enum f8k_dtype dtype, const void *src, size_t count)
{
    uint32_t amax = 0;
    for (size_t i = 0; i < count; i++)
        f8k_raise(&amax, f8k_magnitude(f8k_load_bits(dtype, src, i)));
    return amax;
}

void f8k_ref_cast(const struct f8k_cast *cast, struct f8k_counts *counts)
{
    uint32_t max_bits = f8k_spec_of(cast->format).max_bits;
    for (size_t i = 0; i < cast->count; i++) {
        uint32_t source = f8k_load_bits(cast->dtype, cast->src, i);
        float scaled = f8k_from_bits(source) * cast->scale;
        uint32_t bits = f8k_bits_of(scaled);
        if (cast->amax)
            f8k_raise(cast->amax, f8k_magnitude(source));
        if (f8k_is_nan(bits))
            counts->nan++;
        else if (f8k_magnitude(bits) > max_bits)
            counts->saturated++;
        cast->dst[i] = f8k_encode(scaled, cast->format);
    }
}

static void store(enum f8k_dtype dtype, void *dst, size_t i, float value)
{
    if (dtype == F8K_F32) {
        uint32_t bits = f8k_bits_of(value);
        if (f8k_is_nan(bits))
            bits = F8K_F32_NAN;
        memcpy((char *)dst + i * sizeof(bits), &bits, sizeof(bits));
        return;
    }
    uint16_t half = dtype == F8K_BF16 ? f8k_to_bf16(value) : f8k_to_f16(value);
    memcpy((char *)dst + i * sizeof(half), &half, sizeof(half));
}

void f8k_ref_dequantise(enum f8k_format format, const uint8_t *src, enum f8k_dtype dtype, void *dst,
    size_t count, float scale)
{
    for (size_t i = 0; i < count; i++)
        store(dtype, dst, i, f8k_decode(src[i], format) / scale);
}

void f8k_ref_to_bf16(const float *src, uint16_t *dst, size_t count)
{
    for (size_t i = 0; i < count; i++)
        dst[i] = f8k_to_bf16(src[i]);
}

void f8k_ref_init(struct f8k_ops *ops)
{
    *ops = (struct f8k_ops){
        .name = "ref",
        .amax = f8k_ref_amax,
        .cast = f8k_ref_cast,
        .dequantise = f8k_ref_dequantise,
        .to_bf16 = f8k_ref_to_bf16,
    };
}
