/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated libcuda.so.1: virtual memory management. A POSIX descriptor of a block is a memfd.
 */
#include "driver.h"

CUresult cuMemGetAllocationGranularity(
    size_t *granularity, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags option)
{
    DRIVER_ENTER();
    (void)option; /* the minimum is recommended too */
    if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        cudasim_physical(prop->location.id) < 0)
        return CUDA_ERROR_INVALID_VALUE;
    *granularity = CUDASIM_GRANULARITY;
    return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
    const CUmemAllocationProp *prop, unsigned long long flags)
{
    DRIVER_ENTER();
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    return cudasim_vmm_create(handle, size, prop, __func__);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    DRIVER_ENTER();
    return cudasim_vmm_release(handle, __func__);
}

CUresult cuMemAddressReserve(
    CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr, unsigned long long flags)
{
    DRIVER_ENTER();
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    return cudasim_vmm_reserve(ptr, size, alignment, addr);
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
    DRIVER_ENTER();
    return cudasim_vmm_unreserve(ptr, size);
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
    unsigned long long flags)
{
    DRIVER_ENTER();
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    return cudasim_vmm_map(ptr, size, offset, handle, __func__);
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size)
{
    DRIVER_ENTER();
    return cudasim_vmm_unmap(ptr, size, __func__);
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
    DRIVER_ENTER();
    return cudasim_vmm_access(ptr, size, desc, count);
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
    DRIVER_ENTER();
    return cudasim_vmm_retain(handle, addr);
}

CUresult cuMemGetAllocationPropertiesFromHandle(
    CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle)
{
    DRIVER_ENTER();
    return cudasim_vmm_properties(prop, handle);
}

CUresult cuMemExportToShareableHandle(void *shareableHandle, CUmemGenericAllocationHandle handle,
    CUmemAllocationHandleType handleType, unsigned long long flags)
{
    DRIVER_ENTER();
    if (flags || handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    return cudasim_vmm_export(shareableHandle, handle);
}

/* The descriptor is passed as the pointer, and stays the caller's. */
CUresult cuMemImportFromShareableHandle(
    CUmemGenericAllocationHandle *handle, void *osHandle, CUmemAllocationHandleType shHandleType)
{
    DRIVER_ENTER();
    if (shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    return cudasim_vmm_import(handle, (int)(intptr_t)osHandle, __func__);
}
