/* SPDX-License-Identifier: Apache-2.0 */
/* A rank of a toy model: see toy_rank.h. */
#include "tests/lib/toy_rank.h"

#include <stdio.h>
#include <stdlib.h>

static int say(const struct toy_rank *toy, int status, const char *call)
{
    if (status != F8_OK && !toy->job.quiet)
        (void)fprintf(stderr, "%s: %s: %s\n", call, f8_status_name(status), f8_error_text());
    return status;
}

static uint64_t chunk_rows(const struct toy_job *job)
{
    return (job->rows + job->ranks - 1) / job->ranks;
}

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + 4095) / 4096 * 4096;
}

uint64_t toy_place_bytes(const struct toy_job *job)
{
    uint64_t weight = aligned(chunk_rows(job) * job->ranks * job->cols);
    return job->weights * weight + aligned(job->weights * sizeof(float));
}

uint64_t toy_arena_bytes(const struct toy_job *job)
{
    return toy_place_bytes(job) * (job->slots ? job->slots : job->buckets);
}

uint64_t toy_model_bytes(const struct toy_job *job)
{
    return (uint64_t)job->buckets * job->weights * job->rows * job->cols;
}

int toy_rank_join(struct toy_rank *toy, const struct toy_job *job, uint32_t rank)
{
    const struct f8_connect_options options = {.socket = job->socket, .job = job->name};
    *toy = (struct toy_rank){.job = *job, .rank = rank};
    toy->views = calloc(job->weights, sizeof(*toy->views));
    if (!toy->views)
        return F8_ENOMEM;
    int status = say(toy, f8_connect(&options, &toy->client), "f8_connect");
    if (status != F8_OK)
        return status;
    const char *group = job->group ? job->group : "dp";
    return say(
        toy, f8_group_join(toy->client, group, rank, job->ranks, &toy->group), "f8_group_join");
}

/* Every rank gets the same lists; a shard is a whole chunk, though its last rows may not count. */
static int register_lists(
    struct toy_rank *toy, struct f8_weight_desc *weights, struct f8_bucket_desc *buckets)
{
    const struct toy_job *job = &toy->job;
    uint32_t num_weights = job->buckets * job->weights;
    char(*names)[48] = calloc(num_weights + job->buckets, sizeof(*names));
    if (!names)
        return F8_ENOMEM;
    for (uint32_t i = 0; i < num_weights; i++) {
        (void)snprintf(names[i], sizeof(names[i]), "model.layers.%u.mlp.%u.weight",
            i / job->weights, i % job->weights);
        weights[i] = (struct f8_weight_desc){.name = names[i],
            .ndim = 2,
            .shape = {job->rows, job->cols},
            .dtype = F8_BF16,
            .flavour = job->flavour,
            .format = F8_E4M3FN,
            .static_scale = job->flavour == F8_STATIC ? 64.0F : 0.0F,
            .region = toy->region,
            .offset = i * chunk_rows(job) * job->cols * sizeof(uint16_t)};
    }
    for (uint32_t i = 0; i < job->buckets; i++) {
        char *name = names[num_weights + i];
        (void)snprintf(name, sizeof(*names), "model.layers.%u", i);
        buckets[i] = (struct f8_bucket_desc){.name = name,
            .first = i * job->weights,
            .count = job->weights,
            .shared = job->slots > 0};
    }
    int status = f8_register(toy->group, weights, num_weights, buckets, job->buckets);
    free(names);
    return say(toy, status, "f8_register");
}

static int register_all(struct toy_rank *toy)
{
    uint32_t num_weights = toy->job.buckets * toy->job.weights;
    struct f8_weight_desc *weights = calloc(num_weights, sizeof(*weights));
    struct f8_bucket_desc *buckets = calloc(toy->job.buckets, sizeof(*buckets));
    int status = weights && buckets ? register_lists(toy, weights, buckets) : F8_ENOMEM;
    free(weights);
    free(buckets);
    return status;
}

int toy_rank_seal(struct toy_rank *toy)
{
    const struct toy_job *job = &toy->job;
    uint64_t elements = job->buckets * job->weights * chunk_rows(job) * job->cols;
    void *memory;
    int status =
        say(toy, f8_region_alloc(toy->client, elements * sizeof(uint16_t), &toy->region, &memory),
            "f8_region_alloc");
    if (status != F8_OK)
        return status;
    toy->shards = memory;
    for (uint64_t i = 0; i < elements; i++)
        toy->shards[i] = (uint16_t)(0x3e80 + (i * 37 + toy->rank) % 256); /* from 0.25 to 1.0 */
    status = register_all(toy);
    const struct f8_seal_options options = {.slots = job->slots};
    return status == F8_OK ? say(toy, f8_seal(toy->group, &options), "f8_seal") : status;
}

/* Reads every byte; none of the values is a zero. */
static int read_views(const struct toy_rank *toy)
{
    for (uint32_t w = 0; w < toy->job.weights; w++) {
        const unsigned char *data = toy->views[w].data;
        uint64_t zeros = 0;
        for (uint64_t i = 0; i < toy->views[w].size; i++)
            zeros += data[i] == 0;
        if (zeros > 0) {
            (void)fprintf(
                stderr, "%llu bytes of a gathered weight are zero\n", (unsigned long long)zeros);
            return F8_EINTERNAL;
        }
    }
    return F8_OK;
}

int toy_rank_hold(struct toy_rank *toy, uint32_t bucket)
{
    int status = say(toy, f8_gather(toy->group, bucket, F8_DEFAULT_DEADLINE, NULL), "f8_gather");
    if (status == F8_OK)
        status = say(toy,
            f8_post_gather(toy->group, bucket, F8_FOREVER, toy->views, toy->job.weights, NULL),
            "f8_post_gather");
    return status == F8_OK ? read_views(toy) : status;
}

static int ask(struct toy_rank *toy, uint32_t bucket)
{
    int status = F8_OK;
    if (toy->job.pre_gather)
        status = say(toy, f8_pre_gather(toy->group, bucket, NULL), "f8_pre_gather");
    if (status == F8_OK)
        status = say(toy, f8_gather(toy->group, bucket, F8_DEFAULT_DEADLINE, NULL), "f8_gather");
    return status;
}

int toy_rank_gathers(struct toy_rank *toy)
{
    int status = ask(toy, 0);
    for (uint32_t b = 0; status == F8_OK && b < toy->job.buckets; b++) {
        if (b + 1 < toy->job.buckets)
            status = ask(toy, b + 1);
        if (status == F8_OK)
            status = say(toy,
                f8_post_gather(toy->group, b, F8_FOREVER, toy->views, toy->job.weights, NULL),
                "f8_post_gather");
        if (status == F8_OK)
            status = say(toy, f8_release(toy->group, b, NULL), "f8_release");
    }
    return status;
}

int toy_rank_step(struct toy_rank *toy)
{
    const struct toy_job *job = &toy->job;
    f8_ticket ticket;
    int status = say(toy, f8_changed(toy->group, 0, job->buckets * job->weights), "f8_changed");
    if (status == F8_OK && job->precompute) {
        status = say(
            toy, f8_precompute(toy->group, F8_DEFAULT_DEADLINE, NULL, &ticket), "f8_precompute");
        if (status == F8_OK)
            status = say(toy, f8_wait(toy->group, ticket, F8_FOREVER, NULL), "f8_wait");
    }
    return status == F8_OK ? toy_rank_gathers(toy) : status;
}

int toy_rank_settle(struct toy_rank *toy)
{
    return say(toy, f8_quiesce(toy->group, F8_FOREVER), "f8_quiesce");
}

void toy_rank_close(struct toy_rank *toy)
{
    f8_close(toy->client);
    free(toy->views);
    *toy = (struct toy_rank){0};
}
