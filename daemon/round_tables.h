/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables of the state machine of round.h, private to round_tables.c, which makes them, round.c,
 * which changes them, and round_query.c, which reads them.
 */
#ifndef F8_DAEMON_ROUND_TABLES_H
#define F8_DAEMON_ROUND_TABLES_H

#include <assert.h>

#include "daemon/round.h"

/* What a rank has to do with a bucket. */
enum use {
    USE_NONE,
    USE_ASKED, /* its gather is open */
    USE_HELD,  /* gathered, not released */
};

/* The early part of a rank's gather of a bucket. */
enum early {
    EARLY_NONE,
    EARLY_RUNNING,
    EARLY_DONE,
};

/* An open collective; its tags are in tags[]. */
struct record {
    uint64_t opened, deadline;
    enum round_kind kind;
    uint32_t bucket;
    uint32_t first_rank; /* who asked first: the one that others are compared with */
    uint32_t joined;
};

struct rank {
    uint64_t next;        /* number of the next collective it will ask for */
    uint64_t quiesce_tag; /* 0: none */
    uint32_t slots_used;
    uint32_t early_running;
    bool present;
};

struct bucket {
    uint32_t place; /* of the present use */
    uint32_t early_running;
    bool shared;
};

struct place {
    uint32_t holders;
    bool cleaning;
};

/* One flat block: this head, then the arrays at the offsets that round_new laid out. */
struct rounds {
    const struct round_ops *ops; /* borrowed: static */
    void *context;               /* borrowed: ops' */
    size_t size;
    size_t records_at, tags_at, ranks_at, buckets_at, places_at, uses_at, earlies_at;
    uint32_t num_ranks, num_buckets, num_slots, depth;
    uint64_t head, tail; /* collectives head to tail - 1 are open */
    uint64_t completed;
    uint32_t early_running;
    uint32_t cleaning; /* places being cleaned */
    uint32_t held;     /* uses that are USE_HELD */
    bool running;
    bool paused; /* the head began, and waits for another group */
    bool later;  /* the head could begin but for another group */
    bool sealed;
    bool broken;
    bool going_on; /* broken by a death: what was complete before it still runs */
    int failure;   /* status of the first cause */
};

static inline struct record *record_at(const struct rounds *rounds, uint64_t number)
{
    return (struct record *)((char *)rounds + rounds->records_at) + number % rounds->depth;
}

static inline uint64_t *tag_at(const struct rounds *rounds, uint64_t number, uint32_t rank)
{
    return (uint64_t *)((char *)rounds + rounds->tags_at) +
           number % rounds->depth * rounds->num_ranks + rank;
}

static inline struct rank *rank_at(const struct rounds *rounds, uint32_t rank)
{
    assert(rank < rounds->num_ranks);
    return (struct rank *)((char *)rounds + rounds->ranks_at) + rank;
}

static inline struct bucket *bucket_at(const struct rounds *rounds, uint32_t bucket)
{
    assert(bucket < rounds->num_buckets);
    return (struct bucket *)((char *)rounds + rounds->buckets_at) + bucket;
}

static inline struct place *place_at(const struct rounds *rounds, uint32_t place)
{
    assert(place < rounds->num_slots + rounds->num_buckets);
    return (struct place *)((char *)rounds + rounds->places_at) + place;
}

/* An enum use. */
static inline uint8_t *use_at(const struct rounds *rounds, uint32_t rank, uint32_t bucket)
{
    assert(rank < rounds->num_ranks && bucket < rounds->num_buckets);
    return (uint8_t *)rounds + rounds->uses_at + (size_t)bucket * rounds->num_ranks + rank;
}

/* An enum early. */
static inline uint8_t *early_at(const struct rounds *rounds, uint32_t rank, uint32_t bucket)
{
    assert(rank < rounds->num_ranks && bucket < rounds->num_buckets);
    return (uint8_t *)rounds + rounds->earlies_at + (size_t)bucket * rounds->num_ranks + rank;
}

/* An open collective as the ops see it. */
static inline struct round_run run_of(const struct rounds *rounds, uint64_t number)
{
    const struct record *record = record_at(rounds, number);
    bool gather = record->kind == ROUND_GATHER;
    return (struct round_run){
        .number = number,
        .kind = record->kind,
        .bucket = record->bucket,
        .place = gather ? bucket_at(rounds, record->bucket)->place : ROUND_NO_PLACE,
    };
}

/* Whether the head has all its ranks and waits for early parts of its gather. */
static inline bool head_awaits_early(const struct rounds *rounds)
{
    if (rounds->head == rounds->tail)
        return false;
    const struct record *record = record_at(rounds, rounds->head);
    return record->joined == rounds->num_ranks && record->kind == ROUND_GATHER &&
           bucket_at(rounds, record->bucket)->early_running > 0;
}

/*
 * Whether an open collective is held to its deadline now: not while it runs or waits for early
 * parts, which is our own work too, and not while it is complete and merely follows such a one.
 */
static inline bool round_is_timed(const struct rounds *rounds, uint64_t number)
{
    if (!rounds->running && !head_awaits_early(rounds))
        return true;
    return number != rounds->head && record_at(rounds, number)->joined < rounds->num_ranks;
}

#endif
