/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls that the CUDA runtime and the driver have in common, once for both: runtime*.c and
 * driver*.c give them CUDA's names and argument lists. Each is the call after cudasim_enter().
 * Devices are physical; `what` is the name of the CUDA function, a literal, for faults.
 */
#ifndef CUDASIM_CALLS_H
#define CUDASIM_CALLS_H

#include "cudasim.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* cudasim_enter for what works without a device: only looks at the process. */
void cudasim_enter_anywhere(const char *function);

/* Whether cuInit or a function of the runtime has been called. */
void cudasim_initialise(void);
bool cudasim_is_initialised(void);

struct cudasim_error {
    CUresult code;
    const char *driver_name, *runtime_name, *text;
};
const struct cudasim_error *cudasim_error(int code); /* NULL: not one that is ever given */

/* The thread's last error, as the runtime keeps it; returns its argument. */
CUresult cudasim_remember(CUresult result);
CUresult cudasim_last_error(bool clears);

/* ---- devices and contexts: device.c ---- */

int cudasim_driver_version(void);
int cudasim_num_visible(void);
int cudasim_physical(int ordinal); /* -1: there is none */
int cudasim_ordinal(int physical); /* -1: not visible */
void cudasim_device_uuid(int device, CUuuid *ret_uuid);
void cudasim_device_name(int device, char *ret_name, size_t size);
void cudasim_device_pci(int device, char *ret_id, size_t size);
size_t cudasim_device_memory(void); /* bytes of one */
CUresult cudasim_device_attribute(int *ret_value, CUdevice_attribute attribute, int device);
CUresult cudasim_enable_peer(int device, int peer);
bool cudasim_has_peer(int device, int peer);

/* A device's primary context, the only one it has. The thread's current one may be NULL. */
CUcontext cudasim_context_of(int device);
CUcontext cudasim_context_current(void);
int cudasim_context_device(CUcontext context); /* -1: no context of the simulator */
void cudasim_context_set(CUcontext context);
CUresult cudasim_context_push(CUcontext context);
CUresult cudasim_context_pop(CUcontext *ret_context);
void cudasim_context_retain(int device, int references); /* negative: releases */
bool cudasim_context_is_active(int device);

/* ---- memory: allocate.c, pointer.c ---- */

CUresult cudasim_malloc(CUdeviceptr *ret, size_t size, int device, const char *what);
CUresult cudasim_malloc_managed(CUdeviceptr *ret, size_t size, int device, const char *what);
CUresult cudasim_malloc_host(void **ret, size_t size, int device, const char *what);
CUresult cudasim_malloc_async(CUdeviceptr *ret, size_t size, CUstream stream, const char *what);
CUresult cudasim_free(CUdeviceptr pointer, const char *what); /* all but host memory */
CUresult cudasim_free_host(void *pointer, const char *what);
CUresult cudasim_free_async(CUdeviceptr pointer, CUstream stream, const char *what);
size_t cudasim_memory_left(int device);

struct cudasim_pointer {
    CUmemorytype type; /* DEVICE or HOST */
    bool is_managed, is_pool, is_legacy_ipc_capable;
    unsigned handle_types; /* CUmemAllocationHandleType bits that it can be exported as */
    uintptr_t base;
    size_t size;
    int device;
    uint64_t id;
};

/* CUDA_ERROR_INVALID_VALUE for memory that CUDA does not know. Freed memory is not known. */
CUresult cudasim_pointer(const void *pointer, struct cudasim_pointer *ret);

/* ---- copies: copy.c ---- */

/* Rows of `width` bytes; one row is a plain copy. */
struct cudasim_copy {
    void *dst;
    const void *src;
    size_t dst_pitch, src_pitch, width, height;
};

/* As CUDA does it: waits for the copy if the host side is pageable and is the destination. */
CUresult cudasim_copy_async(const struct cudasim_copy *copy, CUstream stream, const char *what);
CUresult cudasim_copy_now(const struct cudasim_copy *copy, const char *what);
CUresult cudasim_fill_async(void *dst, int byte, size_t size, CUstream stream, const char *what);
CUresult cudasim_fill_now(void *dst, int byte, size_t size, const char *what);

/* ---- streams and events: stream.c, event.c ---- */

CUresult cudasim_stream_create(CUstream *ret, int device, unsigned flags, const char *what);
CUresult cudasim_stream_destroy(CUstream stream, const char *what);
CUresult cudasim_stream_synchronize(CUstream stream, const char *what);
CUresult cudasim_stream_query(CUstream stream, const char *what);
CUresult cudasim_device_synchronize(int device);
CUresult cudasim_host_function(
    CUstream stream, void (*function)(void *data), void *data, const char *what);

/* Flags as CU_EVENT_...; the runtime's have the same values. */
CUresult cudasim_event_create(CUevent *ret, int device, unsigned flags, const char *what);
CUresult cudasim_event_destroy(CUevent event, const char *what);
CUresult cudasim_event_record(CUevent event, CUstream stream, const char *what);
CUresult cudasim_event_wait(CUevent event, CUstream stream, const char *what);
CUresult cudasim_event_query(CUevent event, const char *what);
CUresult cudasim_event_synchronize(CUevent event, const char *what);
CUresult cudasim_event_elapsed(float *ret_ms, CUevent begin, CUevent end, const char *what);
CUresult cudasim_event_export(CUevent event, void *ret_handle64, const char *what);
CUresult cudasim_event_import(CUevent *ret, const void *handle64, const char *what);

/* ---- legacy IPC: ipc.c ---- */

CUresult cudasim_ipc_export(CUdeviceptr pointer, void *ret_handle64);
CUresult cudasim_ipc_open(CUdeviceptr *ret, const void *handle64, int current, const char *what);
CUresult cudasim_ipc_close(CUdeviceptr pointer, const char *what);

/* ---- virtual memory management: vmm.c. A CUmemGenericAllocationHandle is a struct vmm_block. ----
 */

CUresult cudasim_vmm_create(CUmemGenericAllocationHandle *ret, size_t size,
    const CUmemAllocationProp *properties, const char *what);
CUresult cudasim_vmm_release(CUmemGenericAllocationHandle handle, const char *what);
CUresult cudasim_vmm_reserve(CUdeviceptr *ret, size_t size, size_t alignment, CUdeviceptr hint);
CUresult cudasim_vmm_unreserve(CUdeviceptr address, size_t size);
CUresult cudasim_vmm_map(CUdeviceptr address, size_t size, size_t offset,
    CUmemGenericAllocationHandle handle, const char *what);
CUresult cudasim_vmm_unmap(CUdeviceptr address, size_t size, const char *what);
CUresult cudasim_vmm_access(
    CUdeviceptr address, size_t size, const CUmemAccessDesc *descriptions, size_t count);
CUresult cudasim_vmm_retain(CUmemGenericAllocationHandle *ret, const void *address);
CUresult cudasim_vmm_properties(CUmemAllocationProp *ret, CUmemGenericAllocationHandle handle);
CUresult cudasim_vmm_export(int *ret_fd, CUmemGenericAllocationHandle handle);
CUresult cudasim_vmm_import(CUmemGenericAllocationHandle *ret, int fd, const char *what);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
