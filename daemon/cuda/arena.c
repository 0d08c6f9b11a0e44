/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arenas on devices: reserved whole, on each device that a rank of the group is on, with a stream,
 * its events, and everything that works will need, so that a step allocates nothing. Freed when
 * nothing that is queued uses them; if that never comes they are left alone until the daemon ends.
 */
#include "daemon/cuda/arena.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "proto/status.h"

/* ---- records ---- */

static void free_records(struct cuda_arena *arena)
{
    for (uint32_t d = 0; arena->devices && d < arena->base.num_devices; d++)
        free(arena->devices[d].ranks);
    free(arena->devices);
    free(arena->base.devices);
    free(arena->device_of_rank);
    free(arena->row_of_rank);
    free(arena->member_of_rank);
    free(arena->name);
    free(arena->head);
    free(arena);
}

/* The index of the rank's device among those so far; a new one at the end. */
static uint32_t part_of(struct cuda_arena *arena, int32_t device)
{
    uint32_t d = 0;
    while (d < arena->base.num_devices && arena->devices[d].device != device)
        d++;
    if (d == arena->base.num_devices) {
        arena->devices[d].device = device;
        arena->devices[d].shown = &arena->base.devices[d];
        arena->base.devices[d].device = device;
        arena->base.devices[d].fd = -1;
        arena->base.num_devices++;
    }
    return d;
}

static bool place_ranks(struct cuda_arena *arena, const struct backend_reserve *reserve)
{
    for (uint32_t rank = 0; rank < arena->ranks; rank++) {
        arena->device_of_rank[rank] = CUDA_FAR;
        if (reserve->devices[rank] < 0)
            continue;
        uint32_t d = part_of(arena, reserve->devices[rank]);
        arena->device_of_rank[rank] = d;
        arena->row_of_rank[rank] = arena->devices[d].num_rows++;
    }
    for (uint32_t d = 0; d < arena->base.num_devices; d++) {
        struct cuda_arena_device *part = &arena->devices[d];
        part->ranks = calloc(part->num_rows, sizeof(*part->ranks));
        if (!part->ranks)
            return false;
    }
    for (uint32_t rank = 0; rank < arena->ranks; rank++)
        if (arena->device_of_rank[rank] != CUDA_FAR)
            arena->devices[arena->device_of_rank[rank]].ranks[arena->row_of_rank[rank]] = rank;
    return true;
}

/* Whose communicator has which rank's part. */
static void place_members(struct cuda_arena *arena, const struct backend_world *world)
{
    for (uint32_t rank = 0; rank < arena->ranks; rank++)
        arena->member_of_rank[rank] = world ? world->members[rank] : arena->device_of_rank[rank];
    arena->first_member = world ? world->first : 0;
    arena->num_members = world ? world->count : arena->base.num_devices;
    arena->base.spans = world != NULL;
}

static struct cuda_arena *new_records(struct cuda *cuda, const struct backend_reserve *reserve)
{
    struct cuda_arena *arena = calloc(1, sizeof(*arena));
    if (!arena)
        return NULL;
    uint32_t most = reserve->ranks < cuda->num_devices ? reserve->ranks : cuda->num_devices;
    arena->base.backend = &cuda->backend;
    arena->base.path = BACKEND_PATH_NONE;
    arena->size = reserve->size;
    arena->ranks = reserve->ranks;
    arena->slots = reserve->slots;
    arena->name = strdup(reserve->name ? reserve->name : "");
    arena->devices = calloc(most, sizeof(*arena->devices));
    arena->base.devices = calloc(most, sizeof(*arena->base.devices));
    arena->device_of_rank = calloc(reserve->ranks, sizeof(*arena->device_of_rank));
    arena->row_of_rank = calloc(reserve->ranks, sizeof(*arena->row_of_rank));
    arena->member_of_rank = calloc(reserve->ranks, sizeof(*arena->member_of_rank));
    if (arena->name && arena->devices && arena->base.devices && arena->device_of_rank &&
        arena->row_of_rank && arena->member_of_rank && place_ranks(arena, reserve)) {
        place_members(arena, reserve->world);
        return arena;
    }
    free_records(arena);
    return NULL;
}

/* ---- streams and events ---- */

static int create_event(
    cudaEvent_t *ret_event, unsigned flags, int32_t device, struct reason *reason)
{
    return cuda_failed(cudaEventCreateWithFlags(ret_event, flags | cudaEventDisableTiming), reason,
        "cannot create an event on device %" PRId32, device);
}

static int create_done_events(struct cuda_arena_device *part, struct reason *reason)
{
    int status = F8_OK;
    for (uint32_t i = 0; i < BACKEND_NUM_DONE && status == F8_OK; i++) {
        cudaIpcEventHandle_t handle;
        status = create_event(&part->done[i], cudaEventInterprocess, part->device, reason);
        if (status == F8_OK)
            status = cuda_failed(cudaIpcGetEventHandle(&handle, part->done[i]), reason,
                "cannot share an event of device %" PRId32, part->device);
        if (status == F8_OK)
            memcpy(part->shown->done[i], &handle, sizeof(handle));
    }
    return status;
}

static int create_stream(struct cuda_arena_device *part, struct reason *reason)
{
    int status = cuda_failed(cudaStreamCreateWithFlags(&part->stream, cudaStreamNonBlocking),
        reason, "cannot create a stream on device %" PRId32, part->device);
    if (status == F8_OK)
        status = create_event(&part->tail, 0, part->device, reason);
    if (status == F8_OK)
        status = create_event(&part->mark, 0, part->device, reason);
    if (status == F8_OK)
        status = create_done_events(part, reason);
    return status;
}

static void destroy_stream(struct cuda_arena_device *part)
{
    for (uint32_t i = 0; i < BACKEND_NUM_DONE; i++)
        if (part->done[i])
            (void)cudaEventDestroy(part->done[i]);
    if (part->tail)
        (void)cudaEventDestroy(part->tail);
    if (part->mark)
        (void)cudaEventDestroy(part->mark);
    if (part->stream)
        (void)cudaStreamDestroy(part->stream);
    (void)cudaGetLastError();
}

/* ---- reserving ---- */

static int create_part(struct cuda *cuda, const struct cuda_arena *arena,
    struct cuda_arena_device *part, struct reason *reason)
{
    int status = cuda_device_use(cuda, part->device, reason);
    if (status == F8_OK)
        status = create_stream(part, reason);
    if (status == F8_OK && arena->size > 0)
        status = cuda_arena_memory_create(cuda, arena, part, reason);
    if (status == F8_OK)
        status = cuda_arena_tables_create(arena, part, reason);
    return status;
}

/* Clients of other streams may look at the arena as soon as they have it. */
static int wait_for_zeros(struct cuda *cuda, const struct cuda_arena *arena, struct reason *reason)
{
    int status = F8_OK;
    for (uint32_t d = 0; d < arena->base.num_devices && status == F8_OK; d++) {
        const struct cuda_arena_device *part = &arena->devices[d];
        cuda_device_switch(part->device);
        cuda_beat(cuda, "cudaStreamSynchronize");
        status = cuda_failed(cudaStreamSynchronize(part->stream), reason,
            "cannot fill an arena on device %" PRId32, part->device);
        cuda_device_look(cuda, part->device);
    }
    return status;
}

static int create_all(struct cuda *cuda, struct cuda_arena *arena, struct backend_reserve *reserve,
    struct reason *reason)
{
    int status = F8_OK;
    for (uint32_t d = 0; d < arena->base.num_devices && status == F8_OK; d++)
        status = create_part(cuda, arena, &arena->devices[d], reason);
    if (status == F8_OK)
        status = wait_for_zeros(cuda, arena, reason);
    if (status == F8_OK)
        status = cuda_work_prepare(cuda, arena, reason);
    if (status == F8_OK && arena->num_members > 1)
        status = cuda_comm_form(cuda, arena, reserve, reason);
    return status;
}

static int check_rank(const struct cuda *cuda, const struct backend_reserve *reserve, uint32_t rank,
    struct reason *reason)
{
    const struct backend_world *world = reserve->world;
    int32_t device = reserve->devices[rank];
    if ((device < 0 && !world) || device >= (int32_t)cuda->num_devices)
        return reason_set(reason, F8_EINVAL,
            "rank %" PRIu32 " is on device %" PRId32 "; there are devices 0 to %" PRIu32, rank,
            device, cuda->num_devices - 1);
    if (world && world->members[rank] >= world->count)
        return reason_set(reason, F8_EINVAL,
            "rank %" PRIu32 " is on device %" PRIu32 " of all hosts, which have %" PRIu32, rank,
            world->members[rank], world->count);
    return F8_OK;
}

static int check(
    const struct cuda *cuda, const struct backend_reserve *reserve, struct reason *reason)
{
    uint32_t here = 0;
    for (uint32_t rank = 0; rank < reserve->ranks; rank++) {
        int status = check_rank(cuda, reserve, rank, reason);
        if (status < 0)
            return status;
        here += reserve->devices[rank] >= 0;
    }
    if (here == 0)
        return reason_set(reason, F8_EINVAL, "an arena of no ranks");
    if (reserve->size > SIZE_MAX / 2)
        return reason_set(
            reason, F8_ENOMEM, "cannot reserve an arena of %" PRIu64 " bytes", reserve->size);
    return F8_OK;
}

static void destroy_parts(struct cuda *cuda, struct cuda_arena *arena)
{
    for (uint32_t d = 0; d < arena->base.num_devices; d++) {
        struct cuda_arena_device *part = &arena->devices[d];
        if (!cuda->devices[part->device].is_open)
            continue;
        cuda_device_switch(part->device);
        cuda_arena_memory_free(cuda, part);
        destroy_stream(part);
        cuda_device_look(cuda, part->device);
    }
}

/* Nothing but zeroing may have been queued. */
static void undo(struct cuda *cuda, struct cuda_arena *arena)
{
    for (uint32_t d = 0; d < arena->base.num_devices; d++)
        if (arena->devices[d].stream) {
            cuda_device_switch(arena->devices[d].device);
            (void)cudaStreamSynchronize(arena->devices[d].stream);
        }
    cuda_work_release(cuda, arena);
    destroy_parts(cuda, arena);
    free_records(arena);
}

int cuda_reserve_run(struct cuda *cuda, struct backend_reserve *reserve)
{
    struct reason *reason = &reserve->reason;
    int status = check(cuda, reserve, reason);
    if (status < 0)
        return status;
    struct cuda_arena *arena = new_records(cuda, reserve);
    struct arena *head = malloc(sizeof(*head));
    if (!arena || !head) {
        free(head);
        if (arena)
            free_records(arena);
        return reason_set(reason, F8_ENOMEM, "no memory for the record of an arena");
    }
    status = create_all(cuda, arena, reserve, reason);
    if (status < 0) {
        free(head);
        undo(cuda, arena);
        return status;
    }
    arena->head = head;
    arena->next = cuda->arenas;
    cuda->arenas = arena;
    *head = (struct arena){.size = reserve->size, .fd = -1, .device = &arena->base};
    reserve->arena = head;
    return F8_OK;
}

/* ---- freeing ---- */

static void unlink_arena(struct cuda *cuda, struct cuda_arena *arena)
{
    struct cuda_arena **link = &cuda->arenas;
    while (*link != arena)
        link = &(*link)->next;
    *link = arena->next;
}

void cuda_arena_free(struct cuda *cuda, struct cuda_arena *arena, bool healthy)
{
    unlink_arena(cuda, arena);
    cuda_comm_release(cuda, arena, healthy && arena->broken == F8_OK);
    if (!healthy) {
        cuda_log(cuda, LOG_LEVEL_ERROR,
            "an arena of %s of %" PRIu64 " bytes on %" PRIu32
            " devices is still in use and left alone until the daemon ends",
            arena->name, arena->size, arena->base.num_devices);
        return;
    }
    cuda_work_release(cuda, arena);
    destroy_parts(cuda, arena);
    free_records(arena);
}

/* ---- collectives ---- */

static bool has_ended(const struct cuda_arena *arena)
{
    for (uint32_t d = 0; d < arena->base.num_devices; d++)
        if (cudaEventQuery(arena->devices[d].tail) == cudaErrorNotReady)
            return false;
    return true;
}

bool cuda_collectives_ended(struct cuda *cuda)
{
    /* What NCCL's own thread was at when a work failed may come after the work's end. */
    bool all = cuda_comm_all_ended(cuda);
    for (struct cuda_arena *arena = cuda->arenas; arena; arena = arena->next) {
        if (!arena->has_collectives)
            continue;
        arena->has_collectives = !has_ended(arena);
        all &= !arena->has_collectives;
    }
    (void)cudaGetLastError();
    return all;
}
