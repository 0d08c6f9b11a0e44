/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank of a run of delayed.tsv: each run of the file is a weight, all of them take a step
 * together, a gather of each and one sync. Rank 0 looks at the daemon's state as an operator does,
 * after each. Forked by daemon_run.c; it tells by shared memory what it found, and prints nothing.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/channel.h"
#include "tests/conformance/daemon_run.h"
#include "tests/lib/device_memory.h"

#define DEADLINE_MS 120000

struct weight {
    const struct step *steps; /* borrowed: of its run */
    size_t num_steps;
    char name[32];
    uint64_t first_row, rows; /* of this rank's shard */
    uint64_t at;              /* of the shard in the region */
};

struct rank {
    const struct daemon_run *run; /* borrowed: from the parent */
    uint32_t rank;
    struct f8_client *client;     /* owned */
    struct device_memory *memory; /* owned */
    struct f8_group *group;       /* borrowed: from client */
    struct f8_region *region;     /* borrowed: from client */
    uint8_t *shards;              /* borrowed: from memory */
    struct channel *operator_;    /* owned: of rank 0 */
    struct weight *weights;       /* owned */
    size_t num_weights;
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

static uint64_t chunk_rows(const struct rank *rank, const struct step *step)
{
    return (step->rows + rank->run->world - 1) / rank->run->world;
}

static uint64_t row_bytes(const struct step *step)
{
    return step->cols * f8k_dtype_size(step->dtype);
}

static struct verdict *verdict_of(const struct rank *rank, const struct step *step)
{
    const struct daemon_run *run = rank->run;
    return &run->verdicts[rank->rank * run->count + (size_t)(step - run->steps->items)];
}

/* The first thing that is wrong with a step is kept. */
__attribute__((format(printf, 3, 4))) static void wrong(
    const struct rank *rank, const struct step *step, const char *format, ...)
{
    struct verdict *verdict = verdict_of(rank, step);
    va_list args;
    if (verdict->wrong[0] != '\0')
        return;
    va_start(args, format);
    (void)vsnprintf(verdict->wrong, sizeof(verdict->wrong), format, args);
    va_end(args);
}

/* Where each shard is, as torch.chunk cuts it; gives the bytes of all. */
static uint64_t lay_out(struct rank *rank)
{
    const struct steps *steps = rank->run->steps;
    uint64_t at = 0;
    for (size_t w = 0; w < rank->num_weights; w++) {
        struct weight *weight = &rank->weights[w];
        size_t first = steps_first(steps, w);
        weight->steps = &steps->items[first];
        weight->num_steps = steps_of_run(steps, first);
        (void)snprintf(weight->name, sizeof(weight->name), "run%zu", w);
        uint64_t chunk = chunk_rows(rank, weight->steps), rows = weight->steps->rows;
        weight->first_row = chunk * rank->rank < rows ? chunk * rank->rank : rows;
        weight->rows = rows - weight->first_row < chunk ? rows - weight->first_row : chunk;
        weight->at = at;
        at += (weight->rows * row_bytes(weight->steps) + 3) & ~(uint64_t)3;
    }
    return at;
}

static bool join(struct rank *rank)
{
    const struct daemon_run *run = rank->run;
    const struct f8_connect_options options = {
        .socket = placement_socket(&run->placement, rank->rank), .job = run->job};
    const struct channel_options as_operator = {
        .socket = placement_socket(&run->placement, rank->rank), .role = F8__ROLE__ADMIN};
    uint64_t size = lay_out(rank);
    void *address;
    if (!went(rank, f8_connect(&options, &rank->client), "f8_connect") ||
        !went(rank, device_memory_open(rank->client, rank->rank, &rank->memory), "the device") ||
        !went(rank, placement_join(&run->placement, rank->client, rank->rank, &rank->group),
            "f8_group_join") ||
        !went(rank,
            device_memory_alloc(
                rank->memory, rank->client, size > 0 ? size : 1, &rank->region, &address),
            "allocating the shards"))
        return false;
    rank->shards = address;
    return rank->rank > 0 ||
           went(rank, channel_open(&as_operator, &rank->operator_), "an operator's connection");
}

static void describe(const struct rank *rank, const struct weight *weight,
    struct f8_weight_desc *ret_weight, struct f8_bucket_desc *ret_bucket)
{
    static const enum f8_dtype dtypes[] = {
        [F8K_F32] = F8_F32, [F8K_BF16] = F8_BF16, [F8K_F16] = F8_F16};
    const struct step *step = weight->steps;
    *ret_weight = (struct f8_weight_desc){.name = weight->name,
        .ndim = 2,
        .shape = {step->rows, step->cols},
        .dtype = dtypes[step->dtype],
        .flavour = F8_DELAYED,
        .format = step->format == F8K_E5M2 ? F8_E5M2 : F8_E4M3FN,
        .history_length = (uint32_t)step->history_length,
        .region = rank->region,
        .offset = weight->at};
    *ret_bucket = (struct f8_bucket_desc){.name = weight->name,
        .first = (uint32_t)(weight - rank->weights),
        .count = 1,
        .shared = rank->run->slots > 0};
}

static bool seal(struct rank *rank)
{
    const struct f8_seal_options options = {.slots = rank->run->slots, .deadline_ms = DEADLINE_MS};
    for (size_t w = 0; w < rank->num_weights; w++) {
        struct f8_weight_desc weight;
        struct f8_bucket_desc bucket;
        describe(rank, &rank->weights[w], &weight, &bucket);
        if (!went(rank, f8_register(rank->group, &weight, 1, &bucket, 1), "f8_register"))
            return false;
    }
    return went(rank, f8_seal(rank->group, &options), "f8_seal");
}

static void compare(const struct rank *rank, const struct step *step, const struct f8_view *view)
{
    uint64_t count = step->rows * step->cols;
    uint64_t padded = chunk_rows(rank, step) * rank->run->world * step->cols;
    const uint8_t *got = view->data;
    uint32_t scale;
    memcpy(&scale, view->scale, sizeof(scale));
    if (view->size != count) {
        wrong(rank, step, "%llu bytes, want %llu", (unsigned long long)view->size,
            (unsigned long long)count);
        return;
    }
    uint64_t at = first_difference(step->format, got, step->output, count), pad = count;
    while (pad < padded && got[pad] == 0)
        pad++;
    if (!bits_equal(scale, step->scale_used))
        wrong(rank, step, "scale %08x, want %08x", scale, step->scale_used);
    if (at < count)
        wrong(rank, step, "byte %llu is %02x, want %02x", (unsigned long long)at, got[at],
            step->output[at]);
    if (pad < padded)
        wrong(rank, step, "padding byte %llu is %02x, want 00", (unsigned long long)pad, got[pad]);
}

/* A gather of one weight; every other step allows it to begin early. */
static bool gather(struct rank *rank, uint32_t index, const struct step *step)
{
    const struct weight *weight = &rank->weights[index];
    void *stream = device_memory_stream(rank->memory);
    uint8_t *shard = rank->shards + weight->at;
    uint64_t size = weight->rows * row_bytes(step);
    uint64_t padded = chunk_rows(rank, step) * rank->run->world * step->cols;
    struct f8_view view;
    memcpy(shard, step->input + weight->first_row * row_bytes(step), size);
    if (!went(rank, device_memory_put(rank->memory, shard, size), "putting a shard") ||
        !went(rank, f8_changed(rank->group, index, 1), "f8_changed") ||
        (step->number % 2 == 1 &&
            !went(rank, f8_pre_gather(rank->group, index, stream), "f8_pre_gather")) ||
        !went(rank, f8_gather(rank->group, index, DEADLINE_MS, stream), "f8_gather") ||
        !went(rank, f8_post_gather(rank->group, index, F8_FOREVER, &view, 1, stream),
            "f8_post_gather") ||
        !went(rank, device_memory_see(rank->memory, &view, padded, &view), "the view"))
        return false;
    compare(rank, step, &view);
    return went(rank, f8_release(rank->group, index, stream), "f8_release");
}

static bool sync(struct rank *rank)
{
    f8_ticket ticket;
    return went(rank, f8_sync(rank->group, DEADLINE_MS, &ticket), "f8_sync") &&
           went(rank, f8_wait(rank->group, ticket, F8_FOREVER, device_memory_stream(rank->memory)),
               "f8_wait");
}

/* The daemon's state of a weight, as operators see it. */
static bool inspect(struct rank *rank, const struct weight *weight, F8__Reply **ret_reply)
{
    F8__Inspect inspect = F8__INSPECT__INIT;
    F8__Request request = F8__REQUEST__INIT;
    inspect.view = F8__VIEW__AMAX;
    inspect.job = (char *)rank->run->job;
    inspect.name = (char *)weight->name;
    request.body_case = F8__REQUEST__BODY_INSPECT;
    request.inspect = &inspect;
    return went(
        rank, channel_ask(rank->operator_, &request, DEADLINE_MS, ret_reply), "an inspection");
}

static void compare_history(
    const struct rank *rank, const struct step *step, const F8__WeightInfo *info)
{
    if (info->n_history != step->history_length)
        wrong(rank, step, "a history of %zu, want %zu", info->n_history, step->history_length);
    for (size_t i = 0; i < info->n_history && i < step->history_length; i++)
        if (!bits_equal(info->history[i], step->history[i]))
            wrong(rank, step, "entry %zu of the history is %08x, want %08x", i, info->history[i],
                step->history[i]);
}

/* Over several hosts each daemon knows what its own ranks met, until the sync. */
static bool amax_fits(const struct rank *rank, const struct step *step, uint32_t amax, bool synced)
{
    return bits_equal(amax, step->amax) ||
           (!synced && placement_hosts(&rank->run->placement) > 1 && amax < step->amax);
}

/* What an operator sees after the gather of a step, and after its sync. */
static bool look(
    struct rank *rank, const struct weight *weight, const struct step *step, bool synced)
{
    F8__Reply *reply;
    if (rank->rank > 0)
        return true;
    /* On a device the amaxes come after the gather's reply; this waits for them. */
    if (!went(rank, f8_quiesce(rank->group, F8_FOREVER), "f8_quiesce") ||
        !inspect(rank, weight, &reply))
        return false;
    const F8__WeightInfo *info = reply->inspect->n_weights == 1 ? reply->inspect->weights[0] : NULL;
    uint32_t scale = synced ? step->scale_after : step->scale_used;
    if (!info || !info->amax_known || !info->scale_known) {
        wrong(rank, step, "operators see nothing of it");
    } else {
        if (!amax_fits(rank, step, info->amax, synced))
            wrong(rank, step, "amax %08x, want %08x", info->amax, step->amax);
        if (!bits_equal(info->scale, scale))
            wrong(rank, step, "scale %08x after the %s, want %08x", info->scale,
                synced ? "sync" : "gather", scale);
        if (synced)
            compare_history(rank, step, info);
    }
    f8__reply__free_unpacked(reply, NULL);
    return true;
}

/* Step `number` of all runs that have so many; one sync for all. */
static bool take_step(struct rank *rank, size_t number, bool *ret_more)
{
    *ret_more = false;
    for (uint32_t w = 0; w < rank->num_weights; w++) {
        const struct weight *weight = &rank->weights[w];
        if (number < weight->num_steps && (!gather(rank, w, &weight->steps[number]) ||
                                              !look(rank, weight, &weight->steps[number], false)))
            return false;
    }
    if (!sync(rank))
        return false;
    for (uint32_t w = 0; w < rank->num_weights; w++) {
        const struct weight *weight = &rank->weights[w];
        *ret_more = *ret_more || number + 1 < weight->num_steps;
        if (number >= weight->num_steps)
            continue;
        if (!look(rank, weight, &weight->steps[number], true))
            return false;
        verdict_of(rank, &weight->steps[number])->compared = true;
    }
    return true;
}

int delayed_rank_run(const struct daemon_run *run, uint32_t index)
{
    struct rank rank = {.run = run, .rank = index, .num_weights = run->steps->runs};
    rank.weights = calloc(rank.num_weights, sizeof(*rank.weights));
    bool more = true, right = rank.weights && join(&rank) && seal(&rank);
    for (size_t number = 0; right && more; number++)
        right = take_step(&rank, number, &more);
    channel_close(rank.operator_);
    f8_close(rank.client);
    device_memory_close(rank.memory);
    free(rank.weights);
    return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
