/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables of tasks and scales on their way to one device's stream: gathered in a piece of the ring,
 * sent there in one copy, launched in the order in which they were added. A batch that outgrows its
 * piece is sent in several parts. Device thread only, with the device current.
 */
#ifndef F8_DAEMON_CUDA_WORK_BATCH_H
#define F8_DAEMON_CUDA_WORK_BATCH_H

#include "daemon/cuda/work_ring.h"

/* Which launcher takes an entry. */
enum cuda_table {
    CUDA_TABLE_AMAX,
    CUDA_TABLE_SCALE,
    CUDA_TABLE_WRITE,
};

/* Tables of one part of a batch; a table of another kind begins a new one. */
#define CUDA_BATCH_TABLES 4

struct cuda_batch {
    struct cuda *cuda;      /* borrowed */
    struct cuda_ring *ring; /* borrowed */
    struct reason *reason;  /* borrowed: why a function failed */
    cudaStream_t stream;
    uint64_t deadline_ms; /* for room in the ring */
    uint64_t expected;    /* bytes that are still to be added: one piece is taken for so many */
    struct cuda_piece piece;
    uint64_t filled; /* bytes of the piece */
    struct cuda_batch_table {
        enum cuda_table kind;
        uint64_t offset; /* in the piece */
        uint32_t entries, parts;
    } tables[CUDA_BATCH_TABLES];
    uint32_t num_tables;
    uint8_t *zeros; /* borrowed: device memory that is to be zeroed, not yet an entry */
    uint64_t zeros_size;
};

/* Bytes of `expected` for so many entries. */
uint64_t cuda_batch_size(uint64_t num_tasks, uint64_t num_scales);

/* Adds a task, whose first_part it sets; one of no elements is left out. F8_EDEADLINE, F8_EIO. */
int cuda_batch_task(struct cuda_batch *batch, enum cuda_table kind, const struct f8cu_task *task);

/* Zeroes device memory: what adjoins the last call's becomes one entry with it. */
int cuda_batch_zero(struct cuda_batch *batch, void *memory, uint64_t size);

/* After the last of those calls, and before what needs the zeros is added. */
int cuda_batch_end_zeros(struct cuda_batch *batch);

int cuda_batch_scale(struct cuda_batch *batch, const struct f8cu_scale *scale);

/* Sends and launches what has been added since the last time. F8_EIO. */
int cuda_batch_flush(struct cuda_batch *batch);

#endif
