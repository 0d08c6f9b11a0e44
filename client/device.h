/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA device that a client works on: its primary context, the events that order the daemon's
 * work behind the caller's streams and the caller's streams behind the daemon's, and the arenas of
 * its groups. Used by client.c, group*.c, seal.c, gather.c, collective.c and copy_out.c.
 *
 * Order. A private stream, "order", is made to wait for whatever stream a release or a request
 * names; a request's ready event is recorded on it before the request is sent. So a ready event
 * stands for the stream that it was asked with, and for all that was released before.
 *
 * Threads. Any; a device's lock keeps the steps of one record together. The caller's current
 * context is never disturbed, and nothing here waits for the device unless it says so. In a forked
 * child nothing may be called but device_free. `stream` is the caller's, NULL the legacy default.
 */
#ifndef F8_CLIENT_DEVICE_H
#define F8_CLIENT_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "client/channel.h"
#include "client/driver.h"

struct device;

/* ---- its life: device.c ---- */

/*
 * Takes the device's primary context, makes the events, and tells the daemon. F8_ENOENT: no driver,
 * no such device, or the daemon cannot work on it, and the text says why.
 */
int device_open(struct channel *channel, int ordinal, struct device **ret_device);

/*
 * Before the connection ends, after the groups' arenas were closed: asks the daemon to let go of
 * the client's memory and events, and waits for that, or for the end of a daemon that has hung up,
 * some seconds at most. Once a daemon has let go there is nothing more to do.
 */
void device_leave(struct device *device, struct channel *channel);

/*
 * The client's hold on it ends, and it does with the last arena; NULL is allowed. Events that the
 * daemon may still use are left to the process's end: destroying those is undefined. `forked`: only
 * frees.
 */
void device_free(struct device *device, bool forked);

int device_ordinal(const struct device *device);
const struct driver *device_driver(const struct device *device);

/* Makes the device's context current, and the caller's again. F8_EIO. */
int device_enter(const struct device *device);
void device_exit(const struct device *device);

/* ---- events that the daemon waits for: device_order.c ---- */

/*
 * Takes an event of the ring; *ret_ready is its number, from 1 on. F8_ELIMIT: all are in use.
 * device_give_back ends its use, once no request is open that names it; 0 is allowed.
 */
int device_take(struct device *device, uint32_t *ret_ready);
void device_give_back(struct device *device, uint32_t ready);

/*
 * The event `ready` from now on stands for what `stream` has been given so far, and for all that
 * device_follow was called for before.
 */
int device_record(struct device *device, uint32_t ready, void *stream);

/* All events that are recorded from now on stand for what `stream` has been given so far, too. */
int device_follow(struct device *device, void *stream);

/* Waits until the device has done what `stream` was given. */
int device_synchronize(struct device *device, void *stream);

/* ---- arenas: device_arena.c ---- */

/* A group's arena as this device has it: the mapping, and the daemon's events. */
struct device_arena;

/*
 * Imports what a SealReply brought: memory of `size` bytes (0: none) as `fd`, which stays the
 * caller's, mapped for reading at *ret_address; and the done events. F8_EPROTO, F8_EIO, F8_ENOMEM.
 */
int device_arena_open(struct device *device, const F8__SealReply *reply, int fd,
    struct device_arena **ret_arena, void **ret_address);

/*
 * Ends it; NULL is allowed. Waits until the device has done all that streams were given before
 * they were released, some seconds at most: past that the memory stays mapped, for unmapping what
 * is being read would end the caller's context.
 */
void device_arena_close(struct device_arena *arena);

/* The one that it lies on, which is another than the client's once that has another daemon. */
struct device *device_arena_device(const struct device_arena *arena);

/* In a forked child: frees only. */
void device_arena_forget(struct device_arena *arena);

/* Makes `stream` wait for done event number `done`; 0: for none. F8_EPROTO: there is none such. */
int device_arena_wait(struct device_arena *arena, uint32_t done, void *stream);

/* ---- for device*.c only ---- */

/* Waits for all that device_follow was called for; false: not done after some seconds. */
bool device_drain(struct device *device);

#endif
