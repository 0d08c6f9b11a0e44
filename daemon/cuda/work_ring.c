/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ring that carries tables to a device. Positions are bytes since the beginning, so that a full
 * ring and an empty one differ; a piece never wraps. In the steady state the ring is large enough
 * and nothing here waits; where a device is far behind, its oldest use is polled, which holds up
 * this thread but never inside the CUDA runtime.
 */
#include "daemon/cuda/work_ring.h"

#include <assert.h>

#include "proto/status.h"

/* As much as any vector load of a table wants. */
#define ALIGNMENT 64

static uint64_t align(uint64_t size)
{
    return (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

int cuda_ring_init(struct cuda_ring *ring, uint64_t size, struct reason *reason)
{
    *ring = (struct cuda_ring){.size = align(size)};
    int r = cuda_failed(cudaHostAlloc((void **)&ring->host, ring->size, cudaHostAllocWriteCombined),
        reason, "cannot pin %lu bytes for tables of tasks", (unsigned long)ring->size);
    if (r == F8_OK)
        r = cuda_failed(cudaMalloc((void **)&ring->device, ring->size), reason,
            "cannot allocate %lu bytes for tables of tasks", (unsigned long)ring->size);
    for (uint32_t i = 0; i < CUDA_RING_USES && r == F8_OK; i++)
        r = cuda_failed(cudaEventCreateWithFlags(&ring->uses[i].event, cudaEventDisableTiming),
            reason, "cannot create an event for tables of tasks");
    return r;
}

void cuda_ring_done(struct cuda_ring *ring)
{
    for (uint32_t i = 0; i < CUDA_RING_USES; i++)
        if (ring->uses[i].event)
            (void)cudaEventDestroy(ring->uses[i].event);
    if (ring->device)
        (void)cudaFree(ring->device);
    if (ring->host)
        (void)cudaFreeHost(ring->host);
    *ring = (struct cuda_ring){0};
}

/* Gives back the oldest uses that the device has done with. */
static int reclaim(struct cuda_ring *ring, struct reason *reason)
{
    while (ring->num_uses > 0) {
        const struct cuda_ring_use *oldest = &ring->uses[ring->first_use];
        cudaError_t error = cudaEventQuery(oldest->event);
        if (error == cudaErrorNotReady) {
            (void)cudaGetLastError(); /* where some versions of CUDA leave it */
            return F8_OK;
        }
        if (error != cudaSuccess)
            return cuda_failed(error, reason, "a work that was queued before has failed");
        ring->tail = oldest->end;
        ring->first_use = (ring->first_use + 1) % CUDA_RING_USES;
        ring->num_uses--;
    }
    return F8_OK;
}

static bool has_room(const struct cuda_ring *ring, uint64_t size)
{
    return ring->size - (ring->head - ring->tail) >= size && ring->num_uses < CUDA_RING_USES;
}

static int wait_for_room(struct cuda *cuda, struct cuda_ring *ring, uint64_t size,
    uint64_t deadline_ms, struct reason *reason)
{
    for (;;) {
        int r = reclaim(ring, reason);
        if (r < 0 || has_room(ring, size))
            return r;
        if (cuda_now_ms() >= deadline_ms)
            return reason_set(reason, F8_EDEADLINE,
                "the device is %u works behind and does not go on", ring->num_uses);
        cuda_beat(cuda, "waiting for a device that is far behind");
        cuda_poll_pause();
    }
}

int cuda_ring_take(struct cuda *cuda, struct cuda_ring *ring, uint64_t size, uint64_t deadline_ms,
    struct cuda_piece *ret_piece, struct reason *reason)
{
    uint64_t half = ring->size / 2 / ALIGNMENT * ALIGNMENT;
    size = size < half ? align(size) : half;
    uint64_t place = ring->head % ring->size;
    uint64_t skip = ring->size - place < size ? ring->size - place : 0;
    if (!has_room(ring, skip + size)) {
        int r = wait_for_room(cuda, ring, skip + size, deadline_ms, reason);
        if (r < 0)
            return r;
    }
    place = skip > 0 ? 0 : place;
    ring->head += skip + size;
    *ret_piece = (struct cuda_piece){
        .host = ring->host + place, .device = ring->device + place, .size = size};
    return F8_OK;
}

void cuda_ring_give_back(struct cuda_ring *ring, uint64_t size)
{
    ring->head -= size / ALIGNMENT * ALIGNMENT;
}

int cuda_ring_close(struct cuda_ring *ring, cudaStream_t stream, struct reason *reason)
{
    if (ring->used == ring->head)
        return F8_OK;
    assert(ring->num_uses < CUDA_RING_USES); /* cuda_ring_take has seen to it */
    struct cuda_ring_use *use = &ring->uses[(ring->first_use + ring->num_uses) % CUDA_RING_USES];
    int r = cuda_failed(
        cudaEventRecord(use->event, stream), reason, "cannot record the end of a work's tables");
    if (r < 0)
        return r;
    use->end = ring->used = ring->head;
    ring->num_uses++;
    return F8_OK;
}
