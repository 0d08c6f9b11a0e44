/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA driver, found at run time: the library is built without the toolkit, links to nothing of
 * CUDA, and works the same where there is none. Hence the few types, constants and calls of the
 * driver's ABI are declared here; tests/cuda/test_driver_abi.c compares them with <cuda.h>. Names
 * are the driver's own, in this tree's spelling. Any thread.
 */
#ifndef F8_CLIENT_DRIVER_H
#define F8_CLIENT_DRIVER_H

#include <stddef.h>
#include <stdint.h>

/* The driver's own opaque types, by its own tags. */
struct CUctx_st;
struct CUevent_st;
struct CUstream_st;

typedef unsigned driver_status;           /* CUresult */
typedef unsigned long long driver_memory; /* CUmemGenericAllocationHandle */
typedef unsigned long long driver_device_pointer;

/* CUresult */
#define DRIVER_SUCCESS       0U
#define DRIVER_OUT_OF_MEMORY 2U
#define DRIVER_NOT_READY     600U

#define DRIVER_STREAM_NON_BLOCKING  1U
#define DRIVER_EVENT_DISABLE_TIMING 2U
#define DRIVER_EVENT_INTERPROCESS   4U

#define DRIVER_MEMORYTYPE_HOST   1U
#define DRIVER_MEMORYTYPE_DEVICE 2U

/* CUpointer_attribute */
#define DRIVER_POINTER_MEMORY_TYPE           2U
#define DRIVER_POINTER_IS_MANAGED            8U
#define DRIVER_POINTER_DEVICE_ORDINAL        9U
#define DRIVER_POINTER_IS_LEGACY_IPC_CAPABLE 10U
#define DRIVER_POINTER_MEMPOOL_HANDLE        17U

/* Of virtual memory management. */
#define DRIVER_ALLOCATION_PINNED   1U
#define DRIVER_HANDLE_POSIX_FD     1U
#define DRIVER_LOCATION_DEVICE     1U
#define DRIVER_ACCESS_READ         1U
#define DRIVER_ACCESS_READWRITE    3U
#define DRIVER_GRANULARITY_MINIMUM 0U

struct driver_uuid {
    char bytes[16];
};

/* CUipcEventHandle and CUipcMemHandle; passed by value. */
struct driver_event_handle {
    char reserved[64];
};
struct driver_memory_handle {
    char reserved[64];
};

struct driver_location {
    unsigned type;
    int id; /* of a device: its ordinal */
};

/* CUmemAllocationProp */
struct driver_allocation {
    unsigned type;
    unsigned handle_types; /* that it may be exported as */
    struct driver_location location;
    void *win32_metadata;
    struct {
        unsigned char compression_type;
        unsigned char gpu_direct_rdma_capable;
        unsigned short usage;
        unsigned char reserved[4];
    } flags;
};

/* CUmemAccessDesc */
struct driver_access {
    struct driver_location location;
    unsigned flags;
};

/* CUDA_MEMCPY2D; offsets and sizes are bytes, but for the rows y. */
struct driver_copy {
    size_t src_x, src_y;
    unsigned src_type;
    const void *src_host;
    driver_device_pointer src_device;
    void *src_array;
    size_t src_pitch;
    size_t dst_x, dst_y;
    unsigned dst_type;
    void *dst_host;
    driver_device_pointer dst_device;
    void *dst_array;
    size_t dst_pitch;
    size_t width, height;
};

/*
 * X(field, symbol, parameters): what this tree calls of the driver. The suffixes are those that
 * <cuda.h> gives the names; streams are as the caller made them, NULL the legacy default one.
 */
/* clang-format off */
#define DRIVER_CALLS(X)                                                                            \
    X(init, cuInit, (unsigned flags))                                                              \
    X(error_name, cuGetErrorName, (driver_status status, const char **ret_name))                   \
    X(error_string, cuGetErrorString, (driver_status status, const char **ret_text))               \
    X(device_count, cuDeviceGetCount, (int *ret_count))                                            \
    X(device_get, cuDeviceGet, (int *ret_device, int ordinal))                                     \
    X(device_name, cuDeviceGetName, (char *ret_name, int size, int device))                        \
    X(device_uuid, cuDeviceGetUuid_v2, (struct driver_uuid *ret_uuid, int device))                 \
    X(context_retain, cuDevicePrimaryCtxRetain, (struct CUctx_st **ret_context, int device))       \
    X(context_release, cuDevicePrimaryCtxRelease_v2, (int device))                                 \
    X(context_push, cuCtxPushCurrent_v2, (struct CUctx_st *context))                               \
    X(context_pop, cuCtxPopCurrent_v2, (struct CUctx_st **ret_context))                            \
    X(event_create, cuEventCreate, (struct CUevent_st **ret_event, unsigned flags))                \
    X(event_destroy, cuEventDestroy_v2, (struct CUevent_st *event))                                \
    X(event_record, cuEventRecord, (struct CUevent_st *event, struct CUstream_st *stream))         \
    X(event_query, cuEventQuery, (struct CUevent_st *event))                                       \
    X(event_export, cuIpcGetEventHandle,                                                           \
        (struct driver_event_handle *ret_handle, struct CUevent_st *event))                        \
    X(event_import, cuIpcOpenEventHandle,                                                          \
        (struct CUevent_st **ret_event, struct driver_event_handle handle))                        \
    X(stream_create, cuStreamCreate, (struct CUstream_st **ret_stream, unsigned flags))            \
    X(stream_destroy, cuStreamDestroy_v2, (struct CUstream_st *stream))                            \
    X(stream_wait, cuStreamWaitEvent,                                                              \
        (struct CUstream_st *stream, struct CUevent_st *event, unsigned flags))                    \
    X(stream_synchronize, cuStreamSynchronize, (struct CUstream_st *stream))                       \
    X(pointer_attributes, cuPointerGetAttributes,                                                  \
        (unsigned count, unsigned *attributes, void **ret_values, driver_device_pointer pointer))  \
    X(memory_range, cuMemGetAddressRange_v2,                                                       \
        (driver_device_pointer *ret_base, size_t *ret_size, driver_device_pointer pointer))        \
    X(memory_export_legacy, cuIpcGetMemHandle,                                                     \
        (struct driver_memory_handle *ret_handle, driver_device_pointer base))                     \
    X(memory_retain, cuMemRetainAllocationHandle, (driver_memory *ret_memory, void *address))      \
    X(memory_properties, cuMemGetAllocationPropertiesFromHandle,                                   \
        (struct driver_allocation *ret_properties, driver_memory memory))                          \
    X(memory_export, cuMemExportToShareableHandle,                                                 \
        (void *ret_handle, driver_memory memory, unsigned type, unsigned long long flags))         \
    X(memory_import, cuMemImportFromShareableHandle,                                               \
        (driver_memory *ret_memory, void *handle, unsigned type))                                  \
    X(memory_create, cuMemCreate,                                                                  \
        (driver_memory *ret_memory, size_t size, const struct driver_allocation *properties,       \
            unsigned long long flags))                                                             \
    X(memory_release, cuMemRelease, (driver_memory memory))                                        \
    X(memory_granularity, cuMemGetAllocationGranularity,                                           \
        (size_t *ret_granularity, const struct driver_allocation *properties, unsigned option))    \
    X(address_reserve, cuMemAddressReserve,                                                        \
        (driver_device_pointer *ret_address, size_t size, size_t alignment,                        \
            driver_device_pointer wish, unsigned long long flags))                                 \
    X(address_free, cuMemAddressFree, (driver_device_pointer address, size_t size))                \
    X(memory_map, cuMemMap,                                                                        \
        (driver_device_pointer address, size_t size, size_t offset, driver_memory memory,          \
            unsigned long long flags))                                                             \
    X(memory_unmap, cuMemUnmap, (driver_device_pointer address, size_t size))                      \
    X(memory_access, cuMemSetAccess,                                                               \
        (driver_device_pointer address, size_t size, const struct driver_access *access,           \
            size_t count))                                                                         \
    X(allocate, cuMemAlloc_v2, (driver_device_pointer *ret_pointer, size_t size))                  \
    X(free, cuMemFree_v2, (driver_device_pointer pointer))                                         \
    X(copy, cuMemcpyAsync,                                                                         \
        (driver_device_pointer dst, driver_device_pointer src, size_t size,                        \
            struct CUstream_st *stream))                                                           \
    X(copy_rows, cuMemcpy2DAsync_v2, (const struct driver_copy *copy, struct CUstream_st *stream)) \
    X(copy_to_device, cuMemcpyHtoDAsync_v2,                                                        \
        (driver_device_pointer dst, const void *src, size_t size, struct CUstream_st *stream))     \
    X(copy_to_host, cuMemcpyDtoHAsync_v2,                                                          \
        (void *dst, driver_device_pointer src, size_t size, struct CUstream_st *stream))
/* clang-format on */

struct driver {
#define DRIVER_FIELD(field, symbol, parameters) driver_status(*field) parameters;
    DRIVER_CALLS(DRIVER_FIELD)
#undef DRIVER_FIELD
};

/*
 * The driver, loaded and initialised at the first call; *ret_driver lives as long as the process.
 * F8_ENOENT: there is none, it is too old, or it cannot be initialised, and the text says why;
 * F8_EFORKED: a parent of this process used it, after which CUDA does not work in a child.
 */
int driver_get(const struct driver **ret_driver);

/*
 * The error of a failed call, `call` by its name in CUDA, with CUDA's name and text: F8_EIO, or
 * F8_ENOMEM if memory is what lacks. F8_OK for DRIVER_SUCCESS.
 */
int driver_error(const struct driver *driver, driver_status status, const char *call);

/* driver_error of calling `field` by its CUDA name. */
#define DRIVER_CALL(driver, field, name, ...)                                                      \
    driver_error((driver), (driver)->field(__VA_ARGS__), (name))

#endif
