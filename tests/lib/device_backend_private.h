/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the backend without devices share: device_backend.c (commands),
 * device_backend_objects.c (clients, memory, arenas), device_backend_work.c (works from their
 * submit to their landing).
 */
#ifndef F8_TESTS_DEVICE_BACKEND_PRIVATE_H
#define F8_TESTS_DEVICE_BACKEND_PRIVATE_H

#include "tests/lib/device_backend.h"

#define MAX_READY 128

struct backend_client {
    struct backend_client *next;
    uint32_t pid, num_ready;
    int32_t device;
    bool unreached[MAX_READY];
    bool gone; /* detached, but not yet forgotten: what is queued may wait for its events */
};

struct backend_mapping {
    struct backend_mapping *next;
    uint8_t *base; /* owned */
    uint64_t length;
    const uint8_t *data; /* of the region */
    uint64_t size;
    int32_t device;
    bool gone;
};

/* The tables of an arena on one device. */
struct fake_tables {
    uint32_t *amaxes, *reduced;
    struct f8k_counts *counts;
    float *scales;
};

struct fake_arena {
    struct arena base;
    struct device_arena device;
    struct arena_device devices[DEVICE_BACKEND_MAX];
    struct fake_tables tables[DEVICE_BACKEND_MAX];
    struct fake_arena *next;
    int32_t *rank_devices; /* by rank */
    uint32_t ranks, slots;
    uint64_t queued, run; /* works so far */
    uint32_t next_done;
    char name[600];
    int broken; /* a work has failed with this, as do all after it; F8_OK: none has */
    struct reason broken_reason;
    bool gone;
};

/* Another arena's works so far. */
struct fake_after {
    struct fake_arena *arena;
    uint64_t queued;
};

/* A work as the devices have it: a copy, for the caller's is its own again. */
struct fake_work {
    struct fake_work *next;
    struct fake_arena *arena, *amaxes;
    struct backend_task *tasks;
    struct backend_ready *ready;
    struct backend_scale *scales;
    struct backend_span *spans;
    struct fake_after *after;
    struct backend_steps steps; /* its arrays are those above */
    uint32_t num_tasks;
    struct backend_landing *landing; /* the caller's */
    struct backend_work *ends;       /* the caller's: ends with the landing */
    uint32_t *amax_results;
    struct f8k_counts *count_results;
    bool has_run;
};

/* One of them is set. */
struct fake_command {
    struct fake_command *next;
    struct backend_attach *attach;
    struct backend_map *map;
    struct backend_reserve *reserve;
    struct backend_work *work;
};

/* Waits until nothing is queued. */
struct fake_fence {
    struct fake_fence *next;
    struct backend_fence *fence;
};

struct fake_fault {
    int status;
    const char *text;
};

struct device_backend {
    struct backend base;
    uv_loop_t *loop; /* borrowed; NULL: turned by hand */
    uv_idle_t idle;
    uint32_t num_devices;
    struct fake_command *commands;
    struct fake_fence *fences;
    struct fake_work *works; /* in the order of their submits, until they have landed */
    struct backend_client *clients;
    struct backend_mapping *mappings;
    struct fake_arena *arenas;
    struct fake_fault faults[DEVICE_FAULTS];
    struct backend_device_info infos[DEVICE_BACKEND_MAX];
    char warm[8][600]; /* names of arenas that were there */
    uint32_t num_warm;
    bool held[DEVICE_STAGES];
    uint64_t seed, works_run;
};

static inline struct device_backend *fake_of(struct backend *backend)
{
    return (struct device_backend *)backend;
}

/* Ends the test. */
void fake_check(bool holds, const char *what);
void *fake_allocate(size_t count, size_t size);
/* Something may come next. */
void fake_kick(struct device_backend *fake);
/* Whether the fault is to happen; its reason. */
int fake_fails(struct device_backend *fake, enum device_fault fault, struct reason *reason);

/* device_backend_objects.c: serve commands. */
int fake_serve_attach(struct device_backend *fake, struct backend_attach *asked);
int fake_serve_map(struct device_backend *fake, struct backend_map *asked);
int fake_serve_reserve(struct device_backend *fake, struct backend_reserve *asked);
/* Frees what was given back, once nothing is queued that could need it. */
void fake_reap(struct device_backend *fake);

/* device_backend_work.c */
/* Whether a work may be submitted. */
void fake_check_work(struct device_backend *fake, const struct backend_work *work);
/* Serves the command: copies the work, and tells that it is queued. */
void fake_queue(struct device_backend *fake, struct backend_work *work);
/* One of the works that can run, or of the landings that can come. */
bool fake_run_one(struct device_backend *fake);
bool fake_land_one(struct device_backend *fake);
void fake_free_work(struct fake_work *work);

#endif
