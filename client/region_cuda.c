/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regions of CUDA device memory: finds out what kind of memory a pointer is, and shares it with the
 * daemon as that kind can be shared: by the IPC handle of its cudaMalloc allocation, or by
 * descriptors of the VMM allocations that it spans. Any thread.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/client_private.h"
#include "client/error.h"

/* What the driver knows of a pointer. */
struct pointer {
    driver_device_pointer address;
    uint64_t size; /* bytes to be shared, from there */
    uint64_t memory_type, is_managed, is_legacy, pool;
    int ordinal; /* of the device */
};

static int look_at(const struct driver *driver, struct pointer *pointer)
{
    unsigned attributes[] = {DRIVER_POINTER_MEMORY_TYPE, DRIVER_POINTER_IS_MANAGED,
        DRIVER_POINTER_IS_LEGACY_IPC_CAPABLE, DRIVER_POINTER_MEMPOOL_HANDLE,
        DRIVER_POINTER_DEVICE_ORDINAL};
    /* Zeroed, as the driver writes what is narrower than 64 bits into the low ones. */
    void *values[] = {&pointer->memory_type, &pointer->is_managed, &pointer->is_legacy,
        &pointer->pool, &pointer->ordinal};
    return DRIVER_CALL(driver, pointer_attributes, "cuPointerGetAttributes",
        sizeof(attributes) / sizeof(attributes[0]), attributes, values, pointer->address);
}

/* Refuses by name what no other process can be given. */
static int check_kind(const struct pointer *pointer)
{
    uint64_t address = pointer->address;
    if (pointer->is_managed)
        return error_set(F8_EREGION,
            "0x%" PRIx64 " is managed memory (cudaMallocManaged), which cannot be shared between "
            "processes: allocate the shards with cudaMalloc",
            address);
    if (pointer->pool)
        return error_set(F8_EREGION,
            "0x%" PRIx64 " is of a memory pool (cudaMallocAsync), which cannot be shared: allocate "
            "the shards with cudaMalloc (PyTorch: PYTORCH_CUDA_ALLOC_CONF without "
            "backend:cudaMallocAsync)",
            address);
    if (pointer->memory_type != DRIVER_MEMORYTYPE_DEVICE)
        return error_set(F8_EREGION,
            "0x%" PRIx64 " is host memory, not of a CUDA device: use f8_region_alloc, or "
            "f8_region_share with a memfd",
            address);
    return F8_OK;
}

/* The allocation, or of VMM memory the mapping, that an address of the pointer's lies in. */
static int find_range(const struct driver *driver, const struct pointer *pointer,
    driver_device_pointer at, driver_device_pointer *ret_base, uint64_t *ret_size)
{
    size_t size = 0;
    driver_status status = driver->memory_range(ret_base, &size, at);
    if (status != DRIVER_SUCCESS && at == pointer->address)
        return driver_error(driver, status, "cuMemGetAddressRange");
    if (status != DRIVER_SUCCESS || size <= at - *ret_base)
        return error_set(F8_EREGION,
            "%" PRIu64 " bytes at 0x%llx are more than was allocated: there is nothing from 0x%llx "
            "on",
            pointer->size, pointer->address, at);
    *ret_size = size;
    return F8_OK;
}

/* Memory of cudaMalloc: one handle, which stands for the whole allocation. */
static int add_legacy(
    struct f8_client *client, const struct pointer *pointer, struct f8_region *region)
{
    const struct driver *driver = device_driver(client_device(client));
    driver_device_pointer base = 0;
    uint64_t size = 0;
    struct driver_memory_handle handle;
    int status = find_range(driver, pointer, pointer->address, &base, &size);
    if (status == F8_OK && pointer->size > size - (pointer->address - base))
        status = error_set(F8_EREGION,
            "%" PRIu64 " bytes at 0x%llx end beyond their allocation of %" PRIu64
            " bytes at 0x%llx",
            pointer->size, pointer->address, size, base);
    if (status == F8_OK)
        status = DRIVER_CALL(driver, memory_export_legacy, "cuIpcGetMemHandle", &handle, base);
    if (status != F8_OK)
        return status;
    F8__CudaMemory cuda = F8__CUDA_MEMORY__INIT;
    cuda.handle =
        (ProtobufCBinaryData){.len = sizeof(handle.reserved), .data = (uint8_t *)handle.reserved};
    cuda.offset = pointer->address - base;
    cuda.size = pointer->size;
    return region_add(client, &cuda, NULL, 0, region);
}

/* VMM allocations on their way to the daemon, as many as go with a packet. */
struct chunks {
    const struct pointer *pointer;
    driver_device_pointer at;  /* the first address that none has been found for */
    uint64_t offset;           /* of the pointer in the first allocation of all */
    int fds[F8_PROTO_MAX_FDS]; /* owned */
    uint64_t sizes[F8_PROTO_MAX_FDS];
    uint32_t count;
};

static int check_exportable(
    const struct driver *driver, const struct pointer *pointer, driver_memory memory)
{
    struct driver_allocation properties = {.type = 0};
    int status = DRIVER_CALL(
        driver, memory_properties, "cuMemGetAllocationPropertiesFromHandle", &properties, memory);
    if (status != F8_OK)
        return status;
    if (!(properties.handle_types & DRIVER_HANDLE_POSIX_FD))
        return error_set(F8_EREGION,
            "0x%llx is VMM memory (cuMemCreate) that was not made shareable: it must be created "
            "with CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR (PyTorch's expandable segments: set "
            "TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC=1, or PYTORCH_CUDA_ALLOC_CONF="
            "expandable_segments:False)",
            pointer->address);
    if (properties.location.type != DRIVER_LOCATION_DEVICE ||
        properties.location.id != pointer->ordinal)
        return error_set(F8_EREGION,
            "%" PRIu64 " bytes at 0x%llx lie on several devices: on CUDA device %d they begin, but "
            "a part is elsewhere (location type %u, id %d)",
            pointer->size, pointer->address, pointer->ordinal, properties.location.type,
            properties.location.id);
    return F8_OK;
}

/* Exports the allocation that `at` lies in, and goes on to the next. */
static int export_chunk(const struct driver *driver, struct chunks *chunks)
{
    driver_device_pointer base = 0;
    uint64_t size = 0;
    driver_memory memory = 0;
    int fd = -1;
    int status = find_range(driver, chunks->pointer, chunks->at, &base, &size);
    if (status == F8_OK)
        status = DRIVER_CALL(
            driver, memory_retain, "cuMemRetainAllocationHandle", &memory, (void *)(uintptr_t)base);
    if (status != F8_OK)
        return status;
    status = check_exportable(driver, chunks->pointer, memory);
    if (status == F8_OK)
        status = DRIVER_CALL(driver, memory_export, "cuMemExportToShareableHandle", &fd, memory,
            DRIVER_HANDLE_POSIX_FD, 0);
    driver->memory_release(memory);
    if (status != F8_OK)
        return status;
    if (chunks->at == chunks->pointer->address)
        chunks->offset = chunks->at - base;
    chunks->fds[chunks->count] = fd;
    chunks->sizes[chunks->count++] = size;
    chunks->at = base + size;
    return F8_OK;
}

/* Sends what is in `chunks`, and empties it. */
static int send_chunks(
    struct f8_client *client, struct chunks *chunks, bool more, struct f8_region *region)
{
    F8__CudaMemory cuda = F8__CUDA_MEMORY__INIT;
    cuda.chunks = chunks->sizes;
    cuda.n_chunks = chunks->count;
    cuda.more = more;
    if (!more) {
        cuda.offset = chunks->offset;
        cuda.size = chunks->pointer->size;
    }
    return region_add(client, &cuda, chunks->fds, chunks->count, region);
}

static void close_chunks(struct chunks *chunks)
{
    for (uint32_t i = 0; i < chunks->count; i++)
        close(chunks->fds[i]); /* the daemon has its own by now */
    chunks->count = 0;
}

/* Makes the daemon forget what it has of a region that fails here; gives the status back. */
static int abandon_chunks(struct f8_client *client, int status, struct f8_region *region)
{
    char text[512];
    F8__CudaMemory nothing = F8__CUDA_MEMORY__INIT;
    snprintf(text, sizeof(text), "%s", error_text());
    (void)region_add(client, &nothing, NULL, 0, region); /* is refused */
    return error_set(status, "%s", text);
}

/* VMM memory: each allocation by a descriptor of its own. */
static int add_vmm(
    struct f8_client *client, const struct pointer *pointer, struct f8_region *region)
{
    const struct driver *driver = device_driver(client_device(client));
    struct chunks chunks = {.pointer = pointer, .at = pointer->address};
    const driver_device_pointer end = pointer->address + pointer->size;
    int status = F8_OK;
    bool begun = false; /* the daemon has a part of it */
    while (status == F8_OK && chunks.at < end) {
        while (status == F8_OK && chunks.at < end && chunks.count < F8_PROTO_MAX_FDS)
            status = export_chunk(driver, &chunks);
        if (status != F8_OK && begun)
            status = abandon_chunks(client, status, region);
        else if (status == F8_OK)
            status = send_chunks(client, &chunks, chunks.at < end, region);
        begun = true;
        close_chunks(&chunks);
    }
    return status;
}

/* Shares it, on the device that it lies on; region_lock held. */
static int share(struct f8_client *client, const struct pointer *pointer, struct f8_region *region)
{
    int status = client_set_device(client, pointer->ordinal);
    if (status != F8_OK)
        return status;
    struct device *device = client_device(client);
    status = device_enter(device);
    if (status != F8_OK)
        return status;
    status =
        pointer->is_legacy ? add_legacy(client, pointer, region) : add_vmm(client, pointer, region);
    device_exit(device);
    return status;
}

/* What can be told of the pointer before the daemon hears of it. */
static int check_pointer(struct pointer *pointer)
{
    const struct driver *driver;
    if (pointer->size == 0)
        return error_set(
            F8_EINVAL, "a region of 0 bytes at 0x%llx: give a size above 0", pointer->address);
    if (pointer->address == 0 || pointer->size > UINT64_MAX - pointer->address)
        return error_set(F8_EINVAL,
            "a region of %" PRIu64 " bytes at 0x%llx: there is no such memory", pointer->size,
            pointer->address);
    int status = driver_get(&driver);
    if (status == F8_OK)
        status = look_at(driver, pointer);
    return status == F8_OK ? check_kind(pointer) : status;
}

int region_cuda_add_again(struct f8_region *region)
{
    struct pointer what = {.address = (uintptr_t)region->pointer, .size = region->size};
    int status = check_pointer(&what);
    return status == F8_OK ? share(region->client, &what, region) : status;
}

static int share_pointer(
    struct f8_client *client, const void *pointer, size_t size, struct f8_region **ret_region)
{
    struct pointer what = {.address = (uintptr_t)pointer, .size = size};
    int status = check_pointer(&what);
    if (status != F8_OK)
        return status;
    struct f8_region *region = calloc(1, sizeof(*region));
    if (!region)
        return error_set(F8_ENOMEM, "no memory for a region");
    region->size = size;
    region->memfd = -1;
    region->pointer = pointer;
    pthread_mutex_lock(&client->region_lock);
    status = share(client, &what, region);
    pthread_mutex_unlock(&client->region_lock);
    if (status == F8_OK)
        *ret_region = region;
    else
        free(region);
    return status;
}

int f8_region_share_pointer(
    struct f8_client *client, const void *pointer, size_t size, struct f8_region **ret_region)
{
    CLIENT_CALL(client, share_pointer(client, pointer, size, ret_region));
}
