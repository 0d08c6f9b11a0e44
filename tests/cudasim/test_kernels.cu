/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels that the simulator's tests run: plain CUDA, in the manner of kernels/cuda. The wrong ones
 * would be wrong on a GPU too.
 */
#include "test_kernels.h"

#include <cuda_runtime.h>

static cudaLaunchConfig_t shape(unsigned num_blocks, unsigned num_threads, void *stream)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(num_blocks);
    config.blockDim = dim3(num_threads);
    config.stream = static_cast<cudaStream_t>(stream);
    return config;
}

static __global__ void fill(uint32_t *dst, size_t count, uint32_t value)
{
    size_t stride = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride)
        dst[i] = value;
}

int kernel_fill(uint32_t *dst, size_t count, uint32_t value, void *stream)
{
    cudaLaunchConfig_t config = shape(4, KERNEL_THREADS, stream);
    return cudaLaunchKernelEx(&config, fill, dst, count, value);
}

static __global__ void add_one(uint32_t *dst, const uint32_t *src, size_t count)
{
    size_t stride = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride)
        dst[i] = src[i] + 1;
}

int kernel_add_one(uint32_t *dst, const uint32_t *src, size_t count, void *stream)
{
    cudaLaunchConfig_t config = shape(4, KERNEL_THREADS, stream);
    return cudaLaunchKernelEx(&config, add_one, dst, src, count);
}

template <bool HAS_BARRIER> static __global__ void sum(uint32_t *out, const uint32_t *src)
{
    __shared__ uint32_t values[KERNEL_THREADS];
    values[threadIdx.x] = src[threadIdx.x];
    if (HAS_BARRIER)
        __syncthreads();
    if (threadIdx.x == 0) {
        uint32_t total = 0;
        for (unsigned i = 0; i < blockDim.x; i++)
            total += values[i];
        *out = total;
    }
}

int kernel_sum(uint32_t *out, const uint32_t *src, int has_barrier, void *stream)
{
    cudaLaunchConfig_t config = shape(1, KERNEL_THREADS, stream);
    if (has_barrier)
        return cudaLaunchKernelEx(&config, sum<true>, out, src);
    return cudaLaunchKernelEx(&config, sum<false>, out, src);
}

static __global__ void warp_sum(uint32_t *out, const uint32_t *src)
{
    __shared__ uint32_t values[32];
    uint32_t total = src[threadIdx.x];
    for (int distance = 16; distance; distance /= 2)
        total += __shfl_xor_sync(0xffffffffu, total, distance);
    if (threadIdx.x % 32 == 0)
        values[threadIdx.x / 32] = total;
    __syncthreads();
    if (threadIdx.x < 32) {
        total = threadIdx.x < blockDim.x / 32 ? values[threadIdx.x] : 0;
        total = __reduce_add_sync(0xffffffffu, total);
        if (threadIdx.x == 0)
            atomicAdd(out, total);
    }
}

int kernel_warp_sum(uint32_t *out, const uint32_t *src, void *stream)
{
    cudaLaunchConfig_t config = shape(2, KERNEL_THREADS, stream);
    return cudaLaunchKernelEx(&config, warp_sum, out, src);
}

static __global__ void votes(uint32_t *out)
{
    unsigned lane = threadIdx.x % 32;
    unsigned odd = __ballot_sync(0xffffffffu, lane & 1);
    int any = __any_sync(0xffffffffu, lane == 31 && threadIdx.x < 32);
    int all = __all_sync(0xffffffffu, lane < 32);
    unsigned up = __shfl_up_sync(0xffffffffu, lane, 1);
    unsigned down = __shfl_down_sync(0xffffffffu, lane, 4, 8);
    unsigned first = __shfl_sync(0xffffffffu, lane + 7, 0);
    int count = __syncthreads_count(lane == 3);
    if (threadIdx.x == 9) {
        out[0] = odd;
        out[1] = (uint32_t)any;
        out[2] = (uint32_t)all;
        out[3] = up;
        out[4] = down;
        out[5] = first;
        out[6] = (uint32_t)count;
    }
    if (threadIdx.x == 40)
        out[7] = odd; /* of a warp with 16 lanes */
}

int kernel_votes(uint32_t *out, void *stream)
{
    cudaLaunchConfig_t config = shape(1, 48, stream);
    return cudaLaunchKernelEx(&config, votes, out);
}

static __global__ void divergent(kernel_divergence how)
{
    if (how == DIVERGENT_END && threadIdx.x == 5)
        return;
    if (how == DIVERGENT_PLACE && threadIdx.x < 32)
        __syncthreads();
    else if (how == DIVERGENT_LANE && threadIdx.x == 3)
        __syncthreads();
    else if (how == DIVERGENT_LANE)
        __syncwarp();
    else if (how == DIVERGENT_MASK)
        __syncwarp(1u);
    __syncthreads();
}

int kernel_divergent(kernel_divergence how, void *stream)
{
    cudaLaunchConfig_t config = shape(1, 64, stream);
    return cudaLaunchKernelEx(&config, divergent, how);
}

static __global__ void store16(void *dst)
{
    *static_cast<uint4 *>(dst) = make_uint4(1, 2, 3, 4);
}

int kernel_store16(void *dst, void *stream)
{
    cudaLaunchConfig_t config = shape(1, 1, stream);
    return cudaLaunchKernelEx(&config, store16, dst);
}

static __global__ void nothing()
{
}

int kernel_shape(unsigned num_blocks, unsigned num_threads, void *stream)
{
    cudaLaunchConfig_t config = shape(num_blocks, num_threads, stream);
    return cudaLaunchKernelEx(&config, nothing);
}
