/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ranks of one group, spread over the hosts of a test, or, to compare with, all on one of them.
 * They train a toy model of varied values and can keep every byte and scale that they gathered, so
 * that two runs can be held against one another. A rank is used by one thread at a time.
 */
#ifndef F8_HOST_RANKS_H
#define F8_HOST_RANKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "f8client.h"
#include "lib/test_hosts.h"

#define HOST_RANKS_MAX 8

/* The model and how it is trained; zeros where no comment gives another meaning are zeros. */
struct host_plan {
    const char *group; /* borrowed: from the test; NULL: "dp" */
    uint32_t world;
    bool dealt;                /* ranks go to the hosts in turn; otherwise each has a row of them */
    uint32_t buckets, weights; /* matrices a bucket; a raw norm beside each, unless it is `bare` */
    bool bare;
    uint32_t rows, cols; /* of each matrix, fp32 */
    enum f8_flavour flavour;
    bool precompute, sync, keep; /* in each step; keep what was gathered */
    struct f8_seal_options seal; /* slots 0: each bucket has a place of its own */
};

/* What is at odds, or breaks, needs no more: two buckets of two small dynamic weights on 4 ranks.
 */
extern const struct host_plan host_plan_small;

/* What has a state: as many delayed weights, synced in each step, and all that is gathered kept. */
extern const struct host_plan host_plan_delayed;

struct host_rank {
    const struct host_plan *plan; /* borrowed: from the ranks */
    const char *socket;           /* borrowed: from the daemon */
    struct f8_hosts hosts;        /* id NULL: the group is on one host */
    uint32_t number, host;
    uint32_t step;            /* of the next host_rank_step */
    int64_t deadline_ms;      /* of what it asks for; 0: the daemon's own */
    struct f8_client *client; /* owned; the group and region are its */
    struct f8_group *group;
    struct f8_region *region;
    float *shards;
    uint8_t *kept; /* owned: bytes and scales, in the order in which they were gathered */
    size_t kept_size, kept_capacity;
    int status; /* of the last host_ranks_all */
    char text[1024];
};

struct host_ranks {
    struct host_plan plan;
    struct test_hosts *on; /* borrowed: from the test */
    uint8_t id[F8_UNIQUE_ID_SIZE];
    struct host_rank ranks[HOST_RANKS_MAX];
};

/* Ranks over the first `num_hosts` hosts; over 1 it is a group of that host alone. No calls yet. */
void host_ranks_init(struct host_ranks *ranks, const struct host_plan *plan,
    struct test_hosts *hosts, uint32_t num_hosts);

/* A new unique id, of rank 0's daemon, for the next join or rejoin. */
void host_ranks_new_id(struct host_ranks *ranks);

/* What a rank does. All give a status, whose text is that of f8_error_text(). */
typedef int host_rank_call(struct host_rank *rank);

int host_rank_join(struct host_rank *rank); /* connects unless it is, joins and registers */
int host_rank_seal(struct host_rank *rank);
int host_rank_step(struct host_rank *rank);       /* new values, all of the plan */
int host_rank_gather(struct host_rank *rank);     /* bucket 0 and its release */
int host_rank_precompute(struct host_rank *rank); /* and waits for it */
int host_rank_rejoin(struct host_rank *rank);
int host_rank_rejoin_hosts(struct host_rank *rank); /* with the id that there is now */
int host_rank_close(struct host_rank *rank);        /* allowed twice */

/* The call on the ranks first .. end-1, each on a thread of its own. */
void host_ranks_all(struct host_ranks *ranks, uint32_t first, uint32_t end, host_rank_call *call);

/* The same, which must succeed. */
void host_ranks_must(struct host_ranks *ranks, uint32_t first, uint32_t end, host_rank_call *call);

/* That the last call on these ranks gave the status, and a text with `text` in it. */
void host_ranks_failed(
    const struct host_ranks *ranks, uint32_t first, uint32_t end, int status, const char *text);

/* Joins and seals all. */
void host_ranks_start(struct host_ranks *ranks);

/* Closes all, and forgets what was kept. */
void host_ranks_end(struct host_ranks *ranks);

/* That each rank kept the same as the same rank of the other run: every byte and scale. */
void host_ranks_same(const struct host_ranks *a, const struct host_ranks *b);

/* Bytes of the shards of float8 and norms that the ranks of a host give to each gather of all. */
uint64_t host_ranks_bytes(const struct host_ranks *ranks, uint32_t host);

#endif
