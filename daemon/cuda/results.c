/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Landings. Rows of the tables are copied to pinned memory on the stream, and a host function there
 * takes them into the caller's arrays; the last device's ends the landing. That function makes no
 * CUDA call. Of a context that is lost none comes any more, so results_watch.c looks at streams and
 * deadlines meanwhile. A landing that has failed leaves its record until the late host functions
 * have run or can no longer come.
 */
#include "daemon/cuda/results_private.h"

#include <stdlib.h>
#include <string.h>

#include "proto/status.h"

static struct cuda_landings *landings_of(struct cuda *cuda)
{
    if (cuda->landings)
        return cuda->landings;
    struct cuda_landings *landings = calloc(1, sizeof(*landings));
    if (landings && pthread_mutex_init(&landings->lock, NULL) != 0) {
        free(landings);
        return NULL;
    }
    cuda->landings = landings;
    return landings;
}

static void landings_free(struct cuda *cuda)
{
    struct cuda_landings *landings = cuda->landings;
    while (landings->spare) {
        struct cuda_landing *record = landings->spare;
        landings->spare = record->next;
        free(record);
    }
    (void)pthread_mutex_destroy(&landings->lock);
    free(landings);
    cuda->landings = NULL;
}

/* ---- records ---- */

/* With room for all devices, used before if there is one such: steady works allocate none. */
static struct cuda_landing *take_record(struct cuda_landings *landings, uint32_t room)
{
    (void)pthread_mutex_lock(&landings->lock);
    struct cuda_landing **link = &landings->spare;
    while (*link && (*link)->room < room)
        link = &(*link)->next;
    struct cuda_landing *record = *link;
    if (record)
        *link = record->next;
    (void)pthread_mutex_unlock(&landings->lock);
    if (record)
        return record;
    record = calloc(1, sizeof(*record) + room * sizeof(record->parts[0]));
    if (record)
        record->room = room;
    return record;
}

/* With the lock: a record that nobody needs any more is for the next landing. */
static void retire(struct cuda_landings *landings, struct cuda_landing *record)
{
    if (!record->has_ended || !record->is_delivered || record->parts_left > 0)
        return;
    struct cuda_landing **link = &landings->first;
    while (*link != record)
        link = &(*link)->next;
    *link = record->next;
    record->next = landings->spare;
    landings->spare = record;
}

/* On the loop. */
static void deliver(struct cuda *cuda, struct cuda_completion *completion)
{
    struct cuda_landing *record = (struct cuda_landing *)completion;
    struct cuda_landings *landings = cuda->landings;
    struct backend_landing *landing = record->landing;
    int status = record->status;
    (void)pthread_mutex_lock(&landings->lock);
    record->is_delivered = true;
    retire(landings, record);
    landings->undelivered--;
    bool is_last = landings->is_ending && landings->undelivered == 0;
    (void)pthread_mutex_unlock(&landings->lock);
    if (is_last)
        landings_free(cuda);
    cuda_release(cuda);
    landing->landed(landing, status);
}

/* With the lock. The landing and all that it names are the caller's again. */
static void end(struct cuda_landing *record, int status)
{
    struct cuda_landings *landings = record->landings;
    record->has_ended = true;
    record->status = status;
    if (record->command) {
        record->is_delivered = true;
        cuda_finish(record->cuda, record->command, status);
    } else {
        landings->undelivered++;
        record->completion.deliver = deliver;
        cuda_complete(record->cuda, &record->completion);
    }
    retire(landings, record);
}

void cuda_landing_fail(struct cuda_landing *record, int status, const struct reason *reason)
{
    if (record->has_ended)
        return;
    record->landing->reason = *reason;
    end(record, status);
}

/* ---- on CUDA's own thread ---- */

static void take_rows(const struct landing_part *part)
{
    const struct cuda_landing *record = part->record;
    const struct cuda_arena_device *device = part->device;
    const struct backend_landing *landing = record->landing;
    for (uint32_t row = 0; row < device->num_rows; row++) {
        uint64_t cell = (uint64_t)row * record->slots + landing->first;
        const uint32_t *amax = device->landed_amax + cell;
        const struct f8k_counts *counts = device->landed_counts + cell;
        for (uint32_t i = 0; i < landing->count; i++) {
            if (amax[i] > landing->amaxes[i])
                landing->amaxes[i] = amax[i];
            landing->counts[i].saturated += counts[i].saturated;
            landing->counts[i].nan += counts[i].nan;
        }
    }
    /* Equal on all devices. */
    if (landing->reduced && device == record->arena->devices)
        memcpy(landing->reduced, device->landed_reduced + landing->first,
            landing->count * sizeof(*landing->reduced));
}

/* With the lock: the last part ends the landing. */
static void end_part(struct cuda_landing *record)
{
    record->parts_left--;
    if (record->parts_left == 0 && !record->has_ended)
        end(record, F8_OK);
    else
        retire(record->landings, record);
}

/* The stream has brought one device's rows; what comes behind this on it waits meanwhile. */
static void CUDART_CB land(void *argument)
{
    const struct landing_part *part = argument;
    struct cuda_landing *record = part->record;
    struct cuda_landings *landings = record->landings;
    (void)pthread_mutex_lock(&landings->lock);
    if (!record->has_ended)
        take_rows(part);
    end_part(record);
    (void)pthread_mutex_unlock(&landings->lock);
}

/* ---- queueing ---- */

static int copy_rows(const struct cuda_arena *arena, const struct cuda_arena_device *device,
    const struct backend_landing *landing, struct reason *reason)
{
    cudaError_t error = cudaSuccess;
    for (uint32_t row = 0; row < device->num_rows && error == cudaSuccess; row++) {
        uint64_t cell = (uint64_t)row * arena->slots + landing->first;
        error = cudaMemcpyAsync(device->landed_amax + cell, device->amax + cell,
            landing->count * sizeof(*device->amax), cudaMemcpyDeviceToHost, device->stream);
        if (error == cudaSuccess)
            error = cudaMemcpyAsync(device->landed_counts + cell, device->counts + cell,
                landing->count * sizeof(*device->counts), cudaMemcpyDeviceToHost, device->stream);
    }
    if (landing->reduced && device == arena->devices && error == cudaSuccess)
        error = cudaMemcpyAsync(device->landed_reduced + landing->first,
            device->reduced + landing->first, landing->count * sizeof(*device->reduced),
            cudaMemcpyDeviceToHost, device->stream);
    return cuda_failed(error, reason, "cannot copy results from device %d", device->device);
}

static int land_device(
    const struct cuda_arena *arena, struct cuda_landing *record, uint32_t d, struct reason *reason)
{
    const struct cuda_arena_device *device = &arena->devices[d];
    struct landing_part *part = &record->parts[d];
    *part = (struct landing_part){.record = record, .device = device};
    cuda_device_switch(device->device);
    int r = F8_OK;
    if (record->landing->count > 0)
        r = copy_rows(arena, device, record->landing, reason);
    if (r == F8_OK)
        r = cuda_failed(cudaLaunchHostFunc(device->stream, land, part), reason,
            "cannot queue the landing of results from device %d", device->device);
    return r;
}

static void fill(struct cuda *cuda, struct cuda_arena *arena, struct cuda_command *command,
    struct cuda_landing *record)
{
    const struct backend_steps *steps = command->work->steps;
    struct backend_landing *landing = steps->landing;
    record->landings = cuda->landings;
    record->cuda = cuda;
    record->arena = arena;
    record->slots = arena->slots;
    record->landing = landing;
    record->command = landing->landed ? NULL : command;
    record->begin_ms = cuda_now_ms();
    record->has_grace = false;
    record->has_ended = record->is_delivered = false;
    record->parts_left = arena->base.num_devices + 1; /* the last one is the device thread's own */
    record->num_ready = steps->num_ready < LANDING_READY ? steps->num_ready : LANDING_READY;
    for (uint32_t i = 0; i < record->num_ready; i++)
        record->ready[i] = steps->ready[i];
    if (landing->count == 0)
        return;
    memset(landing->amaxes, 0, landing->count * sizeof(*landing->amaxes));
    memset(landing->counts, 0, landing->count * sizeof(*landing->counts));
}

int cuda_results_land(struct cuda *cuda, struct cuda_arena *arena, struct cuda_command *command,
    struct reason *reason)
{
    const struct backend_landing *landing = command->work->steps->landing;
    struct cuda_landings *landings = landings_of(cuda);
    uint32_t num_devices = arena->base.num_devices;
    struct cuda_landing *record = landings ? take_record(landings, num_devices) : NULL;
    if (!record)
        return reason_set(reason, F8_ENOMEM, "no memory for the record of a work's results");
    fill(cuda, arena, command, record);
    (void)pthread_mutex_lock(&landings->lock);
    record->next = landings->first;
    landings->first = record;
    (void)pthread_mutex_unlock(&landings->lock);

    uint32_t queued = 0;
    int r = F8_OK;
    while (r == F8_OK && queued < num_devices) {
        r = land_device(arena, record, queued, reason);
        queued += r == F8_OK;
    }
    if (r == F8_OK && landing->landed)
        cuda_finish(cuda, command, F8_OK); /* before landed() */
    (void)pthread_mutex_lock(&landings->lock);
    if (r < 0) {
        record->has_ended = record->is_delivered = true;
        record->parts_left -= num_devices - queued;
    }
    end_part(record);
    (void)pthread_mutex_unlock(&landings->lock);
    return r;
}

/* ---- the end of arenas and of the backend ---- */

void cuda_results_forget(struct cuda *cuda, const struct cuda_arena *arena)
{
    struct cuda_landings *landings = cuda->landings;
    struct reason reason;
    if (!landings)
        return;
    int r = reason_set(&reason, F8_ECANCELED, "group %s: its arena has been freed", arena->name);
    (void)pthread_mutex_lock(&landings->lock);
    for (struct cuda_landing *record = landings->first, *next; record; record = next) {
        next = record->next;
        if (record->arena != arena)
            continue;
        cuda_landing_fail(record, r, &reason);
        record->parts_left = 0;
        retire(landings, record);
    }
    (void)pthread_mutex_unlock(&landings->lock);
}

void cuda_results_end(struct cuda *cuda)
{
    struct cuda_landings *landings = cuda->landings;
    struct reason reason;
    if (!landings)
        return;
    int r = reason_set(&reason, F8_ECANCELED, "the daemon ends");
    (void)pthread_mutex_lock(&landings->lock);
    for (struct cuda_landing *record = landings->first, *next; record; record = next) {
        next = record->next;
        cuda_landing_fail(record, r, &reason);
        record->parts_left = 0;
        retire(landings, record);
    }
    landings->is_ending = true;
    bool is_last = landings->undelivered == 0;
    (void)pthread_mutex_unlock(&landings->lock);
    if (is_last)
        landings_free(cuda);
}
