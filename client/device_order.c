/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ring of ready events, and the stream "order" that they are recorded on. Called for each
 * request and release, on any thread; nothing here allocates or waits, but for
 * device_synchronize and device_drain.
 */
#include <time.h>

#include "client/device_private.h"
#include "client/error.h"

int device_take(struct device *device, uint32_t *ret_ready)
{
    int status = F8_ELIMIT;
    pthread_mutex_lock(&device->lock);
    for (uint32_t i = 0; status != F8_OK && i < F8_PROTO_MAX_READY; i++) {
        uint32_t at = (device->next + i) % F8_PROTO_MAX_READY;
        if (device->in_use[at])
            continue;
        device->in_use[at] = true;
        device->next = at + 1;
        *ret_ready = at + 1;
        status = F8_OK;
    }
    pthread_mutex_unlock(&device->lock);
    if (status != F8_OK)
        return error_set(status,
            "all %d events of CUDA device %d are in use by open requests and shared slots: wait "
            "for some (f8_post_gather, f8_wait)",
            F8_PROTO_MAX_READY, device->ordinal);
    return F8_OK;
}

void device_give_back(struct device *device, uint32_t ready)
{
    if (ready == 0)
        return;
    pthread_mutex_lock(&device->lock);
    device->in_use[ready - 1] = false;
    pthread_mutex_unlock(&device->lock);
}

/* `order` waits for what the stream has been given; lock held, context current. */
static int follow(struct device *device, void *stream)
{
    const struct driver *driver = device->driver;
    int status = DRIVER_CALL(driver, event_record, "cuEventRecord", device->local, stream);
    if (status == F8_OK)
        status =
            DRIVER_CALL(driver, stream_wait, "cuStreamWaitEvent", device->order, device->local, 0);
    return status;
}

int device_follow(struct device *device, void *stream)
{
    int status = device_enter(device);
    if (status != F8_OK)
        return status;
    pthread_mutex_lock(&device->lock);
    status = follow(device, stream);
    pthread_mutex_unlock(&device->lock);
    device_exit(device);
    return status;
}

int device_record(struct device *device, uint32_t ready, void *stream)
{
    int status = device_enter(device);
    if (status != F8_OK)
        return status;
    pthread_mutex_lock(&device->lock);
    status = follow(device, stream);
    if (status == F8_OK)
        status = DRIVER_CALL(
            device->driver, event_record, "cuEventRecord", device->ready[ready - 1], device->order);
    pthread_mutex_unlock(&device->lock);
    device_exit(device);
    return status;
}

int device_synchronize(struct device *device, void *stream)
{
    int status = device_enter(device);
    if (status != F8_OK)
        return status;
    status = DRIVER_CALL(device->driver, stream_synchronize, "cuStreamSynchronize", stream);
    device_exit(device);
    return status;
}

/* The event's state once it is not "not ready" any more, or after the patience. */
static driver_status poll_event(
    const struct driver *driver, struct CUevent_st *event, int patience_ms)
{
    const struct timespec nap = {.tv_nsec = 1000000};
    driver_status status = driver->event_query(event);
    for (int i = 0; i < patience_ms && status == DRIVER_NOT_READY; i++) {
        nanosleep(&nap, NULL);
        status = driver->event_query(event);
    }
    return status;
}

bool device_drain(struct device *device)
{
    const struct driver *driver = device->driver;
    struct CUevent_st *event = NULL;
    if (device_enter(device) != F8_OK)
        return false;
    driver_status status = driver->event_create(&event, DRIVER_EVENT_DISABLE_TIMING);
    if (status == DRIVER_SUCCESS)
        status = driver->event_record(event, device->order);
    if (status == DRIVER_SUCCESS)
        status = poll_event(driver, event, device->stuck ? 0 : DEVICE_PATIENCE_MS);
    if (status == DRIVER_NOT_READY)
        device->stuck = true;
    if (event)
        driver->event_destroy(event);
    device_exit(device);
    return status == DRIVER_SUCCESS;
}
