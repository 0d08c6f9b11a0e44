/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A mini trainer: see ranks.h. All values are powers of two up to 64, so the scales are known
 * (448 / 64 for the dynamic ones) and every cast is exact: the check needs no rounding.
 */
#include "lib/ranks.h"

#include <check.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol.h"

enum { ROWS = 13, COLS = 8 };

#define STATIC_SCALE  2.0F
#define DYNAMIC_SCALE 7.0F
#define MOST_RANKS    16

static const char *const bucket_names[RANK_BUCKETS] = {"embed", "layers.0", "layers.1", "layers.2"};
static const char *const weight_names[RANK_WEIGHTS] = {"embed.weight", "embed.norm",
    "layers.0.weight", "layers.0.norm", "layers.1.weight", "layers.1.norm", "layers.2.weight",
    "layers.2.norm"};

struct outcome outcome_of(int status)
{
    struct outcome outcome = {.status = status};
    if (status != F8_OK)
        (void)snprintf(outcome.text, sizeof(outcome.text), "%s", f8_error_text());
    return outcome;
}

static void must(int status, const char *call)
{
    ck_assert_msg(status == F8_OK, "%s: %s: %s", call, f8_status_name(status), f8_error_text());
}

/* Columns of weight `weight`: matrices have COLS, norms one. */
static uint32_t cols_of(uint32_t weight)
{
    return weight % BUCKET_WEIGHTS == 0 ? COLS : 1;
}

static float value_of(uint32_t weight, uint32_t row, uint32_t col)
{
    uint32_t i = row * cols_of(weight) + col + weight;
    return ldexpf(i % 2 ? -1.0F : 1.0F, (int)(i % 7));
}

static uint32_t chunk_rows(const struct rank *rank)
{
    return (uint32_t)f8_proto_chunk_rows(ROWS, rank->world_size);
}

/* Where the rank's shard of a weight begins, in elements. */
static uint32_t shard_at(const struct rank *rank, uint32_t weight)
{
    uint32_t at = 0;
    for (uint32_t w = 0; w < weight; w++)
        at += chunk_rows(rank) * cols_of(w);
    return at;
}

void rank_weights(const struct rank *rank, struct f8_weight_desc weights[RANK_WEIGHTS])
{
    for (uint32_t w = 0; w < RANK_WEIGHTS; w++) {
        bool norm = w % BUCKET_WEIGHTS != 0;
        bool embed = w / BUCKET_WEIGHTS == EMBED;
        weights[w] = (struct f8_weight_desc){
            .name = weight_names[w],
            .ndim = norm ? 1 : 2,
            .shape = {ROWS, norm ? 0 : COLS},
            .dtype = F8_F32,
            .flavour = norm    ? F8_RAW
                       : embed ? F8_STATIC
                               : F8_DYNAMIC,
            .format = embed ? F8_E5M2 : F8_E4M3FN,
            .static_scale = embed && !norm ? STATIC_SCALE : 0,
            .region = rank->region,
            .offset = shard_at(rank, w) * sizeof(float),
        };
    }
}

void rank_buckets(struct f8_bucket_desc buckets[RANK_BUCKETS])
{
    for (uint32_t b = 0; b < RANK_BUCKETS; b++)
        buckets[b] = (struct f8_bucket_desc){.name = bucket_names[b],
            .first = b * BUCKET_WEIGHTS,
            .count = BUCKET_WEIGHTS,
            .shared = b != EMBED};
}

void rank_connect(struct rank *rank, const char *socket)
{
    *rank = (struct rank){0};
    const struct f8_connect_options options = {.socket = socket, .job = "run"};
    must(f8_connect(&options, &rank->client), "f8_connect");
}

void rank_join(struct rank *rank, uint32_t number, uint32_t world_size)
{
    void *memory;
    rank->number = number;
    rank->world_size = world_size;
    must(f8_group_join(rank->client, "dp", number, world_size, &rank->group), "f8_group_join");
    size_t size = shard_at(rank, RANK_WEIGHTS) * sizeof(float);
    must(f8_region_alloc(rank->client, size, &rank->region, &memory), "f8_region_alloc");
    rank->memory = memory;
    rank_fill(rank);
}

void rank_register(struct rank *rank)
{
    struct f8_weight_desc weights[RANK_WEIGHTS];
    struct f8_bucket_desc buckets[RANK_BUCKETS];
    rank_weights(rank, weights);
    rank_buckets(buckets);
    must(f8_register(rank->group, weights, RANK_WEIGHTS, buckets, RANK_BUCKETS), "f8_register");
}

void rank_close(struct rank *rank)
{
    f8_close(rank->client);
    rank->client = NULL;
}

int rank_seal(struct rank *rank)
{
    return f8_seal(rank->group, &(struct f8_seal_options){.slots = RANK_SLOTS});
}

void rank_fill(struct rank *rank)
{
    uint32_t begin = (uint32_t)f8_proto_shard_begin(ROWS, rank->world_size, rank->number);
    uint32_t rows = (uint32_t)f8_proto_shard_rows(ROWS, rank->world_size, rank->number);
    for (uint32_t w = 0; w < RANK_WEIGHTS; w++)
        for (uint32_t r = 0; r < rows; r++)
            for (uint32_t c = 0; c < cols_of(w); c++)
                rank->memory[shard_at(rank, w) + r * cols_of(w) + c] = value_of(w, begin + r, c);
}

/* A float8 code as a number, for codes that are finite. */
static float decode(uint8_t code, int mantissa_bits, int bias)
{
    int exponent = (code & 0x7F) >> mantissa_bits;
    int mantissa = code & ((1 << mantissa_bits) - 1);
    int whole = exponent ? mantissa | 1 << mantissa_bits : mantissa;
    float magnitude = ldexpf((float)whole, (exponent ? exponent : 1) - bias - mantissa_bits);
    return code & 0x80 ? -magnitude : magnitude;
}

/* Element `i` of a view as it was before the cast. */
static float element(const struct f8_view *view, uint32_t i)
{
    const uint8_t *codes = view->data;
    if (view->wire == F8_WIRE_E4M3FN)
        return decode(codes[i], 3, 7) / *view->scale;
    if (view->wire == F8_WIRE_E5M2)
        return decode(codes[i], 2, 15) / *view->scale;
    return ((const float *)view->data)[i];
}

static bool right_view(const struct f8_view *view, uint32_t weight)
{
    float scale = weight / BUCKET_WEIGHTS == EMBED ? STATIC_SCALE : DYNAMIC_SCALE;
    if (view->weight != weight || (view->scale && *view->scale != scale))
        return false;
    for (uint32_t r = 0; r < ROWS; r++)
        for (uint32_t c = 0; c < cols_of(weight); c++)
            if (element(view, r * cols_of(weight) + c) != value_of(weight, r, c))
                return false;
    return true;
}

int rank_check(const struct rank *rank, uint32_t bucket)
{
    for (uint32_t i = 0; i < BUCKET_WEIGHTS; i++)
        if (!right_view(&rank->views[bucket][i], bucket * BUCKET_WEIGHTS + i))
            return WRONG_BYTES;
    return F8_OK;
}

int rank_gather(struct rank *rank, uint32_t bucket, int64_t deadline_ms)
{
    int status = f8_gather(rank->group, bucket, deadline_ms, NULL);
    if (status != F8_OK)
        return status;
    return f8_post_gather(
        rank->group, bucket, F8_FOREVER, rank->views[bucket], BUCKET_WEIGHTS, NULL);
}

static int use_bucket(struct rank *rank, uint32_t bucket)
{
    int status = F8_OK;
    if (bucket + 1 < RANK_BUCKETS)
        status = f8_gather(rank->group, bucket + 1, F8_DEFAULT_DEADLINE, NULL);
    if (status == F8_OK)
        status = f8_post_gather(
            rank->group, bucket, F8_FOREVER, rank->views[bucket], BUCKET_WEIGHTS, NULL);
    if (status == F8_OK)
        status = rank_check(rank, bucket);
    if (status == F8_OK)
        status = f8_release(rank->group, bucket, NULL);
    return status;
}

int rank_step(struct rank *rank)
{
    f8_ticket ticket;
    rank_fill(rank);
    int status = f8_changed(rank->group, 0, RANK_WEIGHTS);
    if (status == F8_OK)
        status = f8_precompute(rank->group, F8_DEFAULT_DEADLINE, NULL, &ticket);
    if (status == F8_OK)
        status = f8_wait(rank->group, ticket, F8_FOREVER, NULL);
    if (status == F8_OK)
        status = f8_gather(rank->group, EMBED, F8_DEFAULT_DEADLINE, NULL);
    for (uint32_t b = 0; b < RANK_BUCKETS && status == F8_OK; b++)
        status = use_bucket(rank, b);
    return status;
}

void rank_settle(struct rank *rank)
{
    struct f8_region *region;
    void *memory;
    must(f8_region_alloc(rank->client, 1, &region, &memory), "f8_region_alloc");
    must(f8_region_free(region), "f8_region_free");
}

/* A rank's call on its thread. */
struct errand {
    struct rank *rank; /* borrowed: from the caller */
    int (*call)(struct rank *rank);
};

static void *run_errand(void *argument)
{
    struct errand *errand = argument;
    errand->rank->outcome = outcome_of(errand->call(errand->rank));
    return NULL;
}

void ranks_all(struct rank *ranks, uint32_t count, int (*call)(struct rank *rank))
{
    pthread_t threads[MOST_RANKS];
    struct errand errands[MOST_RANKS];
    ck_assert_uint_le(count, MOST_RANKS);
    for (uint32_t r = 0; r < count; r++) {
        errands[r] = (struct errand){.rank = &ranks[r], .call = call};
        ck_assert_int_eq(pthread_create(&threads[r], NULL, run_errand, &errands[r]), 0);
    }
    for (uint32_t r = 0; r < count; r++)
        ck_assert_int_eq(pthread_join(threads[r], NULL), 0);
}

void ranks_must(struct rank *ranks, uint32_t count, int (*call)(struct rank *rank))
{
    ranks_all(ranks, count, call);
    for (uint32_t r = 0; r < count; r++)
        ck_assert_msg(ranks[r].outcome.status == F8_OK, "rank %u: status %d: %s", ranks[r].number,
            ranks[r].outcome.status, ranks[r].outcome.text);
}

void ranks_start(struct rank *ranks, uint32_t count, const char *socket)
{
    for (uint32_t r = 0; r < count; r++) {
        rank_connect(&ranks[r], socket);
        rank_join(&ranks[r], r, count);
        rank_register(&ranks[r]);
    }
    ranks_must(ranks, count, rank_seal);
}
