/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the sources of the device share: device.c (its life), device_order.c (events of the ring)
 * and device_arena.c. Not for other rooms.
 */
#ifndef F8_CLIENT_DEVICE_PRIVATE_H
#define F8_CLIENT_DEVICE_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "client/device.h"

/* How long the end of things waits for the device or the daemon. */
#define DEVICE_PATIENCE_MS 10000

struct device {
    const struct driver *driver; /* borrowed: lives as long as the process */
    int ordinal;                 /* as this process numbers devices */
    int handle;                  /* of the driver */
    struct CUctx_st *context;    /* a reference to the primary one; NULL before it is taken */
    atomic_bool stuck;           /* it was waited for in vain: not once more */
    bool left;                   /* the daemon has let go of the events, or never knew them */
    int daemon;                  /* owned: its pidfd; -1: it cannot be waited for */
    atomic_int holders;          /* the client, and arenas, which may outlive the daemon's end */

    pthread_mutex_t lock;      /* all below */
    struct CUstream_st *order; /* owned */
    struct CUevent_st *local;  /* owned: between a caller's stream and `order`, at once used up */
    struct CUevent_st *ready[F8_PROTO_MAX_READY]; /* owned; inter-process */
    bool in_use[F8_PROTO_MAX_READY];
    uint32_t next; /* where the search for a free one begins */
};

#endif
