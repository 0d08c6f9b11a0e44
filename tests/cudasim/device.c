/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated devices and their primary contexts, which device is current on a thread, and which
 * devices may reach each other's memory. Ordinals are what the program sees after CUDASIM_VISIBLE;
 * UUIDs and PCI addresses follow the physical device, the same in every process.
 */
#include "core.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

struct CUctx_st {
    atomic_int references;
    atomic_uint peers; /* devices whose memory kernels here may touch, as bits */
};

#define MAX_DEPTH 16

static struct CUctx_st contexts[CUDASIM_MAX_DEVICES];

/* The stack of current contexts of this thread; the top is current. */
static __thread CUcontext stack[MAX_DEPTH];
static __thread int depth;

int cudasim_driver_version(void)
{
    return settings_get()->driver_version;
}

int cudasim_num_visible(void)
{
    return settings_get()->num_visible;
}

int cudasim_physical(int ordinal)
{
    const struct settings *settings = settings_get();
    return ordinal >= 0 && ordinal < settings->num_visible ? settings->visible[ordinal] : -1;
}

int cudasim_ordinal(int physical)
{
    const struct settings *settings = settings_get();
    for (int i = 0; i < settings->num_visible; i++)
        if (settings->visible[i] == physical)
            return i;
    return -1;
}

/* ---- what a device says of itself ---- */

void cudasim_device_uuid(int device, CUuuid *ret_uuid)
{
    memcpy(ret_uuid->bytes, "simulated gpu  ", 15);
    ret_uuid->bytes[15] = (char)device;
}

void cudasim_device_name(int device, char *ret_name, size_t size)
{
    snprintf(ret_name, size, "simulated GPU %d", device);
}

void cudasim_device_pci(int device, char *ret_id, size_t size)
{
    snprintf(ret_id, size, "0000:%02X:00.0", device + 1);
}

size_t cudasim_device_memory(void)
{
    return settings_get()->memory;
}

CUresult cudasim_device_attribute(int *ret_value, CUdevice_attribute attribute, int device)
{
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        *ret_value = 9;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
    case CU_DEVICE_ATTRIBUTE_INTEGRATED:
    case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID:
    case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID:
    case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
        *ret_value = 0;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
        *ret_value = device + 1;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
        *ret_value = 4;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
        *ret_value = 32;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *ret_value = 1024;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
        *ret_value = 48 << 10;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
        *ret_value = 1;
        return CUDA_SUCCESS;
    default:
        cudasim_note("device attribute %d is not simulated", (int)attribute);
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* ---- contexts ---- */

CUcontext cudasim_context_of(int device)
{
    return &contexts[device];
}

CUcontext cudasim_context_current(void)
{
    return depth ? stack[depth - 1] : NULL;
}

int cudasim_context_device(CUcontext context)
{
    if (context < contexts || context >= contexts + settings_get()->num_devices)
        return -1;
    return (int)(context - contexts);
}

void cudasim_context_set(CUcontext context)
{
    if (!depth)
        depth = 1;
    stack[depth - 1] = context;
}

CUresult cudasim_context_push(CUcontext context)
{
    if (depth == MAX_DEPTH)
        return CUDA_ERROR_OUT_OF_MEMORY;
    stack[depth++] = context;
    return CUDA_SUCCESS;
}

CUresult cudasim_context_pop(CUcontext *ret_context)
{
    if (!cudasim_context_current())
        return CUDA_ERROR_INVALID_CONTEXT;
    depth--;
    if (ret_context)
        *ret_context = stack[depth];
    return CUDA_SUCCESS;
}

void cudasim_context_retain(int device, int references)
{
    atomic_fetch_add(&contexts[device].references, references);
}

bool cudasim_context_is_active(int device)
{
    return atomic_load(&contexts[device].references) > 0;
}

void device_set_current(int device)
{
    cudasim_context_set(&contexts[device]);
}

int cudasim_current_device(void)
{
    if (!cudasim_context_current()) {
        int device = cudasim_physical(0);
        if (device < 0)
            return 0;
        cudasim_context_retain(device, 1); /* as the runtime does at first use */
        device_set_current(device);
    }
    return cudasim_context_device(cudasim_context_current());
}

/* ---- peers ---- */

CUresult cudasim_enable_peer(int device, int peer)
{
    unsigned bit = 1u << peer;
    if (device == peer)
        return CUDA_ERROR_INVALID_DEVICE;
    if (atomic_fetch_or(&contexts[device].peers, bit) & bit)
        return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    return CUDA_SUCCESS;
}

bool cudasim_has_peer(int device, int peer)
{
    return device == peer || (atomic_load(&contexts[device].peers) & 1u << peer);
}
