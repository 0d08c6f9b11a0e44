/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The trainer in f8ctl doctor: see doctor_gather.h. It does what any rank does, so that what it
 * measures and what fails is what a run would see. Its weights are raw: each bit is compared.
 */
#include "client/ctl/doctor_gather.h"

#include <stdlib.h>

#include "client/error.h"

#define RANKS        2
#define SMALL_ROUNDS 50
#define LARGE_ROUNDS 5
#define SMALL_WORDS  (GATHER_SMALL / sizeof(uint32_t))
#define LARGE_WORDS  (GATHER_LARGE / sizeof(uint32_t))

enum { SMALL, LARGE }; /* buckets, each of the weight of that number */

int gather_open(struct gather *gather, struct doctor *doctor)
{
    struct f8_connect_options options = {.socket = doctor->ctl->socket, .job = "f8ctl-doctor"};

    *gather = (struct gather){.doctor = doctor};
    return f8_connect(&options, &gather->client);
}

void gather_close(struct gather *gather)
{
    f8_close(gather->client);
    *gather = (struct gather){0};
}

/* For the daemon, to which 0 is its own deadline. */
static int64_t left(const struct gather *gather)
{
    int left_ms = doctor_left(gather->doctor);

    return left_ms > 0 ? left_ms : 1;
}

static int register_weights(struct gather *gather)
{
    struct f8_region *region;
    void *memory;
    int status = f8_region_alloc(gather->client, GATHER_SMALL + GATHER_LARGE, &region, &memory);

    if (status != F8_OK) {
        return status;
    }
    gather->words = memory;
    const struct f8_weight_desc weights[] = {{.name = "small",
                                                 .ndim = 1,
                                                 .shape = {RANKS * SMALL_WORDS},
                                                 .dtype = F8_F32,
                                                 .flavour = F8_RAW,
                                                 .region = region},
        {.name = "large",
            .ndim = 1,
            .shape = {RANKS * LARGE_WORDS},
            .dtype = F8_F32,
            .flavour = F8_RAW,
            .region = region,
            .offset = GATHER_SMALL}};
    const struct f8_bucket_desc buckets[] = {{.name = "small", .first = SMALL, .count = 1},
        {.name = "large", .first = LARGE, .count = 1}};
    return f8_register(gather->group, weights, 2, buckets, 2);
}

int gather_meet(struct gather *gather, const char *group, const uint8_t *id)
{
    struct f8_hosts hosts = {.id = id, .local_ranks = 1};
    struct f8_seal_options options = {0};
    int status =
        f8_group_join_hosts(gather->client, group, gather->rank, RANKS, &hosts, &gather->group);

    if (status == F8_OK) {
        status = register_weights(gather);
    }
    if (status != F8_OK) {
        return status;
    }
    options.deadline_ms = left(gather);
    return f8_seal(gather->group, &options);
}

/* Word `i` of what a rank gives in a round: each differs from its neighbours in all three. */
static uint32_t word_of(uint32_t rank, uint32_t round, size_t i)
{
    return ((uint32_t)i + 1) * 2654435761u + round * 40503u + rank * 0x10001u;
}

/* For the gather of that number. */
static void fill(const struct gather *gather, int bucket, uint32_t round)
{
    uint32_t *words = gather->words + (bucket == LARGE ? SMALL_WORDS : 0);
    size_t count = bucket == LARGE ? LARGE_WORDS : SMALL_WORDS;

    for (size_t i = 0; i < count; i++) {
        words[i] = word_of(gather->rank, round, i);
    }
}

static int compare_words(const struct gather *gather, const struct f8_view *view)
{
    const uint32_t *words = view->data;
    size_t count = view->shape[0] / RANKS;

    for (uint32_t rank = 0; rank < RANKS; rank++) {
        for (size_t i = 0; i < count; i++) {
            uint32_t want = word_of(rank, gather->round, i);
            if (words[rank * count + i] != want) {
                return error_set(F8_EIO,
                    "gather %u: word %zu of rank %u came as 0x%08x, but 0x%08x was sent",
                    gather->round, i, rank, words[rank * count + i], want);
            }
        }
    }
    return F8_OK;
}

/* Gathers what was filled, compares, and releases; gives the time of the gather alone. */
static int gather_once(struct gather *gather, int bucket, double *ret_ms)
{
    struct f8_view view;
    double begin, end;
    int status = f8_gather(gather->group, (uint32_t)bucket, left(gather), NULL);

    begin = doctor_clock();
    if (status == F8_OK) {
        /* the daemon's deadline comes first, which says what was missing */
        status = f8_post_gather(
            gather->group, (uint32_t)bucket, (int)left(gather) + 2000, &view, 1, NULL);
    }
    end = doctor_clock();
    if (status == F8_OK) {
        status = compare_words(gather, &view);
    }
    if (status == F8_OK) {
        status = f8_release(gather->group, (uint32_t)bucket, NULL);
    }
    gather->round++;
    *ret_ms = end - begin;
    return status;
}

static int compare_times(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int gather_small(struct gather *gather, double *ret_us)
{
    double times[SMALL_ROUNDS];
    int status = F8_OK;

    for (int i = 0; i < SMALL_ROUNDS && status == F8_OK; i++) {
        fill(gather, SMALL, gather->round);
        status = gather_once(gather, SMALL, &times[i]);
    }
    if (status == F8_OK) {
        qsort(times, SMALL_ROUNDS, sizeof(times[0]), compare_times);
        *ret_us = times[SMALL_ROUNDS / 2] * 1000;
    }
    return status;
}

/* A small gather first, for both to be ready; then the large one is timed. */
static int large_once(struct gather *gather, double *ret_ms)
{
    double small_ms;
    int status;

    fill(gather, SMALL, gather->round);
    fill(gather, LARGE, gather->round + 1);
    status = gather_once(gather, SMALL, &small_ms);
    return status == F8_OK ? gather_once(gather, LARGE, ret_ms) : status;
}

int gather_large(struct gather *gather, double *ret_gb_s)
{
    double times[LARGE_ROUNDS];
    int status = large_once(gather, &times[0]); /* it touches all pages; measured anew below */

    for (int i = 0; i < LARGE_ROUNDS && status == F8_OK; i++) {
        status = large_once(gather, &times[i]);
    }
    if (status == F8_OK) {
        qsort(times, LARGE_ROUNDS, sizeof(times[0]), compare_times);
        *ret_gb_s = (double)GATHER_LARGE / (times[LARGE_ROUNDS / 2] * 1e6);
    }
    return status;
}

void gather_part(struct gather *gather)
{
    double ms;

    fill(gather, SMALL, gather->round);
    (void)gather_once(gather, SMALL, &ms);
}
