/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launching from host code, and what becomes of the runtime's errors. Included by the kernels'
 * launchers; any thread, the stream's device being its current one.
 */
#ifndef F8_KERNELS_CUDA_LAUNCH_CUH
#define F8_KERNELS_CUDA_LAUNCH_CUH

#include <cuda_runtime.h>
#include <stdint.h>

/* F8_OK, or F8_EIO after keeping the error's words for f8cu_error(). */
int launch_result(cudaError_t error);

/* A launch of `blocks` (at least 1) blocks of `threads` threads on a stream. */
static inline cudaLaunchConfig_t launch_config(uint32_t blocks, uint32_t threads, void *stream)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(threads);
    config.stream = (cudaStream_t)stream;
    return config;
}

#endif
