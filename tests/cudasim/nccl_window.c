/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory for NCCL, and its registration: with one rank, or as a window that all ranks have at the
 * same offset of an allocation of the same kind. What NCCL refuses is refused with its results;
 * what it takes and then uses wrongly (sizes, offsets or flags that differ) is a fault.
 */
#include <stdlib.h>

#include "nccl_comm.h"

struct window_call {
    char *buffer; /* borrowed: from the program */
    size_t size;
    int flags;
    ncclWindow_t *ret_window;         /* borrowed: from the program, until the job ends */
    struct ncclWindow_vidmem *window; /* owned, until it is in the communicator's list */
    uint64_t number;
};

static ncclResult_t from_driver(CUresult status, const char *what)
{
    return nccl_from_cuda((int)status, what);
}

static ncclResult_t properties(size_t size, CUmemAllocationProp *ret, size_t *ret_size)
{
    CUdevice device;
    int ordinal;
    size_t granularity;
    ncclResult_t result = nccl_from_cuda((int)cudaGetDevice(&ordinal), "cudaGetDevice");
    if (result == ncclSuccess)
        result = from_driver(cuDeviceGet(&device, ordinal), "cuDeviceGet");
    if (result != ncclSuccess)
        return result;
    *ret = (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    result = from_driver(
        cuMemGetAllocationGranularity(&granularity, ret, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
        "cuMemGetAllocationGranularity");
    if (result == ncclSuccess)
        *ret_size = (size + granularity - 1) / granularity * granularity;
    return result;
}

static ncclResult_t map(size_t size, const CUmemAllocationProp *property, CUdeviceptr *ret)
{
    CUmemAccessDesc access = {
        .location = property->location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address = 0;
    ncclResult_t result = from_driver(cuMemCreate(&handle, size, property, 0), "cuMemCreate");
    if (result != ncclSuccess)
        return result;
    result = from_driver(cuMemAddressReserve(&address, size, 0, 0, 0), "cuMemAddressReserve");
    if (result == ncclSuccess) {
        result = from_driver(cuMemMap(address, size, 0, handle, 0), "cuMemMap");
        if (result == ncclSuccess)
            result = from_driver(cuMemSetAccess(address, size, &access, 1), "cuMemSetAccess");
        if (result == ncclSuccess)
            *ret = address;
        else
            cuMemAddressFree(address, size);
    }
    cuMemRelease(handle); /* the mapping holds the memory */
    return result;
}

ncclResult_t ncclMemAlloc(void **ptr, size_t size)
{
    CUmemAllocationProp property;
    CUdeviceptr address = 0;
    if (ptr == NULL || size == 0)
        return nccl_warn(ncclUnhandledCudaError, "ncclMemAlloc of %zu bytes", size);
    ncclResult_t result = nccl_from_cuda((int)cudasim_enter(__func__), __func__);
    if (result == ncclSuccess)
        result = properties(size, &property, &size);
    if (result == ncclSuccess)
        result = map(size, &property, &address);
    if (result == ncclSuccess)
        *ptr = (void *)address; /* an address that the driver chose */
    return result;
}

ncclResult_t ncclMemFree(void *ptr)
{
    CUdeviceptr base = 0;
    size_t size = 0;
    if (ptr == NULL)
        return ncclSuccess;
    ncclResult_t result = nccl_from_cuda((int)cudasim_enter(__func__), __func__);
    if (result == ncclSuccess)
        result = from_driver(
            cuMemGetAddressRange(&base, &size, (CUdeviceptr)ptr), "cuMemGetAddressRange");
    if (result == ncclSuccess)
        result = from_driver(cuMemUnmap(base, size), "cuMemUnmap");
    if (result == ncclSuccess)
        result = from_driver(cuMemAddressFree(base, size), "cuMemAddressFree");
    return result;
}

/* ---- registration ---- */

/* Whether NCCL can map the ranks' memory into each other. */
static bool is_symmetric(const struct ncclComm *comm)
{
    return segment_hosts(comm->segment) == 1;
}

const struct ncclWindow_vidmem *window_find(const struct ncclComm *comm, const void *address)
{
    const struct ncclWindow_vidmem *window = comm->windows;
    const char *at = address;
    while (window != NULL &&
           (window->is_local || at < window->buffer || at >= window->buffer + window->size))
        window = window->next;
    return window;
}

/* A window of memory that NCCL can share, or NULL and why not. */
static ncclResult_t window_new(
    const struct ncclComm *comm, const struct window_call *call, struct ncclWindow_vidmem **ret)
{
    struct cudasim_range range;
    if (!cudasim_find(call->buffer, &range))
        return nccl_warn(ncclUnhandledCudaError, "Cuda failure %d in cuMemGetAddressRange",
            CUDA_ERROR_INVALID_VALUE);
    memory_check(comm, "ncclCommWindowRegister", "buff", call->buffer, call->size);
    uint64_t offset = (uintptr_t)call->buffer - range.base;
    bool is_local = !is_symmetric(comm);
    if (!is_local && offset % NCCL_WIN_REQUIRED_ALIGNMENT != 0)
        return nccl_warn(ncclInvalidArgument, "Window address must be suitably aligned.");
    if (!is_local && !range.is_vmm)
        return nccl_warn(ncclUnhandledCudaError, "Cuda failure %d in cuMemRetainAllocationHandle",
            CUDA_ERROR_INVALID_VALUE);
    struct ncclWindow_vidmem *window = malloc(sizeof(*window));
    if (window == NULL)
        return ncclSystemError;
    *window = (struct ncclWindow_vidmem){.buffer = call->buffer,
        .size = call->size,
        .offset = offset,
        .flags = call->flags,
        .is_local = is_local};
    *ret = window;
    return ncclSuccess;
}

ncclResult_t window_post(struct ncclComm *comm, struct window_call *call)
{
    ncclResult_t result = window_new(comm, call, &call->window);
    if (result != ncclSuccess) {
        *call->ret_window = NULL;
        return result;
    }
    if (call->window->is_local)
        return ncclSuccess;
    call->number = ++comm->window_count;
    struct window_record *record =
        &comm->segment->member[comm->rank].window[call->number % SEGMENT_WINDOWS];
    record->size = call->size;
    record->offset = call->window->offset;
    record->flags = (uint64_t)call->flags;
    record->number = call->number;
    segment_wake(comm->segment);
    return ncclSuccess;
}

static void compare(const struct ncclComm *comm, const struct window_call *call, int peer)
{
    const struct window_record *theirs =
        &comm->segment->member[peer].window[call->number % SEGMENT_WINDOWS];
    const struct ncclWindow_vidmem *mine = call->window;
    if (theirs->size != mine->size || theirs->offset != mine->offset ||
        theirs->flags != (uint64_t)mine->flags)
        cudasim_fault("window %lu of %s has %zu bytes at offset %lu with flags %d on rank %d, and "
                      "%lu bytes at offset %lu with flags %lu on rank %d",
            (unsigned long)call->number, comm_name(comm), mine->size, (unsigned long)mine->offset,
            mine->flags, comm->rank, (unsigned long)theirs->size, (unsigned long)theirs->offset,
            (unsigned long)theirs->flags, peer);
}

ncclResult_t window_wait(struct ncclComm *comm, struct window_call *call, const struct job *group)
{
    for (int peer = 0; peer < comm->ranks && !call->window->is_local;) {
        uint32_t generation = comm->segment->generation;
        const struct member *member = &comm->segment->member[peer];
        if (group_is_aborted(group))
            return ncclInternalError;
        if (member->window[call->number % SEGMENT_WINDOWS].number < call->number) {
            segment_wait(comm->segment, generation);
            continue;
        }
        compare(comm, call, peer++);
    }
    call->window->next = comm->windows;
    comm->windows = call->window;
    *call->ret_window = call->window;
    call->window = NULL;
    return ncclSuccess;
}

void window_drop(struct window_call *call)
{
    free(call->window);
    free(call);
}

static ncclResult_t window_add(struct ncclComm *comm, const struct window_call *content)
{
    ncclResult_t result = comm_ready(comm);
    if (result != ncclSuccess)
        return result;
    order_quiet(comm, "ncclCommWindowRegister");
    struct window_call *call = malloc(sizeof(*call));
    if (call == NULL)
        return ncclSystemError;
    *call = *content;
    return group_add((struct job){.kind = JOB_WINDOW, .comm = comm, .window = call});
}

ncclResult_t ncclCommWindowRegister(
    ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win, int winFlags)
{
    ncclResult_t result = comm_check(comm, __func__);
    if (result != ncclSuccess || buff == NULL || size == 0)
        return result;
    if (win == NULL)
        return nccl_warn(ncclInvalidArgument, "%s : win argument is NULL", __func__);
    group_begin();
    result = group_error(window_add(comm,
        &(struct window_call){.buffer = buff, .size = size, .flags = winFlags, .ret_window = win}));
    ncclResult_t ended = group_end();
    return result != ncclSuccess ? result : ended;
}

static ncclResult_t unregister(
    struct ncclComm *comm, const char *function, struct ncclWindow_vidmem *window)
{
    ncclResult_t result = comm_check(comm, function);
    if (result != ncclSuccess || window == NULL)
        return result;
    order_quiet(comm, function);
    struct ncclWindow_vidmem **link = &comm->windows;
    while (*link != NULL && *link != window)
        link = &(*link)->next;
    if (*link == NULL)
        cudasim_fault("%s: %p is not registered with rank %d of %s", function, (void *)window,
            comm->rank, comm_name(comm));
    *link = window->next;
    free(window);
    return ncclSuccess;
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win)
{
    return unregister(comm, __func__, win);
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buff, size_t size, void **handle)
{
    struct ncclComm *registering = (struct ncclComm *)comm;
    ncclResult_t result = comm_check(registering, __func__);
    if (result == ncclSuccess)
        result = comm_ready(registering);
    if (result != ncclSuccess)
        return result;
    memory_check(comm, __func__, "buff", buff, size);
    struct ncclWindow_vidmem *window = malloc(sizeof(*window));
    if (window == NULL)
        return ncclSystemError;
    *window = (struct ncclWindow_vidmem){
        .buffer = buff, .size = size, .is_local = true, .next = registering->windows};
    registering->windows = window;
    *handle = window;
    return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle)
{
    return unregister((struct ncclComm *)comm, __func__, handle);
}
