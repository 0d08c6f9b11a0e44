/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank of a data x tensor parallel mesh, as a trainer's process would be: it gathers two weights
 * over the ranks of its tensor parallel part, and their amaxes are taken over all. One weight is
 * cut by rows over the parts, the other by columns, neither evenly; each part is then cut by rows
 * over the ranks that gather. Beside the second there may be one whose amax is that of the part
 * alone. What must come out is computed from the full weights. One thread a rank.
 */
#ifndef F8_TESTS_MESH_RANK_H
#define F8_TESTS_MESH_RANK_H

#include <stdbool.h>
#include <stdint.h>

#include "f8client.h"

#define MESH_WEIGHTS 3 /* at most */
#define MESH_BUCKETS 2
#define MESH_HISTORY 3
#define MESH_STEPS   5

enum mesh_mode {
    MESH_PRECOMPUTE, /* dynamic, scales by f8_precompute of the amax group */
    MESH_IN_GATHER,  /* dynamic, the amaxes are exchanged in each gather */
    MESH_DELAYED,    /* with f8_sync of the amax group */
};

struct mesh_plan {
    const char *socket, *job; /* borrowed */
    uint32_t dp, tp;          /* ranks that gather together; parts of the weights */
    enum mesh_mode mode;
    bool alone;     /* each rank has an amax group of its own: to be refused */
    bool own;       /* there is a weight that names no amax group */
    uint32_t seed;  /* of the values */
    uint32_t first; /* step; others count on, with the amaxes of those before */
    const struct f8_hosts *gathers_over, *mesh_over; /* borrowed; NULL: that group is on one host */
    uint32_t replica; /* tells apart groups that are otherwise the same, or stages of one client */
};

struct mesh_rank {
    struct mesh_plan plan;
    bool half_joined;         /* by mesh_rank_join_gathers */
    uint32_t number;          /* in the amax group: tp part * dp + rank in the gather group */
    struct f8_client *client; /* owned */
    struct f8_group *gathers, *mesh; /* borrowed: from the client */
    float *shards;                   /* borrowed: where it writes its shards */
    struct device_memory *memory;    /* owned: NULL on the host */
    void *stream;                    /* borrowed: from memory */
    struct f8_region *region;        /* borrowed: from the client */
    char text[1024];                 /* why the last call failed, or what was wrong */
};

/* All give a status, and a text with it; F8_EINTERNAL is a wrong result. */
int mesh_rank_join(struct mesh_rank *rank); /* connects unless it is, joins both, registers */
int mesh_rank_join_gathers(struct mesh_rank *rank); /* the first part of that, which goes on */
int mesh_rank_seal(struct mesh_rank *rank);         /* the gather group, then the amax group */
int mesh_rank_rejoin(struct mesh_rank *rank);       /* both */
int mesh_rank_steps(struct mesh_rank *rank);        /* MESH_STEPS, each checked in full */
int mesh_rank_gather(struct mesh_rank *rank);       /* bucket 0, unchecked, and its release */
int mesh_rank_whole(struct mesh_rank *rank);        /* a precompute of the amax group */
void mesh_rank_close(struct mesh_rank *rank);       /* allowed twice */

/* Keeps the error text of a call that failed. */
int mesh_rank_note(struct mesh_rank *rank, int status);

#endif
