/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a group does besides if its client works on a CUDA device: which event stands for which
 * request and shared place, and when streams wait for the daemon. On the host all of it is nothing.
 * Called by group.c, seal.c, gather.c and collective.c on any thread.
 */
#include <stdlib.h>

#include "client/error.h"
#include "client/group.h"

static struct device *device_of(const struct f8_group *group)
{
    return client_device(group->client);
}

int group_take_ready(struct f8_group *group, uint32_t *ret_ready)
{
    struct device *device = device_of(group);
    if (device)
        return device_take(device, ret_ready);
    *ret_ready = 0;
    return F8_OK;
}

void group_give_back(struct f8_group *group, uint32_t ready)
{
    if (ready != 0)
        device_give_back(device_of(group), ready);
}

int group_record(struct f8_group *group, uint32_t ready, void *stream)
{
    return ready == 0 ? F8_OK : device_record(device_of(group), ready, stream);
}

int group_wait_done(struct f8_group *group, uint32_t done, void *stream)
{
    if (done == 0)
        return F8_OK;
    if (!group->device_arena)
        return error_set(
            F8_EPROTO, "the daemon named event %u of group %s, which has none", done, group->name);
    return device_arena_wait(group->device_arena, done, stream);
}

int group_reserve_slots(struct f8_group *group, uint32_t slots)
{
    bool shared = false;
    for (uint32_t i = 0; i < group->num_buckets; i++)
        shared = shared || group->buckets[i].shared;
    if (!device_of(group) || !shared)
        return F8_OK;
    if (slots >= F8_PROTO_MAX_READY)
        return error_set(F8_ELIMIT, "%u shared slots on a CUDA device: fewer than %d are possible",
            slots, F8_PROTO_MAX_READY);
    group->slot_events = calloc(slots, sizeof(*group->slot_events));
    if (!group->slot_events)
        return error_set(F8_ENOMEM, "no memory for %u slots", slots);
    group->num_slot_events = slots;
    int status = F8_OK;
    for (uint32_t i = 0; i < slots && status == F8_OK; i++)
        status = device_take(device_of(group), &group->slot_events[i].ready);
    if (status != F8_OK)
        group_drop_slots(group);
    return status;
}

void group_drop_slots(struct f8_group *group)
{
    for (uint32_t i = 0; i < group->num_slot_events; i++)
        group_give_back(group, group->slot_events[i].ready);
    free(group->slot_events);
    group->slot_events = NULL;
    group->num_slot_events = 0;
}

/* The event of the slot at a place; a place that is new gets one that has none. NULL: none left. */
static struct slot_event *find_slot(struct f8_group *group, uint64_t place)
{
    for (uint32_t i = 0; i < group->num_slot_events; i++) {
        struct slot_event *slot = &group->slot_events[i];
        if (slot->known && slot->place != place)
            continue;
        slot->known = true;
        slot->place = place;
        return slot;
    }
    return NULL;
}

int group_note_place(struct f8_group *group, const struct bucket *bucket, uint64_t place)
{
    if (!bucket->shared || !device_of(group) || find_slot(group, place))
        return F8_OK;
    return error_set(F8_EPROTO,
        "the daemon put shared bucket %s at %llu, but the %u slots lie elsewhere", bucket->name,
        (unsigned long long)place, group->num_slot_events);
}

int group_order_release(
    struct f8_group *group, const struct bucket *bucket, void *stream, uint32_t *ret_ready)
{
    struct device *device = device_of(group);
    *ret_ready = 0;
    if (!device)
        return F8_OK;
    if (group->lost || group->broken) /* the slots' events are for requests that nobody makes */
        return device_follow(device_arena_device(group->device_arena), stream);
    if (!bucket->shared)
        return device_follow(device, stream);
    *ret_ready = find_slot(group, bucket->place)->ready;
    return device_record(device, *ret_ready, stream);
}

int group_await_reads(struct f8_group *group, void *stream)
{
    struct device *device = device_of(group);
    if (!device)
        return F8_OK;
    pthread_mutex_lock(&group->lock);
    bool poison = group->poison;
    pthread_mutex_unlock(&group->lock);
    return poison ? device_synchronize(device, stream) : F8_OK;
}
