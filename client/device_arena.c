/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A group's arena on a device: the daemon's VMM memory, mapped for reading, and the events by which
 * streams wait for it. Called by group_device.c under the group's lock.
 */
#include <stdlib.h>
#include <string.h>

#include "client/device_private.h"
#include "client/error.h"

/* Most done events that are opened of one arena: CUDA has about 22,000 a process. */
#define MAX_DONE 4096

struct device_arena {
    struct device *device; /* owned: a hold on it */
    driver_device_pointer address;
    size_t reserved; /* bytes of addresses; 0: none */
    size_t mapped;   /* bytes of memory there; 0: none */
    uint32_t num_done;
    struct CUevent_st *done[]; /* owned: opened; NULL: not yet */
};

/* The size of the daemon's allocation: whole granules of the device; context current. */
static int round_size(const struct device *device, uint64_t size, size_t *ret_rounded)
{
    const struct driver_allocation properties = {.type = DRIVER_ALLOCATION_PINNED,
        .handle_types = DRIVER_HANDLE_POSIX_FD,
        .location = {.type = DRIVER_LOCATION_DEVICE, .id = device->handle}};
    size_t granularity = 0;
    int status = DRIVER_CALL(device->driver, memory_granularity, "cuMemGetAllocationGranularity",
        &granularity, &properties, DRIVER_GRANULARITY_MINIMUM);
    if (status != F8_OK)
        return status;
    if (granularity == 0 || size > UINT64_MAX - granularity)
        return error_set(F8_EPROTO, "the daemon sent an arena of %llu bytes for CUDA device %d",
            (unsigned long long)size, device->ordinal);
    *ret_rounded = (size_t)((size + granularity - 1) / granularity * granularity);
    return F8_OK;
}

/* Maps the memory behind the descriptor; context current. */
static int map(struct device_arena *arena, uint64_t size, int fd)
{
    const struct device *device = arena->device;
    const struct driver *driver = device->driver;
    const struct driver_access access = {
        .location = {.type = DRIVER_LOCATION_DEVICE, .id = device->handle},
        .flags = DRIVER_ACCESS_READ};
    driver_memory memory = 0;
    size_t rounded = 0;
    int status = round_size(device, size, &rounded);
    if (status == F8_OK)
        status = DRIVER_CALL(driver, memory_import, "cuMemImportFromShareableHandle", &memory,
            (void *)(uintptr_t)fd, DRIVER_HANDLE_POSIX_FD);
    if (status != F8_OK)
        return status;
    status = DRIVER_CALL(
        driver, address_reserve, "cuMemAddressReserve", &arena->address, rounded, 0, 0, 0);
    if (status == F8_OK) {
        arena->reserved = rounded;
        status = DRIVER_CALL(driver, memory_map, "cuMemMap", arena->address, rounded, 0, memory, 0);
    }
    if (status == F8_OK) {
        arena->mapped = rounded;
        status = DRIVER_CALL(
            driver, memory_access, "cuMemSetAccess", arena->address, rounded, &access, 1);
    }
    driver->memory_release(memory); /* the mapping keeps the memory */
    return status;
}

/* Opens the daemon's events; context current. */
static int open_events(struct device_arena *arena, const F8__SealReply *reply)
{
    int status = F8_OK;
    for (uint32_t i = 0; status == F8_OK && i < arena->num_done; i++) {
        struct driver_event_handle handle;
        if (reply->done[i].len != sizeof(handle.reserved))
            return error_set(F8_EPROTO,
                "the daemon sent an event handle of %zu bytes, they have %zu", reply->done[i].len,
                sizeof(handle.reserved));
        memcpy(handle.reserved, reply->done[i].data, sizeof(handle.reserved));
        status = DRIVER_CALL(
            arena->device->driver, event_import, "cuIpcOpenEventHandle", &arena->done[i], handle);
    }
    return status;
}

/* Gives back what there is; context current. */
static void give_back(struct device_arena *arena)
{
    const struct driver *driver = arena->device->driver;
    for (uint32_t i = 0; i < arena->num_done; i++)
        if (arena->done[i])
            driver->event_destroy(arena->done[i]);
    if (arena->mapped > 0)
        driver->memory_unmap(arena->address, arena->mapped);
    if (arena->reserved > 0)
        driver->address_free(arena->address, arena->reserved);
}

int device_arena_open(struct device *device, const F8__SealReply *reply, int fd,
    struct device_arena **ret_arena, void **ret_address)
{
    if (reply->n_done == 0 || reply->n_done > MAX_DONE)
        return error_set(F8_EPROTO,
            "the daemon sealed the group with %zu events for CUDA device %d; 1 to %d are possible",
            reply->n_done, device->ordinal, MAX_DONE);
    struct device_arena *arena =
        calloc(1, sizeof(*arena) + reply->n_done * sizeof(struct CUevent_st *));
    if (!arena)
        return error_set(F8_ENOMEM, "no memory for an arena");
    arena->device = device;
    arena->num_done = (uint32_t)reply->n_done;
    int status = device_enter(device);
    if (status != F8_OK) {
        free(arena);
        return status;
    }
    if (reply->arena_size > 0)
        status = map(arena, reply->arena_size, fd);
    if (status == F8_OK)
        status = open_events(arena, reply);
    if (status != F8_OK)
        give_back(arena);
    device_exit(device);
    if (status != F8_OK) {
        free(arena);
        return status;
    }
    atomic_fetch_add(&device->holders, 1);
    *ret_address = (void *)(uintptr_t)arena->address;
    *ret_arena = arena;
    return F8_OK;
}

void device_arena_close(struct device_arena *arena)
{
    if (!arena)
        return;
    if (device_drain(arena->device) && device_enter(arena->device) == F8_OK) {
        give_back(arena);
        device_exit(arena->device);
    }
    device_free(arena->device, false);
    free(arena);
}

struct device *device_arena_device(const struct device_arena *arena)
{
    return arena->device;
}

void device_arena_forget(struct device_arena *arena)
{
    if (arena)
        device_free(arena->device, true);
    free(arena);
}

int device_arena_wait(struct device_arena *arena, uint32_t done, void *stream)
{
    struct device *device = arena->device;
    if (done == 0)
        return F8_OK;
    if (done > arena->num_done)
        return error_set(
            F8_EPROTO, "the daemon named event %u of a group that has %u", done, arena->num_done);
    int status = device_enter(device);
    if (status != F8_OK)
        return status;
    status = DRIVER_CALL(
        device->driver, stream_wait, "cuStreamWaitEvent", stream, arena->done[done - 1], 0);
    device_exit(device);
    return status;
}
