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
        if (shared_init_barrier(&shared->barriers[job], shared->crew) != 0) {
            return -1;
        }
    }
    return shared_init_barrier(&shared->start, shared->num_jobs * shared->crew);
}

/* Takes so much of the map, whose places begin at cache lines; where it begins. */
static uint64_t take(uint64_t *size, uint64_t bytes)
{
    uint64_t begin = *size;

    *size += rounded(bytes);
    return begin;
}

struct shared *shared_new(const struct shared_sizes *sizes)
{
    uint64_t num_ranks = (uint64_t)sizes->jobs * sizes->job_ranks;
    uint64_t floats = (uint64_t)sizes->jobs * sizes->weights * sizeof(float);
    uint64_t size = rounded(sizeof(struct shared));
    uint64_t barriers = take(&size, sizes->jobs * sizeof(pthread_barrier_t));
    uint64_t scales = take(&size, floats);
    uint64_t amaxes = take(&size, floats);
    uint64_t ranks = take(&size, num_ranks * sizeof(struct shared_rank));
    uint64_t times = take(&size, sizes->steps * num_ranks * NUM_TIMES * sizeof(double));
    uint64_t traffic =
        take(&size, (uint64_t)sizes->steps * sizes->hosts * sizeof(struct network_traffic));
    uint64_t addresses = take(&size, sizes->hosts * sizeof(struct sockaddr_storage));
    uint64_t ids = take(&size, sizes->groups * sizeof(struct shared_id));
    uint8_t *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct shared *shared;

    if (map == MAP_FAILED) {
        return NULL;
    }
    shared = (struct shared *)(void *)map;
    *shared = (struct shared){.map = map,
        .map_size = size,
        .num_jobs = sizes->jobs,
        .job_ranks = sizes->job_ranks,
        .crew = sizes->crew,
        .num_ranks = (uint32_t)num_ranks,
        .num_weights = sizes->weights,
        .num_hosts = sizes->hosts,
        .barriers = (pthread_barrier_t *)(void *)(map + barriers),
        .static_scales = (float *)(void *)(map + scales),
        .amaxes = (float *)(void *)(map + amaxes),
        .ranks = (struct shared_rank *)(void *)(map + ranks),
        .times = (double *)(void *)(map + times),
        .traffic = (struct network_traffic *)(void *)(map + traffic),
        .addresses = (struct sockaddr_storage *)(void *)(map + addresses),
        .ids = (struct shared_id *)(void *)(map + ids)};
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

struct network_traffic *shared_traffic_of(struct shared *shared, uint32_t step, uint32_t host)
{
    return &shared->traffic[(uint64_t)step * shared->num_hosts + host];
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
