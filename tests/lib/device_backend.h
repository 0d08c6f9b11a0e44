/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A backend of devices without devices, for the daemon's rooms: it does what backend_device.h says,
 * on plain memory and with the host's kernels, but as late as a device would. Commands are served
 * in order, works then run on streams of their own, and results land after that; a test may hold
 * back each, or have them come in any order that is allowed. A call that backend_device.h forbids
 * ends the test. One thread: the loop's.
 */
#ifndef F8_TESTS_DEVICE_BACKEND_H
#define F8_TESTS_DEVICE_BACKEND_H

#include "daemon/backend_device.h"

#define DEVICE_BACKEND_MAX 4

/* NULL if memory is short. Without a loop it works in device_backend_turn only. */
struct backend *device_backend_new(uv_loop_t *loop, uint32_t num_devices);

void device_backend_uuid(uint32_t device, uint8_t ret_uuid[BACKEND_UUID_SIZE]);

/* Where something may have to wait. */
enum device_stage {
    DEVICE_COMMANDS, /* works are queued, memory is mapped, arenas are reserved */
    DEVICE_STREAMS,  /* works run */
    DEVICE_LANDINGS, /* results come to the loop */
    DEVICE_STAGES
};

void device_backend_hold(struct backend *backend, enum device_stage stage, bool held);

/* What comes next is drawn at random; 0: commands before works before landings. */
void device_backend_shuffle(struct backend *backend, uint64_t seed);

/* Does one thing of those that could come next. False if there is none. */
bool device_backend_turn(struct backend *backend);

/* As a trainer that waits for its stream: all works run that are queued and can. */
void device_backend_synchronise(struct backend *backend);

/* Whether a client's event, by index, has been reached on its stream; all are until told. */
void device_backend_set_event(
    struct backend *backend, uint32_t pid, uint32_t event, bool is_reached);

/* What fails next, once. */
enum device_fault {
    DEVICE_FAULT_ATTACH,
    DEVICE_FAULT_MAP,
    DEVICE_FAULT_RESERVE,
    DEVICE_FAULT_WORK,    /* is not queued */
    DEVICE_FAULT_LANDING, /* or the work, if it ends with its landing */
    DEVICE_FAULT_FENCE,
    DEVICE_FAULTS
};

/* `text` (borrowed, static) is the reason. */
void device_backend_fail(
    struct backend *backend, enum device_fault fault, int status, const char *text);

/* What is there now, and what was done so far. */
struct device_backend_totals {
    uint32_t clients, mappings, arenas;
    uint32_t landings; /* still to come */
    uint64_t works;    /* run */
};

struct device_backend_totals device_backend_totals(const struct backend *backend);

#endif
