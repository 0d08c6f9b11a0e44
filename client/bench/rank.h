/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank of a run: the trainer that f8bench stands in for. rank_main is the whole life of a
 * forked process; rank_open.c is its beginning and end, rank_check.c the part of it that compares.
 */
#ifndef F8BENCH_RANK_H
#define F8BENCH_RANK_H

#include <stdbool.h>
#include <stdint.h>

#include "client/bench/check.h"
#include "client/bench/layout.h"
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
    uint32_t group; /* the gather group that finds it */
    uint64_t byte;
};

/* What all ranks of a job know. Made by the parent; read-only in the ranks. */
struct run {
    const struct options *options; /* borrowed: from main, like all pointers here */
    const struct model *model;
    const struct source *source;
    struct shared *shared;
    const char *socket;
    uint32_t index; /* of the job */
    int meeting_fd; /* borrowed: to other machines; -1: there are none */
    char job[64];
    struct plan plan;
};

/* A group to be joined. */
struct rank_group {
    const char *name;
    uint32_t number; /* its place in shared->ids */
    uint32_t rank;
    uint32_t world_size;
    uint32_t local_ranks; /* of it on this host */
};

/* One rank's own things. */
struct rank {
    const struct run *run; /* borrowed: from the parent */
    struct place place;
    uint32_t index; /* among the ranks of all jobs */
    uint32_t host;
    uint32_t crew_first, crew;   /* ranks of the job that share memory: they do together what
                                    each machine must have done */
    uint32_t turn, turns;        /* its turn to check, among its group's ranks on this host */
    struct yardstick *yardstick; /* owned; NULL: there are no hosts */
    char group_name[64];
    struct shared_rank *result;  /* borrowed: from run->shared */
    struct f8_client *client;    /* owned */
    struct f8_group *group;      /* borrowed: from client; it gathers */
    struct f8_group *amax_group; /* borrowed: from client; the same but on a mesh */
    struct f8_region *region;    /* borrowed: from client; NULL if all shards are empty */
    uint8_t *shards;             /* the region's memory, borrowed from client; on a device its
                                    copy on the host, owned */
    uint64_t shards_size;
    struct gpu *gpu;   /* owned; NULL: on the host */
    void *stream;      /* borrowed: from gpu; NULL: on the host */
    uint8_t *gathered; /* owned: on a device, a gathered weight's copy on the host */
    uint64_t gathered_size;
    uint64_t *offsets;              /* owned: of each shard in it */
    struct f8_view *views;          /* owned: by weight */
    double *asked;                  /* owned: by bucket: when its gather was asked for */
    struct checker *checker;        /* owned */
    struct check_delayed **delayed; /* owned, each too: by weight; NULL where it is not delayed */
    void *copy;                     /* owned: where plain memcpy copies to */
    uint64_t copy_size;
};

/* What a host's first rank, or with torch each, measures the network with. */
struct yardstick;

/* Runs all steps; the exit status of the process. Failures are in run->shared. */
int rank_main(const struct run *run, uint32_t rank);

/* Joins a group, which may span hosts. All ranks of the job call it for as many groups. */
int rank_join(struct rank *rank, const struct rank_group *what, struct f8_group **ret_group);

/* The yardsticks over hosts; nothing where there are none. A step of them, in all ranks. */
int rank_yardstick_open(struct rank *rank);
int rank_yardstick_measure(struct rank *rank, uint32_t step);
void rank_yardstick_close(struct rank *rank);

/* Between these two, in all ranks, what passes the network is counted. */
int rank_count_begin(struct rank *rank);
int rank_count_end(struct rank *rank, uint32_t step);

/* Waits for the other ranks of the job that share this memory. */
void rank_barrier(struct rank *rank);

/*
 * Waits for the others of all machines. Bytes in shared memory, `size` of them, become those of
 * all machines joined by "or"; without other machines they stay as they are.
 */
int rank_meet(struct rank *rank, void *bytes, size_t size);

/* Records why this rank failed, with the library's error text; always -1. */
int rank_fail(struct rank *rank, int status, const char *doing, const char *what);
int rank_no_memory(struct rank *rank, const char *what);

/* Everything until the first step: connected, weights filled, groups sealed. */
int rank_open(struct rank *rank);

/* Also half-opened. */
void rank_close(struct rank *rank);

/* What this rank has of a weight. */
struct model_part rank_shard(const struct rank *rank, uint32_t weight);

/* Changes this rank's parts of the full weights; and of those of other machines' ranks, which no
 * one here has, its share. */
void rank_change(const struct rank *rank, uint32_t step);

/* Copies this rank's shards from the full weights to where the daemon reads them. */
int rank_publish(struct rank *rank);

/* Compares a bucket that this rank holds with the full weights. */
int rank_check_bucket(struct rank *rank, uint32_t step, uint32_t bucket);

/* Computes this rank's part of the static scales. All ranks' shards must be filled. */
void rank_static_scales(struct rank *rank);

/* Makes the states of the delayed weights that the checker follows. */
int rank_delayed_new(struct rank *rank);

/* Computes this rank's part of the amaxes of delayed weights. All ranks must have changed theirs,
 * and a barrier must follow before they are used. */
void rank_take_amaxes(struct rank *rank);

/* All weights are about to be gathered, once each; or a sync is done. */
void rank_follow_gathers(struct rank *rank);
void rank_follow_sync(struct rank *rank);

#endif
