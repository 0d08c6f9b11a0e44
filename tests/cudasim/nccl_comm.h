/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Communicators of the simulated NCCL and what its files call of each other. A communicator is
 * never freed, so that one used after its end is found; all of a process are in one list. Unless
 * said otherwise a function may be called on any thread.
 */
#ifndef CUDASIM_NCCL_COMM_H
#define CUDASIM_NCCL_COMM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include "cudasim.h"
#include "nccl_segment.h"

enum comm_life { COMM_LIVE, COMM_REVOKED, COMM_FINALIZED, COMM_DESTROYED, COMM_ABORTED };

struct ncclWindow_vidmem {
    const char *buffer; /* borrowed: from the program */
    size_t size;
    uint64_t offset; /* of buffer in its allocation */
    int flags;
    bool is_local; /* registered with this rank alone, which copy engines do not do for */
    struct ncclWindow_vidmem *next;
};

struct ncclComm {
    struct segment *segment; /* owned; NULL before the unique id's is found and after the end */
    ncclUniqueId id;
    uint64_t clique; /* the segment's; 0 before it is found */
    int rank, ranks;
    int device;  /* physical */
    int ordinal; /* the program's number of it */
    ncclConfig_t config;
    _Atomic int result;   /* what ncclCommGetAsyncError gives */
    _Atomic bool aborted; /* all waits end */
    _Atomic int life;
    _Atomic bool launching; /* a non-blocking group has not yet queued its operations */

    /* By comms_lock. */
    bool is_used;
    pthread_t thread;  /* the one that launches, if is_used */
    uint64_t launches; /* of collectives, empty ones too: what all ranks must do in one order */
    struct ncclComm *next;

    /* Of the thread that launches. */
    uint64_t tickets; /* operations queued */
    uint64_t collectives, window_count;
    uint64_t sent[SEGMENT_RANKS], received[SEGMENT_RANKS];
    struct ncclWindow_vidmem *windows; /* owned */

    /* By lock. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t tickets_done;
    unsigned pending; /* operations and jobs that use this communicator */
    unsigned queued;  /* operations on streams, of pending */
};

/* ---- nccl_comm.c ---- */

extern pthread_mutex_t comms_lock;
extern struct ncclComm *comms; /* by comms_lock */

/* ncclInvalidArgument for NULL; a fault for what is no communicator or none any more. */
ncclResult_t comm_check(struct ncclComm *comm, const char *function);
/* As NCCL: an error of the communicator, or ncclInvalidArgument while it is not ready. */
ncclResult_t comm_ready(struct ncclComm *comm);
void comm_hold(struct ncclComm *comm);
void comm_release(struct ncclComm *comm);
/* Blocks until nothing is pending; says on standard error whom it waits for, if it takes long. */
void comm_drain(struct ncclComm *comm, const char *function);
/* Frees what a drained communicator that has ended owns. */
void comm_reclaim(struct ncclComm *comm);
/* The name of the communicator in messages; borrowed: of the thread, until its next call. */
const char *comm_name(const struct ncclComm *comm);

/* ---- nccl_init.c ---- */

/* CUDASIM_NCCL_DEATH=error: a dead or aborted peer becomes ncclRemoteError; by default nothing is
 * noticed. */
bool death_is_error(void);
/* A peer that is dead or has aborted, or -1. */
int comm_lost_rank(const struct ncclComm *comm);
struct job;
ncclResult_t init_join(struct ncclComm *comm, const struct job *group);
ncclResult_t init_wait(struct ncclComm *comm, const struct job *group);

/* ---- nccl_error.c ---- */

/* Keeps a text for ncclGetLastError, prints it if NCCL_DEBUG asks for it, and returns result. */
ncclResult_t nccl_warn(ncclResult_t result, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* ncclUnhandledCudaError, with the function's name, unless status is 0. */
ncclResult_t nccl_from_cuda(int status, const char *what);

/* ---- nccl_group.c ---- */

enum job_kind { JOB_INIT, JOB_FINALIZE, JOB_RECLAIM, JOB_WINDOW, JOB_LAUNCH };

struct operation;
struct window_call;

struct job {
    enum job_kind kind;
    struct ncclComm *comm;
    struct operation *operation; /* owned, of a JOB_LAUNCH */
    struct window_call *window;  /* owned, of a JOB_WINDOW */
    struct job *next;            /* owned */
};

/* Each API function that does something opens a group of its own, which runs its job at once unless
 * the program has a group open. */
void group_begin(void);
/* Takes the job's operation or window in any case. */
ncclResult_t group_add(struct job job);
/* Whether one of the group's communicators was aborted, which ends the waits of all. */
bool group_is_aborted(const struct job *jobs);
/* Keeps an error for the end of the group; returns it. */
ncclResult_t group_error(ncclResult_t result);
ncclResult_t group_end(void);
/* Groups that the program has opened on this thread; valid between group_begin and group_end. */
bool group_is_explicit(void);

/* ---- nccl_order.c: strict checks of the order of launches ---- */

/* Threads and groups, when the program calls. */
void order_call(struct ncclComm *comm, const char *function);
/* That a group which has been launched held all of the thread's ranks of a communicator. */
void order_group(struct ncclComm *comm);
/* Kinds, sizes and the order between communicators, when a group launches. Counts the launch. */
void order_launch(struct ncclComm *comm, const struct signature *signature);
/* A fault if collectives are queued on the device. */
void order_quiet(const struct ncclComm *comm, const char *function);
/* A fault unless both ranks do the same; what: "collective", "message". */
void order_compare(const struct ncclComm *comm, const char *what, uint64_t number,
    const struct signature *mine, int peer, const struct signature *theirs);

/* ---- nccl_launch.c ---- */

struct operation {
    struct ncclComm *comm;
    struct signature signature;
    int peer;          /* of a message */
    bool is_receiving; /* of a message: which side this is; the signature is that of the sending */
    const char *send;  /* borrowed: device memory of the program */
    char *receive;     /* borrowed: as send */
    uint64_t bytes;    /* of one rank's part */
    cudaStream_t stream;
    uint64_t ticket;         /* of all operations of the communicator here */
    uint64_t number;         /* of the collectives, or of the messages between two ranks */
    bool is_begun;           /* cudasim_collective_begin was called */
    struct operation *fused; /* owned: the next message of the same group */
};

/* When the outermost group ends, on the program's thread: from now on nothing may be allocated. */
void launch_begin(struct operation *operation);
/* Counts, checks the order and queues a launch job's operation, with all fused with it; takes it.
 */
ncclResult_t launch_queue(struct operation *operation);
void launch_drop(struct operation *operation);
/* "ncclAllGather"; "uint8" */
const char *launch_function(uint32_t kind);
const char *launch_type(uint32_t type);
size_t launch_type_size(uint32_t type);

/* ---- nccl_collective.c, nccl_message.c: on the stream's worker ---- */

void collective_run(void *operation);
void message_run(void *operation);
/* Waits for the operations that the communicator queued before; false if it was aborted. */
bool operation_begin(struct operation *operation);
/* Ends and frees it, with all that are fused with it. */
void operation_end(struct operation *operation);

/* ---- nccl_memory.c ---- */

/* A fault unless a buffer is live memory of the communicator's device; when the program calls. */
void memory_check(const struct ncclComm *comm, const char *function, const char *name,
    const void *buffer, uint64_t bytes);
/* Where a buffer is, when its operation runs; a fault if it was freed since. */
void memory_describe(const struct operation *operation, const char *name, const void *buffer,
    uint64_t bytes, struct segment_memory *ret_memory);
/* Copies from a peer's buffer; false if the peer is dead. A fault if the peer has freed it. */
bool memory_read(const struct ncclComm *comm, int peer, const struct segment_memory *memory,
    uint64_t offset, void *to, uint64_t bytes);

/* ---- nccl_reduce.c ---- */

bool reduce_is_simulated(uint32_t type, uint32_t reduction);
/* into[i] = into[i] op from[i] */
void reduce_add(uint32_t type, uint32_t reduction, void *into, const void *from, uint64_t count);
/* Ends ncclAvg. */
void reduce_end(uint32_t type, uint32_t reduction, void *into, uint64_t count, int ranks);

/* ---- nccl_window.c ---- */

ncclResult_t window_post(struct ncclComm *comm, struct window_call *call);
ncclResult_t window_wait(struct ncclComm *comm, struct window_call *call, const struct job *group);
void window_drop(struct window_call *call);
/* The window of all ranks that holds an address, or NULL. Ranks on several hosts have none. */
const struct ncclWindow_vidmem *window_find(const struct ncclComm *comm, const void *address);

#endif
