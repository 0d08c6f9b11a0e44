/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients that work on a device: the device is found by its UUID, since processes number devices
 * differently, and the inter-process events that the client created are opened.
 */
#include "daemon/cuda/cuda_private.h"

#include <inttypes.h>
#include <stdlib.h>

#include "proto/protocol.h"
#include "proto/status.h"

#define UUID_TEXT_SIZE 48

/* As nvidia-smi writes it. */
static void write_uuid(const uint8_t *uuid, char *ret_text)
{
    size_t used = (size_t)snprintf(ret_text, UUID_TEXT_SIZE, "GPU-");
    for (unsigned i = 0; i < BACKEND_UUID_SIZE; i++) {
        bool has_dash = i == 4 || i == 6 || i == 8 || i == 10;
        used += (size_t)snprintf(
            ret_text + used, UUID_TEXT_SIZE - used, "%s%02x", has_dash ? "-" : "", uuid[i]);
    }
}

static int find_device(
    const struct cuda *cuda, const struct backend_attach *attach, struct reason *reason)
{
    char wanted[UUID_TEXT_SIZE], present[UUID_TEXT_SIZE];
    for (uint32_t i = 0; i < cuda->num_devices; i++)
        if (memcmp(cuda->devices[i].info.uuid, attach->uuid, BACKEND_UUID_SIZE) == 0)
            return (int)i;
    write_uuid(attach->uuid, wanted);
    (void)reason_set(reason, F8_ENOENT,
        "pid %" PRIu32 " works on device %s, which this daemon does not see; it sees", attach->pid,
        wanted);
    for (uint32_t i = 0; i < cuda->num_devices; i++) {
        write_uuid(cuda->devices[i].info.uuid, present);
        reason_append(reason, "%s %s", i > 0 ? "," : "", present);
    }
    return F8_ENOENT;
}

static int open_events(
    struct backend_client *client, const struct backend_attach *attach, struct reason *reason)
{
    for (uint32_t i = 0; i < attach->num_ready; i++) {
        cudaIpcEventHandle_t handle;
        memcpy(&handle, attach->ready[i], sizeof(handle));
        cudaError_t error = cudaIpcOpenEventHandle(&client->ready[i], handle);
        if (error != cudaSuccess) {
            int status = cuda_failed(error, reason,
                "cannot open event %" PRIu32 " of %" PRIu32 " of pid %" PRIu32
                " on device %" PRId32,
                i, attach->num_ready, attach->pid, client->device);
            return error == cudaErrorInvalidValue || error == cudaErrorInvalidResourceHandle
                       ? F8_EINVAL
                       : status;
        }
        client->num_ready++;
    }
    return F8_OK;
}

static void close_events(struct backend_client *client)
{
    for (uint32_t i = 0; i < client->num_ready; i++)
        if (cudaEventDestroy(client->ready[i]) != cudaSuccess)
            (void)cudaGetLastError();
}

int cuda_attach_run(struct cuda *cuda, struct backend_attach *attach)
{
    _Static_assert(sizeof(cudaIpcEventHandle_t) == BACKEND_HANDLE_SIZE, "as on the wire");
    if (attach->num_ready == 0 || attach->num_ready > F8_PROTO_MAX_READY)
        return reason_set(&attach->reason, F8_EINVAL,
            "pid %" PRIu32 " gives %" PRIu32 " events; allowed are 1 to %d", attach->pid,
            attach->num_ready, F8_PROTO_MAX_READY);
    int found = find_device(cuda, attach, &attach->reason);
    if (found < 0)
        return found;
    struct backend_client *client =
        calloc(1, sizeof(*client) + attach->num_ready * sizeof(client->ready[0]));
    if (!client)
        return reason_set(&attach->reason, F8_ENOMEM, "no memory for the record of a client");
    client->device = found;
    client->pid = attach->pid;
    int status = cuda_device_use(cuda, client->device, &attach->reason);
    if (status == F8_OK)
        status = open_events(client, attach, &attach->reason);
    if (status < 0) {
        close_events(client);
        free(client);
        return status;
    }
    cuda_device_count(cuda, client->device, 1, 0, 0);
    attach->client = client;
    attach->device = client->device;
    return F8_OK;
}

void cuda_client_free(struct cuda *cuda, struct backend_client *client)
{
    cuda_device_switch(client->device);
    close_events(client);
    cuda_device_count(cuda, client->device, -1, 0, 0);
    free(client);
}
