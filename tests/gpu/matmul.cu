/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A matrix product over tiles in shared memory, an element of the result a thread: see matmul.h.
 * Launched by bench_beside.
 */
#include "tests/gpu/matmul.h"

#include <cuda_runtime.h>

static __global__ void __launch_bounds__(MATMUL_TILE *MATMUL_TILE)
    matmul_kernel(const float *a, const float *b, float *c, uint32_t n)
{
    __shared__ float tile_a[MATMUL_TILE][MATMUL_TILE];
    __shared__ float tile_b[MATMUL_TILE][MATMUL_TILE];
    uint32_t x = threadIdx.x % MATMUL_TILE, y = threadIdx.x / MATMUL_TILE;
    uint32_t tiles = n / MATMUL_TILE;
    uint32_t row = blockIdx.x / tiles * MATMUL_TILE + y;
    uint32_t col = blockIdx.x % tiles * MATMUL_TILE + x;
    float sum = 0;
    for (uint32_t k = 0; k < n; k += MATMUL_TILE) {
        tile_a[y][x] = a[(size_t)row * n + k + x];
        tile_b[y][x] = b[(size_t)(k + y) * n + col];
        __syncthreads();
        for (uint32_t i = 0; i < MATMUL_TILE; i++)
            sum += tile_a[y][i] * tile_b[i][x];
        __syncthreads();
    }
    c[(size_t)row * n + col] = sum;
}

int matmul(const float *a, const float *b, float *c, uint32_t n, void *stream)
{
    cudaLaunchConfig_t config = {};
    uint32_t tiles = n / MATMUL_TILE;
    config.gridDim = dim3(tiles * tiles);
    config.blockDim = dim3(MATMUL_TILE * MATMUL_TILE);
    config.stream = (cudaStream_t)stream;
    return cudaLaunchKernelEx(&config, matmul_kernel, a, b, c, n);
}
