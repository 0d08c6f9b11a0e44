/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of rounds on devices share: collective_device.c (the works) and
 * collective_landing.c (what the devices found).
 */
#ifndef F8_DAEMON_COLLECTIVE_DEVICE_H
#define F8_DAEMON_COLLECTIVE_DEVICE_H

#include "daemon/collective_private.h"

/* What a landing tells the state of a weight. */
enum landed_kind {
    LANDED_NOTHING,
    LANDED_PRECOMPUTE,
    LANDED_IN_GATHER,
    LANDED_CAST, /* of a delayed weight */
};

/* A round's results on their way. */
struct landed {
    struct backend_landing landing;
    struct collective *collective; /* borrowed: outlives it */
    struct landed *next_spare;     /* borrowed: of the same group */
    uint8_t *kinds;                /* owned: by slot; the landing's arrays too */
    uint32_t capacity;
    bool counts; /* the round cast: counts are new */
};

struct device_run {
    struct backend_steps steps;
    struct backend_scale *scales;   /* owned: for all weights */
    struct backend_span *spans;     /* owned: likewise */
    struct backend_ready *ready;    /* owned: two a rank */
    struct arena **after;           /* owned: linked groups' */
    struct backend_landing landing; /* of a work that waits for it; its arrays are owned */
    struct landed *spare;           /* owned list */
    uint32_t open;                  /* landings on their way */
    bool waits;                     /* the running gather needs its amaxes on the host */
    bool casts;                     /* its first cast is still to be queued */
};

/*
 * A landing for the round's weights, with its kinds still to be filled in; its results go to the
 * state by themselves. NULL if memory is short.
 */
struct landed *collective_take_landed(struct collective *collective, uint32_t count);
/* It was not needed after all. */
void collective_spare_landed(struct landed *landed);
void collective_free_landed(struct device_run *device);

#endif
