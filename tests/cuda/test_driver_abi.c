/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client/driver.h declares the part of the CUDA driver's ABI that this tree calls, so as to be
 * built without the toolkit: here it is compared with <cuda.h>. What is compared is known to the
 * compiler; the suite prints how much it was.
 */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/driver.h"

#define SAME(ours, theirs) _Static_assert((ours) == (theirs), #ours " is " #theirs)

SAME(DRIVER_SUCCESS, CUDA_SUCCESS);
SAME(DRIVER_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME(DRIVER_NOT_READY, CUDA_ERROR_NOT_READY);
SAME(DRIVER_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
SAME(DRIVER_EVENT_DISABLE_TIMING, CU_EVENT_DISABLE_TIMING);
SAME(DRIVER_EVENT_INTERPROCESS, CU_EVENT_INTERPROCESS);
SAME(DRIVER_MEMORYTYPE_HOST, CU_MEMORYTYPE_HOST);
SAME(DRIVER_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_DEVICE);
SAME(DRIVER_POINTER_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
SAME(DRIVER_POINTER_IS_MANAGED, CU_POINTER_ATTRIBUTE_IS_MANAGED);
SAME(DRIVER_POINTER_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
SAME(DRIVER_POINTER_IS_LEGACY_IPC_CAPABLE, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE);
SAME(DRIVER_POINTER_MEMPOOL_HANDLE, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE);
SAME(DRIVER_ALLOCATION_PINNED, CU_MEM_ALLOCATION_TYPE_PINNED);
SAME(DRIVER_HANDLE_POSIX_FD, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
SAME(DRIVER_LOCATION_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE);
SAME(DRIVER_ACCESS_READ, CU_MEM_ACCESS_FLAGS_PROT_READ);
SAME(DRIVER_ACCESS_READWRITE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
SAME(DRIVER_GRANULARITY_MINIMUM, CU_MEM_ALLOC_GRANULARITY_MINIMUM);

SAME(sizeof(driver_status), sizeof(CUresult));
SAME(sizeof(driver_memory), sizeof(CUmemGenericAllocationHandle));
SAME(sizeof(driver_device_pointer), sizeof(CUdeviceptr));
SAME(sizeof(int), sizeof(CUdevice));
SAME(sizeof(struct driver_uuid), sizeof(CUuuid));
SAME(sizeof(struct driver_event_handle), sizeof(CUipcEventHandle));
SAME(sizeof(struct driver_memory_handle), sizeof(CUipcMemHandle));

/* A struct's member lies where CUDA's does, and is as large. */
#define MEMBER(ours, mine, theirs, its)                                                            \
    SAME(offsetof(ours, mine), offsetof(theirs, its));                                             \
    SAME(sizeof(((ours *)0)->mine), sizeof(((theirs *)0)->its))

SAME(sizeof(struct driver_location), sizeof(CUmemLocation));
MEMBER(struct driver_location, type, CUmemLocation, type);
MEMBER(struct driver_location, id, CUmemLocation, id);
SAME(sizeof(struct driver_allocation), sizeof(CUmemAllocationProp));
MEMBER(struct driver_allocation, type, CUmemAllocationProp, type);
MEMBER(struct driver_allocation, handle_types, CUmemAllocationProp, requestedHandleTypes);
MEMBER(struct driver_allocation, location, CUmemAllocationProp, location);
MEMBER(struct driver_allocation, win32_metadata, CUmemAllocationProp, win32HandleMetaData);
MEMBER(struct driver_allocation, flags, CUmemAllocationProp, allocFlags);
SAME(sizeof(struct driver_access), sizeof(CUmemAccessDesc));
MEMBER(struct driver_access, location, CUmemAccessDesc, location);
MEMBER(struct driver_access, flags, CUmemAccessDesc, flags);
SAME(sizeof(struct driver_copy), sizeof(CUDA_MEMCPY2D));
MEMBER(struct driver_copy, src_x, CUDA_MEMCPY2D, srcXInBytes);
MEMBER(struct driver_copy, src_y, CUDA_MEMCPY2D, srcY);
MEMBER(struct driver_copy, src_type, CUDA_MEMCPY2D, srcMemoryType);
MEMBER(struct driver_copy, src_host, CUDA_MEMCPY2D, srcHost);
MEMBER(struct driver_copy, src_device, CUDA_MEMCPY2D, srcDevice);
MEMBER(struct driver_copy, src_array, CUDA_MEMCPY2D, srcArray);
MEMBER(struct driver_copy, src_pitch, CUDA_MEMCPY2D, srcPitch);
MEMBER(struct driver_copy, dst_x, CUDA_MEMCPY2D, dstXInBytes);
MEMBER(struct driver_copy, dst_y, CUDA_MEMCPY2D, dstY);
MEMBER(struct driver_copy, dst_type, CUDA_MEMCPY2D, dstMemoryType);
MEMBER(struct driver_copy, dst_host, CUDA_MEMCPY2D, dstHost);
MEMBER(struct driver_copy, dst_device, CUDA_MEMCPY2D, dstDevice);
MEMBER(struct driver_copy, dst_array, CUDA_MEMCPY2D, dstArray);
MEMBER(struct driver_copy, dst_pitch, CUDA_MEMCPY2D, dstPitch);
MEMBER(struct driver_copy, width, CUDA_MEMCPY2D, WidthInBytes);
MEMBER(struct driver_copy, height, CUDA_MEMCPY2D, Height);

/*
 * Calls whose parameters are all of types that both spell alike: the whole type is compared. An
 * enum of CUDA's is compatible with unsigned. The name is the one that <cuda.h> gives the symbol.
 */
#define SAME_CALLS(X)                                                                              \
    X(init, cuInit)                                                                                \
    X(error_name, cuGetErrorName)                                                                  \
    X(error_string, cuGetErrorString)                                                              \
    X(device_count, cuDeviceGetCount)                                                              \
    X(device_get, cuDeviceGet)                                                                     \
    X(device_name, cuDeviceGetName)                                                                \
    X(context_retain, cuDevicePrimaryCtxRetain)                                                    \
    X(context_release, cuDevicePrimaryCtxRelease)                                                  \
    X(context_push, cuCtxPushCurrent)                                                              \
    X(context_pop, cuCtxPopCurrent)                                                                \
    X(event_create, cuEventCreate)                                                                 \
    X(event_destroy, cuEventDestroy)                                                               \
    X(event_record, cuEventRecord)                                                                 \
    X(event_query, cuEventQuery)                                                                   \
    X(stream_create, cuStreamCreate)                                                               \
    X(stream_destroy, cuStreamDestroy)                                                             \
    X(stream_wait, cuStreamWaitEvent)                                                              \
    X(stream_synchronize, cuStreamSynchronize)                                                     \
    X(pointer_attributes, cuPointerGetAttributes)                                                  \
    X(memory_range, cuMemGetAddressRange)                                                          \
    X(memory_retain, cuMemRetainAllocationHandle)                                                  \
    X(memory_export, cuMemExportToShareableHandle)                                                 \
    X(memory_import, cuMemImportFromShareableHandle)                                               \
    X(memory_release, cuMemRelease)                                                                \
    X(address_reserve, cuMemAddressReserve)                                                        \
    X(address_free, cuMemAddressFree)                                                              \
    X(memory_map, cuMemMap)                                                                        \
    X(memory_unmap, cuMemUnmap)                                                                    \
    X(allocate, cuMemAlloc)                                                                        \
    X(free, cuMemFree)                                                                             \
    X(copy, cuMemcpyAsync)                                                                         \
    X(copy_to_device, cuMemcpyHtoDAsync)                                                           \
    X(copy_to_host, cuMemcpyDtoHAsync)

#define COMPARE_TYPE(field, call)                                                                  \
    _Static_assert(                                                                                \
        __builtin_types_compatible_p(__typeof__(*((struct driver *)0)->field), __typeof__(call)),  \
        #call);
SAME_CALLS(COMPARE_TYPE)

/* Those with a struct of CUDA's: compared by name only. */
#define OTHER_CALLS(X)                                                                             \
    X(device_uuid, cuDeviceGetUuid)                                                                \
    X(event_export, cuIpcGetEventHandle)                                                           \
    X(event_import, cuIpcOpenEventHandle)                                                          \
    X(memory_export_legacy, cuIpcGetMemHandle)                                                     \
    X(memory_properties, cuMemGetAllocationPropertiesFromHandle)                                   \
    X(memory_create, cuMemCreate)                                                                  \
    X(memory_granularity, cuMemGetAllocationGranularity)                                           \
    X(memory_access, cuMemSetAccess)                                                               \
    X(copy_rows, cuMemcpy2DAsync)

struct name {
    const char *field, *symbol;
};

#define QUOTE(text)         #text
#define EXPANDED(text)      QUOTE(text)
#define THEIRS(field, call) {#field, EXPANDED(call)},
static const struct name theirs[] = {SAME_CALLS(THEIRS) OTHER_CALLS(THEIRS)};

#define OURS(field, symbol, parameters) {#field, #symbol},

int main(void)
{
#undef cuDeviceGetUuid
#undef cuDevicePrimaryCtxRelease
    /* Not to be expanded once more, whatever <cuda.h> defines: # takes the argument as written. */
    static const struct name ours[] = {DRIVER_CALLS(OURS)};
    size_t count = sizeof(ours) / sizeof(ours[0]), compared = 0;
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < sizeof(theirs) / sizeof(theirs[0]); k++)
            if (strcmp(ours[i].field, theirs[k].field) == 0) {
                compared++;
                if (strcmp(ours[i].symbol, theirs[k].symbol) != 0) {
                    printf("%s is %s here and %s in <cuda.h>\n", ours[i].field, ours[i].symbol,
                        theirs[k].symbol);
                    return EXIT_FAILURE;
                }
            }
    if (compared != count || count != sizeof(theirs) / sizeof(theirs[0])) {
        printf("%zu calls are declared, %zu compared\n", count, compared);
        return EXIT_FAILURE;
    }
    printf("%zu calls and their types are those of CUDA %d\n", count, CUDA_VERSION);
    return EXIT_SUCCESS;
}
