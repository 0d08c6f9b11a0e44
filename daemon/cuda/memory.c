/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients' memory on devices: an allocation is opened once, counted for the regions in it, and
 * closed with the last of them. This is opening a handle of legacy IPC, which costs about a
 * millisecond; descriptors are in memory_vmm.c. Sizes come from the driver, not from the client.
 */
#include "daemon/cuda/memory.h"

#include <inttypes.h>
#include <stdlib.h>

#include "proto/status.h"

/* ---- what is open ---- */

static struct cuda_opened *find_legacy(const struct cuda *cuda, const struct backend_map *map)
{
    for (struct cuda_opened *opened = cuda->opened; opened; opened = opened->next)
        if (opened->kind == BACKEND_MEMORY_LEGACY && !opened->is_stale && opened->pid == map->pid &&
            opened->device == map->device &&
            memcmp(opened->handle, map->handle, sizeof(opened->handle)) == 0)
            return opened;
    return NULL;
}

/*
 * The driver has put a new allocation where an older one still was: its client freed that one
 * before it gave the region back. What used the old one reads the new one now, which is the
 * client's own doing; but closing the old one would close the new one.
 */
static void evict_stale(struct cuda *cuda, const struct cuda_opened *fresh)
{
    for (struct cuda_opened *old = cuda->opened; old; old = old->next) {
        bool overlaps =
            old->base < fresh->base + fresh->size && fresh->base < old->base + old->size;
        if (!overlaps || old->is_stale || old->device != fresh->device)
            continue;
        old->is_stale = true;
        cuda_log(cuda, LOG_LEVEL_WARNING,
            "pid %" PRIu32 " has freed memory on device %" PRId32
            " before it gave its regions in it back",
            old->pid, old->device);
    }
}

static void insert(struct cuda *cuda, struct cuda_opened *opened)
{
    opened->next = cuda->opened;
    cuda->opened = opened;
    cuda_device_count(cuda, opened->device, 0, 0, (int64_t)opened->size);
}

static void remove_opened(struct cuda *cuda, struct cuda_opened *opened)
{
    struct cuda_opened **link = &cuda->opened;
    while (*link != opened)
        link = &(*link)->next;
    *link = opened->next;
    cuda_device_count(cuda, opened->device, 0, 0, -(int64_t)opened->size);
}

/* ---- legacy IPC ---- */

static int refuse_handle(cudaError_t error, const struct backend_map *map, struct reason *reason)
{
    int status = cuda_failed(error, reason,
        "cannot open the CUDA IPC handle of pid %" PRIu32 " on device %" PRId32, map->pid,
        map->device);
    if (error == cudaErrorAlreadyMapped)
        reason_append(reason, ": memory that it has freed is still in one of its regions");
    return status == F8_ENOMEM || error == cudaErrorUnknown ? status : F8_EREGION;
}

static int check_legacy(struct cuda *cuda, const struct backend_map *map,
    struct cuda_opened *opened, void *pointer, struct reason *reason)
{
    struct cudaPointerAttributes attributes;
    size_t size = 0;
    int status = cuda_driver_failed(cuda,
        cuda->driver.p_cuMemGetAddressRange(&opened->base, &size, (CUdeviceptr)pointer), reason,
        "cannot find the size of memory of pid %" PRIu32 " on device %" PRId32, map->pid,
        map->device);
    if (status < 0)
        return status;
    opened->size = size;
    status = cuda_failed(cudaPointerGetAttributes(&attributes, pointer), reason,
        "cannot find the device of memory of pid %" PRIu32, map->pid);
    if (status < 0)
        return status;
    if (attributes.device != map->device)
        return reason_set(reason, F8_EREGION,
            "memory of pid %" PRIu32 " lies on device %d, and the client works on device %" PRId32,
            map->pid, attributes.device, map->device);
    return F8_OK;
}

static int open_legacy(struct cuda *cuda, const struct backend_map *map, struct cuda_opened *opened,
    struct reason *reason)
{
    _Static_assert(sizeof(cudaIpcMemHandle_t) == BACKEND_HANDLE_SIZE, "as on the wire");
    cudaIpcMemHandle_t handle;
    void *pointer;
    memcpy(&handle, map->handle, sizeof(handle));
    memcpy(opened->handle, map->handle, sizeof(opened->handle));
    cuda_beat(cuda, "cudaIpcOpenMemHandle");
    /* In the context of another device this would map the memory as a peer's, without a word. */
    cuda_device_switch(map->device);
    cudaError_t error = cudaIpcOpenMemHandle(&pointer, handle, cudaIpcMemLazyEnablePeerAccess);
    if (error != cudaSuccess)
        return refuse_handle(error, map, reason);
    int status = check_legacy(cuda, map, opened, pointer, reason);
    if (status < 0) {
        (void)cudaIpcCloseMemHandle(pointer);
        return status;
    }
    evict_stale(cuda, opened);
    return F8_OK;
}

/* ---- opening and closing ---- */

static int open_memory(struct cuda *cuda, const struct backend_map *map,
    struct cuda_opened **ret_opened, struct reason *reason)
{
    bool is_legacy = map->kind == BACKEND_MEMORY_LEGACY;
    struct cuda_opened *opened = calloc(1, sizeof(*opened));
    if (!opened)
        return reason_set(reason, F8_ENOMEM, "no memory for the record of a region");
    opened->kind = map->kind;
    opened->device = map->device;
    opened->pid = map->pid;
    int status = is_legacy ? open_legacy(cuda, map, opened, reason)
                           : cuda_vmm_open(cuda, map, opened, reason);
    if (status < 0) {
        free(opened);
        return status;
    }
    insert(cuda, opened);
    *ret_opened = opened;
    return F8_OK;
}

static void close_memory(struct cuda *cuda, struct cuda_opened *opened)
{
    remove_opened(cuda, opened);
    cuda_device_switch(opened->device);
    if (opened->kind == BACKEND_MEMORY_VMM)
        cuda_vmm_close(cuda, opened);
    else if (!opened->is_stale && cudaIpcCloseMemHandle((void *)opened->base) != cudaSuccess)
        (void)cudaGetLastError();
    free(opened);
}

/* The region within what is open, whatever the client says of that. */
static int check_range(
    const struct backend_map *map, const struct cuda_opened *opened, struct reason *reason)
{
    if (map->size > 0 && map->offset <= opened->size && map->size <= opened->size - map->offset)
        return F8_OK;
    return reason_set(reason, F8_EREGION,
        "a region of pid %" PRIu32 " of %" PRIu64 " bytes at offset %" PRIu64
        " does not lie in its memory of %" PRIu64 " bytes on device %" PRId32,
        map->pid, map->size, map->offset, opened->size, opened->device);
}

int cuda_map_run(struct cuda *cuda, struct backend_map *map)
{
    struct reason *reason = &map->reason;
    if (map->device < 0 || (uint32_t)map->device >= cuda->num_devices)
        return reason_set(reason, F8_EREGION, "there is no device %" PRId32, map->device);
    if (map->kind != BACKEND_MEMORY_LEGACY && map->kind != BACKEND_MEMORY_VMM)
        return reason_set(reason, F8_EREGION, "device memory of the unknown kind %d", map->kind);
    int status = cuda_device_use(cuda, map->device, reason);
    if (status < 0)
        return status;
    struct backend_mapping *mapping = calloc(1, sizeof(*mapping));
    if (!mapping)
        return reason_set(reason, F8_ENOMEM, "no memory for the record of a region");
    struct cuda_opened *opened = map->kind == BACKEND_MEMORY_LEGACY ? find_legacy(cuda, map) : NULL;
    if (!opened)
        status = open_memory(cuda, map, &opened, reason);
    if (status == F8_OK) {
        status = check_range(map, opened, reason);
        if (status < 0 && opened->num_mappings == 0)
            close_memory(cuda, opened);
    }
    if (status < 0) {
        free(mapping);
        return status;
    }
    opened->num_mappings++;
    *mapping = (struct backend_mapping){.device = map->device, .pid = map->pid, .opened = opened};
    map->mapping = mapping;
    map->data = (const uint8_t *)opened->base + map->offset;
    return F8_OK;
}

void cuda_mapping_free(struct cuda *cuda, struct backend_mapping *mapping)
{
    if (--mapping->opened->num_mappings == 0)
        close_memory(cuda, mapping->opened);
    free(mapping);
}
