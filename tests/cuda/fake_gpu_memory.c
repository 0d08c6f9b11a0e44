/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fake daemon's device: maps what clients share, keeps the arena and its events, and queues
 * copies. Uses the driver by its own header, so that it shares nothing with the library under test.
 */
#include <string.h>
#include <unistd.h>

#include "tests/cuda/fake_gpu_daemon.h"

#define OK(call) GPU_MUST((call) == CUDA_SUCCESS)

#define GRANULARITY ((uint64_t)2 << 20)

void gpu_open(struct gpu *gpu)
{
    CUdevice device;
    CUcontext context;
    OK(cuInit(0));
    OK(cuDeviceGet(&device, 0));
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxPushCurrent(context));
    OK(cuStreamCreate(&gpu->stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&gpu->scratch, GRANULARITY));
    gpu->arena_fd = -1;
}

void gpu_attach(struct gpu *gpu, const F8__DeviceAdd *add)
{
    CUuuid uuid;
    CUdevice device;
    OK(cuDeviceGet(&device, 0));
    OK(cuDeviceGetUuid(&uuid, device));
    gpu->shared->uuid_matches =
        add->uuid.len == sizeof(uuid) && memcmp(add->uuid.data, &uuid, sizeof(uuid)) == 0;
    gpu->num_ready = (uint32_t)add->n_ready;
    gpu->shared->num_ready = gpu->num_ready;
    GPU_MUST(add->n_ready <= F8_PROTO_MAX_READY);
    for (uint32_t i = 0; i < gpu->num_ready; i++) {
        CUipcEventHandle handle;
        GPU_MUST(add->ready[i].len == sizeof(handle));
        memcpy(&handle, add->ready[i].data, sizeof(handle));
        OK(cuIpcOpenEventHandle(&gpu->ready[i], handle));
    }
}

/* ---- regions ---- */

static void map_chunk(struct gpu_region *region, uint64_t at, int fd, uint64_t size)
{
    CUmemGenericAllocationHandle memory;
    OK(cuMemImportFromShareableHandle(
        &memory, (void *)(uintptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    OK(cuMemMap(region->base + at, size, 0, memory, 0));
    OK(cuMemRelease(memory));
}

static void add_chunks(
    struct gpu_region *region, const F8__CudaMemory *memory, const int *fds, uint32_t n)
{
    GPU_MUST(n == memory->n_chunks && region->num_chunks + n <= GPU_CHUNKS);
    if (region->base == 0)
        OK(cuMemAddressReserve(&region->base, GPU_CHUNKS * GRANULARITY, 0, 0, 0));
    for (uint32_t i = 0; i < n; i++) {
        map_chunk(region, region->mapped, fds[i], memory->chunks[i]);
        region->chunks[region->num_chunks++] = memory->chunks[i];
        region->mapped += memory->chunks[i];
    }
}

uint32_t gpu_add_region(struct gpu *gpu, const F8__CudaMemory *memory, const int *fds, uint32_t n)
{
    struct gpu_region *region = &gpu->partial;
    uint32_t number = 0;
    region->is_vmm = memory->handle.len == 0;
    if (region->is_vmm) {
        add_chunks(region, memory, fds, n);
    } else {
        CUipcMemHandle handle;
        GPU_MUST(memory->handle.len == sizeof(handle) && n == 0);
        memcpy(&handle, memory->handle.data, sizeof(handle));
        OK(cuIpcOpenMemHandle(&region->base, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    }
    if (memory->more) {
        GPU_MUST(memory->offset == 0 && memory->size == 0);
        return 0;
    }
    if (region->is_vmm) {
        const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
            .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        OK(cuMemSetAccess(region->base, region->mapped, &access, 1));
        GPU_MUST(memory->offset + memory->size <= region->mapped);
    }
    region->data = region->base + memory->offset;
    region->size = memory->size;
    region->used = true;
    while (gpu->regions[number].used)
        GPU_MUST(++number < GPU_REGIONS);
    gpu->regions[number] = *region;
    memset(region, 0, sizeof(*region));
    return number + 1;
}

static void unmap(struct gpu *gpu, struct gpu_region *region)
{
    OK(cuStreamSynchronize(gpu->stream));
    if (!region->is_vmm) {
        OK(cuIpcCloseMemHandle(region->base));
    } else {
        uint64_t at = 0;
        for (uint32_t i = 0; i < region->num_chunks; i++) {
            OK(cuMemUnmap(region->base + at, region->chunks[i]));
            at += region->chunks[i];
        }
        OK(cuMemAddressFree(region->base, GPU_CHUNKS * GRANULARITY));
    }
    memset(region, 0, sizeof(*region));
}

void gpu_drop_region(struct gpu *gpu, uint32_t number)
{
    unmap(gpu, &gpu->regions[number - 1]);
}

void gpu_drop_partial(struct gpu *gpu)
{
    unmap(gpu, &gpu->partial);
}

/* ---- the arena ---- */

static void drop_arena(struct gpu *gpu)
{
    if (gpu->arena_fd < 0)
        return;
    OK(cuStreamSynchronize(gpu->stream));
    OK(cuMemUnmap(gpu->arena, gpu->mapped));
    OK(cuMemAddressFree(gpu->arena, gpu->mapped));
    close(gpu->arena_fd);
    gpu->arena_fd = -1;
    for (int i = 0; i < FAKE_GPU_DONE; i++)
        OK(cuEventDestroy(gpu->done[i]));
}

void gpu_detach(struct gpu *gpu)
{
    OK(cuStreamSynchronize(gpu->stream));
    for (uint32_t i = 0; i < GPU_REGIONS; i++)
        if (gpu->regions[i].used)
            gpu_drop_region(gpu, i + 1);
    drop_arena(gpu);
    for (uint32_t i = 0; i < gpu->num_ready; i++)
        OK(cuEventDestroy(gpu->ready[i]));
    gpu->num_ready = 0;
}

static void map_arena(struct gpu *gpu)
{
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle memory;
    gpu->mapped = (gpu->arena_size + GRANULARITY - 1) / GRANULARITY * GRANULARITY;
    OK(cuMemCreate(&memory, gpu->mapped, &properties, 0));
    OK(cuMemExportToShareableHandle(
        &gpu->arena_fd, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    OK(cuMemAddressReserve(&gpu->arena, gpu->mapped, 0, 0, 0));
    OK(cuMemMap(gpu->arena, gpu->mapped, 0, memory, 0));
    OK(cuMemSetAccess(gpu->arena, gpu->mapped, &access, 1));
    OK(cuMemRelease(memory));
}

void gpu_seal(struct gpu *gpu)
{
    drop_arena(gpu);
    gpu->arena_size = 0;
    for (uint32_t i = 0; i < gpu->num_buckets; i++) {
        struct gpu_bucket *bucket = &gpu->buckets[i];
        bucket->place = gpu->arena_size;
        gpu->arena_size += bucket->span;
    }
    map_arena(gpu);
    for (int i = 0; i < FAKE_GPU_DONE; i++) {
        OK(cuEventCreate(&gpu->done[i], CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS));
        OK(cuIpcGetEventHandle(&gpu->handles[i], gpu->done[i]));
    }
}

/* ---- works ---- */

void gpu_wait(struct gpu *gpu, uint32_t ready)
{
    if (ready > 0)
        OK(cuStreamWaitEvent(gpu->stream, gpu->ready[ready - 1], 0));
}

static uint32_t record_done(struct gpu *gpu)
{
    uint32_t done = gpu->next_done++ % FAKE_GPU_DONE;
    OK(cuEventRecord(gpu->done[done], gpu->stream));
    return done + 1;
}

static CUdeviceptr shard_of(const struct gpu *gpu, const struct gpu_weight *weight)
{
    return gpu->regions[weight->region - 1].data + weight->offset;
}

uint32_t gpu_gather(struct gpu *gpu, uint32_t bucket)
{
    const struct gpu_bucket *b = &gpu->buckets[bucket];
    for (uint32_t i = b->first; i < b->first + b->count; i++) {
        const struct gpu_weight *weight = &gpu->weights[i];
        if (weight->region > 0)
            OK(cuMemcpyDtoDAsync(gpu->arena + b->place + weight->at, shard_of(gpu, weight),
                weight->size, gpu->stream));
    }
    return record_done(gpu);
}

uint32_t gpu_precompute(struct gpu *gpu)
{
    for (uint32_t i = 0; i < gpu->num_weights; i++)
        if (gpu->weights[i].region > 0)
            OK(cuMemcpyDtoDAsync(
                gpu->scratch, shard_of(gpu, &gpu->weights[i]), gpu->weights[i].size, gpu->stream));
    return record_done(gpu);
}

uint32_t gpu_read_scratch(struct gpu *gpu)
{
    uint32_t word = 0;
    OK(cuStreamSynchronize(gpu->stream));
    OK(cuMemcpyDtoH(&word, gpu->scratch, sizeof(word)));
    return word;
}
