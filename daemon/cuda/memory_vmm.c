/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients' memory that comes as descriptors of virtual memory management: one tensor may span
 * several allocations (PyTorch's expandable segments), so they are mapped one after the other in
 * one range of addresses. The daemon only reads it, and the device is held to that.
 */
#include "daemon/cuda/memory.h"

#include <inttypes.h>
#include <stdint.h>

#include "proto/status.h"

static int add_sizes(
    struct cuda *cuda, const struct backend_map *map, uint64_t *ret_size, struct reason *reason)
{
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = map->device}};
    size_t unit = 0;
    int status = cuda_driver_failed(cuda,
        cuda->driver.p_cuMemGetAllocationGranularity(
            &unit, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
        reason, "cannot find the granularity of memory on device %" PRId32, map->device);
    if (status < 0)
        return status;
    uint64_t total = 0;
    for (uint32_t i = 0; i < map->num_chunks; i++) {
        uint64_t chunk = map->chunks[i];
        if (chunk == 0 || chunk % unit != 0 || chunk > SIZE_MAX / 2 - total)
            return reason_set(reason, F8_EREGION,
                "allocation %" PRIu32 " of %" PRIu32 " of a region of pid %" PRIu32 " has %" PRIu64
                " bytes, which is not a multiple of %zu that fits in memory",
                i, map->num_chunks, map->pid, chunk, unit);
        total += chunk;
    }
    if (total == 0)
        return reason_set(
            reason, F8_EREGION, "a region of pid %" PRIu32 " has no allocations", map->pid);
    *ret_size = total;
    return F8_OK;
}

static int check_place(struct cuda *cuda, const struct backend_map *map, uint32_t index,
    CUmemGenericAllocationHandle memory, struct reason *reason)
{
    CUmemAllocationProp properties = {0};
    int status = cuda_driver_failed(cuda,
        cuda->driver.p_cuMemGetAllocationPropertiesFromHandle(&properties, memory), reason,
        "cannot read the properties of allocation %" PRIu32 " of pid %" PRIu32, index, map->pid);
    if (status < 0)
        return status;
    if (properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return reason_set(reason, F8_EREGION,
            "allocation %" PRIu32 " of %" PRIu32 " of a region of pid %" PRIu32
            " does not lie on a device",
            index, map->num_chunks, map->pid);
    if (properties.location.id != map->device)
        return reason_set(reason, F8_EREGION,
            "allocation %" PRIu32 " of %" PRIu32 " of a region of pid %" PRIu32
            " lies on device %d, and the client works on device %" PRId32,
            index, map->num_chunks, map->pid, properties.location.id, map->device);
    return F8_OK;
}

/* The mapping keeps the memory, so the handle goes at once. */
static int map_chunk(struct cuda *cuda, const struct backend_map *map, uint32_t index,
    CUdeviceptr address, struct reason *reason)
{
    CUmemGenericAllocationHandle memory;
    CUresult error = cuda->driver.p_cuMemImportFromShareableHandle(
        &memory, (void *)(intptr_t)map->fds[index], CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    int status = cuda_driver_failed(cuda, error, reason,
        "descriptor %" PRIu32 " of %" PRIu32 " of a region of pid %" PRIu32
        " cannot be imported as CUDA memory",
        index, map->num_chunks, map->pid);
    if (status < 0)
        return status == F8_ENOMEM ? status : F8_EREGION;
    status = check_place(cuda, map, index, memory, reason);
    if (status == F8_OK) {
        /* Refuses a size that is not the allocation's own: there is no other way to ask for it. */
        error = cuda->driver.p_cuMemMap(address, map->chunks[index], 0, memory, 0);
        status = cuda_driver_failed(cuda, error, reason,
            "allocation %" PRIu32 " of %" PRIu32 " of a region of pid %" PRIu32
            " cannot be mapped with the %" PRIu64 " bytes that it is said to have",
            index, map->num_chunks, map->pid, map->chunks[index]);
        if (error == CUDA_ERROR_INVALID_VALUE)
            status = F8_EREGION;
    }
    (void)cuda->driver.p_cuMemRelease(memory);
    return status;
}

static int map_all(struct cuda *cuda, const struct backend_map *map, struct cuda_opened *opened,
    struct reason *reason)
{
    uint64_t mapped = 0;
    int status = F8_OK;
    cuda_beat(cuda, "cuMemMap");
    for (uint32_t i = 0; i < map->num_chunks && status == F8_OK; i++) {
        status = map_chunk(cuda, map, i, opened->base + mapped, reason);
        if (status == F8_OK)
            mapped += map->chunks[i];
    }
    if (status == F8_OK) {
        CUmemAccessDesc access = {
            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = map->device},
            .flags = CU_MEM_ACCESS_FLAGS_PROT_READ};
        status = cuda_driver_failed(cuda,
            cuda->driver.p_cuMemSetAccess(opened->base, opened->size, &access, 1), reason,
            "device %" PRId32 " cannot be given access to memory of pid %" PRIu32, map->device,
            map->pid);
    }
    if (status < 0 && mapped > 0)
        (void)cuda->driver.p_cuMemUnmap(opened->base, mapped);
    return status;
}

int cuda_vmm_open(struct cuda *cuda, const struct backend_map *map, struct cuda_opened *opened,
    struct reason *reason)
{
    int status = add_sizes(cuda, map, &opened->size, reason);
    if (status < 0)
        return status;
    status = cuda_driver_failed(cuda,
        cuda->driver.p_cuMemAddressReserve(&opened->base, opened->size, 0, 0, 0), reason,
        "cannot reserve %" PRIu64 " bytes of addresses for memory of pid %" PRIu32, opened->size,
        map->pid);
    if (status < 0)
        return status;
    status = map_all(cuda, map, opened, reason);
    if (status < 0)
        (void)cuda->driver.p_cuMemAddressFree(opened->base, opened->size);
    return status;
}

void cuda_vmm_close(struct cuda *cuda, struct cuda_opened *opened)
{
    (void)cuda->driver.p_cuMemUnmap(opened->base, opened->size);
    (void)cuda->driver.p_cuMemAddressFree(opened->base, opened->size);
}
