/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What operators see of devices: which there are and what they hold, with which versions they are
 * driven, why there are none; and of groups on them. On the loop; as inspect.c.
 */
#include "daemon/inspect_private.h"

#include <string.h>

/* As one text: what the backend tells goes with its next call. */
static char *keep_text(struct page *page, const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = inspect_grab(page, size);
    return copy ? memcpy(copy, text, size) : (char *)"";
}

static void fill_device(
    struct page *page, const struct backend_device_info *device, F8__DeviceInfo *info)
{
    f8__device_info__init(info);
    uint8_t *uuid = inspect_grab(page, BACKEND_UUID_SIZE);
    if (uuid) {
        memcpy(uuid, device->uuid, BACKEND_UUID_SIZE);
        info->uuid = (ProtobufCBinaryData){.len = BACKEND_UUID_SIZE, .data = uuid};
    }
    info->name = keep_text(page, device->name);
    info->pci = keep_text(page, device->pci);
    info->memory = device->memory;
    info->memory_free = device->memory_free;
    info->arena_bytes = device->arena_bytes;
    info->mapped_bytes = device->mapped_bytes;
    info->compute_capability = device->compute_capability;
    info->clients = device->clients;
}

static void add_devices(struct page *page, const struct backend_info *backend, F8__StatusInfo *info)
{
    F8__DeviceInfo *devices = inspect_grab(page, backend->num_devices * sizeof(*devices));
    info->devices = inspect_grab(page, backend->num_devices * sizeof(*info->devices));
    if (!devices || !info->devices)
        return;
    for (uint32_t d = 0; d < backend->num_devices; d++) {
        fill_device(page, &backend->devices[d], &devices[d]);
        info->devices[d] = &devices[d];
    }
    info->n_devices = backend->num_devices;
}

void inspect_devices(struct page *page, F8__StatusInfo *info)
{
    const struct session_context *context = page->session->context;
    struct backend *cuda = context->collective.cuda;
    struct backend_info backend;
    if (!cuda) {
        info->cuda = (char *)context->no_cuda.text;
        return;
    }
    cuda->ops->device->info(cuda, &backend);
    info->backend = (char *)"host, cuda";
    info->cuda_driver = backend.driver_version;
    info->cuda_runtime = backend.runtime_version;
    info->nccl = backend.nccl_version;
    info->nccl_reason = keep_text(page, backend.nccl_reason);
    info->communicators = backend.communicators;
    info->warm_communicators = backend.warm_communicators;
    info->simulated = backend.simulated;
    add_devices(page, &backend, info);
}

bool inspect_group_devices(struct page *page, const struct group *group, F8__GroupInfo *info)
{
    static const char *const paths[BACKEND_PATH_COUNT] = {[BACKEND_PATH_NONE] = "none",
        [BACKEND_PATH_ALLGATHER] = "allgather",
        [BACKEND_PATH_BROADCAST] = "broadcast"};
    const struct device_arena *arena = group->arena ? group->arena->device : NULL;
    if (!arena)
        return true;
    info->devices = inspect_grab(page, group->world_size * sizeof(*info->devices));
    if (!info->devices)
        return false;
    memcpy(info->devices, group->devices, group->world_size * sizeof(*info->devices));
    info->n_devices = group->world_size;
    info->exchange = (char *)paths[arena->path];
    info->exchanges = arena->exchanges;
    info->copy_engine_exchanges = arena->copy_engine_exchanges;
    info->window = arena->window;
    info->warm = arena->warm;
    return true;
}
