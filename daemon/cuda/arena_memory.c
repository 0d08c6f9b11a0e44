/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of an arena on one device. What clients see is virtual memory of the daemon's own,
 * so that it outlives them, can be exported as a descriptor, which they can map read-only, and can
 * be a window of NCCL; tables of amaxes, counts and scales are the daemon's alone.
 */
#include "daemon/cuda/arena.h"

#include <fcntl.h>
#include <inttypes.h>
#include <unistd.h>

#include "proto/status.h"

static CUmemAllocationProp properties_on(int32_t device)
{
    return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
}

static int create_memory(struct cuda *cuda, const struct cuda_arena *arena,
    struct cuda_arena_device *part, struct reason *reason)
{
    CUmemAllocationProp properties = properties_on(part->device);
    size_t unit = 0;
    CUresult error = cuda->driver.p_cuMemGetAllocationGranularity(
        &unit, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    int status = cuda_driver_failed(cuda, error, reason,
        "cannot find the granularity of memory on device %" PRId32, part->device);
    if (status < 0)
        return status;
    part->mapped_size = (arena->size + unit - 1) / unit * unit;
    cuda_beat(cuda, "cuMemCreate");
    error = cuda->driver.p_cuMemCreate(&part->memory, part->mapped_size, &properties, 0);
    status = cuda_driver_failed(cuda, error, reason,
        "cannot reserve an arena of %" PRIu64 " bytes on device %" PRId32 " (%s)", arena->size,
        part->device, cuda->devices[part->device].info.name);
    if (status == F8_OK)
        part->has_memory = true;
    else if (status == F8_ENOMEM)
        reason_append(reason, "; free memory there or gather fewer buckets at once");
    return status;
}

/* The other devices of the arena reach it too where they can: NCCL then copies straight into it. */
static int give_access(struct cuda *cuda, const struct cuda_arena *arena,
    const struct cuda_arena_device *part, CUdeviceptr base, struct reason *reason)
{
    for (uint32_t d = 0; d < arena->base.num_devices; d++) {
        int32_t device = arena->devices[d].device;
        int can = device == part->device;
        if (!can && cudaDeviceCanAccessPeer(&can, device, part->device) != cudaSuccess)
            (void)cudaGetLastError();
        CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
            .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        int status = F8_OK;
        if (can)
            status = cuda_driver_failed(cuda,
                cuda->driver.p_cuMemSetAccess(base, part->mapped_size, &access, 1), reason,
                "device %" PRId32 " cannot be given access to an arena on device %" PRId32, device,
                part->device);
        if (status < 0)
            return status;
    }
    return F8_OK;
}

static int map_memory(struct cuda *cuda, const struct cuda_arena *arena,
    struct cuda_arena_device *part, struct reason *reason)
{
    CUdeviceptr base = 0;
    CUresult error = cuda->driver.p_cuMemAddressReserve(&base, part->mapped_size, 0, 0, 0);
    int status = cuda_driver_failed(cuda, error, reason,
        "cannot reserve %" PRIu64 " bytes of addresses for an arena", part->mapped_size);
    if (status < 0)
        return status;
    part->shown->base = (uint8_t *)base;
    error = cuda->driver.p_cuMemMap(base, part->mapped_size, 0, part->memory, 0);
    status = cuda_driver_failed(
        cuda, error, reason, "cannot map an arena on device %" PRId32, part->device);
    if (status < 0)
        return status;
    part->is_mapped = true;
    return give_access(cuda, arena, part, base, reason);
}

static int export_memory(struct cuda *cuda, struct cuda_arena_device *part, struct reason *reason)
{
    int fd = -1;
    CUresult error = cuda->driver.p_cuMemExportToShareableHandle(
        &fd, part->memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    int status = cuda_driver_failed(
        cuda, error, reason, "cannot export an arena on device %" PRId32, part->device);
    if (status < 0)
        return status;
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    part->shown->fd = fd;
    return F8_OK;
}

int cuda_arena_memory_create(struct cuda *cuda, const struct cuda_arena *arena,
    struct cuda_arena_device *part, struct reason *reason)
{
    int status = create_memory(cuda, arena, part, reason);
    if (status == F8_OK)
        status = map_memory(cuda, arena, part, reason);
    if (status == F8_OK)
        status = export_memory(cuda, part, reason);
    if (status == F8_OK)
        cuda_device_count(cuda, part->device, 0, (int64_t)part->mapped_size, 0);
    if (status < 0)
        return status;
    return cuda_failed(cudaMemsetAsync(part->shown->base, 0, part->mapped_size, part->stream),
        reason, "cannot fill an arena on device %" PRId32, part->device);
}

int cuda_arena_tables_create(
    const struct cuda_arena *arena, struct cuda_arena_device *part, struct reason *reason)
{
    uint64_t cells = (uint64_t)part->num_rows * arena->slots;
    uint64_t landed = cells * (sizeof(struct f8k_counts) + sizeof(uint32_t));
    uint64_t size = landed + (uint64_t)arena->slots * (sizeof(uint32_t) + sizeof(float));
    if (size == 0)
        return F8_OK;
    int status = cuda_failed(cudaMalloc(&part->tables, size), reason,
        "cannot reserve tables of %" PRIu64 " bytes on device %" PRId32, size, part->device);
    if (status < 0)
        return status;
    part->counts = part->tables;
    part->amax = (uint32_t *)(part->counts + cells);
    part->reduced = part->amax + cells;
    part->scale = (float *)(part->reduced + arena->slots);
    landed += (uint64_t)arena->slots * sizeof(uint32_t);
    status = cuda_failed(cudaHostAlloc(&part->mirror, landed, cudaHostAllocDefault), reason,
        "cannot reserve %" PRIu64 " bytes of pinned memory", landed);
    if (status < 0)
        return status;
    part->landed_counts = part->mirror;
    part->landed_amax = (uint32_t *)(part->landed_counts + cells);
    part->landed_reduced = part->landed_amax + cells;
    return cuda_failed(cudaMemsetAsync(part->tables, 0, size, part->stream), reason,
        "cannot fill tables on device %" PRId32, part->device);
}

void cuda_arena_memory_free(struct cuda *cuda, struct cuda_arena_device *part)
{
    CUdeviceptr base = (CUdeviceptr)part->shown->base;
    if (part->shown->fd >= 0) {
        (void)close(part->shown->fd);
        cuda_device_count(cuda, part->device, 0, -(int64_t)part->mapped_size, 0);
    }
    if (part->is_mapped)
        (void)cuda->driver.p_cuMemUnmap(base, part->mapped_size);
    if (base)
        (void)cuda->driver.p_cuMemAddressFree(base, part->mapped_size);
    if (part->has_memory)
        (void)cuda->driver.p_cuMemRelease(part->memory);
    if (part->tables)
        (void)cudaFree(part->tables);
    if (part->mirror)
        (void)cudaFreeHost(part->mirror);
    (void)cudaGetLastError();
}
