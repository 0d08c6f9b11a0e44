/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The devices of the host: found at the start, without a context, which costs half a gigabyte;
 * opened when the first client works on one. Also drains: what tells that all that was queued on
 * a device at some time has run, though its streams are never empty.
 */
#include "daemon/cuda/cuda_private.h"

#include <inttypes.h>
#include <stdlib.h>

#include "proto/status.h"

/* ---- finding ---- */

static int check_driver(struct cuda *cuda, struct reason *reason)
{
    cuda_beat(cuda, "cudaDriverGetVersion");
    if (cudaDriverGetVersion(&cuda->driver_version) != cudaSuccess)
        cuda->driver_version = 0;
    (void)cudaGetLastError();
    if (cuda->driver_version == 0)
        return reason_set(reason, F8_ENOENT,
            "no CUDA driver: libcuda.so.1 is not on this host, or not in this container");
    (void)cudaRuntimeGetVersion(&cuda->runtime_version);
    return F8_OK;
}

static int count_devices(struct cuda *cuda, struct reason *reason)
{
    int count = 0;
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    cuda_beat(cuda, "cudaGetDeviceCount");
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error == cudaErrorInsufficientDriver) {
        (void)cudaGetLastError();
        return reason_set(reason, F8_ENOENT,
            "the CUDA driver is too old: it is for CUDA %d.%d, this module needs CUDA %d.%d",
            cuda->driver_version / 1000, cuda->driver_version % 1000 / 10,
            cuda->runtime_version / 1000, cuda->runtime_version % 1000 / 10);
    }
    if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0)) {
        (void)cudaGetLastError();
        return reason_set(reason, F8_ENOENT, "the CUDA driver finds no device%s%s",
            visible ? "; CUDA_VISIBLE_DEVICES is " : "", visible ? visible : "");
    }
    int status = cuda_failed(error, reason, "cannot count the CUDA devices");
    if (status == F8_OK)
        cuda->num_devices = (uint32_t)count;
    return status;
}

static int describe(struct cuda *cuda, uint32_t index, struct reason *reason)
{
    struct backend_device_info *info = &cuda->devices[index].info;
    struct cudaDeviceProp properties;
    CUuuid uuid;
    cuda_beat(cuda, "cudaGetDeviceProperties");
    int status = cuda_failed(cudaGetDeviceProperties(&properties, (int)index), reason,
        "cannot read the properties of device %" PRIu32, index);
    if (status < 0)
        return status;
    /* Not properties.uuid: with MIG that is the whole GPU's, and clients ask the driver too. */
    status = cuda_driver_failed(cuda, cuda->driver.p_cuDeviceGetUuid(&uuid, (CUdevice)index),
        reason, "cannot read the UUID of device %" PRIu32, index);
    if (status < 0)
        return status;
    memcpy(info->uuid, uuid.bytes, sizeof(info->uuid));
    (void)snprintf(info->name, sizeof(info->name), "%.63s", properties.name);
    if (cudaDeviceGetPCIBusId(info->pci, sizeof(info->pci), (int)index) != cudaSuccess)
        (void)cudaGetLastError();
    info->memory = info->memory_free = properties.totalGlobalMem;
    info->compute_capability = (uint32_t)(properties.major * 10 + properties.minor);
    if (strncmp(info->name, "simulated", strlen("simulated")) == 0)
        cuda->is_simulated = true;
    return F8_OK;
}

static int describe_all(struct cuda *cuda, struct reason *reason)
{
    cuda->devices = calloc(cuda->num_devices, sizeof(*cuda->devices));
    cuda->shown = calloc(cuda->num_devices, sizeof(*cuda->shown));
    if (!cuda->devices || !cuda->shown)
        return reason_set(reason, F8_ENOMEM, "no memory for the list of devices");
    for (uint32_t i = 0; i < cuda->num_devices; i++) {
        int status = describe(cuda, i, reason);
        if (status < 0)
            return status;
    }
    return F8_OK;
}

int cuda_devices_open(struct cuda *cuda, struct reason *reason)
{
    int status = check_driver(cuda, reason);
    if (status == F8_OK)
        status = count_devices(cuda, reason);
    if (status == F8_OK)
        status = cuda_driver_open(&cuda->driver, reason);
    if (status == F8_OK)
        status = describe_all(cuda, reason);
    if (status == F8_OK)
        cuda_nccl_open(cuda);
    return status;
}

void cuda_devices_close(struct cuda *cuda)
{
    cuda_nccl_close(cuda);
    for (uint32_t i = 0; i < cuda->num_devices; i++) {
        struct cuda_device *device = &cuda->devices[i];
        if (!device->is_open)
            continue;
        /* CUDA itself puts both off while something of them is queued. */
        cuda_device_switch((int32_t)i);
        (void)cudaEventDestroy(device->drained);
        (void)cudaStreamDestroy(device->drain);
    }
}

/* ---- using ---- */

void cuda_device_switch(int32_t device)
{
    (void)cudaSetDevice(device);
}

int cuda_device_use(struct cuda *cuda, int32_t index, struct reason *reason)
{
    struct cuda_device *device = &cuda->devices[index];
    cuda_beat(cuda, "cudaSetDevice");
    int status = cuda_failed(cudaSetDevice(index), reason,
        "cannot make a CUDA context on device %" PRId32 " (%s)", index, device->info.name);
    if (status < 0 || device->is_open)
        return status;
    status = cuda_failed(cudaStreamCreateWithFlags(&device->drain, cudaStreamNonBlocking), reason,
        "cannot create a stream on device %" PRId32, index);
    if (status < 0)
        return status;
    status = cuda_failed(cudaEventCreateWithFlags(&device->drained, cudaEventDisableTiming), reason,
        "cannot create an event on device %" PRId32, index);
    if (status < 0) {
        (void)cudaStreamDestroy(device->drain);
        return status;
    }
    device->is_open = true;
    return F8_OK;
}

void cuda_device_look(struct cuda *cuda, int32_t index)
{
    size_t unused, total;
    cuda_device_switch(index);
    if (cudaMemGetInfo(&unused, &total) != cudaSuccess) {
        (void)cudaGetLastError();
        return;
    }
    (void)pthread_mutex_lock(&cuda->info_lock);
    cuda->devices[index].info.memory_free = unused;
    (void)pthread_mutex_unlock(&cuda->info_lock);
}

void cuda_device_count(
    struct cuda *cuda, int32_t index, int32_t clients, int64_t arena_bytes, int64_t mapped_bytes)
{
    struct backend_device_info *info = &cuda->devices[index].info;
    (void)pthread_mutex_lock(&cuda->info_lock);
    info->clients += (uint32_t)clients;
    info->arena_bytes += (uint64_t)arena_bytes;
    info->mapped_bytes += (uint64_t)mapped_bytes;
    (void)pthread_mutex_unlock(&cuda->info_lock);
}

/* ---- drains ---- */

uint64_t cuda_drain_need(const struct cuda *cuda, int32_t index)
{
    const struct cuda_device *device = &cuda->devices[index];
    return device->is_open ? device->drains_begun + 1 : 0;
}

/* Joins all streams of the device in one that nothing else uses. A stream that has failed has
 * nothing left to run. */
static void begin_drain(struct cuda *cuda, int32_t index)
{
    struct cuda_device *device = &cuda->devices[index];
    cuda_device_switch(index);
    for (struct cuda_arena *arena = cuda->arenas; arena; arena = arena->next) {
        struct cuda_arena_device *part = cuda_arena_on(arena, index);
        if (part && cudaEventRecord(part->mark, part->stream) == cudaSuccess)
            (void)cudaStreamWaitEvent(device->drain, part->mark, 0);
    }
    (void)cudaEventRecord(device->drained, device->drain);
    (void)cudaGetLastError();
    device->drains_begun++;
}

bool cuda_drain_reached(struct cuda *cuda, int32_t index, uint64_t need)
{
    struct cuda_device *device = &cuda->devices[index];
    if (device->drains_begun > device->drains_ended) {
        if (cudaEventQuery(device->drained) == cudaErrorNotReady) {
            (void)cudaGetLastError();
            return false;
        }
        (void)cudaGetLastError();
        device->drains_ended = device->drains_begun;
    }
    if (device->drains_ended >= need)
        return true;
    begin_drain(cuda, index);
    return false;
}
