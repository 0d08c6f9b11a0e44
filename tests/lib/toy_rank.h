/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank of a toy model for whole-process tests: buckets of equal weights, all of one shape, with
 * known values, stepped as a trainer steps. Its functions return 0 or, having said on stderr what
 * failed, the negative status. Used in forked processes, on one thread.
 */
#ifndef F8_TESTS_TOY_RANK_H
#define F8_TESTS_TOY_RANK_H

#include <stdbool.h>

#include "client/f8client.h"

struct toy_job {
    const char *socket, *name; /* borrowed: from the test */
    const char *group;         /* borrowed: from the test; NULL: dp */
    uint32_t ranks;
    uint32_t buckets, weights; /* weights a bucket */
    uint32_t rows, cols;       /* of each weight, bf16 */
    enum f8_flavour flavour;
    uint32_t slots; /* 0: each bucket has its own place */
    bool precompute;
    bool pre_gather;
    bool sync;  /* at the end of each step */
    bool quiet; /* errors are expected */
};

struct toy_rank {
    struct toy_job job;
    uint32_t rank;
    struct f8_client *client;     /* owned */
    struct f8_group *group;       /* owned by the client */
    struct f8_region *region;     /* owned by the client */
    uint16_t *shards;             /* borrowed: where it writes its shards */
    struct device_memory *memory; /* owned: NULL on the host */
    void *stream;                 /* borrowed: from memory */
    struct f8_view *views;        /* owned: one a weight of a bucket */
};

/* Connects and joins; toy_rank_seal allocates, fills, registers and seals. */
int toy_rank_join(struct toy_rank *toy, const struct toy_job *job, uint32_t rank);
int toy_rank_seal(struct toy_rank *toy);

/* Gathers a bucket, waits for it, and reads every byte of every view. */
int toy_rank_hold(struct toy_rank *toy, uint32_t bucket);

/* Reads every byte of what is held since toy_rank_hold. */
int toy_rank_read(const struct toy_rank *toy);

/* A training step: changed, precompute, all buckets ahead by one, each released; sync. */
int toy_rank_step(struct toy_rank *toy);

/* All buckets ahead by one, each released: no other request. */
int toy_rank_gathers(struct toy_rank *toy);

/* A round trip after all else, so that the daemon has taken in what was posted. */
int toy_rank_settle(struct toy_rank *toy);

/* After an error too; a zeroed rank is allowed. */
void toy_rank_close(struct toy_rank *toy);

/* Bytes of a bucket's place and of the arena, computed from the protocol's text alone. */
uint64_t toy_place_bytes(const struct toy_job *job);
uint64_t toy_arena_bytes(const struct toy_job *job);

/* Bytes of the unsharded float8 model. */
uint64_t toy_model_bytes(const struct toy_job *job);

#endif
