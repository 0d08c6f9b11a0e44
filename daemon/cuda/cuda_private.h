/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the module f8gatherd-cuda.so share. One thread, the device thread (queue.c),
 * makes all calls of CUDA and NCCL; the loop only queues commands and collects their completions.
 * Unless a comment says otherwise, functions and fields here belong to the device thread.
 *
 * A command that makes CUDA allocate, free, map, unmap, or create or destroy events or streams
 * must not run while an NCCL collective is queued or running: NCCL would deadlock. Such a command
 * waits at the head of the queue, and what is behind it waits too (see cuda_collectives_ended).
 * Failures are F8_* with a sentence; none of CUDA's errors is left in cudaGetLastError.
 */
#ifndef F8_DAEMON_CUDA_PRIVATE_H
#define F8_DAEMON_CUDA_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "daemon/backend_device.h"
#include "daemon/log.h"
#include "kernels/cuda/cuda_kernels.h"

struct cuda;
struct cuda_arena;
struct cuda_comms; /* comm.c: an arena's communicators */
struct cuda_ring;  /* work.c: where an arena's works put their tables on one device */
struct cuda_nccl;  /* nccl.c: libnccl.so.2 */

/* Milliseconds, what is usual of the limits in cuda.host: for how long a command may hold up the
 * queue until collectives have ended; what is to go may wait for the streams that use it; and the
 * end of the thread may wait for both. */
#define CUDA_QUIET_LIMIT_MS 30000
#define CUDA_DRAIN_LIMIT_MS 600000
#define CUDA_END_LIMIT_MS   10000
#define CUDA_OPEN_LIMIT_MS  120000 /* for the driver to answer at all */

/* No next tick: what the tick functions return when nothing is outstanding. */
#define CUDA_NO_TICK UINT64_MAX

/* ---- completions: queue.c ---- */

/* Something to be done on the loop. Part of a command or of a landing's record. */
struct cuda_completion {
    struct cuda_completion *next;                                           /* the queue's own */
    void (*deliver)(struct cuda *cuda, struct cuda_completion *completion); /* on the loop */
};

/* Any thread, also a callback of cudaLaunchHostFunc: makes no CUDA call, does not block on one. */
void cuda_complete(struct cuda *cuda, struct cuda_completion *completion);

/* ---- commands ---- */

enum cuda_command_kind {
    CUDA_ATTACH,
    CUDA_DETACH,
    CUDA_MAP,
    CUDA_UNMAP,
    CUDA_RESERVE,
    CUDA_FREE_ARENA,
    CUDA_LOOK, /* nothing but wakes the thread: an arena is abandoned, or what is kept is dropped */
    CUDA_UNIQUE,
    CUDA_FENCE,
    CUDA_WORK,
    CUDA_QUIT,
};

/* Filled by the loop, then the device thread's, then the loop's again; kept for the next use. */
struct cuda_command {
    struct cuda_completion completion;
    struct cuda_command *next;
    enum cuda_command_kind kind;
    union {
        struct backend_attach *attach; /* borrowed: as all of these, until finished() */
        struct backend_map *map;
        struct backend_reserve *reserve;
        struct backend_fence *fence;
        struct backend_work *work;
        struct backend_unique *unique;
        struct backend_client *client; /* owned, as the next two: what is to go */
        struct backend_mapping *mapping;
        struct cuda_arena *arena;
    };
    int status;           /* result, for finished() */
    bool cancelled;       /* of a work: set under the queue's lock while it waits there */
    uint64_t deadline_ms; /* of what is to go: when the wait for streams ends */
    uint32_t pid;         /* of what is to go, and of a fence: 0 for arenas, and for all */
    /* Results of a work, added to its arena's figures on the loop: what the exchanges were. */
    uint32_t exchanges, copy_engine_exchanges;
};

/* The command has ended: its finished(), if any, is called on the loop with this status. */
void cuda_finish(struct cuda *cuda, struct cuda_command *command, int status);

/* ---- the queue and its thread: queue.c ---- */

struct cuda_queue {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* CLOCK_MONOTONIC */
    /* Under the lock. */
    struct cuda_command *first, **end;
    struct cuda_completion *done, **done_end;
    bool has_opened; /* the thread has tried to open the devices: open_status, open_reason */
    bool has_ended;  /* it has nothing more to do */
    int open_status;
    struct reason open_reason;
    /* The thread's. */
    struct cuda_command *head;               /* owned: waits for collectives; the queue stands */
    struct cuda_command *going, **going_end; /* owned: FREE_ARENA ... that wait for streams */
    uint64_t quiet_deadline_ms; /* of what waits for collectives now; 0: nothing does */
    uint64_t going_after_ms;    /* until when it may not hold the queue up again */
    /* The loop's. */
    struct cuda_command quit;
    struct cuda_command *spare; /* owned: commands for later use */
    /* What the device thread is in: 0 while it waits for commands. Read by the loop's watchdog. */
    _Atomic uint64_t busy_since_ms;
    _Atomic(const char *) busy_with; /* a literal */
};

/* Starts the thread, which first opens the devices; waits for that. F8_* of cuda_devices_open;
 * F8_EDEADLINE: the driver does not answer, and nothing of `cuda` may be freed. */
int cuda_queue_start(struct cuda *cuda, struct reason *reason);

/* Loop: ends the thread once all that was queued has run. False if it does not end in time, and
 * then nothing of `cuda` may be freed. */
bool cuda_queue_stop(struct cuda *cuda);

/* Loop: a copy of that, or NULL. */
struct cuda_command *cuda_command_new(struct cuda *cuda, const struct cuda_command *what);

/* Loop. */
void cuda_command_free(struct cuda *cuda, struct cuda_command *command);

/* Loop. */
void cuda_queue_push(struct cuda *cuda, struct cuda_command *command);

/* Loop: takes a work that still waits out of its turn; it ends with F8_ECANCELED. */
void cuda_queue_cancel(struct cuda *cuda, struct backend_work *work);

/* Says what the device thread is about to do, before each call that can take long and within each
 * loop that polls: without one for too long, the daemon's watchdog ends the process. A literal. */
void cuda_beat(struct cuda *cuda, const char *what);

/* Any thread: CLOCK_MONOTONIC in milliseconds. */
uint64_t cuda_now_ms(void);

/* Waits a little between two polls of a device. */
void cuda_poll_pause(void);

/* Loop: calls what has ended. */
void cuda_queue_collect(struct cuda *cuda);

/* Any thread: one line in the daemon's log. */
__attribute__((format(printf, 3, 4))) void cuda_log(
    struct cuda *cuda, enum log_level level, const char *format, ...);

/* ---- devices: device.c ---- */

struct cuda_device {
    struct backend_device_info info; /* under cuda.info_lock */
    bool is_open;                    /* has a context, and what follows */
    /* What is queued on all streams of the device, so that things in use go only after it. */
    cudaStream_t drain;
    cudaEvent_t drained;
    uint64_t drains_begun, drains_ended; /* how many of that event's records, and how many ran */
};

/*
 * Finds the devices, without making contexts. F8_ENOENT: no driver, one that is too old, no
 * device. Sets versions, devices and num_devices.
 */
int cuda_devices_open(struct cuda *cuda, struct reason *reason);

void cuda_devices_close(struct cuda *cuda);

/* Makes it the current device, at first use with a context and a stream: no collective runs. */
int cuda_device_use(struct cuda *cuda, int32_t device, struct reason *reason);

/* Makes an open device the current one. */
void cuda_device_switch(int32_t device);

/* The number of drains_ended at which all that is queued on the device by now has run. */
uint64_t cuda_drain_need(const struct cuda *cuda, int32_t device);

/* Begins and polls drains, so that drains_ended comes to `need`. */
bool cuda_drain_reached(struct cuda *cuda, int32_t device, uint64_t need);

/* Reads a device's free memory for cuda_info. */
void cuda_device_look(struct cuda *cuda, int32_t device);

/* Adds to what operators see of a device. */
void cuda_device_count(
    struct cuda *cuda, int32_t device, int32_t clients, int64_t arena_bytes, int64_t mapped_bytes);

/* ---- errors: error.c ---- */

/*
 * Sets the reason to the formatted words, ": ", and CUDA's own name and text of the error, which
 * is taken from cudaGetLastError. Returns F8_ENOMEM or F8_EIO; F8_OK for cudaSuccess.
 */
__attribute__((format(printf, 3, 4))) int cuda_failed(
    cudaError_t error, struct reason *reason, const char *format, ...);

/* The same for the driver's functions. */
__attribute__((format(printf, 4, 5))) int cuda_driver_failed(
    struct cuda *cuda, CUresult error, struct reason *reason, const char *format, ...);

/* ---- functions of the driver, which the module is not linked to: driver.c ---- */

/* X(field, name in the driver, version of CUDA that has this signature) */
#define CUDA_DRIVER_LIST(X)                                                                        \
    X(cuDeviceGetUuid, 11040)                                                                      \
    X(cuGetErrorName, 6000)                                                                        \
    X(cuGetErrorString, 6000)                                                                      \
    X(cuMemGetAddressRange, 3020)                                                                  \
    X(cuMemGetAllocationGranularity, 10020)                                                        \
    X(cuMemGetAllocationPropertiesFromHandle, 10020)                                               \
    X(cuMemCreate, 10020)                                                                          \
    X(cuMemRelease, 10020)                                                                         \
    X(cuMemAddressReserve, 10020)                                                                  \
    X(cuMemAddressFree, 10020)                                                                     \
    X(cuMemMap, 10020)                                                                             \
    X(cuMemUnmap, 10020)                                                                           \
    X(cuMemSetAccess, 10020)                                                                       \
    X(cuMemExportToShareableHandle, 10020)                                                         \
    X(cuMemImportFromShareableHandle, 10020)

/* The versions that end in _v2 are what cuda.h's macros make of these names. */
struct cuda_driver {
#define CUDA_DRIVER_FIELD(name, version) __typeof__(name) *p_##name;
    CUDA_DRIVER_LIST(CUDA_DRIVER_FIELD)
#undef CUDA_DRIVER_FIELD
};

/* F8_ENOENT: names the function that the driver lacks. */
int cuda_driver_open(struct cuda_driver *driver, struct reason *reason);

/* ---- a client: client.c ---- */

struct backend_client {
    int32_t device;
    uint32_t pid;
    uint32_t num_ready;
    uint64_t drain_need; /* once it is to go */
    cudaEvent_t ready[]; /* of the client's process, opened here */
};

int cuda_attach_run(struct cuda *cuda, struct backend_attach *attach);

/* Nothing waits for its events any more. */
void cuda_client_free(struct cuda *cuda, struct backend_client *client);

/* ---- client memory: memory.c, memory_vmm.c ---- */

struct cuda_opened; /* an allocation of a client, opened once for all regions in it */

struct backend_mapping {
    int32_t device;
    uint32_t pid;
    uint64_t drain_need;        /* once it is to go */
    struct cuda_opened *opened; /* counted */
};

int cuda_map_run(struct cuda *cuda, struct backend_map *map);

/* Nothing reads it any more. */
void cuda_mapping_free(struct cuda *cuda, struct backend_mapping *mapping);

/* ---- arenas: arena.c ---- */

/* An arena's part on one of its devices. Pointers of the tables are device addresses. */
struct cuda_arena_device {
    int32_t device;
    struct arena_device *shown; /* borrowed: of the same arena; base, descriptor, done handles */
    cudaStream_t stream;        /* non-blocking: all works of the arena on this device */
    cudaEvent_t done[BACKEND_NUM_DONE];
    cudaEvent_t tail; /* recorded at the end of each work, for arenas that come after */
    cudaEvent_t mark; /* device.c's: recorded when a drain begins */
    /* The ranks on this device, ascending: row i of the tables is rank ranks[i]. */
    uint32_t *ranks; /* owned */
    uint32_t num_rows;
    /* One allocation, zeroed at the reservation. By slot, or row after row of `slots` each. */
    void *tables;              /* owned */
    struct f8k_counts *counts; /* [num_rows][slots]: only grow */
    uint32_t *amax;            /* [num_rows][slots] */
    uint32_t *reduced;         /* [slots]: over the ranks of all devices */
    float *scale;              /* [slots] */
    /* Pinned host memory of the same shape, for landings; its next writer is the stream itself, so
     * what a host function reads stays until that function has returned. */
    void *mirror; /* owned */
    struct f8k_counts *landed_counts;
    uint32_t *landed_amax;
    uint32_t *landed_reduced;
    struct cuda_ring *ring; /* work.c's: owned through cuda_work_prepare and _release */
    /* arena.c's own. */
    CUmemGenericAllocationHandle memory;
    uint64_t mapped_size;
    uint64_t drain_need;
    bool is_mapped, has_memory;
};

/* A rank that another host has. */
#define CUDA_FAR UINT32_MAX

struct cuda_arena {
    struct device_arena base; /* base.path, window and warm are comm.c's to set, in the reserve */
    struct arena *head;       /* owned: what the daemon names it by, as long as works may */
    struct cuda_arena *next;  /* of cuda.arenas */
    char *name;               /* owned: as of the reservation; "" if it gave none: not to be kept */
    uint64_t size;            /* bytes; 0: of tables only */
    uint32_t ranks, slots;
    uint32_t *device_of_rank;           /* owned: index into devices; CUDA_FAR: on another host */
    uint32_t *row_of_rank;              /* owned: in the tables of that device */
    uint32_t *member_of_rank;           /* owned: whose communicator, of the arena's world */
    uint32_t first_member, num_members; /* that of devices[0]; of all hosts */
    /* The loop's, until it sets is_abandoned: other hosts do not do their part any more. */
    int abandoned;
    struct reason abandoned_reason;
    _Atomic bool is_abandoned;
    /* Under info_lock. */
    struct cuda_arena *next_leaving;   /* of cuda.leaving */
    bool is_unwanted;                  /* nobody will come back for its communicators */
    struct cuda_arena_device *devices; /* owned: base.num_devices of them, by lowest rank */
    struct cuda_comms
        *comms;           /* comm.c's; NULL on one device, or where nothing is to be exchanged */
    uint32_t next_done;   /* work.c's: of the ring of done events */
    bool has_collectives; /* work.c sets it when it issues one; queue.c takes it back */
    int broken;           /* F8_OK, or why no further work may run, with the reason */
    struct reason broken_reason;
};

int cuda_reserve_run(struct cuda *cuda, struct backend_reserve *reserve);

/* The opposite of the above. Nothing that uses it is queued any more; `healthy` is false if that
 * is not known, and then what a device may still touch is left alone, with a line of log. */
void cuda_arena_free(struct cuda *cuda, struct cuda_arena *arena, bool healthy);

/* The one that a work names, or its `after` and `amaxes` do. */
static inline struct cuda_arena *cuda_arena_of(const struct arena *arena)
{
    return (struct cuda_arena *)arena->device;
}

/* The arena's part on a device of that number, or NULL. */
static inline struct cuda_arena_device *cuda_arena_on(
    const struct cuda_arena *arena, int32_t device)
{
    for (uint32_t d = 0; d < arena->base.num_devices; d++)
        if (arena->devices[d].device == device)
            return &arena->devices[d];
    return NULL;
}

/* Where a rank's amax and counts of a slot are, on the rank's own device. */
static inline uint64_t cuda_cell(const struct cuda_arena *arena, uint32_t rank, uint32_t slot)
{
    return (uint64_t)arena->row_of_rank[rank] * arena->slots + slot;
}

/*
 * Whether all collectives issued so far have ended on all devices. Asks the arenas with
 * has_collectives for their tail events, so work.c records those after the collectives, always.
 */
bool cuda_collectives_ended(struct cuda *cuda);

/* ---- works and landings: work*.c, results*.c ---- */

/* Allocates what works need on each device, after arena.c has filled the rest in. F8_ENOMEM, ... */
int cuda_work_prepare(struct cuda *cuda, struct cuda_arena *arena, struct reason *reason);

/* The opposite; also after a failure of it, or before it. Nothing is queued any more. */
void cuda_work_release(struct cuda *cuda, struct cuda_arena *arena);

/*
 * Issues a work. Calls cuda_finish() once: when all is issued, or after the landing if that has no
 * landed(), or with an error and work->steps->landing->reason (if there is one) set; then landed()
 * does not come. Must not wait for a device.
 */
void cuda_work_run(struct cuda *cuda, struct cuda_command *command);

/*
 * Deadlines and errors of landings. Called in the thread's timed waits and between commands.
 * Returns in how many milliseconds to come again, or CUDA_NO_TICK.
 */
uint64_t cuda_results_tick(struct cuda *cuda, uint64_t now_ms);

/* Outstanding landings all fail: the thread ends. No callback of theirs runs any more. */
void cuda_results_end(struct cuda *cuda);

/* ---- NCCL: nccl.c, comm*.c ---- */

/* Opens libnccl, if there is one: cuda->nccl, or NULL and cuda->nccl_reason. */
void cuda_nccl_open(struct cuda *cuda);

void cuda_nccl_close(struct cuda *cuda);

/* A unique id. F8_ENOENT without NCCL, F8_EIO. */
int cuda_comm_unique(struct cuda *cuda, uint8_t ret_id[BACKEND_UNIQUE_SIZE], struct reason *reason);

/*
 * Communicators for an arena of several devices, here or on other hosts: kept ones of its name if
 * they are there, else new ones, until the time (of cuda_now_ms) of the deadline; registers the
 * memory as a window where NCCL can. No collective runs. Sets arena->comms and path, window, warm
 * of arena->base. F8_ENOENT without NCCL, F8_EDEADLINE, F8_EIO; F8_ECANCELED: it was abandoned.
 */
int cuda_comm_form(struct cuda *cuda, struct cuda_arena *arena, struct backend_reserve *reserve,
    struct reason *reason);

/* On the loop: the arena is given back. */
void cuda_comm_leave(struct cuda *cuda, struct cuda_arena *arena);

/*
 * On the loop: ends the communicators that are kept of arenas whose names begin so, or would be of
 * those that were given back and have not gone yet. How many; the thread is to be woken for it.
 */
uint32_t cuda_comm_drop_kept(struct cuda *cuda, const char *prefix);

/* Before the arena's memory is unmapped. `healthy`: keep them for the linger, unless they were
 * dropped before; else abort them. */
void cuda_comm_release(struct cuda *cuda, struct cuda_arena *arena, bool healthy);

/* Whether no failed communicators are left that wait for their abort. */
bool cuda_comm_all_ended(const struct cuda *cuda);

/* Errors of communicators, ends of lingers. As cuda_results_tick; no collective runs when a
 * linger's end frees something, or that waits for another tick. */
uint64_t cuda_comm_tick(struct cuda *cuda, uint64_t now_ms);

/* All that are kept go. */
void cuda_comm_end(struct cuda *cuda);

/* ---- the backend: module.c ---- */

/*
 * Loop: how many finished() and landed() are to come; while there are any, the loop runs on and
 * the daemon's watchdog looks. module.c counts commands, and at a submit a landing that has
 * landed() too; work.c's delivery of that calls cuda_release.
 */
void cuda_hold(struct cuda *cuda);
void cuda_release(struct cuda *cuda);

struct cuda {
    struct backend backend; /* must be first */
    struct backend_module_host host;
    struct cuda_queue queue;
    struct cuda_driver driver;
    int driver_version, runtime_version;
    struct cuda_device *devices; /* owned */
    uint32_t num_devices;
    bool is_simulated;
    uint32_t num_held; /* the loop's */
    pthread_mutex_t info_lock;
    struct backend_device_info *shown; /* owned: the loop's copy for cuda_info */

    struct cuda_arena *arenas;  /* owned through free_arena: all that are reserved */
    struct cuda_opened *opened; /* all that are open */
    struct cuda_command *going; /* owned: DETACH, UNMAP, FREE_ARENA, FENCE that wait for streams */
    struct cuda_command **going_end;

    struct cuda_nccl *nccl;         /* owned; NULL: none, and nccl_reason says why */
    struct cuda_landings *landings; /* results.c's */
    struct cuda_kept *kept;         /* comm.c's: communicators that wait for their next use */
    /* Under info_lock. */
    struct cuda_arena *leaving; /* comm.c's: given back by the loop, and not gone yet */
    uint32_t nccl_version, communicators, warm_communicators;
    char nccl_reason[128];
};

static inline struct cuda *to_cuda(struct backend *backend)
{
    return (struct cuda *)backend;
}

#endif
