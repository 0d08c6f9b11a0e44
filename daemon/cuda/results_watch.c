/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ends landings that would never end: a deadline, a device whose context is lost, a collective
 * that has failed. The arena is broken then, with a sentence that names who has not come. Called on
 * the device thread in its timed waits, while landings are outstanding.
 */
#include "daemon/cuda/comm.h"
#include "daemon/cuda/results_private.h"
#include "proto/status.h"

/* How often the streams of landings are looked at for errors. */
#define LOOK_MS 50

/* Where nothing here is late, but other hosts' devices: they know whose fault it is, and say so. */
#define GRACE_MS 1000

void cuda_results_break(
    struct cuda *cuda, struct cuda_arena *arena, int status, const struct reason *reason)
{
    struct cuda_landings *landings = cuda->landings;
    if (arena->broken == F8_OK) {
        arena->broken = status;
        arena->broken_reason = *reason;
        cuda_log(cuda, LOG_LEVEL_WARNING, "group %s: its works fail from now on: %s", arena->name,
            reason->text);
    }
    if (landings) {
        (void)pthread_mutex_lock(&landings->lock);
        for (struct cuda_landing *record = landings->first, *next; record; record = next) {
            next = record->next;
            if (record->arena == arena)
                cuda_landing_fail(record, arena->broken, &arena->broken_reason);
        }
        (void)pthread_mutex_unlock(&landings->lock);
    }
    cuda_comm_abort(cuda, arena);
}

/* ---- deadlines ---- */

static bool is_done(cudaEvent_t event)
{
    cudaError_t error = cudaEventQuery(event);
    (void)cudaGetLastError();
    return error == cudaSuccess;
}

/* Who has not come, as far as can be seen: a rank's own work before the gather, or a device. */
static void say_who(const struct cuda_landing *record, struct reason *reason)
{
    const struct cuda_arena *arena = record->arena;
    for (uint32_t i = 0; i < record->num_ready; i++) {
        const struct backend_client *client = record->ready[i].client;
        cuda_device_switch(client->device);
        if (is_done(client->ready[record->ready[i].event]))
            continue;
        reason_append(reason,
            ": pid %u has not come to its ready event on device %d; its own work on that device "
            "hangs, or takes too long",
            client->pid, client->device);
        return;
    }
    for (uint32_t d = 0; d < arena->base.num_devices; d++) {
        cuda_device_switch(arena->devices[d].device);
        if (is_done(arena->devices[d].tail))
            continue;
        reason_append(reason, ": device %d has %s", arena->devices[d].device,
            cuda_comm_gate_is_open(arena, d) ? "not ended it"
                                             : "not begun it: it waits for another group's work");
        return;
    }
}

static bool is_late(const struct cuda_landing *record, uint64_t now_ms)
{
    return now_ms - record->begin_ms >= record->landing->deadline_ms;
}

/* With the lock: the first landing whose time has passed, or NULL; when the next one's does. */
static struct cuda_landing *find_late(
    struct cuda_landings *landings, uint64_t now_ms, uint64_t *ret_next)
{
    *ret_next = CUDA_NO_TICK;
    for (struct cuda_landing *record = landings->first; record; record = record->next) {
        if (record->has_ended)
            continue;
        if (is_late(record, now_ms))
            return record;
        uint64_t left = record->begin_ms + record->landing->deadline_ms - now_ms;
        *ret_next = left < *ret_next ? left : *ret_next;
    }
    return NULL;
}

/* Whether all that is late is on other hosts, and they have the time to say what. */
static bool gives_grace(struct cuda_landing *late)
{
    const struct cuda_arena *arena = late->arena;
    if (!arena->base.spans || late->has_grace)
        return false;
    for (uint32_t d = 0; d < arena->base.num_devices; d++) {
        cuda_device_switch(arena->devices[d].device);
        if (!cuda_comm_gate_is_open(arena, d))
            return false;
    }
    late->has_grace = true;
    late->begin_ms += GRACE_MS;
    return true;
}

/*
 * Fails the arenas with a late landing. A record that is late stays what it is without the lock,
 * too: only its host functions could end it, and then it is put aside, but never freed.
 */
static uint64_t check_deadlines(struct cuda *cuda, uint64_t now_ms)
{
    struct cuda_landings *landings = cuda->landings;
    for (;;) {
        uint64_t next;
        struct reason reason;
        (void)pthread_mutex_lock(&landings->lock);
        struct cuda_landing *late = find_late(landings, now_ms, &next);
        struct cuda_arena *arena = late ? late->arena : NULL;
        int r = late ? reason_set(&reason, F8_EDEADLINE,
                           "group %s: a work's results did not come within %lu ms", arena->name,
                           (unsigned long)late->landing->deadline_ms)
                     : F8_OK;
        (void)pthread_mutex_unlock(&landings->lock);
        if (!late)
            return next;
        if (gives_grace(late))
            continue;
        say_who(late, &reason);
        cuda_results_break(cuda, arena, r, &reason);
    }
}

/* ---- errors ---- */

static bool has_outstanding(struct cuda_landings *landings, const struct cuda_arena *arena)
{
    bool has = false;
    (void)pthread_mutex_lock(&landings->lock);
    for (const struct cuda_landing *record = landings->first; record && !has; record = record->next)
        has = record->arena == arena && !record->has_ended;
    (void)pthread_mutex_unlock(&landings->lock);
    return has;
}

/* A context that is lost says so to every call; its host functions do not come. */
static void check_streams(struct cuda *cuda, struct cuda_arena *arena)
{
    for (uint32_t d = 0; d < arena->base.num_devices; d++) {
        struct reason reason;
        int32_t device = arena->devices[d].device;
        cuda_device_switch(device);
        cudaError_t error = cudaStreamQuery(arena->devices[d].stream);
        if (error == cudaErrorNotReady)
            (void)cudaGetLastError();
        if (error == cudaSuccess || error == cudaErrorNotReady)
            continue;
        int r = cuda_failed(error, &reason, "group %s: a work failed on device %d (%s)",
            arena->name, device, cuda->devices[device].info.name);
        cuda_results_break(cuda, arena, r, &reason);
        return;
    }
}

uint64_t cuda_results_tick(struct cuda *cuda, uint64_t now_ms)
{
    struct cuda_landings *landings = cuda->landings;
    if (!landings)
        return CUDA_NO_TICK;
    if (now_ms < landings->next_look_ms) /* works may come much more often */
        return landings->next_look_ms - now_ms;
    for (struct cuda_arena *arena = cuda->arenas; arena; arena = arena->next)
        if (has_outstanding(landings, arena))
            check_streams(cuda, arena);
    uint64_t next = check_deadlines(cuda, now_ms);
    if (next == CUDA_NO_TICK) {
        landings->next_look_ms = 0;
        return next;
    }
    next = next < LOOK_MS ? next : LOOK_MS;
    landings->next_look_ms = now_ms + next;
    return next;
}
