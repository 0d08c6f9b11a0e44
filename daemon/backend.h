/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a backend (host, CUDA) does for rounds, asynchronously: works made of tasks (amax, cast,
 * copy, fill), and the reservation of an arena. Called on the loop, answers on the loop, never from
 * inside the call. Memory that tasks name stays valid until `finished`, and on a device backend,
 * where `finished` means that the work is queued on the devices, until the landing after it.
 * What only device backends do is in backend_device.h.
 */
#ifndef F8_DAEMON_BACKEND_H
#define F8_DAEMON_BACKEND_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <uv.h>

#include "arena.h"
#include "kernels/kernels.h"
#include "reason.h"

enum backend_op {
    BACKEND_AMAX,    /* amax of src into the task's amax */
    BACKEND_CAST,    /* src * scale to float8 in dst; counts; with take_amax the amax of src too */
    BACKEND_COPY,    /* count elements of dtype, bytes unchanged */
    BACKEND_TO_BF16, /* fp32 src to bf16 dst */
    BACKEND_FILL,    /* count bytes of dst = byte */
};

/* One operation on one shard of one weight. Cut into chunks by the backend. */
struct backend_task {
    const void *src; /* borrowed: from a region; NULL for FILL */
    uint8_t *dst;    /* borrowed: from an arena; NULL for AMAX */
    uint64_t count;  /* elements, bytes for FILL; may be 0 */
    enum backend_op op;
    enum f8k_dtype dtype;
    enum f8k_format format;
    float scale; /* not read by a device backend: there the scale lies in the arena's tables */
    uint8_t byte;
    bool take_amax; /* of a CAST: in the same pass; others ignore it */
    /* On a device backend: which device has the memory, and where amax, scale and counts go. */
    int32_t device;
    uint32_t row, slot; /* of the arena's tables: rank, weight */
    /* Results, valid in finished(); zeroed by submit; a device backend lands them instead. */
    uint32_t amax; /* bits, max over the task's chunks; 0 if none was taken */
    struct f8k_counts counts;
};

struct backend_steps;
struct backend_work;

/* A set of tasks that run in any order. The caller owns the struct and the tasks' memory. */
struct backend_work {
    struct backend_task *tasks; /* borrowed: from the caller, until finished() */
    uint32_t num_tasks;         /* may be 0 */
    uint32_t job;               /* works of different jobs take turns */
    /*
     * Called once on the loop, when no worker touches the memory of any task any more. status is
     * F8_OK, or F8_ECANCELED if a cancel left chunks undone.
     */
    void (*finished)(struct backend_work *work, int status);
    void *owner;                 /* borrowed: the caller's own, not read by the backend */
    struct backend_steps *steps; /* borrowed: until finished(); device backends only, NULL else */
    /* The backend's own from submit to finished(); zero before the first submit. */
    struct backend_work *next, *prev;         /* borrowed: works of the same job, in order */
    struct backend_work *next_job, *prev_job; /* borrowed: first works of other jobs, a ring */
    uint32_t next_task;
    uint64_t next_element;
    uint32_t chunks_in_flight;
    bool cancelled; /* a cancel left chunks undone */
    bool submitted;
};

struct backend_world;

/* A request for an arena. The caller owns the struct until `finished`. */
struct backend_reserve {
    uint64_t size; /* > 0; on a device backend 0 makes an arena of tables only */
    bool unsealed; /* on the host backend: the caller seals it, when all have mapped who write it */
    /* Of device backends: on which device each rank is, and the tables' size. */
    const int32_t *devices; /* borrowed: by rank; -1: on another host */
    uint32_t ranks, slots;
    const char *name;     /* borrowed: "uid/job/group", what communicators are kept under */
    uint64_t deadline_ms; /* for the communicators to form */
    const struct backend_world *world; /* borrowed; NULL: no other host has a part of the arena */
    void (*finished)(struct backend_reserve *reserve, int status);
    void *owner; /* borrowed: the caller's own */
    /* Set by the caller meanwhile: nobody waits for other hosts any more. It ends soon then. */
    _Atomic bool is_abandoned;
    /* Results: the arena (the caller's to free) or the reason. */
    struct arena *arena;
    struct reason reason;
    int status; /* the backend's own, as the next */
    uv_work_t request;
};

struct backend;

/* The operations of a backend. All on the loop's thread. */
struct backend_ops {
    const char *name; /* "host": a literal */
    /* What cannot be done comes back as finished()'s status. */
    void (*submit)(struct backend *backend, struct backend_work *work);
    /*
     * Starts no further chunk; finished() still comes, once, when running chunks are done.
     * Nothing happens to a work that is not submitted, or is cancelled already.
     */
    void (*cancel)(struct backend *backend, struct backend_work *work);
    /* As submit. It cannot be cancelled. */
    void (*reserve)(struct backend *backend, struct backend_reserve *reserve);
    /* Only when nothing is in flight. The memory goes when the loop runs its close callbacks. */
    void (*free)(struct backend *backend);
    const struct backend_device_ops *device; /* NULL: results are there at finished() */
};

/* Common head of every backend. */
struct backend {
    const struct backend_ops *ops;
};

/*
 * The host backend: kernels on uv's pool of `threads` threads, in chunks of about 1 MiB of source,
 * at most two chunks a thread queued, taken from the jobs in turn. F8_ENOMEM.
 */
int backend_host_new(uv_loop_t *loop, uint32_t threads, struct backend **ret_backend);

static inline void backend_submit(struct backend *backend, struct backend_work *work)
{
    backend->ops->submit(backend, work);
}

static inline void backend_cancel(struct backend *backend, struct backend_work *work)
{
    backend->ops->cancel(backend, work);
}

static inline void backend_reserve(struct backend *backend, struct backend_reserve *reserve)
{
    backend->ops->reserve(backend, reserve);
}

/* Whether `finished` only means queued: see backend_device.h. */
static inline bool backend_is_device(const struct backend *backend)
{
    return backend->ops->device != NULL;
}

static inline void backend_free(struct backend *backend)
{
    if (backend)
        backend->ops->free(backend);
}

#endif
