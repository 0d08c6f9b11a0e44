/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shards on the host or on a device, by the driver as the client library finds it: see
 * device_memory.h.
 */
#include "tests/lib/device_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/driver.h"
#include "client/error.h"

/* Shards begin so far into an allocation of cudaMalloc: one has its neighbours in it. */
#define LEGACY_OFFSET 512

/* An allocation, and where the rank writes what is to be there. */
struct shards {
    struct shards *next; /* owned */
    uint8_t *host;       /* owned */
    size_t size;
    driver_device_pointer device; /* of the shards */
    driver_device_pointer base;   /* owned: of the allocation, or of the reserved addresses */
    size_t reserved;              /* bytes; 0: of cudaMalloc */
    size_t granule;
};

/* What one weight's view showed. */
struct seen {
    struct seen *next; /* owned */
    uint32_t weight;
    float scale;
    uint8_t *bytes; /* owned */
};

struct device_memory {
    const struct driver *driver; /* borrowed: the process's */
    int device;
    struct CUctx_st *context; /* a reference */
    struct CUstream_st *stream;
    struct shards *shards;
    struct seen *seen;
};

static const char *wanted(void)
{
    const char *wanted = getenv("F8_TEST_DEVICE");
    return wanted && *wanted ? wanted : "host";
}

bool device_memory_used(void)
{
    return strcmp(wanted(), "host") != 0;
}

int device_memory_devices(void)
{
    const struct driver *driver;
    int count = 0;
    if (driver_get(&driver) != F8_OK || driver->device_count(&count) != DRIVER_SUCCESS)
        return 0;
    return count;
}

static int enter(const struct device_memory *memory)
{
    return DRIVER_CALL(memory->driver, context_push, "cuCtxPushCurrent", memory->context);
}

static void leave(const struct device_memory *memory)
{
    struct CUctx_st *context;
    (void)memory->driver->context_pop(&context);
}

/* The rank's turn of the devices, its context and its stream. */
static int open_device(struct device_memory *memory, uint32_t rank, int *ret_ordinal)
{
    const struct driver *driver = memory->driver;
    int count = device_memory_devices();
    if (count == 0)
        return error_set(F8_ENOENT, "this process sees no CUDA device");
    *ret_ordinal = (int)(rank % (uint32_t)count);
    int status = DRIVER_CALL(driver, device_get, "cuDeviceGet", &memory->device, *ret_ordinal);
    if (status == F8_OK)
        status = DRIVER_CALL(
            driver, context_retain, "cuDevicePrimaryCtxRetain", &memory->context, memory->device);
    if (status == F8_OK)
        status = enter(memory);
    if (status != F8_OK)
        return status;
    status = DRIVER_CALL(
        driver, stream_create, "cuStreamCreate", &memory->stream, DRIVER_STREAM_NON_BLOCKING);
    leave(memory);
    return status;
}

int device_memory_open(struct f8_client *client, uint32_t rank, struct device_memory **ret_memory)
{
    int ordinal = 0;
    *ret_memory = NULL;
    if (!device_memory_used())
        return F8_OK;
    struct device_memory *memory = calloc(1, sizeof(*memory));
    if (!memory)
        return error_set(F8_ENOMEM, "no memory for a rank's device");
    int status = driver_get(&memory->driver);
    if (status == F8_OK)
        status = open_device(memory, rank, &ordinal);
    if (status == F8_OK)
        status = f8_set_device(client, ordinal);
    if (status == F8_OK)
        *ret_memory = memory;
    else
        device_memory_close(memory);
    return status;
}

static void free_shards(const struct driver *driver, struct shards *shards)
{
    if (shards->reserved == 0 && shards->base)
        (void)driver->free(shards->base);
    for (size_t at = 0; at < shards->reserved; at += shards->granule)
        (void)driver->memory_unmap(shards->base + at, shards->granule);
    if (shards->reserved > 0)
        (void)driver->address_free(shards->base, shards->reserved);
    free(shards->host);
    free(shards);
}

void device_memory_close(struct device_memory *memory)
{
    if (!memory)
        return;
    if (memory->context && enter(memory) == F8_OK) {
        if (memory->stream) {
            (void)memory->driver->stream_synchronize(memory->stream);
            (void)memory->driver->stream_destroy(memory->stream);
        }
        while (memory->shards) {
            struct shards *shards = memory->shards;
            memory->shards = shards->next;
            free_shards(memory->driver, shards);
        }
        leave(memory);
        (void)memory->driver->context_release(memory->device);
    }
    while (memory->seen) {
        struct seen *seen = memory->seen;
        memory->seen = seen->next;
        free(seen->bytes);
        free(seen);
    }
    free(memory);
}

static int allocate_legacy(const struct device_memory *memory, struct shards *shards)
{
    int status = DRIVER_CALL(
        memory->driver, allocate, "cuMemAlloc", &shards->base, LEGACY_OFFSET + shards->size);
    shards->device = shards->base + LEGACY_OFFSET;
    return status;
}

static int map_granule(const struct device_memory *memory, const struct shards *shards, size_t at,
    const struct driver_allocation *properties)
{
    const struct driver *driver = memory->driver;
    driver_memory handle;
    int status =
        DRIVER_CALL(driver, memory_create, "cuMemCreate", &handle, shards->granule, properties, 0);
    if (status != F8_OK)
        return status;
    status = DRIVER_CALL(
        driver, memory_map, "cuMemMap", shards->base + at, shards->granule, 0, handle, 0);
    (void)driver->memory_release(handle);
    return status;
}

/* The shards lie over the end of the first allocation, to one half or as much as there is room. */
static int allocate_vmm(const struct device_memory *memory, struct shards *shards)
{
    const struct driver *driver = memory->driver;
    const struct driver_allocation properties = {.type = DRIVER_ALLOCATION_PINNED,
        .handle_types = DRIVER_HANDLE_POSIX_FD,
        .location = {.type = DRIVER_LOCATION_DEVICE, .id = memory->device}};
    const struct driver_access access = {
        .location = properties.location, .flags = DRIVER_ACCESS_READWRITE};
    int status = DRIVER_CALL(driver, memory_granularity, "cuMemGetAllocationGranularity",
        &shards->granule, &properties, DRIVER_GRANULARITY_MINIMUM);
    if (status != F8_OK)
        return status;
    size_t granule = shards->granule, half = shards->size / 2 / 16 * 16;
    size_t before = half < granule ? half : granule;
    size_t behind = (shards->size - before + granule - 1) / granule * granule;
    status = DRIVER_CALL(
        driver, address_reserve, "cuMemAddressReserve", &shards->base, granule + behind, 0, 0, 0);
    if (status != F8_OK)
        return status;
    shards->device = shards->base + granule - before;
    for (size_t at = 0; status == F8_OK && at < granule + behind; at += granule)
        status = map_granule(memory, shards, at, &properties);
    shards->reserved = granule + behind;
    return status == F8_OK ? DRIVER_CALL(driver, memory_access, "cuMemSetAccess", shards->base,
                                 shards->reserved, &access, 1)
                           : status;
}

/* The context is current. */
static int allocate(const struct device_memory *memory, struct shards *shards)
{
    int status = F8_OK;
    shards->host = calloc(1, shards->size);
    if (!shards->host)
        return error_set(F8_ENOMEM, "no memory for %zu bytes of shards", shards->size);
    if (strcmp(wanted(), "legacy") == 0)
        status = allocate_legacy(memory, shards);
    else if (strcmp(wanted(), "vmm") == 0)
        status = allocate_vmm(memory, shards);
    else
        status = error_set(F8_EINVAL, "F8_TEST_DEVICE is \"%s\": host, legacy or vmm", wanted());
    return status == F8_OK ? DRIVER_CALL(memory->driver, copy_to_device, "cuMemcpyHtoDAsync",
                                 shards->device, shards->host, shards->size, memory->stream)
                           : status;
}

int device_memory_alloc(struct device_memory *memory, struct f8_client *client, size_t size,
    struct f8_region **ret_region, void **ret_shards)
{
    if (!memory)
        return f8_region_alloc(client, size, ret_region, ret_shards);
    struct shards *shards = calloc(1, sizeof(*shards));
    int status = shards ? enter(memory) : error_set(F8_ENOMEM, "no memory for shards");
    if (status != F8_OK) {
        free(shards);
        return status;
    }
    shards->size = size;
    shards->next = memory->shards;
    memory->shards = shards;
    status = allocate(memory, shards);
    leave(memory);
    if (status == F8_OK)
        status = f8_region_share_pointer(
            client, (const void *)(uintptr_t)shards->device, size, ret_region);
    if (status == F8_OK)
        *ret_shards = shards->host;
    return status;
}

int device_memory_put(struct device_memory *memory, const void *shards, size_t size)
{
    const uint8_t *from = shards;
    if (!memory || size == 0)
        return F8_OK;
    struct shards *in = memory->shards;
    while (in && !(from >= in->host && from + size <= in->host + in->size))
        in = in->next;
    if (!in)
        return error_set(F8_EINVAL, "%zu bytes at %p are no rank's shards", size, shards);
    int status = enter(memory);
    if (status != F8_OK)
        return status;
    status = DRIVER_CALL(memory->driver, copy_to_device, "cuMemcpyHtoDAsync",
        in->device + (driver_device_pointer)(from - in->host), from, size, memory->stream);
    leave(memory);
    return status;
}

void *device_memory_stream(const struct device_memory *memory)
{
    return memory ? memory->stream : NULL;
}

int device_memory_await(struct device_memory *memory)
{
    int status = memory ? enter(memory) : F8_OK;
    if (!memory || status != F8_OK)
        return status;
    status = DRIVER_CALL(memory->driver, stream_synchronize, "cuStreamSynchronize", memory->stream);
    leave(memory);
    return status;
}

static int download(struct device_memory *memory, void *to, const void *from, uint64_t size)
{
    if (size == 0)
        return F8_OK;
    return DRIVER_CALL(memory->driver, copy_to_host, "cuMemcpyDtoHAsync", to,
        (driver_device_pointer)(uintptr_t)from, size, memory->stream);
}

/* Room for a weight's view. */
static struct seen *seen_of(struct device_memory *memory, uint32_t weight, uint64_t size)
{
    struct seen *seen = memory->seen;
    while (seen && seen->weight != weight)
        seen = seen->next;
    if (!seen) {
        seen = calloc(1, sizeof(*seen));
        if (!seen)
            return NULL;
        seen->weight = weight;
        seen->next = memory->seen;
        memory->seen = seen;
    }
    free(seen->bytes);
    seen->bytes = malloc(size > 0 ? size : 1);
    return seen->bytes ? seen : NULL;
}

int device_memory_see(struct device_memory *memory, const struct f8_view *view, uint64_t size,
    struct f8_view *ret_seen)
{
    uint64_t bytes = size > 0 ? size : view->size;
    struct f8_view copy = *view;
    if (!memory) {
        *ret_seen = copy;
        return F8_OK;
    }
    struct seen *seen = seen_of(memory, view->weight, bytes);
    int status = seen ? enter(memory) : error_set(F8_ENOMEM, "no memory for a view");
    if (status != F8_OK)
        return status;
    status = download(memory, seen->bytes, view->data, bytes);
    if (status == F8_OK && view->scale)
        status = download(memory, &seen->scale, view->scale, sizeof(seen->scale));
    leave(memory);
    if (status == F8_OK)
        status = device_memory_await(memory);
    if (status != F8_OK)
        return status;
    copy.data = seen->bytes;
    copy.scale = view->scale ? &seen->scale : NULL;
    *ret_seen = copy;
    return F8_OK;
}

int device_memory_see_all(struct device_memory *memory, struct f8_view *views, uint32_t count)
{
    int status = F8_OK;
    for (uint32_t i = 0; i < count && status == F8_OK; i++)
        status = device_memory_see(memory, &views[i], 0, &views[i]);
    return status;
}
