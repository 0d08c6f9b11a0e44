/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device memory for kernel tests; see cuda_device.h. Linked with a CUDA runtime.
 */
#include "tests/lib/cuda_device.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

static cudaStream_t stream;

static void need(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
    exit(EXIT_FAILURE);
}

bool device_open(void)
{
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess || count == 0) {
        printf("skipped: no CUDA device: %s\n", cudaGetErrorString(error));
        return false;
    }
    need(cudaSetDevice(0), "cudaSetDevice");
    need(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    return true;
}

void device_close(void)
{
    need(cudaStreamDestroy(stream), "cudaStreamDestroy");
    stream = NULL;
}

void *device_stream(void)
{
    return stream;
}

void *device_alloc(size_t bytes)
{
    void *device = NULL;
    need(cudaMalloc(&device, bytes), "cudaMalloc");
    return device;
}

void device_free(void *device)
{
    need(cudaFree(device), "cudaFree");
}

void device_upload(void *device, const void *host, size_t bytes)
{
    need(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream), "upload");
    device_wait();
}

void device_download(void *host, const void *device, size_t bytes)
{
    need(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream), "download");
    device_wait();
}

void device_wait(void)
{
    need(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}
