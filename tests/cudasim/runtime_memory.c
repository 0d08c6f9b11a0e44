/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated libcudart.so.13: memory, copies and memory IPC.
 */
#include "runtime.h"

#include <string.h>

cudaError_t cudaMalloc(void **devPtr, size_t size)
{
    RUNTIME_ENTER();
    CUdeviceptr address;
    if (!devPtr)
        return runtime_done(CUDA_ERROR_INVALID_VALUE);
    if (!size) {
        *devPtr = NULL;
        return cudaSuccess;
    }
    CUresult result = cudasim_malloc(&address, size, cudasim_current_device(), __func__);
    if (!result)
        *devPtr = (void *)address;
    return runtime_done(result);
}

cudaError_t cudaMallocManaged(void **devPtr, size_t size, unsigned int flags)
{
    RUNTIME_ENTER();
    CUdeviceptr address;
    if (flags != cudaMemAttachGlobal)
        return runtime_done(CUDA_ERROR_INVALID_VALUE);
    CUresult result = cudasim_malloc_managed(&address, size, cudasim_current_device(), __func__);
    if (!result)
        *devPtr = (void *)address;
    return runtime_done(result);
}

cudaError_t cudaMallocAsync(void **devPtr, size_t size, cudaStream_t hStream)
{
    RUNTIME_ENTER();
    CUdeviceptr address;
    CUresult result = cudasim_malloc_async(&address, size, hStream, __func__);
    if (!result)
        *devPtr = (void *)address;
    return runtime_done(result);
}

cudaError_t cudaFree(void *devPtr)
{
    RUNTIME_ENTER();
    return runtime_done(cudasim_free((CUdeviceptr)(uintptr_t)devPtr, __func__));
}

cudaError_t cudaFreeAsync(void *devPtr, cudaStream_t hStream)
{
    RUNTIME_ENTER();
    return runtime_done(cudasim_free_async((CUdeviceptr)(uintptr_t)devPtr, hStream, __func__));
}

cudaError_t cudaHostAlloc(void **pHost, size_t size, unsigned int flags)
{
    RUNTIME_ENTER();
    if (flags & ~(cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined))
        return runtime_done(CUDA_ERROR_INVALID_VALUE);
    return runtime_done(cudasim_malloc_host(pHost, size, cudasim_current_device(), __func__));
}

cudaError_t cudaMallocHost(void **ptr, size_t size)
{
    RUNTIME_ENTER();
    return runtime_done(cudasim_malloc_host(ptr, size, cudasim_current_device(), __func__));
}

cudaError_t cudaFreeHost(void *ptr)
{
    RUNTIME_ENTER();
    return runtime_done(cudasim_free_host(ptr, __func__));
}

cudaError_t cudaMemGetInfo(size_t *free, size_t *total)
{
    RUNTIME_ENTER();
    *free = cudasim_memory_left(cudasim_current_device());
    *total = cudasim_device_memory();
    return cudaSuccess;
}

/* Memory that CUDA does not know is no error here, unlike with the driver. */
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *ptr)
{
    RUNTIME_ENTER();
    struct cudasim_pointer pointer;
    memset(attributes, 0, sizeof *attributes);
    attributes->type = cudaMemoryTypeUnregistered;
    attributes->device = cudaInvalidDeviceId;
    attributes->hostPointer = (void *)(uintptr_t)ptr;
    if (cudasim_pointer(ptr, &pointer))
        return cudaSuccess;
    bool is_device = pointer.type == CU_MEMORYTYPE_DEVICE;
    attributes->type = pointer.is_managed ? cudaMemoryTypeManaged
                       : is_device        ? cudaMemoryTypeDevice
                                          : cudaMemoryTypeHost;
    attributes->device = cudasim_ordinal(pointer.device);
    attributes->devicePointer = (void *)(uintptr_t)ptr;
    if (is_device && !pointer.is_managed)
        attributes->hostPointer = NULL;
    return cudaSuccess;
}

/* ---- copies ---- */

static struct cudasim_copy plain_copy(void *dst, const void *src, size_t count)
{
    return (struct cudasim_copy){dst, src, count, count, count, 1};
}

cudaError_t cudaMemcpy(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind)
{
    RUNTIME_ENTER();
    struct cudasim_copy copy = plain_copy(dst, src, count);
    if ((unsigned)kind > cudaMemcpyDefault)
        return runtime_done((CUresult)cudaErrorInvalidMemcpyDirection);
    return runtime_done(cudasim_copy_now(&copy, __func__));
}

cudaError_t cudaMemcpyAsync(
    void *dst, const void *src, size_t count, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    RUNTIME_ENTER();
    struct cudasim_copy copy = plain_copy(dst, src, count);
    if ((unsigned)kind > cudaMemcpyDefault)
        return runtime_done((CUresult)cudaErrorInvalidMemcpyDirection);
    return runtime_done(cudasim_copy_async(&copy, stream, __func__));
}

cudaError_t cudaMemcpy2DAsync(void *dst, size_t dpitch, const void *src, size_t spitch,
    size_t width, size_t height, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    RUNTIME_ENTER();
    struct cudasim_copy copy = {dst, src, dpitch, spitch, width, height};
    if ((unsigned)kind > cudaMemcpyDefault)
        return runtime_done((CUresult)cudaErrorInvalidMemcpyDirection);
    if (width > dpitch || width > spitch)
        return runtime_done((CUresult)cudaErrorInvalidPitchValue);
    return runtime_done(cudasim_copy_async(&copy, stream, __func__));
}

cudaError_t cudaMemset(void *devPtr, int value, size_t count)
{
    RUNTIME_ENTER();
    return runtime_done(cudasim_fill_now(devPtr, value, count, __func__));
}

cudaError_t cudaMemsetAsync(void *devPtr, int value, size_t count, cudaStream_t stream)
{
    RUNTIME_ENTER();
    return runtime_done(cudasim_fill_async(devPtr, value, count, stream, __func__));
}

/* ---- IPC ---- */

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *devPtr)
{
    RUNTIME_ENTER();
    return runtime_done(cudasim_ipc_export((CUdeviceptr)(uintptr_t)devPtr, handle));
}

cudaError_t cudaIpcOpenMemHandle(void **devPtr, cudaIpcMemHandle_t handle, unsigned int flags)
{
    RUNTIME_ENTER();
    CUdeviceptr address;
    if (!devPtr || flags != cudaIpcMemLazyEnablePeerAccess)
        return runtime_done(CUDA_ERROR_INVALID_VALUE);
    CUresult result = cudasim_ipc_open(&address, &handle, cudasim_current_device(), __func__);
    if (!result)
        *devPtr = (void *)address;
    return runtime_done(result);
}

cudaError_t cudaIpcCloseMemHandle(void *devPtr)
{
    RUNTIME_ENTER();
    return runtime_done(cudasim_ipc_close((CUdeviceptr)(uintptr_t)devPtr, __func__));
}
