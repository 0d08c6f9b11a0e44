/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of the fake daemon on a device: fake_gpu_daemon.c speaks the protocol,
 * fake_gpu_memory.c keeps the client's memory, the arena and the events. One thread; whatever fails
 * that should not ends the process.
 */
#ifndef F8_TESTS_FAKE_GPU_DAEMON_H
#define F8_TESTS_FAKE_GPU_DAEMON_H

#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>

#include "f8gather.pb-c.h"
#include "proto/protocol.h"
#include "tests/cuda/fake_gpu.h"

/* How the program is started as the daemon. */
#define FAKE_GPU_ARGUMENT "--fake-gpu-daemon"
#define FAKE_GPU_LISTENER 30
#define FAKE_GPU_MEMORY   31

#define GPU_REGIONS 8
#define GPU_CHUNKS  256

#define GPU_MUST(condition)                                                                        \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: fake daemon: not so: %s\n", __FILE__, __LINE__, #condition);   \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

struct gpu_region {
    bool used, is_vmm;
    CUdeviceptr base, data; /* of the mapping, of the region in it */
    uint64_t size, mapped;
    uint64_t chunks[GPU_CHUNKS];
    uint32_t num_chunks;
};

struct gpu_weight {
    uint32_t region;
    uint64_t offset, size, at; /* in the region; bytes; in its bucket's place */
};

struct gpu_bucket {
    uint32_t first, count;
    bool shared;
    uint64_t place, span;
};

struct gpu {
    struct fake_gpu_shared *shared; /* borrowed: the mapping */
    CUstream stream;
    CUevent ready[F8_PROTO_MAX_READY];
    uint32_t num_ready;
    struct gpu_region regions[GPU_REGIONS];
    struct gpu_region partial; /* of a region that comes in several packets */
    struct gpu_weight weights[FAKE_GPU_BUCKETS];
    struct gpu_bucket buckets[FAKE_GPU_BUCKETS];
    uint32_t num_weights, num_buckets;
    uint32_t pre_ready[FAKE_GPU_BUCKETS];
    uint32_t released[FAKE_GPU_BUCKETS]; /* by bucket: event of the last Release of its place */
    CUdeviceptr arena, scratch;
    uint64_t arena_size, mapped;
    int arena_fd;
    CUevent done[FAKE_GPU_DONE];
    CUipcEventHandle handles[FAKE_GPU_DONE];
    uint32_t next_done;
};

/* The process's whole life as the daemon; its exit status. */
int fake_gpu_daemon(void);

/* ---- fake_gpu_memory.c ---- */

void gpu_open(struct gpu *gpu);
void gpu_attach(struct gpu *gpu, const F8__DeviceAdd *add);
/* Lets go of all that is the client's, when all that was queued has run. */
void gpu_detach(struct gpu *gpu);

/* Takes part of a region in; its number once it is whole, else 0. */
uint32_t gpu_add_region(struct gpu *gpu, const F8__CudaMemory *memory, const int *fds, uint32_t n);
void gpu_drop_region(struct gpu *gpu, uint32_t number);
void gpu_drop_partial(struct gpu *gpu);

/* Reserves the arena for the buckets, anew. */
void gpu_seal(struct gpu *gpu);

void gpu_wait(struct gpu *gpu, uint32_t ready);
/* Queues the copies of a bucket, or of all shards to the scratch memory; the done event's number.
 */
uint32_t gpu_gather(struct gpu *gpu, uint32_t bucket);
uint32_t gpu_precompute(struct gpu *gpu);
/* The first word of the scratch memory, when all that was queued has run. */
uint32_t gpu_read_scratch(struct gpu *gpu);

#endif
