/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of kernels/ share behind kernels.h: the reference kernels, which vector variants
 * call for heads and tails, and one function per instruction set that overrides what it does
 * better in a table. Private to kernels/; pure, any thread.
 */
#ifndef F8_KERNELS_VARIANTS_H
#define F8_KERNELS_VARIANTS_H

#include "kernels/kernels.h"

#if defined(__x86_64__) || defined(__i386__)
#define F8K_X86 1
#else
#define F8K_X86 0
#endif

uint32_t f8k_ref_amax(enum f8k_dtype dtype, const void *src, size_t count);
void f8k_ref_cast(const struct f8k_cast *cast, struct f8k_counts *counts);
void f8k_ref_dequantise(enum f8k_format format, const uint8_t *src, enum f8k_dtype dtype, void *dst,
    size_t count, float scale);
void f8k_ref_to_bf16(const float *src, uint16_t *dst, size_t count);

/* Fills every entry. */
void f8k_ref_init(struct f8k_ops *ops);

#if F8K_X86
/* Needs AVX2, F16C and FMA. Overrides every entry. */
void f8k_avx2_init(struct f8k_ops *ops);
void f8k_avx2_cast(const struct f8k_cast *cast, struct f8k_counts *counts);
#endif

#endif
