/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank of a run: the trainer that f8bench stands in for. rank_main is the whole life of a
 * forked process; rank_check.c is the part of it that compares.
 */
#ifndef F8BENCH_RANK_H
#define F8BENCH_RANK_H

#include <stdbool.h>
#include <stdint.h>

#include "client/bench/model.h"
#include "client/bench/options.h"
#include "client/bench/shared.h"
#include "client/bench/source.h"
#include "client/f8client.h"

/* Where the planted difference is. */
struct plan {
    enum plant plant;
    uint32_t step;
    uint32_t weight;
    uint64_t byte;
};

/* What all ranks of a run know. Made by the parent; read-only in the ranks. */
struct run {
    const struct options *options; /* borrowed: from main, like all pointers here */
    const struct model *model;
    const struct source *source;
    struct shared *shared;
    const char *socket;
    char job[64];
    struct plan plan;
};

/* One rank's own things. */
struct rank {
    const struct run *run; /* borrowed: from the parent */
    uint32_t rank;
    struct shared_rank *result; /* borrowed: from run->shared */
    struct f8_client *client;   /* owned */
    struct f8_group *group;     /* borrowed: from client */
    struct f8_region *region;   /* borrowed: from client; NULL if all shards are empty */
    uint8_t *shards;            /* borrowed: from client: the region's memory */
    uint64_t *offsets;          /* owned: of each shard in it */
    struct f8_view *views;      /* owned: by weight */
    struct checker *checker;    /* owned */
    void *copy;                 /* owned: where plain memcpy copies to */
    uint64_t copy_size;
};

/* Runs all steps; the exit status of the process. Failures are in run->shared. */
int rank_main(const struct run *run, uint32_t rank);

/* Records why this rank failed, with the library's error text; always -1. */
int rank_fail(struct rank *rank, int status, const char *doing, const char *what);
int rank_no_memory(struct rank *rank, const char *what);

/* First row and number of rows of this rank's shard of a weight. */
uint64_t rank_first_row(const struct rank *rank, uint32_t weight);
uint64_t rank_num_rows(const struct rank *rank, uint32_t weight);

/* Compares a bucket that this rank holds with the full weights. */
int rank_check_bucket(struct rank *rank, uint32_t step, uint32_t bucket);

/* Computes this rank's part of the static scales. All ranks' shards must be filled. */
void rank_static_scales(struct rank *rank);

#endif
