/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank of a conformance run, as a trainer would be: registers its shards as FSDP2 cuts them,
 * gathers all buckets, and compares what it sees with the recorded codes and scales. Forked by
 * daemon_run.c; it tells by shared memory what it found, and prints nothing.
 */
#include "tests/conformance/daemon_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/device_memory.h"

/* So long may a collective take, on the slowest machine under any sanitizer. */
#define DEADLINE_MS 120000

/* Weights of a bucket at most: few, so that an index makes several. */
#define BUCKET_WEIGHTS 3

struct rank {
    const struct daemon_run *run; /* borrowed: from the parent */
    uint32_t rank;
    struct f8_client *client;       /* owned */
    struct device_memory *memory;   /* owned */
    struct f8_group *group;         /* borrowed: from client */
    struct f8_region *region;       /* borrowed: from client */
    uint8_t *shards;                /* borrowed: from memory */
    struct f8_weight_desc *weights; /* owned: by tensor */
    struct f8_bucket_desc *buckets; /* owned */
    uint32_t num_buckets;
};

/* Keeps why the rank cannot go on; true if it can. */
static bool went(struct rank *rank, int status, const char *call)
{
    struct excuse *excuse = &rank->run->excuses[rank->rank];
    if (status != F8_OK)
        (void)snprintf(excuse->text, sizeof(excuse->text), "%s: %s: %s", call,
            f8_status_text(status), f8_error_text());
    return status == F8_OK;
}

static size_t element_size(const struct tensor *tensor)
{
    return tensor->dtype == F8_F32 ? 4 : 2;
}

static uint64_t chunk_rows(const struct tensor *tensor)
{
    return (tensor->rows + tensor->world - 1) / tensor->world;
}

/* The rows of this rank, as torch.chunk cuts them. */
static uint64_t shard_rows(const struct tensor *tensor, uint32_t rank, uint64_t *ret_first)
{
    uint64_t chunk = chunk_rows(tensor), first = chunk * rank;
    *ret_first = first < tensor->rows ? first : tensor->rows;
    return tensor->rows - *ret_first < chunk ? tensor->rows - *ret_first : chunk;
}

/* Lays out one shard at *offset, copies it there if there is memory yet, and moves *offset on. */
static void place_shard(struct rank *rank, size_t t, uint64_t *offset)
{
    const struct tensor *tensor = rank->run->tensors[t];
    uint64_t first, rows = shard_rows(tensor, rank->rank, &first);
    uint64_t row_bytes = tensor->cols * element_size(tensor);
    rank->weights[t].offset = *offset;
    if (rank->shards)
        memcpy(rank->shards + *offset, tensor->source + first * row_bytes, rows * row_bytes);
    /* The next multiple of 4, and no more: vectors must not need what a trainer need not give. */
    *offset += (rows * row_bytes + 3) & ~(uint64_t)3;
}

static bool allocate(struct rank *rank)
{
    uint64_t size = 0;
    void *address;
    for (size_t t = 0; t < rank->run->count; t++)
        place_shard(rank, t, &size);
    int status = device_memory_alloc(
        rank->memory, rank->client, size > 0 ? size : 1, &rank->region, &address);
    if (!went(rank, status, "allocating the shards"))
        return false;
    rank->shards = address;
    size = 0;
    for (size_t t = 0; t < rank->run->count; t++)
        place_shard(rank, t, &size);
    return went(rank, device_memory_put(rank->memory, rank->shards, size), "putting the shards");
}

static void describe(struct rank *rank, size_t t)
{
    const struct tensor *tensor = rank->run->tensors[t];
    struct f8_weight_desc *weight = &rank->weights[t];
    weight->name = tensor->name;
    weight->ndim = tensor->ndim;
    weight->shape[0] = tensor->rows;
    if (tensor->ndim == 2)
        weight->shape[1] = tensor->cols;
    weight->dtype = tensor->dtype;
    weight->flavour = tensor->flavour;
    weight->format = tensor->format;
    if (tensor->flavour == F8_STATIC)
        memcpy(&weight->static_scale, &tensor->scale_bits, sizeof(weight->static_scale));
    weight->region = rank->region;
}

/* A bucket ends when it is full, and where the tensors by precompute begin. */
static void put_in_bucket(struct rank *rank, size_t t)
{
    const struct daemon_run *run = rank->run;
    struct f8_bucket_desc *last = rank->num_buckets ? &rank->buckets[rank->num_buckets - 1] : NULL;
    if (last && last->count < BUCKET_WEIGHTS &&
        run->tensors[last->first]->precompute == run->tensors[t]->precompute) {
        last->count++;
        return;
    }
    rank->buckets[rank->num_buckets++] = (struct f8_bucket_desc){
        .name = run->tensors[t]->name, .first = (uint32_t)t, .count = 1, .shared = run->slots > 0};
}

static bool join(struct rank *rank)
{
    const struct daemon_run *run = rank->run;
    const struct f8_connect_options options = {
        .socket = placement_socket(&run->placement, rank->rank), .job = run->job};
    const struct f8_seal_options seal = {.slots = run->slots, .deadline_ms = DEADLINE_MS};
    if (!went(rank, f8_connect(&options, &rank->client), "f8_connect") ||
        !went(rank, device_memory_open(rank->client, rank->rank, &rank->memory), "the device") ||
        !went(rank, placement_join(&run->placement, rank->client, rank->rank, &rank->group),
            "f8_group_join") ||
        !allocate(rank))
        return false;
    for (size_t t = 0; t < run->count; t++) {
        describe(rank, t);
        put_in_bucket(rank, t);
    }
    return went(rank,
               f8_register(rank->group, rank->weights, (uint32_t)run->count, rank->buckets,
                   rank->num_buckets),
               "f8_register") &&
           went(rank, f8_seal(rank->group, &seal), "f8_seal");
}

/* What is wrong with a gathered tensor, into a verdict. */
static void compare(
    const struct tensor *tensor, const struct f8_view *view, struct verdict *verdict)
{
    uint64_t count = tensor->rows * tensor->cols;
    uint64_t padded = chunk_rows(tensor) * tensor->world * tensor->cols;
    enum f8k_format format = tensor->format == F8_E5M2 ? F8K_E5M2 : F8K_E4M3FN;
    const uint8_t *got = view->data;
    size_t room = sizeof(verdict->wrong);
    uint32_t scale_bits;
    memcpy(&scale_bits, view->scale, sizeof(scale_bits));
    uint64_t at = view->size == count ? first_difference(format, got, tensor->want, count) : 0;
    uint64_t pad = count;
    while (pad < padded && got[pad] == 0)
        pad++;
    if (view->size != count)
        (void)snprintf(verdict->wrong, room, "%llu bytes, want %llu",
            (unsigned long long)view->size, (unsigned long long)count);
    else if (!bits_equal(scale_bits, tensor->scale_bits))
        (void)snprintf(
            verdict->wrong, room, "scale %08x, want %08x", scale_bits, tensor->scale_bits);
    else if (at < count)
        (void)snprintf(verdict->wrong, room, "byte %llu is %02x, want %02x", (unsigned long long)at,
            got[at], tensor->want[at]);
    else if (pad < padded)
        (void)snprintf(verdict->wrong, room, "padding byte %llu is %02x, want 00",
            (unsigned long long)pad, got[pad]);
    verdict->compared = true;
}

/* Waits for a bucket, compares its tensors, and lets it go. */
static bool take(struct rank *rank, uint32_t bucket)
{
    const struct daemon_run *run = rank->run;
    const struct f8_bucket_desc *what = &rank->buckets[bucket];
    void *stream = device_memory_stream(rank->memory);
    struct f8_view views[BUCKET_WEIGHTS], seen;
    int status = f8_post_gather(rank->group, bucket, F8_FOREVER, views, what->count, stream);
    if (!went(rank, status, "f8_post_gather"))
        return false;
    for (uint32_t i = 0; i < what->count; i++) {
        size_t t = what->first + i;
        const struct tensor *tensor = run->tensors[t];
        uint64_t padded = chunk_rows(tensor) * tensor->world * tensor->cols;
        if (!went(rank, device_memory_see(rank->memory, &views[i], padded, &seen), "the views"))
            return false;
        compare(tensor, &seen, &run->verdicts[rank->rank * run->count + t]);
    }
    return went(rank, f8_release(rank->group, bucket, stream), "f8_release");
}

/* Gathers the buckets first .. end-1 with as many under way as there are places for. */
static bool gather(struct rank *rank, uint32_t first, uint32_t end)
{
    void *stream = device_memory_stream(rank->memory);
    uint32_t ahead = rank->run->slots > 0 ? rank->run->slots : end - first;
    for (uint32_t sent = first, taken = first; taken < end; taken++) {
        for (; sent < end && sent < taken + ahead; sent++)
            if (!went(rank, f8_gather(rank->group, sent, DEADLINE_MS, stream), "f8_gather"))
                return false;
        if (!take(rank, taken))
            return false;
    }
    return true;
}

static bool precompute(struct rank *rank)
{
    void *stream = device_memory_stream(rank->memory);
    f8_ticket ticket;
    return went(rank, f8_precompute(rank->group, DEADLINE_MS, stream, &ticket), "f8_precompute") &&
           went(rank, f8_wait(rank->group, ticket, F8_FOREVER, stream), "f8_wait");
}

/* The in-gather path while no scale is set; then the batched one for the others. */
static bool gather_all(struct rank *rank)
{
    uint32_t direct = 0;
    while (
        direct < rank->num_buckets && !rank->run->tensors[rank->buckets[direct].first]->precompute)
        direct++;
    if (!gather(rank, 0, direct))
        return false;
    return direct == rank->num_buckets ||
           (precompute(rank) && gather(rank, direct, rank->num_buckets));
}

int rank_run(const struct daemon_run *run, uint32_t index)
{
    struct rank rank = {.run = run, .rank = index};
    rank.weights = calloc(run->count, sizeof(*rank.weights));
    rank.buckets = calloc(run->count, sizeof(*rank.buckets));
    bool right = rank.weights && rank.buckets && join(&rank) && gather_all(&rank);
    f8_close(rank.client);
    device_memory_close(rank.memory);
    free(rank.weights);
    free(rank.buckets);
    return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
