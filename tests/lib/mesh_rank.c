/* SPDX-License-Identifier: Apache-2.0 */
/* A rank of a data x tensor parallel mesh: see mesh_rank.h. */
#include "lib/mesh_rank.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "lib/device_memory.h"

#define REGION_FLOATS (MESH_WEIGHTS * WEIGHT_AT)
#define WEIGHT_AT     512 /* floats from one weight's shard to the next */
#define MAX_PART      512

/* The full weights: by rows and by columns over the tensor parallel parts. */
static const struct {
    const char *name;
    uint32_t rows, cols;
    bool by_cols;
    bool own; /* its amax is that of the part */
} weights[MESH_WEIGHTS] = {
    {"qkv", 23, 5, false, false}, {"out", 13, 10, true, false}, {"gate", 17, 4, false, true}};

/* The first weight of each, and of the end. */
static const uint32_t bucket_first[MESH_BUCKETS + 1] = {0, 1, MESH_WEIGHTS};

static uint32_t num_weights(const struct mesh_plan *plan)
{
    return plan->own ? MESH_WEIGHTS : MESH_WEIGHTS - 1;
}

static uint32_t bucket_count(const struct mesh_plan *plan, uint32_t bucket)
{
    uint32_t end = bucket_first[bucket + 1];
    return (end < num_weights(plan) ? end : num_weights(plan)) - bucket_first[bucket];
}

struct range {
    uint32_t begin, end;
};

/* As torch.chunk cuts `count` into `parts`. */
static struct range cut(uint32_t count, uint32_t parts, uint32_t part)
{
    uint32_t chunk = (count + parts - 1) / parts;
    struct range range = {chunk * part, chunk * part + chunk};
    range.begin = range.begin < count ? range.begin : count;
    range.end = range.end < count ? range.end : count;
    return range;
}

/* What the rank's gather group gathers of a weight: rows and columns of the full one. */
struct part {
    struct range rows, cols;
};

static struct part part_of(const struct mesh_rank *rank, uint32_t w)
{
    uint32_t tp = rank->plan.tp, index = rank->number / rank->plan.dp;
    struct part part = {{0, weights[w].rows}, {0, weights[w].cols}};
    if (weights[w].by_cols)
        part.cols = cut(weights[w].cols, tp, index);
    else
        part.rows = cut(weights[w].rows, tp, index);
    return part;
}

/* Element of the full weight in a step: any sign, over some orders of magnitude. */
static float value_of(const struct mesh_plan *plan, uint32_t step, uint32_t w, uint32_t i)
{
    uint32_t x = (plan->seed * 131 + step * 17 + w) * 2654435761u + i * 40503u;
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    x *= 3266489917u;
    x ^= x >> 16;
    return ldexpf((float)(int32_t)x * 0x1p-31f, (int)((plan->seed + step * 7) % 9) - 4);
}

static float element(
    const struct mesh_plan *plan, uint32_t step, uint32_t w, uint32_t row, uint32_t col)
{
    return value_of(plan, step, w, row * weights[w].cols + col);
}

/* Over all that the weight's scale follows from: the full weight, or this rank's part. */
static double amax_of(const struct mesh_rank *rank, uint32_t step, uint32_t w)
{
    struct part over = {{0, weights[w].rows}, {0, weights[w].cols}};
    double amax = 0;
    if (weights[w].own)
        over = part_of(rank, w);
    for (uint32_t row = over.rows.begin; row < over.rows.end; row++)
        for (uint32_t col = over.cols.begin; col < over.cols.end; col++)
            amax = fmax(amax, fabs((double)element(&rank->plan, step, w, row, col)));
    return amax;
}

/* The scale that the gather of a step must use. */
static float expected_scale(const struct mesh_rank *rank, uint32_t step, uint32_t w)
{
    double amax = amax_of(rank, step, w);
    if (rank->plan.mode == MESH_DELAYED) {
        /* Slots of the syncs so far, and the seed, which is of step 0. */
        amax = step < MESH_HISTORY ? amax_of(rank, 0, w) : 0;
        for (uint32_t s = step < MESH_HISTORY ? 0 : step - MESH_HISTORY; s < step; s++)
            amax = fmax(amax, amax_of(rank, s, w));
    }
    return (float)(448.0 / amax);
}

int mesh_rank_note(struct mesh_rank *rank, int status)
{
    if (status != F8_OK)
        (void)snprintf(rank->text, sizeof(rank->text), "%s", f8_error_text());
    return status;
}

static int join(struct mesh_rank *rank, const char *name, uint32_t number, uint32_t world_size,
    const struct f8_hosts *over, struct f8_group **ret_group)
{
    return over ? f8_group_join_hosts(rank->client, name, number, world_size, over, ret_group)
                : f8_group_join(rank->client, name, number, world_size, ret_group);
}

static int open_client(struct mesh_rank *rank)
{
    const struct f8_connect_options options = {.socket = rank->plan.socket, .job = rank->plan.job};
    int status = F8_OK;
    if (!rank->client) {
        status = f8_connect(&options, &rank->client);
        if (status == F8_OK)
            status = device_memory_open(rank->client, rank->number, &rank->memory);
        rank->stream = device_memory_stream(rank->memory);
    }
    return status;
}

int mesh_rank_join_gathers(struct mesh_rank *rank)
{
    const struct mesh_plan *plan = &rank->plan;
    char name[48];
    (void)snprintf(name, sizeof(name), "dp@tp=%u", rank->number / plan->dp);
    if (plan->replica > 0)
        (void)snprintf(name, sizeof(name), "dp@rep=%u", plan->replica);
    int status = open_client(rank);
    if (status == F8_OK)
        status =
            join(rank, name, rank->number % plan->dp, plan->dp, plan->gathers_over, &rank->gathers);
    rank->half_joined = status == F8_OK;
    return mesh_rank_note(rank, status);
}

static int join_groups(struct mesh_rank *rank)
{
    const struct mesh_plan *plan = &rank->plan;
    char mesh[32] = "mesh";
    void *memory;
    if (plan->replica > 0)
        (void)snprintf(mesh, sizeof(mesh), "mesh@rep=%u", plan->replica);
    int status = rank->half_joined ? F8_OK : mesh_rank_join_gathers(rank);
    rank->half_joined = false;
    if (status == F8_OK && plan->alone)
        status = join(rank, mesh, 0, 1, NULL, &rank->mesh);
    else if (status == F8_OK)
        status = join(rank, mesh, rank->number, plan->dp * plan->tp, plan->mesh_over, &rank->mesh);
    if (status == F8_OK)
        status = device_memory_alloc(
            rank->memory, rank->client, REGION_FLOATS * sizeof(float), &rank->region, &memory);
    if (status == F8_OK)
        rank->shards = memory;
    return status;
}

static struct f8_weight_desc describe(const struct mesh_rank *rank, uint32_t w)
{
    struct part part = part_of(rank, w);
    bool delayed = rank->plan.mode == MESH_DELAYED;
    return (struct f8_weight_desc){.name = weights[w].name,
        .ndim = 2,
        .shape = {part.rows.end - part.rows.begin, part.cols.end - part.cols.begin},
        .dtype = F8_F32,
        .flavour = delayed ? F8_DELAYED : F8_DYNAMIC,
        .format = F8_E4M3FN,
        .history_length = delayed ? MESH_HISTORY : 0,
        .amax_group = weights[w].own ? NULL : rank->mesh,
        .region = rank->region,
        .offset = w * WEIGHT_AT * sizeof(float)};
}

int mesh_rank_join(struct mesh_rank *rank)
{
    static const char *const names[MESH_BUCKETS] = {"b0", "b1"};
    struct f8_weight_desc descs[MESH_WEIGHTS];
    struct f8_bucket_desc buckets[MESH_BUCKETS];
    uint32_t count = num_weights(&rank->plan);
    int status = join_groups(rank);
    for (uint32_t w = 0; w < count; w++)
        descs[w] = describe(rank, w);
    for (uint32_t b = 0; b < MESH_BUCKETS; b++)
        buckets[b] =
            (struct f8_bucket_desc){names[b], bucket_first[b], bucket_count(&rank->plan, b), 0};
    if (status == F8_OK)
        status = f8_register(rank->gathers, descs, count, buckets, MESH_BUCKETS);
    return mesh_rank_note(rank, status);
}

int mesh_rank_seal(struct mesh_rank *rank)
{
    int status = f8_seal(rank->gathers, NULL);
    if (status == F8_OK)
        status = f8_seal(rank->mesh, NULL);
    return mesh_rank_note(rank, status);
}

static int rejoin(struct f8_group *group, const struct f8_hosts *over)
{
    return over ? f8_group_rejoin_hosts(group, over) : f8_group_rejoin(group);
}

int mesh_rank_rejoin(struct mesh_rank *rank)
{
    int status = rejoin(rank->gathers, rank->plan.gathers_over);
    if (status == F8_OK)
        status = rejoin(rank->mesh, rank->plan.mesh_over);
    return mesh_rank_note(rank, status);
}

static int fill(struct mesh_rank *rank, uint32_t step)
{
    for (uint32_t w = 0; w < num_weights(&rank->plan); w++) {
        struct part part = part_of(rank, w);
        float *shard = rank->shards + w * WEIGHT_AT;
        struct range own =
            cut(part.rows.end - part.rows.begin, rank->plan.dp, rank->number % rank->plan.dp);
        for (uint32_t row = own.begin; row < own.end; row++)
            for (uint32_t col = part.cols.begin; col < part.cols.end; col++)
                *shard++ = element(&rank->plan, step, w, part.rows.begin + row, col);
    }
    return mesh_rank_note(
        rank, device_memory_put(rank->memory, rank->shards, REGION_FLOATS * sizeof(float)));
}

/* The gathered part against the full weight, cast by the specification. */
static int check(struct mesh_rank *rank, uint32_t step, uint32_t w, const struct f8_view *view)
{
    struct part part = part_of(rank, w);
    float values[MAX_PART], scale = expected_scale(rank, step, w);
    uint8_t codes[MAX_PART];
    struct f8k_counts counts = {0};
    size_t count = 0;
    for (uint32_t row = part.rows.begin; row < part.rows.end; row++)
        for (uint32_t col = part.cols.begin; col < part.cols.end; col++)
            values[count++] = element(&rank->plan, step, w, row, col);
    struct f8k_cast cast = {.src = values,
        .dst = codes,
        .count = count,
        .scale = scale,
        .dtype = F8K_F32,
        .format = F8K_E4M3FN};
    f8k_variant(0)->cast(&cast, &counts);
    if (memcmp(view->scale, &scale, sizeof(scale)) == 0 && view->size == count &&
        memcmp(view->data, codes, count) == 0)
        return F8_OK;
    (void)snprintf(rank->text, sizeof(rank->text), "step %u, %s: scale %a, not %a, or wrong bytes",
        step, weights[w].name, (double)*view->scale, (double)scale);
    return F8_EINTERNAL;
}

static int gather(struct mesh_rank *rank, uint32_t step, uint32_t bucket)
{
    struct f8_view views[MESH_WEIGHTS];
    uint32_t first = bucket_first[bucket], count = bucket_count(&rank->plan, bucket);
    int status = step % 2 == 1 ? f8_pre_gather(rank->gathers, bucket, rank->stream) : F8_OK;
    if (status == F8_OK)
        status = f8_gather(rank->gathers, bucket, 0, rank->stream);
    if (status == F8_OK)
        status = f8_post_gather(rank->gathers, bucket, F8_FOREVER, views, count, rank->stream);
    if (status == F8_OK)
        status = device_memory_see_all(rank->memory, views, count);
    if (mesh_rank_note(rank, status) != F8_OK)
        return status;
    for (uint32_t i = 0; i < count && status == F8_OK; i++)
        status = check(rank, step, first + i, &views[i]);
    return status == F8_OK ? mesh_rank_note(rank, f8_release(rank->gathers, bucket, rank->stream))
                           : status;
}

int mesh_rank_gather(struct mesh_rank *rank)
{
    int status = f8_gather(rank->gathers, 0, 0, rank->stream);
    if (status == F8_OK)
        status = f8_post_gather(rank->gathers, 0, F8_FOREVER, NULL, 0, rank->stream);
    if (status == F8_OK)
        status = f8_release(rank->gathers, 0, rank->stream);
    return mesh_rank_note(rank, status);
}

typedef int collective_fn(struct f8_group *group, void *stream, f8_ticket *ret_ticket);

static int precompute(struct f8_group *group, void *stream, f8_ticket *ret_ticket)
{
    return f8_precompute(group, 0, stream, ret_ticket);
}

static int sync(struct f8_group *group, void *stream, f8_ticket *ret_ticket)
{
    (void)stream;
    return f8_sync(group, 0, ret_ticket);
}

static int whole(struct mesh_rank *rank, struct f8_group *group, collective_fn *collective)
{
    f8_ticket ticket;
    int status = collective(group, rank->stream, &ticket);
    if (status == F8_OK)
        status = f8_wait(group, ticket, F8_FOREVER, rank->stream);
    return mesh_rank_note(rank, status);
}

int mesh_rank_whole(struct mesh_rank *rank)
{
    return whole(rank, rank->mesh, precompute);
}

/* Of the amax group, and of the gather group if that has amaxes of its own. */
static int whole_of_both(struct mesh_rank *rank, collective_fn *collective)
{
    int status = whole(rank, rank->mesh, collective);
    return status == F8_OK && rank->plan.own ? whole(rank, rank->gathers, collective) : status;
}

static int run_step(struct mesh_rank *rank, uint32_t step)
{
    int status = fill(rank, step);
    if (status == F8_OK)
        status = mesh_rank_note(rank, f8_changed(rank->gathers, 0, num_weights(&rank->plan)));
    if (status == F8_OK && rank->plan.mode == MESH_PRECOMPUTE)
        status = whole_of_both(rank, precompute);
    for (uint32_t b = 0; b < MESH_BUCKETS && status == F8_OK; b++)
        status = gather(rank, step, b);
    if (status == F8_OK && rank->plan.mode == MESH_DELAYED)
        status = whole_of_both(rank, sync);
    return status;
}

int mesh_rank_steps(struct mesh_rank *rank)
{
    int status = F8_OK;
    uint32_t first = rank->plan.first;
    for (uint32_t step = first; step < first + MESH_STEPS && status == F8_OK; step++)
        status = run_step(rank, step);
    return status;
}

void mesh_rank_close(struct mesh_rank *rank)
{
    f8_close(rank->client);
    device_memory_close(rank->memory);
    rank->client = NULL;
    rank->memory = NULL;
    rank->half_joined = false;
}
