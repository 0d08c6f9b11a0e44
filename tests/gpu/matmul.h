/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plain matrix product on a device: what a trainer's GPU is busy with while the daemon works
 * beside it. Not fast, but bound by arithmetic and on all SMs, as a trainer's products are. No CUDA
 * type appears here: the stream is a cudaStream_t.
 */
#ifndef F8_TESTS_GPU_MATMUL_H
#define F8_TESTS_GPU_MATMUL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MATMUL_TILE 32

/* c = a * b, of n x n fp32 in device memory; n is a multiple of MATMUL_TILE. A cudaError_t. */
int matmul(const float *a, const float *b, float *c, uint32_t n, void *stream);

#ifdef __cplusplus
}
#endif

#endif
