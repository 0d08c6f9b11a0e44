/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated libcuda.so.1: memory, what a pointer points to, and copies.
 */
#include "driver.h"

#include <string.h>

CUresult cuMemAlloc(CUdeviceptr *dptr, size_t bytesize)
{
    DRIVER_ENTER_CONTEXT();
    return cudasim_malloc(dptr, bytesize, driver_device(), __func__);
}

CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
    DRIVER_ENTER_CONTEXT();
    if (flags != CU_MEM_ATTACH_GLOBAL)
        return CUDA_ERROR_INVALID_VALUE;
    return cudasim_malloc_managed(dptr, bytesize, driver_device(), __func__);
}

CUresult cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
    DRIVER_ENTER_CONTEXT();
    return cudasim_malloc_async(dptr, bytesize, hStream, __func__);
}

CUresult cuMemFree(CUdeviceptr dptr)
{
    DRIVER_ENTER_CONTEXT();
    return cudasim_free(dptr, __func__);
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream)
{
    DRIVER_ENTER_CONTEXT();
    return cudasim_free_async(dptr, hStream, __func__);
}

CUresult cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags)
{
    DRIVER_ENTER_CONTEXT();
    (void)Flags;
    return cudasim_malloc_host(pp, bytesize, driver_device(), __func__);
}

CUresult cuMemFreeHost(void *p)
{
    DRIVER_ENTER_CONTEXT();
    return cudasim_free_host(p, __func__);
}

CUresult cuMemGetInfo(size_t *free, size_t *total)
{
    DRIVER_ENTER_CONTEXT();
    *free = cudasim_memory_left(driver_device());
    *total = cudasim_device_memory();
    return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
    DRIVER_ENTER_CONTEXT();
    struct cudasim_pointer pointer;
    if (cudasim_pointer((const void *)dptr, &pointer))
        return CUDA_ERROR_NOT_FOUND;
    if (pbase)
        *pbase = pointer.base;
    if (psize)
        *psize = pointer.size;
    return CUDA_SUCCESS;
}

/* ---- attributes ---- */

/* The size of an attribute's value, and the value; 0 for one that is not simulated. */
static size_t attribute_of(
    const struct cudasim_pointer *pointer, CUpointer_attribute attribute, uint64_t *ret_value)
{
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *ret_value = (uint64_t)(uintptr_t)cudasim_context_of(pointer->device);
        return sizeof(CUcontext);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *ret_value = pointer->type;
        return sizeof(unsigned);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *ret_value = (uint32_t)cudasim_ordinal(pointer->device);
        return sizeof(int);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *ret_value = pointer->base;
        return sizeof(void *);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *ret_value = pointer->size;
        return sizeof(size_t);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *ret_value = pointer->id;
        return sizeof(unsigned long long);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *ret_value = pointer->is_managed;
        return sizeof(bool);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *ret_value = pointer->is_legacy_ipc_capable;
        return sizeof(bool);
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *ret_value = true;
        return sizeof(bool);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *ret_value = pointer->handle_types;
        return sizeof(uint64_t);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: /* any that is not NULL: the pools have no functions
                                               */
        *ret_value =
            pointer->is_pool ? (uint64_t)(uintptr_t)cudasim_context_of(pointer->device) : 0;
        return sizeof(CUmemoryPool);
    default:
        return 0;
    }
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
    DRIVER_ENTER();
    struct cudasim_pointer pointer;
    uint64_t value; /* little-endian: a shorter value is its first bytes */
    CUresult result = cudasim_pointer((const void *)ptr, &pointer);
    if (result)
        return result;
    size_t size = attribute_of(&pointer, attribute, &value);
    if (!size) {
        cudasim_note("pointer attribute %d is not simulated", (int)attribute);
        return CUDA_ERROR_INVALID_VALUE;
    }
    memcpy(data, &value, size);
    return CUDA_SUCCESS;
}

/* For memory that CUDA does not know: no error, and all is 0. */
CUresult cuPointerGetAttributes(
    unsigned int numAttributes, CUpointer_attribute *attributes, void **data, CUdeviceptr ptr)
{
    DRIVER_ENTER();
    struct cudasim_pointer pointer, unknown = {0};
    bool is_known = cudasim_pointer((const void *)ptr, &pointer) == CUDA_SUCCESS;
    for (unsigned i = 0; i < numAttributes; i++) {
        uint64_t value;
        size_t size = attribute_of(is_known ? &pointer : &unknown, attributes[i], &value);
        if (!size)
            return CUDA_ERROR_INVALID_VALUE;
        if (!is_known)
            value = attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL ? (uint32_t)-2 : 0;
        memcpy(data[i], &value, size);
    }
    return CUDA_SUCCESS;
}

/* ---- copies ---- */

static struct cudasim_copy plain_copy(CUdeviceptr dst, CUdeviceptr src, size_t count)
{
    return (struct cudasim_copy){
        (void *)(uintptr_t)dst, (const void *)(uintptr_t)src, count, count, count, 1};
}

CUresult cuMemcpyHtoD(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount)
{
    DRIVER_ENTER_CONTEXT();
    struct cudasim_copy copy = plain_copy(dstDevice, (uintptr_t)srcHost, ByteCount);
    return cudasim_copy_now(&copy, __func__);
}

CUresult cuMemcpyDtoH(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount)
{
    DRIVER_ENTER_CONTEXT();
    struct cudasim_copy copy = plain_copy((uintptr_t)dstHost, srcDevice, ByteCount);
    return cudasim_copy_now(&copy, __func__);
}

CUresult cuMemcpyHtoDAsync(
    CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount, CUstream hStream)
{
    DRIVER_ENTER_CONTEXT();
    struct cudasim_copy copy = plain_copy(dstDevice, (uintptr_t)srcHost, ByteCount);
    return cudasim_copy_async(&copy, hStream, __func__);
}

CUresult cuMemcpyDtoHAsync(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream)
{
    DRIVER_ENTER_CONTEXT();
    struct cudasim_copy copy = plain_copy((uintptr_t)dstHost, srcDevice, ByteCount);
    return cudasim_copy_async(&copy, hStream, __func__);
}

CUresult cuMemcpyDtoDAsync(
    CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream)
{
    DRIVER_ENTER_CONTEXT();
    struct cudasim_copy copy = plain_copy(dstDevice, srcDevice, ByteCount);
    return cudasim_copy_async(&copy, hStream, __func__);
}

CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream)
{
    DRIVER_ENTER_CONTEXT();
    struct cudasim_copy copy = plain_copy(dst, src, ByteCount);
    return cudasim_copy_async(&copy, hStream, __func__);
}

static uintptr_t corner(
    CUmemorytype type, const void *host, CUdeviceptr device, size_t x, size_t y, size_t pitch)
{
    return (type == CU_MEMORYTYPE_HOST ? (uintptr_t)host : (uintptr_t)device) + y * pitch + x;
}

CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D *pCopy, CUstream hStream)
{
    DRIVER_ENTER_CONTEXT();
    const CUDA_MEMCPY2D *c = pCopy;
    if (c->srcMemoryType == CU_MEMORYTYPE_ARRAY || c->dstMemoryType == CU_MEMORYTYPE_ARRAY)
        return CUDA_ERROR_NOT_SUPPORTED;
    struct cudasim_copy copy = {
        .dst = (void *)corner(
            c->dstMemoryType, c->dstHost, c->dstDevice, c->dstXInBytes, c->dstY, c->dstPitch),
        .src = (const void *)corner(
            c->srcMemoryType, c->srcHost, c->srcDevice, c->srcXInBytes, c->srcY, c->srcPitch),
        .dst_pitch = c->dstPitch,
        .src_pitch = c->srcPitch,
        .width = c->WidthInBytes,
        .height = c->Height,
    };
    return cudasim_copy_async(&copy, hStream, __func__);
}

CUresult cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream)
{
    DRIVER_ENTER_CONTEXT();
    return cudasim_fill_async((void *)(uintptr_t)dstDevice, uc, N, hStream, __func__);
}
