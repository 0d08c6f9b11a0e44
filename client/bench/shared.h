/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the processes of a run share: the barriers between ranks, the times and findings that each
 * rank writes and the parent reads after it has ended, and the descriptors by which they wake each
 * other. Made by the parent before it forks; lives until it is closed by the parent.
 */
#ifndef F8BENCH_SHARED_H
#define F8BENCH_SHARED_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/socket.h>

#include "client/bench/check.h"
#include "client/bench/error.h"
#include "client/bench/histogram.h"
#include "client/bench/network.h"
#include "client/f8types.h"

/* The parts of a step that are timed, in seconds of each rank. */
enum shared_time {
    TIME_CHANGE, /* the bench's own: not a phase of the product */
    /* The yardstick, on the clock that all share: where ranks must take turns on few CPUs, their
       own durations do not tell how long all of them took. */
    TIME_MEMCPY_BEGIN,
    TIME_MEMCPY_END,
    /* More yardsticks on that clock, of hosts: of one rank of each, and of all. */
    TIME_RAW_BEGIN,
    TIME_RAW_END,
    TIME_TORCH_BEGIN,
    TIME_TORCH_END,
    TIME_PRECOMPUTE,
    TIME_SEND,        /* f8_pre_gather and f8_gather, until sent */
    TIME_POST_GATHER, /* waiting */
    TIME_RELEASE,
    TIME_SYNC,
    NUM_TIMES,
};

/* What one rank found. Written by that rank alone. */
struct shared_rank {
    int status; /* of the call that failed; F8_OK: none did */
    struct bench_error error;
    struct check_result check;
    uint64_t received; /* messages, during gathers */
    uint64_t gathers;
    uint64_t copied;               /* bytes, by plain memcpy in each step */
    uint64_t syncs;                /* as the library counts them at the end */
    char device[64];               /* the name of its CUDA device; empty: none */
    struct histogram gather_times; /* of a bucket, from asking until its data are there */
};

/* A unique id that one rank of a group asks for, and the others read. */
struct shared_id {
    uint8_t bytes[F8_UNIQUE_ID_SIZE];
};

/* How much there is of everything. */
struct shared_sizes {
    uint32_t jobs, job_ranks, steps, weights;
    uint32_t crew;   /* of a job's ranks, those that share it */
    uint32_t hosts;  /* at least 1 */
    uint32_t groups; /* that may span hosts */
};

/* Ranks of all jobs count on: rank r of job j is j * job_ranks + r. */
struct shared {
    void *map; /* owned: all of this but the descriptors; this struct lies in it too */
    uint64_t map_size;
    atomic_uint steps_done; /* of the first ranks of all jobs */
    atomic_uint ranks_done; /* of all jobs, that wait for the parent's go */
    int progress_fd;        /* owned: eventfd; ranks tell the parent that one of these moved */
    int go_fd;              /* owned: eventfd; the parent lets the ranks leave their groups */
    uint32_t num_jobs;
    uint32_t job_ranks;
    uint32_t crew;      /* of a job's ranks, those of this machine */
    uint32_t num_ranks; /* of all jobs */
    uint32_t num_weights;
    uint32_t num_hosts;
    pthread_barrier_t start;              /* of all that share this, before the first step */
    pthread_barrier_t *barriers;          /* owned: part of the map; by job */
    float *static_scales;                 /* owned: part of the map; see shared_static_scales */
    float *amaxes;                        /* owned: part of the map; see shared_amaxes */
    struct shared_rank *ranks;            /* owned: part of the map */
    double *times;                        /* owned: part of the map; see shared_time_of */
    struct network_traffic *traffic;      /* owned: part of the map; see shared_traffic_of */
    struct sockaddr_storage *addresses;   /* owned: part of the map; by host: of plain TCP */
    struct sockaddr_storage torch_master; /* where torch's rank 0 listens */
    struct shared_id *ids;                /* owned: part of the map; by group */
};

/* NULL if memory or descriptors are out. */
struct shared *shared_new(const struct shared_sizes *sizes);
void shared_free(struct shared *shared);

double *shared_time_of(struct shared *shared, uint32_t step, uint32_t rank, enum shared_time time);

/* What passed the interface of a host in a step. */
struct network_traffic *shared_traffic_of(struct shared *shared, uint32_t step, uint32_t host);

/* Of a job, by weight: the scales that static weights are given, the amaxes of this step. */
float *shared_static_scales(const struct shared *shared, uint32_t job);
float *shared_amaxes(const struct shared *shared, uint32_t job);

/* A barrier, in memory that processes share. 0 or -1. */
int shared_init_barrier(pthread_barrier_t *barrier, uint32_t num_processes);

/* Waits for all ranks of the job that share this memory. If one of them is gone, the parent ends
 * the others. */
void shared_barrier(struct shared *shared, uint32_t job);

/* Waits for all of them of all jobs. */
void shared_start(struct shared *shared);

/* Wakes the parent. */
void shared_tell(struct shared *shared);

/* Seconds on the monotonic clock. */
double shared_now(void);

#endif
