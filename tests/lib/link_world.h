/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A world for the daemon's collectives, registry and rounds, as they are, that a test can save
 * and go back to: all that they allocate lies in one heap, the clock stands, timers and the
 * backend do nothing until they are told. One world per process, on its only thread.
 */
#ifndef F8_TESTS_LINK_WORLD_H
#define F8_TESTS_LINK_WORLD_H

#include "daemon/collective_private.h"

#define LINK_RANKS    3
#define LINK_GROUPS   3
#define LINK_BUCKETS  2
#define LINK_WORKS    32
#define LINK_TIMERS   16
#define LINK_SHARD    64 /* bytes that a shard may have */
#define LINK_SESSIONS 3  /* lives of a rank */

struct link_timer {
    uv_timer_t *handle; /* borrowed: the collective's */
    uv_timer_cb expired;
    uint64_t due;
    bool active;
};

/* What the model is told. */
struct link_hooks {
    const struct collective_listener *listener; /* borrowed: static */
    void (*submitted)(const struct backend_work *work);
    uint32_t (*amax)(uint32_t rank, uint32_t group, uint32_t bucket);
};

/* What lies outside the heap. */
struct link_world {
    struct collective_context context;
    struct registry *registry;                     /* owned */
    struct job *job;                               /* owned by the registry */
    struct group *groups[LINK_GROUPS];             /* owned by the job; NULL: not made, or freed */
    struct backend_work *works[LINK_WORKS];        /* borrowed: in flight */
    struct backend_reserve *reserves[LINK_GROUPS]; /* borrowed: in flight */
    struct link_timer timers[LINK_TIMERS];
    uint64_t now;
    uint32_t num_works, num_reserves;
    size_t heap_used;
};
extern struct link_world world;

/* An empty world with a job. */
void world_begin(const struct link_hooks *hooks);

/* Bytes that world_save writes now. */
size_t world_size(void);
void world_save(uint8_t *to);
void world_restore(const uint8_t *from);

/* Whom a rank is for a session, in its n-th life. */
void *world_session(uint32_t rank, uint32_t life);
uint32_t world_rank_of(const void *session);

/* The memory of a rank's shard of the one weight of a bucket. */
struct region *world_region(uint32_t rank);
uint64_t world_offset(uint32_t group, uint32_t bucket);

/* Where a task reads. */
void world_place_of(const void *src, uint32_t *ret_rank, uint32_t *ret_group, uint32_t *ret_bucket);

/* Work i of those in flight ends. */
void world_end_work(uint32_t i);
void world_end_reserve(uint32_t i, int status);

/* The timer of a group, or NULL if it is not running; expiring it moves the clock to its time. */
struct link_timer *world_timer(const struct group *group);
void world_expire(struct link_timer *timer);

#endif
