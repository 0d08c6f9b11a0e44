/* SPDX-License-Identifier: Apache-2.0 */
/* Clients' devices and events: see device.h. On the loop. */
#include "daemon/device.h"

#include <assert.h>
#include <stdlib.h>

#include "status.h"

struct device *device_new(struct backend *backend, const struct backend_attach *attach)
{
    struct device *device = malloc(sizeof(*device));
    if (!device)
        return NULL;
    *device = (struct device){.backend = backend,
        .client = attach->client,
        .num_ready = attach->num_ready,
        .refs = 1,
        .number = attach->device};
    return device;
}

struct device *device_ref(struct device *device)
{
    device->refs++;
    return device;
}

void device_unref(struct device *device)
{
    if (!device || --device->refs > 0)
        return;
    device->backend->ops->device->detach(device->backend, device->client);
    if (device->gone)
        device->gone(device->gone_owner);
    free(device);
}

void ready_events_free(struct ready_events *events)
{
    free(events->buckets);
    free(events->places);
    free(events->queue);
    *events = (struct ready_events){0};
}

int ready_events_reset(
    struct ready_events *events, uint32_t num_buckets, uint32_t num_places, uint32_t capacity)
{
    ready_events_free(events);
    events->buckets = malloc((num_buckets + 1) * sizeof(*events->buckets));
    events->places = malloc((num_places + 1) * sizeof(*events->places));
    events->queue = malloc((capacity + 1) * sizeof(*events->queue));
    if (!events->buckets || !events->places || !events->queue) {
        ready_events_free(events);
        return F8_ENOMEM;
    }
    events->num_buckets = num_buckets;
    events->num_places = num_places;
    events->capacity = capacity + 1;
    for (uint32_t b = 0; b < num_buckets; b++)
        events->buckets[b] = BACKEND_NO_EVENT;
    for (uint32_t p = 0; p < num_places; p++)
        events->places[p] = BACKEND_NO_EVENT;
    return F8_OK;
}

/* On the wire 0 is none. */
static uint32_t event_of(uint32_t number)
{
    return number == 0 ? BACKEND_NO_EVENT : number - 1;
}

void ready_events_put(struct ready_events *events, uint32_t bucket, uint32_t number)
{
    if (number != 0)
        events->buckets[bucket] = event_of(number);
}

uint32_t ready_events_take(struct ready_events *events, uint32_t bucket)
{
    uint32_t event = events->buckets[bucket];
    events->buckets[bucket] = BACKEND_NO_EVENT;
    return event;
}

void ready_events_release(struct ready_events *events, uint32_t place, uint32_t number)
{
    events->places[place] = event_of(number);
}

uint32_t ready_events_reuse(struct ready_events *events, uint32_t place)
{
    uint32_t event = events->places[place];
    events->places[place] = BACKEND_NO_EVENT;
    return event;
}

void ready_events_push(struct ready_events *events, uint32_t number)
{
    assert(events->count < events->capacity);
    events->queue[(events->first + events->count++) % events->capacity] = event_of(number);
}

void ready_events_take_back(struct ready_events *events)
{
    assert(events->count > 0);
    events->count--;
}

uint32_t ready_events_pop(struct ready_events *events)
{
    assert(events->count > 0);
    uint32_t event = events->queue[events->first];
    events->first = (events->first + 1) % events->capacity;
    events->count--;
    return event;
}
