/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a backend of devices (CUDA) does besides backend.h: clients' device memory and events, the
 * steps of a work that run on the devices' own clocks, and the landing of their results. A work's
 * finished() means that all of it is queued: order from there on is that of streams and events, and
 * nobody waits for a device. Called on the loop, answers on the loop, never from inside the call.
 *
 * Tables. An arena has, on each of its devices, arrays by slot (a weight of the group): amaxes and
 * counts, one row a rank; reduced amaxes; scales. Counts only ever grow: a landing gives totals.
 */
#ifndef F8_DAEMON_BACKEND_DEVICE_H
#define F8_DAEMON_BACKEND_DEVICE_H

#include "daemon/backend.h"

/* Bytes of a device's UUID, of a legacy IPC memory handle, and of an IPC event handle. */
#define BACKEND_UUID_SIZE   16
#define BACKEND_HANDLE_SIZE 64

/* "Done" events of an arena on one device: a ring. */
#define BACKEND_NUM_DONE 64

/* No event. */
#define BACKEND_NO_EVENT UINT32_MAX

/* ---- clients ---- */

/* A client that works on a device: its events, opened. */
struct backend_client;

/* A request to open them. The caller owns the struct and what it names until `finished`. */
struct backend_attach {
    uint8_t uuid[BACKEND_UUID_SIZE];
    const uint8_t (*ready)[BACKEND_HANDLE_SIZE]; /* borrowed: inter-process events */
    uint32_t num_ready;
    uint32_t pid; /* of the client, for sentences */
    void (*finished)(struct backend_attach *attach, int status);
    void *owner;
    struct backend_client *client; /* result: to be detached */
    int32_t device;                /* result: the daemon's number of the device */
    struct reason reason;
};

/* ---- memory ---- */

enum backend_memory_kind {
    BACKEND_MEMORY_LEGACY = 1, /* a CUDA IPC handle of a cudaMalloc allocation's base */
    BACKEND_MEMORY_VMM = 2,    /* descriptors of VMM allocations that follow one another */
};

/* A client's device memory, mapped; several regions of one handle share a mapping. */
struct backend_mapping;

/* A request to map it. The caller owns the struct and what it names until `finished`. */
struct backend_map {
    enum backend_memory_kind kind;
    int32_t device;                      /* that the client is attached to */
    uint32_t pid;                        /* of the client */
    uint8_t handle[BACKEND_HANDLE_SIZE]; /* legacy */
    const int *fds;                      /* borrowed; VMM: num_chunks of them */
    const uint64_t *chunks;              /* borrowed; VMM: bytes of each allocation */
    uint32_t num_chunks;
    uint64_t offset, size; /* bytes: the region within the allocation or the chain of chunks */
    void (*finished)(struct backend_map *map, int status);
    void *owner;
    struct backend_mapping *mapping; /* result: to be unmapped */
    const uint8_t *data;             /* result: device address of the region's first byte */
    struct reason reason;            /* F8_EREGION, F8_ENOMEM, F8_EIO */
};

/* A request to be told when what was to go has gone. The caller owns it until `finished`. */
struct backend_fence {
    uint32_t pid; /* of the client whose events and memory are meant; 0: everything, arenas too */
    /* F8_OK, or F8_EDEADLINE: something of it was still in use, and has been left alone for good.
     */
    void (*finished)(struct backend_fence *fence, int status);
    void *owner;
};

/* ---- works ---- */

/* An event of a client that a work waits for. */
struct backend_ready {
    struct backend_client *client; /* borrowed: attached until the landing */
    uint32_t event;                /* below its num_ready */
};

/* A scale of one slot: set in the tables, and handed out beside the gathered weights. */
struct backend_scale {
    uint32_t slot;
    uint32_t amax_slot; /* whose reduced amax gives it, unless it is known */
    uint64_t copy;      /* offset in the arena of the fp32 that is handed out; UINT64_MAX: none */
    float value;        /* if known */
    bool known;
    bool foreign; /* amax_slot is of steps.amaxes, not of steps.arena */
    uint8_t dtype, format, path, power_of_two; /* as of f8k_scale */
};

/* world_size chunks of gathered bytes, one a rank in order, equal on all devices afterwards. */
struct backend_span {
    uint64_t offset, chunk; /* bytes */
};

/*
 * The results of a work's slots [first, first + count), over all ranks. The caller owns it until
 * `landed`; without that function the work's own finished() comes only after the landing.
 */
struct backend_landing {
    uint32_t first, count;
    uint32_t *amaxes;          /* result: by slot from first: the largest of all rows */
    uint32_t *reduced;         /* likewise: as the last reduction left it; NULL: not asked for */
    struct f8k_counts *counts; /* result: totals since the reservation */
    uint64_t deadline_ms;      /* from the submit on: then the work has failed, F8_EDEADLINE */
    void (*landed)(struct backend_landing *landing, int status); /* unless finished() failed */
    void *owner;
    struct reason reason; /* if status < 0, of landed() or of the work's finished() */
    /* The backend's own. */
    void *private_data;
};

/*
 * What a work does on the devices, in this order on each: waits for `ready` and `after`; AMAX
 * tasks (which begin anew from 0); the reduction of slots [reduce_first, reduce_first +
 * reduce_count) over all ranks; scales; other tasks; exchange of the spans; done event; landing.
 * Works of one arena run in the order of their submits.
 */
struct backend_steps {
    struct arena *arena;                /* borrowed: on devices */
    struct arena *amaxes;               /* borrowed: of foreign scales; may be `arena` */
    struct arena *const *after;         /* borrowed: arenas whose works so far come before */
    const struct backend_ready *ready;  /* borrowed */
    const struct backend_scale *scales; /* borrowed */
    const struct backend_span *spans;   /* borrowed */
    struct backend_landing *landing;    /* borrowed; NULL: none */
    uint32_t num_after, num_ready, num_scales, num_spans;
    uint32_t reduce_first, reduce_count;
    bool wants_done;
    uint32_t done;        /* result, at finished(): index of the done event, on every device */
    struct reason reason; /* result: why, if finished() tells of a failure; no landing follows it */
};

/* ---- arenas ---- */

/* Bytes of NCCL's unique id. */
#define BACKEND_UNIQUE_SIZE 128

/* A request for one, of which a world of communicators is made. The caller owns it until
 * `finished`. */
struct backend_unique {
    void (*finished)(struct backend_unique *unique, int status);
    void *owner;
    uint8_t id[BACKEND_UNIQUE_SIZE]; /* result */
    struct reason reason;            /* F8_ENOENT: no NCCL; F8_EIO */
};

/*
 * Of an arena that has parts on other hosts: the world of its communicators, one a device of every
 * host, which host after host are numbered in the order of their devices' lowest ranks.
 */
struct backend_world {
    const uint8_t *unique;   /* borrowed: the same on all hosts, and of no arena before this one */
    const uint32_t *members; /* borrowed: by rank, the number of its device */
    uint32_t first, count;   /* of this host's first device; of all */
};

/* How the devices of an arena exchange bytes. */
enum backend_path {
    BACKEND_PATH_NONE,      /* one device: nothing to exchange */
    BACKEND_PATH_ALLGATHER, /* in-place all-gathers: one rank a device */
    BACKEND_PATH_BROADCAST, /* a broadcast from each rank: devices hold several ranks */
    BACKEND_PATH_COUNT
};

struct arena_device {
    int32_t device;
    uint8_t *base; /* device address of the arena here; the daemon's mapping */
    int fd;        /* owned; what the ranks of the device map read-only; -1 if size is 0 */
    uint8_t done[BACKEND_NUM_DONE][BACKEND_HANDLE_SIZE]; /* for its ranks to open */
};

struct device_arena {
    struct backend *backend; /* borrowed: outlives it */
    struct arena_device *devices;
    uint32_t num_devices;
    enum backend_path path;
    bool window;                    /* NCCL has it as a symmetric window */
    uint64_t exchanges;             /* collectives of bytes so far */
    uint64_t copy_engine_exchanges; /* those that used no SM */
    bool warm;                      /* its communicators were kept from before */
    bool spans;                     /* other hosts have a part of it */
};

/* ---- what operators see ---- */

struct backend_device_info {
    uint8_t uuid[BACKEND_UUID_SIZE];
    char name[64];
    char pci[16];
    uint64_t memory, memory_free; /* bytes; free as of the last reservation */
    uint64_t arena_bytes, mapped_bytes;
    uint32_t compute_capability; /* 90 */
    uint32_t clients;
};

struct backend_info {
    const struct backend_device_info *devices; /* borrowed: valid until the next call */
    uint32_t num_devices;
    uint32_t driver_version, runtime_version; /* as CUDA numbers them: 13000 */
    uint32_t nccl_version;                    /* 22809; 0: none, and then nccl_reason says why */
    char nccl_reason[128];
    uint32_t communicators, warm_communicators;
    bool simulated;
};

struct backend_device_ops {
    void (*attach)(struct backend *backend, struct backend_attach *attach);
    /* When no work that names it is to come; what is queued still may wait for its events. */
    void (*detach)(struct backend *backend, struct backend_client *client);
    void (*map)(struct backend *backend, struct backend_map *map);
    /* As detach: it is unmapped once what is queued has run. */
    void (*unmap)(struct backend *backend, struct backend_mapping *mapping);
    /* Likewise, and its struct arena: works that were queued before may still name it.
     * Communicators that work are kept for the linger of the configuration. */
    void (*free_arena)(struct backend *backend, struct device_arena *arena);
    /* Ends the communicators that are kept of arenas whose names begin so, as soon as no collective
     * runs: how many. */
    uint32_t (*drop_kept)(struct backend *backend, const char *prefix);
    void (*unique)(struct backend *backend, struct backend_unique *unique);
    /*
     * Other hosts will not do their part of what is queued: fails the arena's landings, and all
     * works after them, with this status and sentence (copied), and aborts its communicators.
     */
    void (*break_arena)(
        struct backend *backend, struct device_arena *arena, int status, const char *why);
    /* Finished when all that detach, unmap and free_arena were given before has gone: a client may
     * then free the memory, and destroy the events, that it shared. */
    void (*fence)(struct backend *backend, struct backend_fence *fence);
    /* Delivers what has ended, by calling finished() and landed(); on the loop, after wake(). */
    void (*collect)(struct backend *backend);
    void (*info)(struct backend *backend, struct backend_info *ret_info);
    /* For how long the thread that calls CUDA has been in the same call; 0: in none. Its name. */
    uint64_t (*busy_ms)(struct backend *backend, const char **ret_call);
};

/* ---- the module ---- */

/* What the daemon gives to the module. */
struct backend_module_host {
    void (*wake)(void *context); /* any thread: collect() is to be called on the loop */
    void (*log)(void *context, int level, const char *text); /* any thread; enum log_level */
    /* On the loop: whether anything is outstanding that finished() or landed() is to come for. */
    void (*hold)(void *context, bool is_outstanding);
    /* On the loop, from ops->free: nothing of the host is called any more. It does not come if a
     * thread of the module's hangs in CUDA: then what is given here must stay. */
    void (*closed)(void *context);
    void *context;
    uint64_t linger_ms; /* for communicators */
    /*
     * Milliseconds; 0: what is usual. For how long a request may hold others up until collectives
     * have ended, what was given back may be waited for, and the end may.
     */
    uint64_t quiet_limit_ms, drain_limit_ms, end_limit_ms;
};

#define BACKEND_MODULE_ABI    3
#define BACKEND_MODULE_SYMBOL "f8_backend_module"

/* The one symbol of f8gatherd-cuda.so. */
struct backend_module {
    uint32_t abi;        /* BACKEND_MODULE_ABI */
    const char *version; /* F8_VERSION: must be the daemon's own */
    /*
     * Opens the devices. F8_ENOENT and a reason if there is nothing to work with: no driver, one
     * that is too old, no device. F8_EDEADLINE: the driver does not answer, and its thread may
     * still call the host. ops->free ends it, when it has no clients or arenas any more.
     */
    int (*open)(const struct backend_module_host *host, struct backend **ret_backend,
        struct reason *reason);
};

/* The arena's part on a device, or NULL. */
static inline const struct arena_device *arena_on(const struct arena *arena, int32_t device)
{
    for (uint32_t d = 0; d < arena->device->num_devices; d++)
        if (arena->device->devices[d].device == device)
            return &arena->device->devices[d];
    return NULL;
}

#endif
