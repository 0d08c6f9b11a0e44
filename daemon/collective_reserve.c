/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a group's gathered weights will lie: on the host, or on the devices that its ranks work on;
 * and the reservation of all of it in the seal. On the loop; the backend reserves.
 */
#include "daemon/collective_hosts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "status.h"

static bool works_on_device(const struct member *member)
{
    return member->far ? member->far_device : member->device != NULL;
}

int collective_choose_backend(struct collective *collective)
{
    const struct group *group = collective->group;
    const struct member *first = group_member_of(group, 0);
    for (uint32_t r = 1; r < group->world_size; r++) {
        const struct member *other = group_member_of(group, r);
        if (works_on_device(other) != works_on_device(first))
            return reason_set(&collective->refusal, F8_EMISMATCH,
                "rank %u (pid %u) of group %s works on %s where rank 0 (pid %u) works on %s", r,
                other->pid, group->name, works_on_device(other) ? "a device" : "the host",
                first->pid, works_on_device(first) ? "a device" : "the host");
    }
    struct backend *backend =
        works_on_device(first) ? collective->context->cuda : collective->context->backend;
    if (group->arena && collective->backend != backend)
        collective_drop_arena(collective->group);
    collective->backend = backend;
    return F8_OK;
}

static void free_device_arena(struct arena *arena)
{
    struct backend *backend = arena->device->backend;
    backend->ops->device->free_arena(backend, arena->device);
}

static void reserve_ended(struct collective *collective, int status)
{
    if (collective->hosts)
        engine_reserved(collective->hosts, status);
    else
        collective_end_seal(collective, status);
}

static void reserved(struct backend_reserve *reserve, int status)
{
    struct collective *collective = reserve->owner;
    struct group *group = collective->group;
    if (status < 0) {
        registry_discharge_arena(group->job, group->arena_bytes);
        group->arena_bytes = 0;
        collective->refusal = reserve->reason;
    } else {
        group->arena = reserve->arena;
        group->arena->free_device = free_device_arena;
    }
    reserve_ended(collective, status);
}

/* Where a rank's shards are; -1: on another host. */
static int32_t device_of(const struct group *group, uint32_t rank)
{
    const struct member *member = group_member_of(group, rank);
    return member->far ? -1 : member->device->number;
}

/* Whether each rank is where it was. */
static bool same_devices(const struct group *group)
{
    const int32_t *devices = group->devices;
    for (uint32_t r = 0; r < group->world_size && devices; r++)
        if (device_of(group, r) != devices[r])
            return false;
    return devices != NULL;
}

/* The arena of the generation before serves again if it fits: its pages are there already. */
bool collective_arena_serves(const struct collective *collective)
{
    const struct group *group = collective->group;
    if (!group->arena || group->arena->size != collective->layout.size || group->arena_failed)
        return false;
    /* One that was sealed before the engine has mapped it is of no use to it. */
    if (collective->hosts && !engine_has_mapped(collective->hosts, group->arena))
        return false;
    if (!backend_is_device(collective->backend))
        return true;
    return group->arena_slots == group->list->num_weights && same_devices(group);
}

void collective_arena_failed(struct collective *collective)
{
    collective->group->arena_failed = true;
    if (collective->hosts)
        comm_failed(collective->hosts);
}

void collective_drop_arena(struct group *group)
{
    registry_discharge_arena(group->job, group->arena_bytes);
    group->arena_bytes = 0;
    group->arena_failed = false;
    if (group->collective->hosts)
        engine_forget_arena(group->collective->hosts);
    arena_free(group->arena);
    group->arena = NULL;
    free(group->arena_counts);
    group->arena_counts = NULL;
}

static void arena_kept(struct backend_work *work, int status)
{
    reserve_ended(work->owner, status);
}

/* Notes on which device each rank is; gives the number of devices. */
static int note_devices(struct group *group, uint32_t *ret_num_devices)
{
    int32_t *devices = realloc(group->devices, group->world_size * sizeof(*devices));
    if (!devices)
        return F8_ENOMEM;
    group->devices = devices;
    *ret_num_devices = 0;
    for (uint32_t r = 0; r < group->world_size; r++) {
        devices[r] = device_of(group, r);
        uint32_t before = 0;
        while (devices[before] != devices[r])
            before++;
        *ret_num_devices += before == r && devices[r] >= 0;
    }
    return F8_OK;
}

static int charge(struct collective *collective, uint32_t copies)
{
    struct group *group = collective->group;
    uint64_t size = collective->layout.size;
    if (size > UINT64_MAX / copies)
        return reason_set(&collective->refusal, F8_ELIMIT,
            "the arena of group %s would have %" PRIu64 " bytes on each of %u devices", group->name,
            size, copies);
    char what[F8_PROTO_MAX_NAME + 32];
    (void)snprintf(what, sizeof(what), "the arena of group %s", group->name);
    int status = registry_charge_arena(group->job, what, size * copies, &collective->refusal);
    if (status == F8_OK)
        group->arena_bytes = size * copies;
    return status;
}

/* What devices need to know for a reservation. */
static int describe_devices(struct collective *collective, struct backend_reserve *reserve)
{
    const struct group *group = collective->group;
    (void)snprintf(collective->arena_name, sizeof(collective->arena_name), "%u/%s/%s",
        (unsigned)group->job->uid, group->job->name, group->name);
    reserve->devices = group->devices;
    reserve->ranks = group->world_size;
    reserve->slots = group->list->num_weights;
    reserve->name = collective->arena_name;
    reserve->deadline_ms = collective->context->config->deadline_ms;
    return collective->hosts ? comm_lay_out(collective->hosts, &reserve->world) : F8_OK;
}

int collective_reserve(struct collective *collective)
{
    struct group *group = collective->group;
    bool on_device = backend_is_device(collective->backend);
    bool none = group->sources && !on_device; /* it gathers nothing */
    if (none)
        collective_drop_arena(group);
    if (none || collective_arena_serves(collective)) {
        collective->dirty = true;
        collective->run.work = (struct backend_work){
            .job = group->job->id, .finished = arena_kept, .owner = collective};
        backend_submit(collective->context->backend, &collective->run.work);
        return F8_OK;
    }
    collective_drop_arena(group);
    uint32_t copies = 1;
    int status = on_device ? note_devices(group, &copies) : F8_OK;
    if (status < 0)
        return reason_set(
            &collective->refusal, status, "out of memory sealing group %s", group->name);
    status = charge(collective, copies);
    if (status < 0)
        return status;
    group->arena_slots = group->list->num_weights;
    struct backend_reserve *reserve = &collective->run.reserve;
    *reserve = (struct backend_reserve){.size = collective->layout.size,
        .unsealed = collective->hosts != NULL,
        .finished = reserved,
        .owner = collective};
    if (on_device)
        status = describe_devices(collective, reserve);
    if (status < 0)
        return status;
    backend_reserve(collective->backend, reserve);
    return F8_OK;
}
