/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A mini trainer for whole-process tests: ranks that are clients of a real daemon, each with the
 * same four small buckets of known values, so that a test can misuse one call and check that all
 * else still gives the right bytes. A rank is used by one thread at a time.
 *
 * On an unexpected status the functions that return nothing fail the test.
 */
#ifndef F8_TESTS_RANKS_H
#define F8_TESTS_RANKS_H

#include <stdbool.h>
#include <stdint.h>

#include "f8client.h"

/* The buckets: an own place (static, e5m2), then three over the shared slots (dynamic, e4m3fn). */
enum {
    EMBED,
    LAYER_0,
    LAYER_1,
    LAYER_2,
    RANK_BUCKETS,
};

/* Weights of a bucket, and of all: a matrix and a raw fp32 norm each. */
#define BUCKET_WEIGHTS 2
#define RANK_WEIGHTS   (RANK_BUCKETS * BUCKET_WEIGHTS)
#define RANK_SLOTS     2

/* Returned where a gathered byte or scale is not what the ranks wrote. */
#define WRONG_BYTES (-1000)

/* How a call ended. */
struct outcome {
    int status;
    char text[2048]; /* f8_error_text; "" after success */
};

struct rank {
    struct f8_client *client;            /* owned */
    struct f8_group *group;              /* borrowed: from the client */
    struct f8_region *region;            /* borrowed: from the client */
    float *memory;                       /* borrowed: where it writes its shards */
    struct device_memory *device_memory; /* owned: NULL on the host */
    void *stream;                        /* borrowed: from device_memory */
    uint32_t number, world_size;
    struct f8_view views[RANK_BUCKETS][BUCKET_WEIGHTS]; /* of the last gathers */
    struct outcome outcome;                             /* of the last ranks_all */
};

/* The status, with the text that goes with it on this thread. */
struct outcome outcome_of(int status);

/* The rank's descriptions of its weights and of the buckets, for tests that change one. */
void rank_weights(const struct rank *rank, struct f8_weight_desc weights[RANK_WEIGHTS]);
void rank_buckets(struct f8_bucket_desc buckets[RANK_BUCKETS]);

/* Connects to the job "run" at the socket. */
void rank_connect(struct rank *rank, const char *socket);

/* Joins the group "dp", and allocates the region. */
void rank_join(struct rank *rank, uint32_t number, uint32_t world_size);

/* Registers the weights and buckets above. */
void rank_register(struct rank *rank);

/* Closes what is open. Allowed twice. */
void rank_close(struct rank *rank);

/* Seals with RANK_SLOTS. */
int rank_seal(struct rank *rank);

/* One training step: new values, precompute, each bucket gathered ahead by one and checked. */
int rank_step(struct rank *rank);

/* Gathers a bucket with this deadline and waits; the views are filled, not checked. */
int rank_gather(struct rank *rank, uint32_t bucket, int64_t deadline_ms);

/* Writes the rank's shards. */
void rank_fill(struct rank *rank);

/* F8_OK, or WRONG_BYTES if the views of the bucket do not show what all ranks wrote. */
int rank_check(const struct rank *rank, uint32_t bucket);

/* A request with a reply: the daemon has seen all that the rank asked for before it. */
void rank_settle(struct rank *rank);

/* Each rank's call on a thread of its own, at once; outcomes are in the ranks. */
void ranks_all(struct rank *ranks, uint32_t count, int (*call)(struct rank *rank));

/* ranks_all that must succeed on all. */
void ranks_must(struct rank *ranks, uint32_t count, int (*call)(struct rank *rank));

/* `count` ranks that are connected, joined, registered and sealed. */
void ranks_start(struct rank *ranks, uint32_t count, const char *socket);

#endif
