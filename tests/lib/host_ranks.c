/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of a group over hosts: see host_ranks.h. */
#include "lib/host_ranks.h"

#include <check.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol.h"

#define MAX_WEIGHTS 256 /* a bucket */

const struct host_plan host_plan_small = {.world = 4,
    .buckets = 2,
    .weights = 2,
    .rows = 17,
    .cols = 9,
    .flavour = F8_DYNAMIC,
    .seal.slots = 2};

const struct host_plan host_plan_delayed = {.world = 4,
    .buckets = 2,
    .weights = 2,
    .rows = 17,
    .cols = 9,
    .flavour = F8_DELAYED,
    .sync = true,
    .keep = true};

void host_ranks_init(struct host_ranks *ranks, const struct host_plan *plan,
    struct test_hosts *hosts, uint32_t num_hosts)
{
    ck_assert_uint_le(plan->world, HOST_RANKS_MAX);
    *ranks = (struct host_ranks){.plan = *plan, .on = hosts};
    for (uint32_t r = 0; r < plan->world; r++) {
        struct host_rank *rank = &ranks->ranks[r];
        rank->plan = &ranks->plan;
        rank->number = r;
        rank->host = plan->dealt ? r % num_hosts : r * num_hosts / plan->world;
        rank->socket = hosts->daemons[rank->host].socket;
        rank->hosts.id = num_hosts > 1 ? ranks->id : NULL;
    }
    for (uint32_t r = 0; r < plan->world; r++)
        for (uint32_t other = 0; other < plan->world; other++)
            ranks->ranks[r].hosts.local_ranks += ranks->ranks[other].host == ranks->ranks[r].host;
    if (num_hosts > 1)
        host_ranks_new_id(ranks);
}

void host_ranks_new_id(struct host_ranks *ranks)
{
    const struct f8_connect_options options = {.socket = ranks->ranks[0].socket, .job = "ids"};
    struct f8_client *client;
    ck_assert_msg(f8_connect(&options, &client) == F8_OK, "%s", f8_error_text());
    ck_assert_msg(f8_unique_id(client, ranks->id) == F8_OK, "%s", f8_error_text());
    f8_close(client);
}

/* ---- the model ---- */

/* Matrices come first in a bucket, then the norms. */
static uint32_t bucket_weights(const struct host_plan *plan)
{
    return plan->bare ? plan->weights : 2 * plan->weights;
}

static uint32_t num_weights(const struct host_plan *plan)
{
    return plan->buckets * bucket_weights(plan);
}

static bool is_norm(const struct host_plan *plan, uint32_t weight)
{
    return weight % bucket_weights(plan) >= plan->weights;
}

static uint32_t cols_of(const struct host_plan *plan, uint32_t weight)
{
    return is_norm(plan, weight) ? 1 : plan->cols;
}

static uint32_t chunk_rows(const struct host_plan *plan)
{
    return (uint32_t)f8_proto_chunk_rows(plan->rows, plan->world);
}

/* Where a rank's shard of a weight begins, in floats. */
static uint64_t shard_at(const struct host_plan *plan, uint32_t weight)
{
    uint64_t at = 0;
    for (uint32_t w = 0; w < weight; w++)
        at += (uint64_t)chunk_rows(plan) * cols_of(plan, w);
    return at;
}

/* Any sign, over some orders of magnitude, which change from step to step. */
static float value_of(uint32_t step, uint32_t weight, uint64_t i)
{
    uint32_t x = (step * 17 + weight) * 2654435761u + (uint32_t)i * 40503u;
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    x *= 3266489917u;
    x ^= x >> 16;
    return ldexpf((float)(int32_t)x * 0x1p-31f, (int)((weight + step * 7) % 9) - 4);
}

static void fill(struct host_rank *rank)
{
    const struct host_plan *plan = rank->plan;
    uint64_t begin = f8_proto_shard_begin(plan->rows, plan->world, rank->number);
    uint64_t rows = f8_proto_shard_rows(plan->rows, plan->world, rank->number);
    float *to = rank->shards;
    for (uint32_t w = 0; w < num_weights(plan); w++) {
        uint32_t cols = cols_of(plan, w);
        for (uint64_t i = 0; i < rows * cols; i++)
            to[i] = value_of(rank->step, w, begin * cols + i);
        to += (uint64_t)chunk_rows(plan) * cols;
    }
}

static int register_bucket(struct host_rank *rank, uint32_t bucket)
{
    const struct host_plan *plan = rank->plan;
    uint32_t count = bucket_weights(plan);
    struct f8_weight_desc weights[MAX_WEIGHTS];
    char names[MAX_WEIGHTS][32], name[32];
    for (uint32_t i = 0; i < count; i++) {
        uint32_t w = bucket * count + i;
        bool norm = is_norm(plan, w);
        (void)snprintf(
            names[i], sizeof(names[i]), "layers.%u.%s.%u", bucket, norm ? "norm" : "w", i);
        weights[i] = (struct f8_weight_desc){.name = names[i],
            .ndim = norm ? 1 : 2,
            .shape = {plan->rows, norm ? 0 : plan->cols},
            .dtype = F8_F32,
            .flavour = norm ? F8_RAW : plan->flavour,
            .format = F8_E4M3FN,
            .static_scale = plan->flavour == F8_STATIC ? 24.0F : 0.0F,
            .history_length = plan->flavour == F8_DELAYED && !norm ? 3 : 0,
            .region = rank->region,
            .offset = shard_at(plan, w) * sizeof(float)};
    }
    (void)snprintf(name, sizeof(name), "layers.%u", bucket);
    const struct f8_bucket_desc desc = {
        .name = name, .first = bucket * count, .count = count, .shared = plan->seal.slots > 0};
    return f8_register(rank->group, weights, count, &desc, 1);
}

/* ---- what a rank does ---- */

static int join(struct host_rank *rank)
{
    const char *name = rank->plan->group ? rank->plan->group : "dp";
    uint32_t world = rank->plan->world;
    if (!rank->hosts.id)
        return f8_group_join(rank->client, name, rank->number, world, &rank->group);
    return f8_group_join_hosts(rank->client, name, rank->number, world, &rank->hosts, &rank->group);
}

int host_rank_join(struct host_rank *rank)
{
    const struct f8_connect_options options = {.socket = rank->socket, .job = "run"};
    uint64_t size = shard_at(rank->plan, num_weights(rank->plan)) * sizeof(float);
    void *memory;
    int status = rank->client ? F8_OK : f8_connect(&options, &rank->client);
    if (status == F8_OK)
        status = join(rank);
    if (status == F8_OK)
        status = f8_region_alloc(rank->client, size, &rank->region, &memory);
    if (status != F8_OK)
        return status;
    rank->shards = memory;
    for (uint32_t b = 0; b < rank->plan->buckets && status == F8_OK; b++)
        status = register_bucket(rank, b);
    return status;
}

int host_rank_seal(struct host_rank *rank)
{
    return f8_seal(rank->group, &rank->plan->seal);
}

/* Puts bytes at the end of what the rank keeps. */
static int keep(struct host_rank *rank, const void *bytes, size_t size)
{
    if (rank->kept_size + size > rank->kept_capacity) {
        size_t capacity = 2 * (rank->kept_size + size);
        uint8_t *kept = realloc(rank->kept, capacity);
        if (!kept)
            return F8_ENOMEM;
        rank->kept = kept;
        rank->kept_capacity = capacity;
    }
    memcpy(rank->kept + rank->kept_size, bytes, size);
    rank->kept_size += size;
    return F8_OK;
}

static int keep_views(struct host_rank *rank, const struct f8_view *views)
{
    int status = F8_OK;
    for (uint32_t i = 0; i < bucket_weights(rank->plan) && status == F8_OK; i++) {
        if (views[i].scale)
            status = keep(rank, views[i].scale, sizeof(float));
        if (status == F8_OK)
            status = keep(rank, views[i].data, views[i].size);
    }
    return status;
}

/* Waits for a bucket, keeps it if the plan says so, and gives it back. */
static int take(struct host_rank *rank, uint32_t bucket)
{
    struct f8_view views[MAX_WEIGHTS];
    int status =
        f8_post_gather(rank->group, bucket, F8_FOREVER, views, bucket_weights(rank->plan), NULL);
    if (status == F8_OK && rank->plan->keep)
        status = keep_views(rank, views);
    return status == F8_OK ? f8_release(rank->group, bucket, NULL) : status;
}

int host_rank_gather(struct host_rank *rank)
{
    int status = f8_gather(rank->group, 0, rank->deadline_ms, NULL);
    return status == F8_OK ? take(rank, 0) : status;
}

int host_rank_precompute(struct host_rank *rank)
{
    f8_ticket ticket;
    int status = f8_precompute(rank->group, rank->deadline_ms, NULL, &ticket);
    return status == F8_OK ? f8_wait(rank->group, ticket, F8_FOREVER, NULL) : status;
}

static int sync(struct host_rank *rank)
{
    f8_ticket ticket;
    int status = f8_sync(rank->group, rank->deadline_ms, &ticket);
    return status == F8_OK ? f8_wait(rank->group, ticket, F8_FOREVER, NULL) : status;
}

/* Ahead by one bucket; in odd steps each is allowed to begin early. */
static int ask(struct host_rank *rank, uint32_t bucket)
{
    int status = rank->step % 2 == 1 ? f8_pre_gather(rank->group, bucket, NULL) : F8_OK;
    return status == F8_OK ? f8_gather(rank->group, bucket, rank->deadline_ms, NULL) : status;
}

int host_rank_step(struct host_rank *rank)
{
    const struct host_plan *plan = rank->plan;
    fill(rank);
    int status = f8_changed(rank->group, 0, num_weights(plan));
    if (status == F8_OK && plan->precompute)
        status = host_rank_precompute(rank);
    if (status == F8_OK)
        status = ask(rank, 0);
    for (uint32_t b = 0; b < plan->buckets && status == F8_OK; b++) {
        if (b + 1 < plan->buckets)
            status = ask(rank, b + 1);
        if (status == F8_OK)
            status = take(rank, b);
    }
    if (status == F8_OK && plan->sync)
        status = sync(rank);
    rank->step += status == F8_OK;
    return status;
}

int host_rank_rejoin(struct host_rank *rank)
{
    return f8_group_rejoin(rank->group);
}

int host_rank_rejoin_hosts(struct host_rank *rank)
{
    return f8_group_rejoin_hosts(rank->group, &rank->hosts);
}

int host_rank_close(struct host_rank *rank)
{
    f8_close(rank->client);
    rank->client = NULL;
    rank->group = NULL;
    return F8_OK;
}

/* ---- all of them ---- */

struct errand {
    struct host_rank *rank; /* borrowed: from the ranks */
    host_rank_call *call;
};

static void *run_errand(void *argument)
{
    const struct errand *errand = argument;
    struct host_rank *rank = errand->rank;
    rank->status = errand->call(rank);
    (void)snprintf(
        rank->text, sizeof(rank->text), "%s", rank->status == F8_OK ? "" : f8_error_text());
    return NULL;
}

void host_ranks_all(struct host_ranks *ranks, uint32_t first, uint32_t end, host_rank_call *call)
{
    pthread_t threads[HOST_RANKS_MAX];
    struct errand errands[HOST_RANKS_MAX];
    for (uint32_t r = first; r < end; r++) {
        errands[r] = (struct errand){.rank = &ranks->ranks[r], .call = call};
        ck_assert_int_eq(pthread_create(&threads[r], NULL, run_errand, &errands[r]), 0);
    }
    for (uint32_t r = first; r < end; r++)
        ck_assert_int_eq(pthread_join(threads[r], NULL), 0);
}

void host_ranks_must(struct host_ranks *ranks, uint32_t first, uint32_t end, host_rank_call *call)
{
    host_ranks_all(ranks, first, end, call);
    for (uint32_t r = first; r < end; r++)
        ck_assert_msg(ranks->ranks[r].status == F8_OK, "rank %u: %s: %s", r,
            f8_status_name(ranks->ranks[r].status), ranks->ranks[r].text);
}

void host_ranks_failed(
    const struct host_ranks *ranks, uint32_t first, uint32_t end, int status, const char *text)
{
    for (uint32_t r = first; r < end; r++) {
        const struct host_rank *rank = &ranks->ranks[r];
        ck_assert_msg(rank->status == status, "rank %u: %s, not %s: %s", r,
            f8_status_name(rank->status), f8_status_name(status), rank->text);
        ck_assert_msg(
            strstr(rank->text, text), "rank %u: \"%s\" lacks \"%s\"", r, rank->text, text);
    }
}

void host_ranks_start(struct host_ranks *ranks)
{
    host_ranks_must(ranks, 0, ranks->plan.world, host_rank_join);
    host_ranks_must(ranks, 0, ranks->plan.world, host_rank_seal);
}

void host_ranks_end(struct host_ranks *ranks)
{
    host_ranks_must(ranks, 0, ranks->plan.world, host_rank_close);
    for (uint32_t r = 0; r < ranks->plan.world; r++) {
        free(ranks->ranks[r].kept);
        ranks->ranks[r].kept = NULL;
        ranks->ranks[r].kept_size = ranks->ranks[r].kept_capacity = 0;
    }
}

void host_ranks_same(const struct host_ranks *a, const struct host_ranks *b)
{
    for (uint32_t r = 0; r < a->plan.world; r++) {
        const struct host_rank *x = &a->ranks[r], *y = &b->ranks[r];
        size_t at = 0;
        ck_assert_uint_gt(x->kept_size, 0);
        ck_assert_uint_eq(x->kept_size, y->kept_size);
        while (at < x->kept_size && x->kept[at] == y->kept[at])
            at++;
        ck_assert_msg(at == x->kept_size, "rank %u: byte %zu of %zu differs", r, at, x->kept_size);
    }
}

uint64_t host_ranks_bytes(const struct host_ranks *ranks, uint32_t host)
{
    const struct host_plan *plan = &ranks->plan;
    uint64_t bytes = 0;
    for (uint32_t r = 0; r < plan->world; r++) {
        uint64_t rows = f8_proto_shard_rows(plan->rows, plan->world, r);
        if (ranks->ranks[r].host == host)
            bytes += plan->buckets * plan->weights * rows * (plan->cols + (plan->bare ? 0 : 4));
    }
    return bytes;
}
