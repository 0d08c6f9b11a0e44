/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a client's CUDA device: the primary context, which PyTorch and the CUDA runtime work
 * in too, the events that the daemon opens, and what the daemon is told of both. Called by client.c
 * and region_cuda.c, any thread.
 */
#include "client/device_private.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "client/error.h"

int device_ordinal(const struct device *device)
{
    return device->ordinal;
}

const struct driver *device_driver(const struct device *device)
{
    return device->driver;
}

int device_enter(const struct device *device)
{
    return DRIVER_CALL(device->driver, context_push, "cuCtxPushCurrent", device->context);
}

void device_exit(const struct device *device)
{
    struct CUctx_st *ours;
    device->driver->context_pop(&ours);
}

/* Finds the device and takes its primary context. */
static int take_context(struct device *device)
{
    const struct driver *driver = device->driver;
    int count = 0;
    int status = DRIVER_CALL(driver, device_count, "cuDeviceGetCount", &count);
    if (status != F8_OK)
        return status;
    if (device->ordinal < 0 || device->ordinal >= count)
        return error_set(F8_ENOENT, "there is no CUDA device %d: this process sees %d of them%s",
            device->ordinal, count, count == 0 ? "" : ", numbered from 0");
    status = DRIVER_CALL(driver, device_get, "cuDeviceGet", &device->handle, device->ordinal);
    if (status == F8_OK)
        status = DRIVER_CALL(
            driver, context_retain, "cuDevicePrimaryCtxRetain", &device->context, device->handle);
    return status;
}

/* Makes the stream and the events; context current. */
static int make_events(struct device *device, struct driver_event_handle *handles)
{
    const struct driver *driver = device->driver;
    int status = DRIVER_CALL(
        driver, stream_create, "cuStreamCreate", &device->order, DRIVER_STREAM_NON_BLOCKING);
    if (status == F8_OK)
        status = DRIVER_CALL(
            driver, event_create, "cuEventCreate", &device->local, DRIVER_EVENT_DISABLE_TIMING);
    for (int i = 0; status == F8_OK && i < F8_PROTO_MAX_READY; i++) {
        status = DRIVER_CALL(driver, event_create, "cuEventCreate", &device->ready[i],
            DRIVER_EVENT_DISABLE_TIMING | DRIVER_EVENT_INTERPROCESS);
        if (status == F8_OK)
            status = DRIVER_CALL(
                driver, event_export, "cuIpcGetEventHandle", &handles[i], device->ready[i]);
    }
    return status;
}

/* Tells the daemon of the device and the events. */
static int send_device(
    struct device *device, struct channel *channel, struct driver_event_handle *handles)
{
    struct driver_uuid uuid;
    int status = DRIVER_CALL(device->driver, device_uuid, "cuDeviceGetUuid", &uuid, device->handle);
    if (status != F8_OK)
        return status;
    ProtobufCBinaryData ready[F8_PROTO_MAX_READY];
    for (int i = 0; i < F8_PROTO_MAX_READY; i++)
        ready[i] = (ProtobufCBinaryData){
            .len = F8_PROTO_HANDLE_SIZE, .data = (uint8_t *)handles[i].reserved};
    F8__DeviceAdd add = F8__DEVICE_ADD__INIT;
    add.uuid = (ProtobufCBinaryData){.len = F8_PROTO_UUID_SIZE, .data = (uint8_t *)uuid.bytes};
    add.ready = ready;
    add.n_ready = F8_PROTO_MAX_READY;
    F8__Request request = F8__REQUEST__INIT;
    request.body_case = F8__REQUEST__BODY_DEVICE_ADD;
    request.device_add = &add;
    device->left = false; /* it may open the events even if its answer is lost */
    status = channel_call(channel, &request, -1, NULL);
    if (status == F8_EUNKNOWN)
        status = error_set(F8_ENOENT,
            "f8gatherd %s at %s has no CUDA backend, it is older than that: install one that "
            "matches this library (%s)",
            channel_daemon_version(channel), channel_socket(channel), F8_VERSION);
    device->left = status != F8_OK && status != F8_ECONN && status != F8_EPROTO;
    return status;
}

static int open_device(struct device *device, struct channel *channel)
{
    struct driver_event_handle handles[F8_PROTO_MAX_READY];
    int status = take_context(device);
    if (status == F8_OK)
        status = device_enter(device);
    if (status != F8_OK)
        return status;
    status = make_events(device, handles);
    device_exit(device);
    return status == F8_OK ? send_device(device, channel, handles) : status;
}

/* The daemon's pidfd; -1: the kernel knows no such process here, or it is this one. */
static int open_daemon(const struct channel *channel)
{
    pid_t pid = channel_daemon_pid(channel);
    return pid == getpid() ? -1 : (int)syscall(SYS_pidfd_open, pid, 0);
}

int device_open(struct channel *channel, int ordinal, struct device **ret_device)
{
    const struct driver *driver;
    int status = driver_get(&driver);
    if (status != F8_OK)
        return status;
    struct device *device = calloc(1, sizeof(*device));
    if (!device)
        return error_set(F8_ENOMEM, "no memory for a CUDA device");
    device->driver = driver;
    device->ordinal = ordinal;
    device->left = true;
    device->holders = 1;
    device->daemon = open_daemon(channel);
    pthread_mutex_init(&device->lock, NULL);
    status = open_device(device, channel);
    if (status == F8_OK)
        *ret_device = device;
    else
        device_free(device, false);
    return status;
}

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Waits for the daemon's end; false: it still runs after some seconds. */
static bool await_end(const struct device *device)
{
    struct pollfd daemon = {.fd = device->daemon, .events = POLLIN};
    const int64_t deadline = now_ms() + DEVICE_PATIENCE_MS;
    int64_t left = DEVICE_PATIENCE_MS;
    int ended = device->daemon < 0 ? 1 : 0;
    while (ended <= 0 && left > 0) { /* a signal ends a poll, not the wait */
        ended = poll(&daemon, 1, (int)left);
        left = deadline - now_ms();
    }
    return ended > 0;
}

void device_leave(struct device *device, struct channel *channel)
{
    F8__DeviceDrop drop = F8__DEVICE_DROP__INIT;
    F8__Request request = F8__REQUEST__INIT;
    request.body_case = F8__REQUEST__BODY_DEVICE_DROP;
    request.device_drop = &drop;
    F8__Reply *reply = NULL;
    if (device->left)
        return;
    /* What the device still does for requests that nobody waited for is the daemon's to await. One
       that is told to end hangs up before it has: only its end says that it uses nothing more. */
    int status = channel_ask(channel, &request, DEVICE_PATIENCE_MS, &reply);
    device->left = status == F8_OK || (status == F8_ECONN && await_end(device));
    if (status == F8_OK)
        f8__reply__free_unpacked(reply, NULL);
}

/* Destroys what the context holds; context current. */
static void destroy_events(struct device *device)
{
    const struct driver *driver = device->driver;
    for (int i = 0; device->left && i < F8_PROTO_MAX_READY; i++)
        if (device->ready[i])
            driver->event_destroy(device->ready[i]);
    if (device->local)
        driver->event_destroy(device->local);
    if (device->order)
        driver->stream_destroy(device->order);
}

void device_free(struct device *device, bool forked)
{
    if (!device || atomic_fetch_sub(&device->holders, 1) > 1)
        return;
    if (!forked && device->context && device_enter(device) == F8_OK) {
        destroy_events(device);
        device_exit(device);
    }
    /* The context of events that the daemon may still use is kept for them. */
    if (!forked && device->context && device->left)
        device->driver->context_release(device->handle);
    if (!forked)
        pthread_mutex_destroy(&device->lock);
    if (device->daemon >= 0)
        close(device->daemon);
    free(device);
}
