/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the amaxes of ranks to scales, without a way back to the host: the maximum over ranks that
 * share a device, and f8k_scale for each weight. Called between a reduction and the casts that use
 * its scales, on any thread.
 */
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/numbers.cuh"
#include "proto/status.h"

constexpr uint32_t SCALE_THREADS = 128;

/* As in kernels/scale.c. */
constexpr double AMAX_FLOOR = 1e-12;
constexpr double F16_MAX = 65504.0;

static uint32_t blocks_for(uint32_t count)
{
    return count / SCALE_THREADS + (count % SCALE_THREADS != 0);
}

/* This thread's place among all of the grid; they may be more than 32 bits count, at its end. */
static __device__ __forceinline__ uint64_t thread_index()
{
    return (uint64_t)blockIdx.x * SCALE_THREADS + threadIdx.x;
}

static __global__ void __launch_bounds__(SCALE_THREADS) max_rows_kernel(
    const uint32_t *rows, uint32_t num_rows, uint64_t stride, uint32_t *out, uint32_t count)
{
    uint64_t i = thread_index();
    if (i >= count)
        return;
    uint32_t peak = 0;
    for (uint32_t row = 0; row < num_rows; row++)
        peak = larger(peak, rows[row * stride + i]);
    out[i] = peak;
}

int f8cu_max_rows(const uint32_t *rows, uint32_t num_rows, uint64_t stride, uint32_t *out,
    uint32_t count, void *stream)
{
    if (count == 0)
        return F8_OK;
    if (!rows || !out || num_rows == 0 || (num_rows > 1 && stride < count))
        return F8_EINVAL;
    cudaLaunchConfig_t config = launch_config(blocks_for(count), SCALE_THREADS, stream);
    return launch_result(
        cudaLaunchKernelEx(&config, max_rows_kernel, rows, num_rows, stride, out, count));
}

/* AMAX_FLOOR as the precompute path has it: rounded to the source's type, which is 0 for fp16. */
static __device__ __forceinline__ double rounded_floor(enum f8k_dtype dtype)
{
    uint32_t bits = __float_as_uint((float)AMAX_FLOOR);
    if (dtype == F8K_F32)
        return __uint_as_float(bits);
    return dtype == F8K_BF16 ? __uint_as_float((uint32_t)bf16_of(bits) << 16) : 0.0;
}

/* 2^floor(log2 scale) for a scale >= 0; 0, Inf and NaN are kept. */
static __device__ __forceinline__ float floor_power_of_two(float scale)
{
    uint32_t bits = __float_as_uint(scale);
    if (bits == 0 || magnitude_of(bits) >= F32_INF)
        return scale;
    if (bits >> 23 != 0)
        return __uint_as_float(bits & F32_INF);
    while ((bits & (bits - 1)) != 0) /* subnormal: the highest bit is the power */
        bits &= bits - 1;
    return __uint_as_float(bits);
}

/* f8k_scale. */
static __device__ __forceinline__ float scale_of(const struct f8cu_scale &entry, uint32_t amax_bits)
{
    if (is_nan(amax_bits))
        return __uint_as_float(F32_NAN);
    enum f8k_dtype dtype = (enum f8k_dtype)entry.dtype;
    double amax = __uint_as_float(amax_bits);
    double least = entry.path == F8K_SCALE_PRECOMPUTE ? rounded_floor(dtype) : AMAX_FLOOR;
    double most = __uint_as_float(
        entry.format == F8K_E4M3FN ? fp8_spec<F8K_E4M3FN>::max_bits : fp8_spec<F8K_E5M2>::max_bits);
    if (amax < least)
        amax = least;
    double scale = amax > 0 ? __ddiv_rn(most, amax) : F16_MAX;
    if (dtype == F8K_F16 && scale > F16_MAX)
        scale = F16_MAX;
    float rounded = __double2float_rn(scale);
    return entry.power_of_two ? floor_power_of_two(rounded) : rounded;
}

static __global__ void __launch_bounds__(SCALE_THREADS)
    set_scales_kernel(const struct f8cu_scale *table, uint32_t count)
{
    uint64_t i = thread_index();
    if (i >= count)
        return;
    const struct f8cu_scale entry = table[i];
    float scale = entry.amax ? scale_of(entry, *entry.amax) : entry.value;
    if (entry.scale)
        *entry.scale = scale;
    if (entry.copy)
        *entry.copy = scale;
}

int f8cu_set_scales(const struct f8cu_scale *table, uint32_t count, void *stream)
{
    if (count == 0)
        return F8_OK;
    if (!table)
        return F8_EINVAL;
    cudaLaunchConfig_t config = launch_config(blocks_for(count), SCALE_THREADS, stream);
    return launch_result(cudaLaunchKernelEx(&config, set_scales_kernel, table, count));
}
