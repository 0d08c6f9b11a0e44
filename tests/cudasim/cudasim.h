/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the simulated CUDA runtime, driver and NCCL share: devices, memory, streams, events and the
 * strict checks, in libcudasim.so. Device memory is a memfd that the host cannot touch; a stream is
 * a thread. Results are CUresult, whose numbers are those of cudaError_t.
 *
 * Unless a comment says otherwise a function may be called from any thread of the program. Devices
 * are physical here: CUDASIM_VISIBLE only renames them for the program (cudasim_physical).
 */
#ifndef CUDASIM_H
#define CUDASIM_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

#define CUDASIM_MAX_DEVICES 16
#define CUDASIM_GRANULARITY ((size_t)2 << 20)

/* ---- devices: device.c ---- */

/* Of the thread; on a stream's worker the stream's. Makes device 0 current if none is. */
int cudasim_current_device(void);

/* ---- work on streams: stream.c ---- */

/*
 * Queues an operation: a worker thread calls run(argument) once all that was queued before it on
 * the stream has run; run frees the argument. `what` names it in faults; a literal. In run, device
 * memory may be touched, no CUDA function called, and nothing that the host waits for awaited.
 * 0 or CUDA_ERROR_INVALID_HANDLE.
 */
CUresult cudasim_enqueue(
    struct CUstream_st *stream, const char *what, void (*run)(void *argument), void *argument);

/* The device that a stream was created on. */
int cudasim_stream_device(struct CUstream_st *stream);

/*
 * In an operation: this memory will be read, or written. Saves the page faults by which the worker
 * would find out; the access ends with the operation. A range that is no live device memory, leaves
 * its allocation or may not be written is a fault. Host memory is left alone.
 */
void cudasim_allow(const void *base, size_t size, bool is_written);

/* ---- memory: memory.c ---- */

/* Where a piece of device memory is. The descriptor is this process's: /proc/<pid>/fd/<fd>. */
struct cudasim_range {
    uintptr_t base; /* of the allocation, or of the VMM mapping */
    size_t size;    /* bytes from base that may be touched */
    int device;
    int fd;          /* borrowed: the memory's; valid until it is freed, closed or unmapped */
    pid_t pid;       /* this process */
    ino_t inode;     /* of the memfd: the same for all who map this memory */
    uint64_t offset; /* of the pointer asked for, from the start of the memfd */
    uint64_t id;     /* of the allocation, never used again in this process */
    bool is_vmm;     /* mapped by cuMemMap, not by cudaMalloc */
    bool is_imported;
};

/* False if no live device memory is there; `ret` is untouched then. */
bool cudasim_find(const void *pointer, struct cudasim_range *ret);

/* ---- strict mode: strict.c ---- */

/* "cudasim: fault: ..." in one line on standard error, then abort(). */
void cudasim_fault(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* "cudasim: ..." in one line on standard error. */
void cudasim_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/*
 * A collective has been queued on a device, has run: in between, allocating, freeing and mapping
 * there, and creating streams and events, are faults.
 */
void cudasim_collective_begin(int device);
void cudasim_collective_end(int device);

/*
 * What each function of the CUDA libraries calls first, with its own name. Faults in a child of
 * fork() that inherited a used CUDA and in a host function on a stream. CUDA_ERROR_NO_DEVICE, or
 * CUDA_ERROR_STUB_LIBRARY without a driver.
 */
CUresult cudasim_enter(const char *function);

enum cudasim_counter {
    CUDASIM_ALLOCATIONS, /* of device memory, of any kind, and of pinned host memory */
    CUDASIM_FREES,
    CUDASIM_MAPS, /* cuMemMap */
    CUDASIM_UNMAPS,
    CUDASIM_IPC_OPENS,
    CUDASIM_IPC_CLOSES,
    CUDASIM_HOST_SYNCS, /* calls in which the host waits for a device; pageable copies too */
    CUDASIM_LAUNCHES,   /* of kernels */
    CUDASIM_COPIES,     /* and memsets */
    CUDASIM_HOST_FUNCTIONS,
    CUDASIM_STREAM_CREATIONS,
    CUDASIM_EVENT_CREATIONS,
    CUDASIM_EVENT_RECORDS,
    CUDASIM_EVENT_WAITS,
    CUDASIM_ALL_GATHERS,
    CUDASIM_ALL_REDUCES,
    CUDASIM_OTHER_COLLECTIVES,
    CUDASIM_COPY_ENGINE_COLLECTIVES, /* of all of them: those that take no SMs */
    CUDASIM_SM_COLLECTIVES,
    CUDASIM_COMM_INITS,
    CUDASIM_MODULE_LOADS,
    CUDASIM_NUM_COUNTERS,
};

/*
 * The counters of a process: with CUDASIM_STATS=<prefix>, the file <prefix>.<pid>, of just this
 * struct, which another process may map and read (each counter atomically) at any time.
 */
struct cudasim_stats {
    uint64_t magic; /* CUDASIM_STATS_MAGIC once the rest is valid */
    uint64_t counters[CUDASIM_NUM_COUNTERS];
};
#define CUDASIM_STATS_MAGIC UINT64_C(0x6375646173696d31)

void cudasim_count(enum cudasim_counter counter, uint64_t amount);
uint64_t cudasim_counted(enum cudasim_counter counter);

/* A number of the sequence that CUDASIM_SEED begins; each `who` has a sequence of its own. */
uint64_t cudasim_random(uint64_t who, uint64_t number);

/* ---- kernels: grid.c; emulation.h is their only user ---- */

struct cudasim_index {
    uint32_t x, y, z;
};

/* Of the GPU thread that runs on this CPU thread; in a kernel only, and not to be written there. */
#define CUDASIM_PLACE __thread __attribute__((tls_model("initial-exec")))
extern CUDASIM_PLACE struct cudasim_index cudasim_thread_index;
extern CUDASIM_PLACE struct cudasim_index cudasim_block_index;
extern CUDASIM_PLACE struct cudasim_index cudasim_block_size;
extern CUDASIM_PLACE struct cudasim_index cudasim_grid_size;

/*
 * One launch. `thread` is run once for each GPU thread with `arguments`, which `done` frees when
 * all have run. `function` is the kernel: the thread-local variables of the shared library that it
 * is in are the __shared__ ones.
 */
struct cudasim_kernel {
    const char *name; /* a literal */
    const void *function;
    struct cudasim_index grid_size, block_size;
    void (*thread)(void *arguments);
    void (*done)(void *arguments);
    void *arguments;
};

/* 0, CUDA_ERROR_INVALID_VALUE for a shape that no device takes, and as cudasim_enqueue; `done` has
 * been called then. */
CUresult cudasim_launch(struct CUstream_st *stream, const struct cudasim_kernel *kernel);

/* __syncthreads: where it stands, as file:line; all threads must be at the same. Returns the number
 * of threads whose predicate is not 0. */
int cudasim_barrier(const char *where, int predicate);

/* Exchange within a warp: each lane of the mask puts a value in and gets the 32 values by lane. */
void cudasim_warp(const char *where, uint32_t mask, uint64_t value, uint64_t ret_values[32]);

uint32_t cudasim_lane(void);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
