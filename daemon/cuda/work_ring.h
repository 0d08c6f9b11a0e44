/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way of tables (of tasks, of scales) to one device: a ring of pinned memory with as much
 * device memory behind it, so that works are queued without an allocation and without waiting for
 * the device. Each work is a use of the ring; an event says when its bytes may be written again.
 * Device thread only, with the device current.
 */
#ifndef F8_DAEMON_CUDA_WORK_RING_H
#define F8_DAEMON_CUDA_WORK_RING_H

#include "daemon/cuda/cuda_private.h"

/* Works that a device may be behind; more than a client has requests open, with two works each. */
#define CUDA_RING_USES 256

struct cuda_ring {
    uint8_t *host;   /* owned: pinned */
    uint8_t *device; /* owned */
    uint64_t size;   /* bytes of each */
    /* Bytes since the beginning: the ring holds [tail, head), of which uses own [tail, used). */
    uint64_t head, used, tail;
    struct cuda_ring_use {
        cudaEvent_t event; /* owned: after the last launch that reads the use's bytes */
        uint64_t end;      /* the ring's head at that time */
    } uses[CUDA_RING_USES];
    uint32_t first_use, num_uses; /* a ring of those whose event may be outstanding */
};

/* A piece of the ring: the same bytes here and there. */
struct cuda_piece {
    uint8_t *host, *device; /* borrowed: from the ring */
    uint64_t size;          /* bytes */
};

/* F8_ENOMEM, F8_EIO: what has been made is left for cuda_ring_done. */
int cuda_ring_init(struct cuda_ring *ring, uint64_t size, struct reason *reason);

/* When the stream has drained. A ring of zeros is allowed. */
void cuda_ring_done(struct cuda_ring *ring);

/*
 * Takes a piece of min(size, half the ring) bytes. Where the ring has not as much it polls the
 * oldest use, until `deadline_ms` of cuda_now_ms: F8_EDEADLINE. F8_EIO.
 */
int cuda_ring_take(struct cuda *cuda, struct cuda_ring *ring, uint64_t size, uint64_t deadline_ms,
    struct cuda_piece *ret_piece, struct reason *reason);

/* The last bytes of the piece that was taken last are not needed. */
void cuda_ring_give_back(struct cuda_ring *ring, uint64_t size);

/* All that was taken since the last call is free again once the stream has come here. F8_EIO. */
int cuda_ring_close(struct cuda_ring *ring, cudaStream_t stream, struct reason *reason);

#endif
