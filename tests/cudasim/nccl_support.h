/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of the simulated NCCL share: ranks in processes of their own (CUDA does not
 * outlive fork, so the test itself never touches it), and a rank's stream and memory.
 */
#ifndef CUDASIM_NCCL_SUPPORT_H
#define CUDASIM_NCCL_SUPPORT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

#include <cuda_runtime_api.h>
#include <nccl.h>

enum { MAX_PROCESSES = 4, MAX_IDS = 8, TEXT_SIZE = 16384 };

/* Shared by the processes of one test; zeroed. */
struct shared {
    ncclUniqueId id[MAX_IDS];
    pthread_barrier_t barrier; /* of all processes */
    _Atomic int flag[16];
};

/* Ends the process, not the test, which Check knows nothing of here. */
#define NEED(condition)           need((condition), #condition, __FILE__, __LINE__)
#define NEED_NCCL(call)           need_nccl((call), ncclSuccess, #call, __FILE__, __LINE__)
#define NEED_RESULT(call, result) need_nccl((call), (result), #call, __FILE__, __LINE__)
void need(bool condition, const char *text, const char *file, int line);
void need_nccl(ncclResult_t got, ncclResult_t wanted, const char *text, const char *file, int line);

typedef void process_body(struct shared *shared, int process);

/* Runs body in so many processes; each must end with status 0. */
void processes_run(int processes, process_body *body);

/* Runs them until one has a fault, ends the others, and returns what they wrote; borrowed: static.
 */
const char *processes_fault(int processes, process_body *body);

/* Starts one process; the caller waits for it. */
pid_t process_start(struct shared *shared, process_body *body, int process);
struct shared *shared_new(int processes);
void shared_free(struct shared *shared);

/* Waits for all processes of the test. */
void meet(struct shared *shared);

/* ---- one rank ---- */

struct rank {
    int rank, device;
    ncclComm_t comm;
    cudaStream_t stream;
    uint8_t *memory; /* of the device */
    size_t size;
};

/* A stream and memory on a device, filled with a byte. VMM memory if is_vmm. */
void rank_open(struct rank *rank, int number, int device, size_t size, bool is_vmm);
void rank_close(struct rank *rank);
void rank_fill(struct rank *rank, size_t offset, const void *bytes, size_t size);
/* What the memory holds once the stream has run. */
void rank_read(struct rank *rank, size_t offset, void *ret_bytes, size_t size);
/* Ranks first.. of a communicator, in one group. */
void ranks_init(struct rank *ranks, int count, int world, const ncclUniqueId *id, int blocking);
/* Polls until the communicator is no longer ncclInProgress. */
ncclResult_t rank_settle(struct rank *rank);

/* Part `rank` of the pattern that the tests gather: differs for each rank, step and byte. */
void pattern(uint8_t *ret_bytes, size_t size, int rank, int step);

#endif
