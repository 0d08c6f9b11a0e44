/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA device of a rank process: its stream, the memory that its shards lie in, and copies to
 * and from it. By the driver as the client library finds it, so that f8bench is one program for
 * hosts with and without. In the rank's only thread; results are F8_..., with f8_error_text().
 */
#ifndef F8BENCH_GPU_H
#define F8BENCH_GPU_H

#include <stddef.h>
#include <stdint.h>

/* How the memory of the shards is allocated. */
enum gpu_memory {
    GPU_LEGACY, /* cudaMalloc */
    GPU_VMM,    /* several allocations in a row, as PyTorch's expandable segments */
};

struct gpu;

/* Opens the device of this number as the process sees them, or of the rank's turn if it is -1. */
int gpu_open(int ordinal, uint32_t rank, struct gpu **ret_gpu);

/* Frees all; NULL is allowed. After f8_close. */
void gpu_close(struct gpu *gpu);

int gpu_ordinal(const struct gpu *gpu);
const char *gpu_name(const struct gpu *gpu);
void *gpu_stream(const struct gpu *gpu);

/* Allocates the memory of the shards, once; *ret_address is the device's. */
int gpu_allocate(struct gpu *gpu, enum gpu_memory kind, uint64_t size, void **ret_address);

/* Copies the shards there from host memory, in the stream's order. */
int gpu_upload(struct gpu *gpu, const void *from, uint64_t size);

/* Copies from device memory to the host, in the stream's order, and waits for that. */
int gpu_download(struct gpu *gpu, void *to, const void *from, uint64_t size);

/* Prepares, and does, a plain copy on the device of `size` bytes, which is waited for. */
int gpu_prepare_copy(struct gpu *gpu, uint64_t size);
int gpu_copy(struct gpu *gpu);

/* Waits for the stream. */
int gpu_await(struct gpu *gpu);

#endif
