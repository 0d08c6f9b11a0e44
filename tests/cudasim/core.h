/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of libcudasim.so share among themselves: nothing here is visible outside it.
 * Locks are taken in this order: the list of streams, a stream, the memory.
 */
#ifndef CUDASIM_CORE_H
#define CUDASIM_CORE_H

#include "calls.h"
#include "cudasim.h"

#include <pthread.h>

/* ---- settings.c: the environment, read at first use ---- */

struct settings {
    int num_devices;
    int num_visible;
    int visible[CUDASIM_MAX_DEVICES]; /* physical device of each ordinal */
    uint64_t delay_us;                /* an operation's start is put off by up to this */
    uint64_t seed;
    int driver_version; /* 0: no driver */
    size_t memory;      /* bytes a device, for each process */
    const char *stats;  /* prefix of the counters' file, or NULL */
};
const struct settings *settings_get(void);

/* ---- strict.c ---- */

/* Faults if a collective is queued or running on the device; `what` is being done there. */
void strict_no_collective(const char *what, int device);

/* ---- device.c ---- */

/* Of a worker thread, for good. */
void device_set_current(int device);

/* ---- memory.c: all ranges of addresses that mean something, dead ones too ---- */

enum range_kind {
    RANGE_MALLOC,
    RANGE_POOL,
    RANGE_MANAGED, /* the host may touch it too, and the next */
    RANGE_HOST,
    RANGE_IMPORT,  /* of another process's RANGE_MALLOC */
    RANGE_MAPPING, /* by cuMemMap */
};

/* Never freed: a dead range explains late accesses. All fields under the memory's lock. */
struct range {
    uintptr_t base;
    size_t size; /* as asked for: the pages behind are out of bounds */
    enum range_kind kind;
    const char *end; /* NULL: alive; else what ended it, a literal */
    int device;
    int fd; /* owned; -1 in dead ranges. For RANGE_MAPPING borrowed: its block's */
    ino_t inode;
    uint64_t offset; /* in the memfd */
    uint64_t id;
    uint32_t readers, writers; /* devices with access, as bits */

    bool is_open;            /* the pages may be touched, because of an operation */
    struct range *next_open; /* borrowed: of the operation that opened it */

    unsigned num_opens; /* RANGE_IMPORT */
    int opened_on;      /* the device that was current */
    pid_t exporter;
    uint64_t exporter_id; /* the exporter's id of it */

    struct vmm_block *block; /* RANGE_MAPPING: a counted reference */
};

void memory_lock(void);
void memory_unlock(void);

/* Addresses for `size` bytes and a guard behind them, never given out again; 0: there are none. */
uintptr_t memory_reserve(size_t size);

/* Whether an address is one that memory_reserve gave out. Locked. */
bool memory_is_reserved(uintptr_t address);

/* Puts a new range in the table, with a new id, over dead ones. Locked. */
struct range *memory_add(const struct range *range);

/* The range, alive or dead, of an address; NULL if there was never one. Locked. */
struct range *memory_at(uintptr_t address);

/* The live range of the address; NULL. Locked. */
struct range *memory_live_at(uintptr_t address);

/* The last range that begins before an address; NULL. Locked. */
struct range *memory_before(uintptr_t address);

/* Nothing may touch the range any more. Keeps fd and block, which the caller gives up. Locked. */
void memory_kill(struct range *range, const char *end);

/* Goes over all live ranges while visit returns false; the one it returned true for, or NULL. */
struct range *memory_search(
    bool (*visit)(const struct range *range, const void *key), const void *key);

/* "allocation 3: 100 bytes by cudaMalloc on device 0". Locked. */
void memory_describe(const struct range *range, char *ret_text, size_t size);

static inline bool range_is_for_host(const struct range *range)
{
    return range->kind == RANGE_MANAGED || range->kind == RANGE_HOST;
}
static inline size_t round_up(size_t size, size_t unit)
{
    return (size + unit - 1) / unit * unit;
}

/* ---- allocate.c ---- */

/* A memfd of `size` bytes filled with garbage at its start; -1 with errno. */
int allocate_memfd(const char *name, size_t size, ino_t *ret_inode);

/* Takes from the device's memory (gives back if negative): false if there is not as much. */
bool allocate_charge(int device, int64_t size);

/* ---- vmm.c ---- */

/* CUmemAllocationHandleType bits that it may be exported as. */
unsigned vmm_handle_types(const struct vmm_block *block);

/* ---- access.c: who may touch device memory when ---- */

enum operation_kind {
    OPERATION_DEVICE, /* a copy, a collective */
    OPERATION_KERNEL, /* bound by the device's own rights */
    OPERATION_HOST,   /* a function of the program: no access, no calls */
};

/* On the worker's stack while it runs. */
struct operation {
    const char *what;
    enum operation_kind kind;
    int device;
    struct range *open; /* borrowed: what this one opened */
};
/* Sees to the handlers of SIGSEGV and SIGBUS. */
void access_install(void);

void access_begin(struct operation *operation);
void access_end(struct operation *operation);

/* Of the calling thread; NULL if it is not within one. */
const struct operation *access_operation(void);

/* ---- stream.c ---- */

CUresult stream_push(CUstream stream, const char *what, enum operation_kind kind,
    void (*run)(void *argument), void *argument);

/* Waits for all that has been queued on a device, by this process. */
void stream_drain_device(int device);

/* The device's own stream for copies that the host waits for. */
CUstream stream_of_device(int device);

/* As cudaStreamSynchronize, without the counting. */
void stream_drain(CUstream stream);

/* ---- process.c: other processes' descriptors and lives ---- */

/* Opens another process's descriptor if it still is the file with this inode; -1. */
int process_open_fd(pid_t pid, int fd, ino_t inode);

bool process_is_alive(pid_t pid);

/* ---- fiber.c: threads of a kernel on one CPU thread ---- */

struct fiber;

/* One with a stack, to be used again and again. Never freed. */
struct fiber *fiber_new(void);

/* Makes a fiber that is not in the middle of something start at entry(argument) when run. */
void fiber_prepare(struct fiber *fiber, void (*entry)(void *argument), void *argument);

/* Runs it on the calling thread until it yields or its entry returns. */
void fiber_run(struct fiber *fiber);

/* In a fiber: back to fiber_run. */
void fiber_yield(void);

#endif
