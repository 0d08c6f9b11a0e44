/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device that a client works on: its number, the client's events there, and which of them each
 * of a rank's open requests waits for. Counted, for what runs may wait for events of a client that
 * has died. Called by session and collective on the loop.
 */
#ifndef F8_DAEMON_DEVICE_H
#define F8_DAEMON_DEVICE_H

#include <stdint.h>

#include "daemon/backend_device.h"

struct device {
    struct backend *backend;       /* borrowed: outlives it */
    struct backend_client *client; /* owned: detached with the last reference */
    uint32_t num_ready;
    uint32_t refs;
    int32_t number;                 /* of the daemon */
    void (*gone)(void *gone_owner); /* NULL, or called once the client is detached */
    void *gone_owner;
};

/* Takes over what a finished attach has opened, with one reference. NULL if memory is short. */
struct device *device_new(struct backend *backend, const struct backend_attach *attach);

struct device *device_ref(struct device *device);

/* NULL allowed. */
void device_unref(struct device *device);

/*
 * The events that a rank's open requests wait for, and those by which it has let go of places;
 * BACKEND_NO_EVENT: none.
 */
struct ready_events {
    uint32_t *buckets; /* owned: by bucket */
    uint32_t *places;  /* owned: by place, until it is used again */
    uint32_t *queue;   /* owned: a ring, of precomputes in the order they were asked for */
    uint32_t num_buckets, num_places, capacity, first, count;
};

/* Makes room, and forgets what was there. F8_ENOMEM. */
int ready_events_reset(
    struct ready_events *events, uint32_t num_buckets, uint32_t num_places, uint32_t capacity);
void ready_events_free(struct ready_events *events);

/* A gather's or pre-gather's; number 0 of a gather after a pre-gather keeps that one's. */
void ready_events_put(struct ready_events *events, uint32_t bucket, uint32_t number);
/* That of a bucket, once. */
uint32_t ready_events_take(struct ready_events *events, uint32_t bucket);

/* The one that the rank's last read of a place is over by, once. */
void ready_events_release(struct ready_events *events, uint32_t place, uint32_t number);
uint32_t ready_events_reuse(struct ready_events *events, uint32_t place);

/* A precompute's, in the order of the requests; at most `capacity` and one more are open. */
void ready_events_push(struct ready_events *events, uint32_t number);
uint32_t ready_events_pop(struct ready_events *events);
/* The last one was not taken after all. */
void ready_events_take_back(struct ready_events *events);

#endif
