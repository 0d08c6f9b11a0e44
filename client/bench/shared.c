/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shared memory of a run, its barriers and its two eventfds. Made and freed by the parent; used
 * by the rank processes, which inherit it.
 */
#include "shared.h"

#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static uint64_t rounded(uint64_t size)
{
    return (size + 63) / 64 * 64;
}

int shared_init_barrier(pthread_barrier_t *barrier, uint32_t num_processes)
{
    pthread_barrierattr_t attributes;
    int result;

    pthread_barrierattr_init(&attributes);
    pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    result = pthread_barrier_init(barrier, &attributes, num_processes);
    pthread_barrierattr_destroy(&attributes);
    return result == 0 ? 0 : -1;
}

static int init_barriers(struct shared *shared)
{
    for (uint32_t job = 0; job < shared->num_jobs; job++) {
        if (shared_init_barrier(&shared->barriers[job], shared->job_ranks) != 0) {
            return -1;
        }
    }
    return shared_init_barrier(&shared->start, shared->num_ranks);
}

struct shared *shared_new(
    uint32_t num_jobs, uint32_t job_ranks, uint32_t num_steps, uint32_t num_weights)
{
    uint64_t num_ranks = (uint64_t)num_jobs * job_ranks;
    uint64_t floats = rounded((uint64_t)num_jobs * num_weights * sizeof(float));
    uint64_t barriers = rounded(sizeof(struct shared));
    uint64_t scales = barriers + rounded(num_jobs * sizeof(pthread_barrier_t));
    uint64_t amaxes = scales + floats;
    uint64_t ranks = amaxes + floats;
    uint64_t times = ranks + rounded(num_ranks * sizeof(struct shared_rank));
    uint64_t size = times + num_steps * num_ranks * NUM_TIMES * sizeof(double);
    uint8_t *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct shared *shared;

    if (map == MAP_FAILED) {
        return NULL;
    }
    shared = (struct shared *)(void *)map;
    shared->map = map;
    shared->map_size = size;
    shared->num_jobs = num_jobs;
    shared->job_ranks = job_ranks;
    shared->num_ranks = (uint32_t)num_ranks;
    shared->num_weights = num_weights;
    shared->barriers = (pthread_barrier_t *)(void *)(map + barriers);
    shared->static_scales = (float *)(void *)(map + scales);
    shared->amaxes = (float *)(void *)(map + amaxes);
    shared->ranks = (struct shared_rank *)(void *)(map + ranks);
    shared->times = (double *)(void *)(map + times);
    shared->progress_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    shared->go_fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
    if (shared->progress_fd < 0 || shared->go_fd < 0 || init_barriers(shared) != 0) {
        shared_free(shared);
        return NULL;
    }
    return shared;
}

void shared_free(struct shared *shared)
{
    if (shared == NULL) {
        return;
    }
    /* The barriers are not destroyed: that would wait for ranks that were killed inside it. */
    if (shared->progress_fd >= 0) {
        close(shared->progress_fd);
    }
    if (shared->go_fd >= 0) {
        close(shared->go_fd);
    }
    munmap(shared->map, shared->map_size);
}

double *shared_time_of(struct shared *shared, uint32_t step, uint32_t rank, enum shared_time time)
{
    return &shared->times[((uint64_t)step * shared->num_ranks + rank) * NUM_TIMES + time];
}

float *shared_static_scales(const struct shared *shared, uint32_t job)
{
    return &shared->static_scales[(uint64_t)job * shared->num_weights];
}

float *shared_amaxes(const struct shared *shared, uint32_t job)
{
    return &shared->amaxes[(uint64_t)job * shared->num_weights];
}

void shared_barrier(struct shared *shared, uint32_t job)
{
    pthread_barrier_wait(&shared->barriers[job]);
}

void shared_start(struct shared *shared)
{
    pthread_barrier_wait(&shared->start);
}

void shared_tell(struct shared *shared)
{
    eventfd_write(shared->progress_fd, 1);
}

double shared_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}
