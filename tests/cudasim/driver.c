/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated libcuda.so.1: initialisation, versions, errors, devices, contexts. The other
 * driver*.c have memory, streams, IPC and virtual memory. Behaviour is in libcudasim.so.
 */
#include "driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

CUresult cuInit(unsigned int Flags)
{
    CUresult result = cudasim_enter(__func__);
    if (Flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (!result)
        cudasim_initialise();
    return result;
}

CUresult driver_enter(const char *function)
{
    CUresult result = cudasim_enter(function);
    if (!result && !cudasim_is_initialised())
        return CUDA_ERROR_NOT_INITIALIZED;
    return result;
}

int driver_device(void)
{
    CUcontext context = cudasim_context_current();
    return context ? cudasim_context_device(context) : -1;
}

CUresult cuDriverGetVersion(int *driverVersion)
{
    *driverVersion = cudasim_driver_version();
    return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char **pStr)
{
    const struct cudasim_error *known = cudasim_error((int)error);
    *pStr = known ? known->driver_name : NULL;
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char **pStr)
{
    const struct cudasim_error *known = cudasim_error((int)error);
    *pStr = known ? known->text : NULL;
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The newest version of the function, as for a program built with this release. */
CUresult cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
    CUdriverProcAddressQueryResult *symbolStatus)
{
    static const char *const suffixes[] = {"_v2", ""};
    (void)cudaVersion;
    (void)flags;
    *pfn = NULL;
    Dl_info self;
    void *library =
        dladdr((void *)(uintptr_t)cuInit, &self) ? dlopen(self.dli_fname, RTLD_NOW) : NULL;
    for (size_t i = 0; library && !*pfn && i < sizeof suffixes / sizeof suffixes[0]; i++) {
        char name[128];
        snprintf(name, sizeof name, "%s%s", symbol, suffixes[i]);
        *pfn = dlsym(library, name);
    }
    if (library)
        dlclose(library);
    if (symbolStatus)
        *symbolStatus = *pfn ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return *pfn ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

/* ---- devices: a CUdevice is an ordinal ---- */

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    DRIVER_ENTER();
    if (cudasim_physical(ordinal) < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
    DRIVER_ENTER();
    *count = cudasim_num_visible();
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int len, CUdevice dev)
{
    DRIVER_ENTER();
    if (cudasim_physical(dev) < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    cudasim_device_name(cudasim_physical(dev), name, (size_t)len);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice dev)
{
    DRIVER_ENTER();
    if (cudasim_physical(dev) < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    cudasim_device_uuid(cudasim_physical(dev), uuid);
    return CUDA_SUCCESS;
}

/* The first version too, for programs that look it up by this name. */
#undef cuDeviceGetUuid
CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice dev);
CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice dev)
{
    return cuDeviceGetUuid_v2(uuid, dev);
}

CUresult cuDeviceGetAttribute(int *pi, CUdevice_attribute attrib, CUdevice dev)
{
    DRIVER_ENTER();
    if (cudasim_physical(dev) < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    return cudasim_device_attribute(pi, attrib, cudasim_physical(dev));
}

/* ---- contexts: only the primary ones ---- */

CUresult cuCtxGetCurrent(CUcontext *pctx)
{
    DRIVER_ENTER();
    *pctx = cudasim_context_current();
    return CUDA_SUCCESS;
}

static bool is_context(CUcontext ctx)
{
    return cudasim_context_device(ctx) >= 0;
}

CUresult cuCtxSetCurrent(CUcontext ctx)
{
    DRIVER_ENTER();
    if (ctx && !is_context(ctx))
        return CUDA_ERROR_INVALID_CONTEXT;
    cudasim_context_set(ctx);
    return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext ctx)
{
    DRIVER_ENTER();
    return ctx && is_context(ctx) ? cudasim_context_push(ctx) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxPopCurrent(CUcontext *pctx)
{
    DRIVER_ENTER();
    return cudasim_context_pop(pctx);
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    DRIVER_ENTER_CONTEXT();
    *device = cudasim_ordinal(driver_device());
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
    DRIVER_ENTER();
    int device = cudasim_physical(dev);
    if (device < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    cudasim_context_retain(device, 1);
    *pctx = cudasim_context_of(device);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice dev)
{
    DRIVER_ENTER();
    int device = cudasim_physical(dev);
    if (device < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!cudasim_context_is_active(device))
        return CUDA_ERROR_INVALID_CONTEXT;
    cudasim_context_retain(device, -1);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active)
{
    DRIVER_ENTER();
    int device = cudasim_physical(dev);
    if (device < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    *flags = 0;
    *active = cudasim_context_is_active(device);
    return CUDA_SUCCESS;
}
