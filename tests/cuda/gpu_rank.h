/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client that is a rank of a group at the fake daemon on a device: buckets of one raw weight
 * each, whose shards follow one another in one cudaMalloc allocation, and a stream. All bytes of a
 * shard are one value, so that what was read when can be told.
 */
#ifndef F8_TESTS_GPU_RANK_H
#define F8_TESTS_GPU_RANK_H

#include <cuda.h>

#include "client/f8client.h"
#include "tests/cuda/fake_gpu.h"

struct gpu_rank {
    struct fake_gpu gpu;
    struct f8_client *client;
    struct f8_group *group;
    struct f8_region *region;
    CUcontext context; /* current from the start on */
    CUstream stream;
    CUdeviceptr shards;
    uint64_t size; /* bytes of each shard */
    uint32_t num_buckets;
    int reconnect_ms; /* of f8_connect_options */
};

struct gpu_rank_options {
    uint32_t num_buckets;
    uint64_t words;      /* of each weight; 0: 16384 */
    bool shared;         /* buckets share slots */
    uint32_t world_size; /* 0: 1 */
    int reconnect_ms;
};

/* A call of the driver that must succeed. */
#define CU(call) ck_assert_int_eq((call), CUDA_SUCCESS)

/* A call of the library that must succeed. */
void must(int status);

/* Device 0's context, current, and a stream. Before the first call the test has used no CUDA. */
void gpu_rank_begin(struct gpu_rank *rank);

/* Starts the daemon and connects. */
void gpu_rank_connect(struct gpu_rank *rank);

/* Both of the above, shares the shards, joins and registers. */
void gpu_rank_register(struct gpu_rank *rank, const struct gpu_rank_options *options);

void gpu_rank_seal(struct gpu_rank *rank, uint32_t slots);

/* Closes the client, waits for the daemon, and frees. */
void gpu_rank_end(struct gpu_rank *rank);

/* Puts on the stream: the shard of a bucket becomes `value`; a bucket is gathered and waited for.
 */
void gpu_rank_fill(struct gpu_rank *rank, uint32_t bucket, int value, CUstream stream);
struct f8_view gpu_rank_gather(struct gpu_rank *rank, uint32_t bucket, CUstream stream);

/* Puts on the stream a copy of `size` bytes to pinned memory, which gpu_rank_check then checks. */
void *gpu_rank_read(const void *data, uint64_t size, CUstream stream);
void gpu_rank_check(void *copy, uint64_t size, int value, CUstream stream);

/* Work of a stream that is over once the gate is opened. */
struct gate {
    int fd; /* eventfd */
};
void gate_put(struct gate *gate, CUstream stream);
void gate_open(struct gate *gate);

/* A Ping, which brings the daemon up to date, and the replies that it withholds. */
void gpu_rank_ping(struct gpu_rank *rank);

#endif
