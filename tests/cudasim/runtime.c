/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated libcudart.so.13: versions, devices, errors, and the way to the driver's functions.
 * The other runtime*.c have memory, streams and events. Behaviour is in libcudasim.so.
 */
#include "runtime.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* ---- versions and errors ---- */

cudaError_t cudaDriverGetVersion(int *driverVersion)
{
    cudasim_enter_anywhere(__func__);
    *driverVersion = cudasim_driver_version();
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *runtimeVersion)
{
    *runtimeVersion = RUNTIME_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    return (cudaError_t)cudasim_last_error(true);
}

cudaError_t cudaPeekAtLastError(void)
{
    return (cudaError_t)cudasim_last_error(false);
}

const char *cudaGetErrorName(cudaError_t error)
{
    const struct cudasim_error *known = cudasim_error((int)error);
    return known ? known->runtime_name : "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error)
{
    const struct cudasim_error *known = cudasim_error((int)error);
    return known ? known->text : "unrecognized error code";
}

/* ---- devices ---- */

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 0;
    RUNTIME_ENTER();
    *count = cudasim_num_visible();
    return cudaSuccess;
}

/* The runtime holds each context that it has used once. */
static void use_context(int device)
{
    static bool is_used[CUDASIM_MAX_DEVICES];
    if (!__atomic_exchange_n(&is_used[device], true, __ATOMIC_RELAXED))
        cudasim_context_retain(device, 1);
    cudasim_context_set(cudasim_context_of(device));
}

cudaError_t cudaSetDevice(int device)
{
    RUNTIME_ENTER();
    int physical = cudasim_physical(device);
    if (physical < 0)
        return runtime_done(CUDA_ERROR_INVALID_DEVICE);
    use_context(physical);
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    RUNTIME_ENTER();
    *device = cudasim_ordinal(cudasim_current_device());
    return cudaSuccess;
}

cudaError_t cudaGetDeviceFlags(unsigned int *flags)
{
    RUNTIME_ENTER();
    *flags = cudaDeviceScheduleAuto;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device)
{
    RUNTIME_ENTER();
    int physical = cudasim_physical(device);
    if (physical < 0)
        return runtime_done(CUDA_ERROR_INVALID_DEVICE);
    memset(prop, 0, sizeof *prop);
    cudasim_device_name(physical, prop->name, sizeof prop->name);
    cudasim_device_uuid(physical, &prop->uuid);
    prop->major = 9;
    prop->multiProcessorCount = 4;
    prop->warpSize = 32;
    prop->maxThreadsPerBlock = 1024;
    prop->totalGlobalMem = cudasim_device_memory();
    prop->sharedMemPerBlock = 48 << 10;
    prop->asyncEngineCount = 4;
    prop->unifiedAddressing = 1;
    prop->managedMemory = 1;
    prop->memoryPoolsSupported = 1;
    prop->pciBusID = physical + 1;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device)
{
    RUNTIME_ENTER();
    int physical = cudasim_physical(device);
    if (physical < 0)
        return runtime_done(CUDA_ERROR_INVALID_DEVICE);
    /* The two enumerations have the same numbers. */
    return runtime_done(cudasim_device_attribute(value, (CUdevice_attribute)attr, physical));
}

cudaError_t cudaDeviceGetPCIBusId(char *pciBusId, int len, int device)
{
    RUNTIME_ENTER();
    int physical = cudasim_physical(device);
    if (physical < 0)
        return runtime_done(CUDA_ERROR_INVALID_DEVICE);
    cudasim_device_pci(physical, pciBusId, (size_t)len);
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *canAccessPeer, int device, int peerDevice)
{
    RUNTIME_ENTER();
    if (cudasim_physical(device) < 0 || cudasim_physical(peerDevice) < 0)
        return runtime_done(CUDA_ERROR_INVALID_DEVICE);
    *canAccessPeer = device != peerDevice;
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peerDevice, unsigned int flags)
{
    RUNTIME_ENTER();
    int peer = cudasim_physical(peerDevice);
    if (peer < 0)
        return runtime_done(CUDA_ERROR_INVALID_DEVICE);
    if (flags)
        return runtime_done(CUDA_ERROR_INVALID_VALUE);
    return runtime_done(cudasim_enable_peer(cudasim_current_device(), peer));
}

cudaError_t cudaDeviceSynchronize(void)
{
    RUNTIME_ENTER();
    return runtime_done(cudasim_device_synchronize(cudasim_current_device()));
}

/* ---- the driver's functions ---- */

typedef CUresult get_proc_address(
    const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **funcPtr,
    unsigned int cudaVersion, unsigned long long flags,
    enum cudaDriverEntryPointQueryResult *driverStatus)
{
    RUNTIME_ENTER();
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    get_proc_address *get = NULL;
    *funcPtr = NULL;
    if (driver)
        *(void **)&get = dlsym(driver, "cuGetProcAddress_v2");
    CUresult result =
        get ? get(symbol, funcPtr, (int)cudaVersion, flags, &found) : CUDA_ERROR_NOT_FOUND;
    if (driverStatus)
        *driverStatus = (enum cudaDriverEntryPointQueryResult)found;
    return runtime_done(result);
}
