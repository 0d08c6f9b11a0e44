/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The columns of f8ctl's tables about devices: what the daemon drives them with, what each holds,
 * and how groups on them exchange bytes. As columns.c, whose lists take some of these.
 */
#include "client/ctl/columns_devices.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/ctl/columns_private.h"

/* Appends to a cell. */
#define APPEND(cell, ...)                                                                          \
    snprintf((cell) + strlen(cell), TABLE_MAX_CELL - strlen(cell), __VA_ARGS__)

/* ---- status ---- */

/* "driver 13.1, runtime 13.0", as CUDA numbers them: 13010. */
static void append_cuda(char *cell, const char *what, uint32_t version)
{
    APPEND(cell, "%s %" PRIu32 ".%" PRIu32, what, version / 1000, version % 1000 / 10);
}

/* "NCCL 2.28.9", as NCCL numbers itself: 22809. */
static void append_nccl(char *cell, const F8__StatusInfo *status)
{
    uint32_t version = status->nccl;

    if (version == 0) {
        APPEND(cell, ", no NCCL: %s", status->nccl_reason);
        return;
    }
    APPEND(cell, ", NCCL %" PRIu32 ".%" PRIu32 ".%" PRIu32, version / 10000, version / 100 % 100,
        version % 100);
    APPEND(cell, ", communicators %" PRIu32 " (%" PRIu32 " kept warm)", status->communicators,
        status->warm_communicators);
}

void status_cuda(const void *row, char *cell)
{
    const F8__StatusInfo *status = row;

    cell[0] = '\0';
    if (status->n_devices == 0 && status->cuda_runtime == 0) {
        APPEND(cell, "none%s%s", status->cuda[0] != '\0' ? ": " : "", status->cuda);
        return;
    }
    if (status->simulated) {
        APPEND(cell, "simulated, ");
    }
    append_cuda(cell, "driver", status->cuda_driver);
    append_cuda(cell, ", runtime", status->cuda_runtime);
    append_nccl(cell, status);
}

/* ---- devices ---- */

void device_uuid_text(char *cell, const F8__DeviceInfo *device)
{
    if (device->uuid.len != F8_PROTO_UUID_SIZE) {
        strcpy(cell, "-");
        return;
    }
    strcpy(cell, "GPU-");
    for (size_t i = 0; i < F8_PROTO_UUID_SIZE; i++) {
        bool dash = i == 4 || i == 6 || i == 8 || i == 10;
        APPEND(cell, "%s%02x", dash ? "-" : "", device->uuid.data[i]);
    }
}

COUNT(device_number, struct device_row, number)
CELL(device_name, struct device_row, "%s", r->device->name)
CELL_BY(device_uuid, struct device_row, device_uuid_text, r->device)
CELL(device_pci, struct device_row, "%s", r->device->pci)
BYTES(device_memory, struct device_row, device->memory)
BYTES(device_free, struct device_row, device->memory_free)
BYTES(device_arenas, struct device_row, device->arena_bytes)
BYTES(device_mapped, struct device_row, device->mapped_bytes)
COUNT(device_clients, struct device_row, device->clients)

static const struct table_column device_list[] = {RIGHT("DEVICE", device_number),
    LEFT("NAME", device_name), LEFT("UUID", device_uuid), LEFT("PCI", device_pci),
    RIGHT("MEMORY", device_memory), RIGHT("FREE", device_free), RIGHT("ARENAS", device_arenas),
    RIGHT("MAPPED", device_mapped), RIGHT("CLIENTS", device_clients)};
COLUMNS(columns_devices, device_list);

/* ---- groups ---- */

void group_devices(const void *row, char *cell)
{
    const F8__GroupInfo *group = row;

    strcpy(cell, group->n_devices > 0 ? "" : "-");
    for (size_t r = 0; r < group->n_devices && strlen(cell) < TABLE_MAX_CELL - 16; r++) {
        APPEND(cell, "%s%" PRId32, r > 0 ? "," : "", group->devices[r]);
    }
}

/* "allgather, 12 (12 by copy engines), window" */
void group_exchange(const void *row, char *cell)
{
    const F8__GroupInfo *group = row;

    strcpy(cell, group->n_devices > 0 ? "" : "-");
    if (group->n_devices == 0) {
        return;
    }
    APPEND(cell, "%s", group->exchange);
    if (strcmp(group->exchange, "none") != 0) {
        APPEND(cell, ", %" PRIu64 " (%" PRIu64 " by copy engines)", group->exchanges,
            group->copy_engine_exchanges);
        APPEND(cell, "%s", group->window ? ", window" : "");
    }
}

void group_warm(const void *row, char *cell)
{
    const F8__GroupInfo *group = row;

    strcpy(cell, group->n_devices == 0 ? "-" : group->warm ? "yes" : "no");
}
