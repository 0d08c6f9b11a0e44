/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank's device through the driver's table. The primary context is made current in the rank's one
 * thread when the device is opened, and stays it.
 */
#include "gpu.h"

#include <stdlib.h>

#include "client/driver.h"
#include "client/error.h"
#include "proto/status.h"

/* At most so many allocations behind the shards, each of whole granules. */
#define MAX_CHUNKS 256

struct gpu {
    const struct driver *driver; /* borrowed: the process's */
    int ordinal;
    int handle;
    struct CUctx_st *context; /* a reference; NULL before it is taken */
    struct CUstream_st *stream;
    enum gpu_memory kind;
    driver_device_pointer shards; /* owned */
    uint64_t reserved;            /* GPU_VMM: bytes of addresses */
    uint64_t chunk;               /* GPU_VMM: bytes of each allocation */
    uint32_t num_chunks;          /* GPU_VMM: mapped ones */
    driver_device_pointer copy;   /* owned: twice copy_size */
    uint64_t copy_size;
    char name[64];
};

static int find(struct gpu *gpu, int ordinal, uint32_t rank)
{
    const struct driver *driver = gpu->driver;
    int count = 0;
    int status = DRIVER_CALL(driver, device_count, "cuDeviceGetCount", &count);

    if (status != F8_OK) {
        return status;
    }
    if (count == 0 || ordinal >= count) {
        return error_set(F8_ENOENT, "there is no CUDA device %d: this process sees %d of them",
            ordinal < 0 ? 0 : ordinal, count);
    }
    gpu->ordinal = ordinal >= 0 ? ordinal : (int)(rank % (uint32_t)count);
    status = DRIVER_CALL(driver, device_get, "cuDeviceGet", &gpu->handle, gpu->ordinal);
    if (status == F8_OK) {
        status = DRIVER_CALL(
            driver, device_name, "cuDeviceGetName", gpu->name, (int)sizeof(gpu->name), gpu->handle);
    }
    return status;
}

static int enter(struct gpu *gpu)
{
    const struct driver *driver = gpu->driver;
    int status =
        DRIVER_CALL(driver, context_retain, "cuDevicePrimaryCtxRetain", &gpu->context, gpu->handle);

    if (status == F8_OK) {
        status = DRIVER_CALL(driver, context_push, "cuCtxPushCurrent", gpu->context);
    }
    if (status == F8_OK) {
        status = DRIVER_CALL(
            driver, stream_create, "cuStreamCreate", &gpu->stream, DRIVER_STREAM_NON_BLOCKING);
    }
    return status;
}

int gpu_open(int ordinal, uint32_t rank, struct gpu **ret_gpu)
{
    const struct driver *driver;
    struct gpu *gpu;
    int status = driver_get(&driver);

    if (status != F8_OK) {
        return status;
    }
    gpu = calloc(1, sizeof(*gpu));
    if (gpu == NULL) {
        return error_set(F8_ENOMEM, "no memory for a CUDA device");
    }
    gpu->driver = driver;
    status = find(gpu, ordinal, rank);
    if (status == F8_OK) {
        status = enter(gpu);
    }
    if (status != F8_OK) {
        gpu_close(gpu);
        return status;
    }
    *ret_gpu = gpu;
    return F8_OK;
}

static void free_shards(struct gpu *gpu)
{
    const struct driver *driver = gpu->driver;

    if (gpu->kind == GPU_LEGACY && gpu->shards != 0) {
        driver->free(gpu->shards);
    }
    for (uint32_t i = 0; i < gpu->num_chunks; i++) {
        driver->memory_unmap(gpu->shards + i * gpu->chunk, gpu->chunk);
    }
    if (gpu->reserved > 0) {
        driver->address_free(gpu->shards, gpu->reserved);
    }
}

void gpu_close(struct gpu *gpu)
{
    if (gpu == NULL) {
        return;
    }
    if (gpu->stream != NULL) {
        gpu->driver->stream_synchronize(gpu->stream);
        gpu->driver->stream_destroy(gpu->stream);
        free_shards(gpu);
        if (gpu->copy != 0) {
            gpu->driver->free(gpu->copy);
        }
    }
    if (gpu->context != NULL) {
        gpu->driver->context_release(gpu->handle);
    }
    free(gpu);
}

int gpu_ordinal(const struct gpu *gpu)
{
    return gpu->ordinal;
}

const char *gpu_name(const struct gpu *gpu)
{
    return gpu->name;
}

void *gpu_stream(const struct gpu *gpu)
{
    return gpu->stream;
}

/* Maps one more allocation behind those that are there. */
static int add_chunk(struct gpu *gpu, const struct driver_allocation *properties)
{
    const struct driver *driver = gpu->driver;
    driver_memory memory = 0;
    int status =
        DRIVER_CALL(driver, memory_create, "cuMemCreate", &memory, gpu->chunk, properties, 0);

    if (status != F8_OK) {
        return status;
    }
    status = DRIVER_CALL(driver, memory_map, "cuMemMap", gpu->shards + gpu->num_chunks * gpu->chunk,
        gpu->chunk, 0, memory, 0);
    driver->memory_release(memory);
    gpu->num_chunks += status == F8_OK;
    return status;
}

static int allocate_chunks(struct gpu *gpu, uint64_t size)
{
    const struct driver *driver = gpu->driver;
    const struct driver_allocation properties = {.type = DRIVER_ALLOCATION_PINNED,
        .handle_types = DRIVER_HANDLE_POSIX_FD,
        .location = {.type = DRIVER_LOCATION_DEVICE, .id = gpu->handle}};
    const struct driver_access access = {
        .location = properties.location, .flags = DRIVER_ACCESS_READWRITE};
    size_t granule = 0;
    int status = DRIVER_CALL(driver, memory_granularity, "cuMemGetAllocationGranularity", &granule,
        &properties, DRIVER_GRANULARITY_MINIMUM);
    uint64_t chunks;

    if (status != F8_OK) {
        return status;
    }
    gpu->chunk = (size / MAX_CHUNKS + granule) / granule * granule;
    chunks = (size + gpu->chunk - 1) / gpu->chunk;
    status = DRIVER_CALL(
        driver, address_reserve, "cuMemAddressReserve", &gpu->shards, chunks * gpu->chunk, 0, 0, 0);
    if (status == F8_OK) {
        gpu->reserved = chunks * gpu->chunk;
    }
    while (status == F8_OK && gpu->num_chunks < chunks) {
        status = add_chunk(gpu, &properties);
    }
    return status == F8_OK ? DRIVER_CALL(driver, memory_access, "cuMemSetAccess", gpu->shards,
                                 gpu->reserved, &access, 1)
                           : status;
}

int gpu_allocate(struct gpu *gpu, enum gpu_memory kind, uint64_t size, void **ret_address)
{
    int status;

    gpu->kind = kind;
    if (kind == GPU_VMM) {
        status = allocate_chunks(gpu, size);
    } else {
        status = DRIVER_CALL(gpu->driver, allocate, "cuMemAlloc", &gpu->shards, size);
    }
    if (status == F8_OK) {
        *ret_address = (void *)(uintptr_t)gpu->shards;
    }
    return status;
}

int gpu_upload(struct gpu *gpu, const void *from, uint64_t size)
{
    return DRIVER_CALL(
        gpu->driver, copy_to_device, "cuMemcpyHtoDAsync", gpu->shards, from, size, gpu->stream);
}

int gpu_download(struct gpu *gpu, void *to, const void *from, uint64_t size)
{
    int status = F8_OK;

    if (size > 0) {
        status = DRIVER_CALL(gpu->driver, copy_to_host, "cuMemcpyDtoHAsync", to,
            (driver_device_pointer)(uintptr_t)from, size, gpu->stream);
    }
    return status == F8_OK ? gpu_await(gpu) : status;
}

int gpu_prepare_copy(struct gpu *gpu, uint64_t size)
{
    int status = DRIVER_CALL(gpu->driver, allocate, "cuMemAlloc", &gpu->copy, 2 * size + 2);

    if (status != F8_OK) {
        return status;
    }
    gpu->copy_size = size;
    return gpu_copy(gpu);
}

int gpu_copy(struct gpu *gpu)
{
    int status = F8_OK;

    if (gpu->copy_size > 0) {
        status = DRIVER_CALL(gpu->driver, copy, "cuMemcpyAsync", gpu->copy + gpu->copy_size,
            gpu->copy, gpu->copy_size, gpu->stream);
    }
    return status == F8_OK ? gpu_await(gpu) : status;
}

int gpu_await(struct gpu *gpu)
{
    return DRIVER_CALL(gpu->driver, stream_synchronize, "cuStreamSynchronize", gpu->stream);
}
