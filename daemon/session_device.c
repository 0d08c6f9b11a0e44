/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices and device memory of a client: see session.h. The backend of devices opens events and
 * maps memory on its own thread, so the replies come later; a client that is gone by then gets
 * none, and what was opened for it is let go.
 */
#include "daemon/session_private.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "protocol.h"

/* Descriptors of one region, over all its packets: 40 GiB of PyTorch's segments. */
#define MAX_CHUNKS 2048

/* An attach or a map under way. */
struct device_request {
    struct later_reply later;
    union {
        struct backend_attach attach;
        struct backend_map map;
    } of;
    void *handles;                /* owned: of an attach */
    struct device_chunks *chunks; /* owned: of a map */
};

/* The VMM allocations of a region, as they come in. */
struct device_chunks {
    uint32_t count, capacity;
    int *fds;        /* owned, and the descriptors too */
    uint64_t *sizes; /* owned */
};

static void chunks_free(struct device_chunks *chunks)
{
    if (!chunks)
        return;
    for (uint32_t i = 0; i < chunks->count; i++)
        (void)close(chunks->fds[i]);
    free(chunks->fds);
    free(chunks->sizes);
    free(chunks);
}

void session_drop_device(struct session *session)
{
    chunks_free(session->chunks);
    device_unref(session->device);
}

static void request_free(struct device_request *request)
{
    free(request->handles);
    chunks_free(request->chunks);
    free(request);
}

/* ---- the device ---- */

static void adopt_device(struct session *session, struct device *device)
{
    session->device = device;
    for (struct member *member = session->members; member; member = member->sibling)
        member->device = device_ref(device);
}

static void attached(struct backend_attach *attach, int status)
{
    struct device_request *request = attach->owner;
    struct session *session = later_end(&request->later);
    struct answer answer;
    answer_begin(&answer, request->later.id);
    answer.reason = attach->reason;
    struct device *device = NULL;
    if (status == F8_OK) {
        device = device_new(request->later.backend, attach);
        if (!device) {
            request->later.backend->ops->device->detach(request->later.backend, attach->client);
            status = reason_set(&answer.reason, F8_ENOMEM, "out of memory adding the device");
        }
    }
    if (!session) {
        device_unref(device);
    } else {
        session->adds_device = false;
        if (device) {
            adopt_device(session, device);
            f8__device_reply__init(&answer.body.device);
            answer.body.device.device = (uint32_t)device->number;
            answer.reply.body_case = F8__REPLY__BODY_DEVICE;
            answer.reply.device = &answer.body.device;
        }
        answer_send(session, &answer, status);
    }
    request_free(request);
}

/* Whether the member was sealed, or has asked for it: from then on it is not to change. */
static bool is_fixed(const struct member *member)
{
    return member->list == member->group->list || session_asked_for_seal(member);
}

static bool has_fixed(const struct session *session)
{
    for (const struct member *m = session->members; m; m = m->sibling)
        if (is_fixed(m))
            return true;
    return false;
}

static int check_add(const struct session *session, const F8__DeviceAdd *add, struct reason *reason)
{
    if (!session->context->collective.cuda)
        return reason_set(reason, F8_ENOENT, "this daemon has no CUDA backend: %s",
            session->context->no_cuda.text);
    if (session->device || session->adds_device)
        return reason_set(reason, F8_EBUSY, "this client works on a device already");
    if (has_fixed(session))
        return reason_set(
            reason, F8_EORDER, "a group of this client was sealed: a device is added before");
    if (add->uuid.len != F8_PROTO_UUID_SIZE)
        return reason_set(reason, F8_EINVAL, "the UUID of a device has %d bytes, not %zu",
            F8_PROTO_UUID_SIZE, add->uuid.len);
    if (add->n_ready < 1 || add->n_ready > F8_PROTO_MAX_READY)
        return reason_set(reason, F8_EINVAL, "%zu events were given, allowed are 1 to %d",
            add->n_ready, F8_PROTO_MAX_READY);
    for (size_t i = 0; i < add->n_ready; i++)
        if (add->ready[i].len != F8_PROTO_HANDLE_SIZE)
            return reason_set(reason, F8_EINVAL, "the handle of event %zu has %d bytes, not %zu", i,
                F8_PROTO_HANDLE_SIZE, add->ready[i].len);
    return F8_OK;
}

int session_device_add(
    struct session *session, const struct incoming *incoming, struct answer *answer)
{
    const F8__DeviceAdd *add = incoming->request->device_add;
    int status = check_add(session, add, &answer->reason);
    if (status < 0)
        return status;
    struct device_request *request = calloc(1, sizeof(*request));
    uint8_t(*handles)[F8_PROTO_HANDLE_SIZE] = calloc(add->n_ready, sizeof(*handles));
    if (!request || !handles) {
        free(request);
        free(handles);
        return reason_set(&answer->reason, F8_ENOMEM, "out of memory adding the device");
    }
    for (size_t i = 0; i < add->n_ready; i++)
        memcpy(handles[i], add->ready[i].data, F8_PROTO_HANDLE_SIZE);
    later_begin(&request->later, session, incoming->request->id);
    request->handles = handles;
    session->adds_device = true;
    struct backend_attach *attach = &request->of.attach;
    *attach = (struct backend_attach){.ready = (const uint8_t(*)[BACKEND_HANDLE_SIZE])handles,
        .num_ready = (uint32_t)add->n_ready,
        .pid = session->peer.pid,
        .finished = attached,
        .owner = request};
    memcpy(attach->uuid, add->uuid.data, F8_PROTO_UUID_SIZE);
    request->later.backend->ops->device->attach(request->later.backend, attach);
    return SESSION_PENDING;
}

/* ---- memory ---- */

/* The client's new region; it is charged already. */
static int adopt_region(struct session *session, struct device_request *request, uint32_t *ret_id,
    struct reason *reason)
{
    struct region *region;
    int status = session_reserve_region(session, ret_id, reason);
    if (status == F8_OK) {
        status = region_of_device(request->later.backend, &request->of.map, &region);
        if (status < 0)
            (void)reason_set(reason, status, "no memory for the record of a region");
    }
    if (status == F8_OK)
        session->regions[*ret_id - 1] = region;
    return status;
}

static void mapped(struct backend_map *map, int status)
{
    struct device_request *request = map->owner;
    struct session *session = later_end(&request->later);
    struct answer answer;
    uint32_t id = 0;
    answer_begin(&answer, request->later.id);
    answer.reason = map->reason;
    bool opened = status == F8_OK;
    if (opened && session)
        status = adopt_region(session, request, &id, &answer.reason);
    if (opened && (!session || status < 0))
        request->later.backend->ops->device->unmap(request->later.backend, map->mapping);
    if (session && status < 0)
        registry_discharge_region(session->job, request->later.charged);
    if (session) {
        if (status == F8_OK)
            answer_region(&answer, id, map->size);
        answer_send(session, &answer, status);
    }
    request_free(request);
}

static int grow_chunks(struct device_chunks *chunks, size_t count)
{
    if (chunks->count + count <= chunks->capacity)
        return F8_OK;
    uint32_t capacity = chunks->count + (uint32_t)count;
    int *fds = realloc(chunks->fds, capacity * sizeof(*fds));
    if (!fds)
        return F8_ENOMEM;
    chunks->fds = fds;
    uint64_t *sizes = realloc(chunks->sizes, capacity * sizeof(*sizes));
    if (!sizes)
        return F8_ENOMEM;
    chunks->sizes = sizes;
    chunks->capacity = capacity;
    return F8_OK;
}

/* Keeps the descriptors of one packet with those that came before. */
static int take_chunks(
    struct session *session, const struct incoming *incoming, struct reason *reason)
{
    const F8__CudaMemory *memory = incoming->request->region_add->cuda;
    struct device_chunks *chunks = session->chunks;
    if (incoming->num_fds != memory->n_chunks || memory->n_chunks == 0)
        return reason_set(reason, F8_EREGION,
            "%zu allocations of device memory came with %u descriptors: it takes one for each",
            memory->n_chunks, incoming->num_fds);
    if (!chunks && !(chunks = session->chunks = calloc(1, sizeof(*chunks))))
        return reason_set(reason, F8_ENOMEM, "out of memory adding a region");
    if (chunks->count + memory->n_chunks > MAX_CHUNKS)
        return reason_set(reason, F8_ELIMIT,
            "a region of device memory has more than %d allocations: share it in parts",
            MAX_CHUNKS);
    if (grow_chunks(chunks, memory->n_chunks) < 0)
        return reason_set(reason, F8_ENOMEM, "out of memory adding a region");
    for (uint32_t i = 0; i < memory->n_chunks; i++) {
        int fd = fcntl(incoming->fds[i], F_DUPFD_CLOEXEC, 0);
        if (fd < 0)
            return session_lost_descriptors(reason);
        chunks->sizes[chunks->count] = memory->chunks[i];
        chunks->fds[chunks->count++] = fd;
    }
    return F8_OK;
}

static int check_memory(
    const struct session *session, const struct incoming *incoming, struct reason *reason)
{
    const F8__CudaMemory *memory = incoming->request->region_add->cuda;
    if (!session->device)
        return reason_set(reason, F8_EORDER, "device memory comes after the device (DeviceAdd)");
    if (incoming->num_fds == SESSION_FDS_LOST)
        return session_lost_descriptors(reason);
    if (memory->handle.len != 0 && memory->handle.len != F8_PROTO_HANDLE_SIZE)
        return reason_set(reason, F8_EINVAL, "the handle of device memory has %d bytes, not %zu",
            F8_PROTO_HANDLE_SIZE, memory->handle.len);
    bool by_descriptors =
        incoming->num_fds != 0 || memory->n_chunks > 0 || memory->more || session->chunks;
    if (memory->handle.len != 0 && by_descriptors)
        return reason_set(
            reason, F8_EINVAL, "device memory comes by a handle or by descriptors, not by both");
    if (!memory->more && (memory->size == 0 || memory->offset > UINT64_MAX - memory->size))
        return reason_set(reason, F8_EREGION,
            "device memory of %" PRIu64 " bytes at offset %" PRIu64, memory->size, memory->offset);
    return F8_OK;
}

static int start_map(struct session *session, const struct incoming *incoming,
    struct device_request *request, struct reason *reason)
{
    const F8__CudaMemory *memory = incoming->request->region_add->cuda;
    int status = registry_charge_region(session->job, "the region", memory->size, reason);
    if (status < 0)
        return status;
    later_begin(&request->later, session, incoming->request->id);
    request->later.charged = memory->size;
    request->chunks = session->chunks;
    session->chunks = NULL;
    struct backend_map *map = &request->of.map;
    *map = (struct backend_map){
        .kind = memory->handle.len ? BACKEND_MEMORY_LEGACY : BACKEND_MEMORY_VMM,
        .device = session->device->number,
        .pid = session->peer.pid,
        .offset = memory->offset,
        .size = memory->size,
        .finished = mapped,
        .owner = request};
    if (memory->handle.len)
        memcpy(map->handle, memory->handle.data, F8_PROTO_HANDLE_SIZE);
    if (request->chunks) {
        map->fds = request->chunks->fds;
        map->chunks = request->chunks->sizes;
        map->num_chunks = request->chunks->count;
    }
    request->later.backend->ops->device->map(request->later.backend, map);
    return SESSION_PENDING;
}

int session_region_cuda(
    struct session *session, const struct incoming *incoming, struct answer *answer)
{
    const F8__CudaMemory *memory = incoming->request->region_add->cuda;
    int status = check_memory(session, incoming, &answer->reason);
    if (status == F8_OK && memory->handle.len == 0)
        status = take_chunks(session, incoming, &answer->reason);
    if (status == F8_OK && memory->more)
        return F8_OK;
    struct device_request *request = status == F8_OK ? calloc(1, sizeof(*request)) : NULL;
    if (request)
        status = start_map(session, incoming, request, &answer->reason);
    else if (status == F8_OK)
        status = reason_set(&answer->reason, F8_ENOMEM, "out of memory adding a region");
    if (status == SESSION_PENDING)
        return status;
    free(request);
    chunks_free(session->chunks);
    session->chunks = NULL;
    return status;
}
