/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Float8 back to the source's type, a block to each part of one tensor: for checkpoints and for
 * looking at weights, not on the way of a step. Any thread.
 */
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/magnitude.cuh"
#include "kernels/cuda/parts.cuh"
#include "proto/status.h"

/* The pattern of one element. */
template <enum f8k_dtype dtype, enum f8k_format format>
static __device__ __forceinline__ uint32_t element_from(uint32_t code, float scale)
{
    float value = __fdiv_rn(fp8_value<format>(code), scale);
    uint32_t bits = __float_as_uint(value);
    if (dtype == F8K_BF16)
        return bf16_of(bits);
    if (dtype == F8K_F16)
        return f16_of(value);
    return is_nan(bits) ? F32_NAN : bits;
}

/* Word `i` of a vector of elements, from its code or its two codes. */
template <enum f8k_dtype dtype, enum f8k_format format>
static __device__ __forceinline__ uint32_t word_from(const uint8_t *codes, uint32_t i, float scale)
{
    if constexpr (dtype == F8K_F32)
        return element_from<dtype, format>(codes[i], scale);
    else
        return element_from<dtype, format>(codes[2 * i + 1], scale) << 16 |
               element_from<dtype, format>(codes[2 * i], scale);
}

/* Vectors begin where dst is aligned; src is read by bytes, which is a small part of the traffic.
 */
template <enum f8k_dtype dtype, enum f8k_format format>
static __global__ void __launch_bounds__(BLOCK_THREADS)
    dequantise_kernel(const uint8_t *src, void *dst, uint64_t count, const float *scale_at)
{
    using element = typename element_of<dtype>::type;
    struct part part = part_of(count, blockIdx.x);
    const uint8_t *codes = src + part.begin;
    element *elements = (element *)dst + part.begin;
    struct span span = span_of(elements, part.count);
    uint4 *vectors = (uint4 *)(elements + span.head);
    float scale = *scale_at;
    for_each_single(span,
        [&](uint32_t i) { elements[i] = (element)element_from<dtype, format>(codes[i], scale); });
    for (uint32_t i = threadIdx.x; i < span.vectors; i += BLOCK_THREADS) {
        const uint8_t *from = codes + span.head + i * per_vector<dtype>;
        vectors[i] = make_uint4(word_from<dtype, format>(from, 0, scale),
            word_from<dtype, format>(from, 1, scale), word_from<dtype, format>(from, 2, scale),
            word_from<dtype, format>(from, 3, scale));
    }
}

template <enum f8k_dtype dtype>
static int launch_dequantise(enum f8k_format format, uint32_t num_parts, const uint8_t *src,
    void *dst, uint64_t count, const float *scale, void *stream)
{
    auto kernel = format == F8K_E4M3FN ? dequantise_kernel<dtype, F8K_E4M3FN>
                                       : dequantise_kernel<dtype, F8K_E5M2>;
    cudaLaunchConfig_t config = launch_config(num_parts, BLOCK_THREADS, stream);
    return launch_result(cudaLaunchKernelEx(&config, kernel, src, dst, count, scale));
}

int f8cu_dequantise(enum f8k_format format, const uint8_t *src, enum f8k_dtype dtype, void *dst,
    uint64_t count, const float *scale, void *stream)
{
    if (count == 0)
        return F8_OK;
    if (!src || !dst || !scale || (count - 1) / F8CU_PART >= INT32_MAX)
        return F8_EINVAL;
    if (format != F8K_E4M3FN && format != F8K_E5M2)
        return F8_EINVAL;
    uint32_t num_parts = f8cu_parts(count);
    switch (dtype) {
    case F8K_F32:
        return launch_dequantise<F8K_F32>(format, num_parts, src, dst, count, scale, stream);
    case F8K_BF16:
        return launch_dequantise<F8K_BF16>(format, num_parts, src, dst, count, scale, stream);
    case F8K_F16:
        return launch_dequantise<F8K_F16>(format, num_parts, src, dst, count, scale, stream);
    }
    return F8_EINVAL;
}
