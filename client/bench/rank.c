/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of one rank process: connects, registers its shards, and in each step changes them,
 * precomputes, and gathers every bucket ahead by one, timing each part. Single-threaded; started by
 * run.c's fork. All ranks run the same code in the same order; barriers keep checks and changes
 * apart, and the timed parts begin together.
 */
#include "rank.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include "proto/protocol.h"

/* Shards begin at multiples of this in the region. */
#define ALIGNMENT 64

int rank_fail(struct rank *rank, int status, const char *doing, const char *what)
{
    rank->result->status = status;
    return bench_fail(&rank->result->error, "%s %s: %s", doing, what, f8_error_text());
}

int rank_no_memory(struct rank *rank, const char *what)
{
    rank->result->status = F8_ENOMEM;
    return bench_fail(&rank->result->error, "out of memory for %s", what);
}

uint64_t rank_first_row(const struct rank *rank, uint32_t weight)
{
    uint64_t rows = rank->run->model->weights[weight].shape[0];
    return f8_proto_shard_begin(rows, rank->run->options->ranks, rank->rank);
}

uint64_t rank_num_rows(const struct rank *rank, uint32_t weight)
{
    uint64_t rows = rank->run->model->weights[weight].shape[0];
    return f8_proto_shard_rows(rows, rank->run->options->ranks, rank->rank);
}

static uint64_t row_bytes(const struct model_weight *weight)
{
    return model_cols(weight) * model_source_size(weight);
}

/* Copies this rank's rows from the full weight to where the daemon reads them. */
static void publish(struct rank *rank, uint32_t weight)
{
    uint64_t row = row_bytes(&rank->run->model->weights[weight]);
    uint64_t size = rank_num_rows(rank, weight) * row;

    if (size > 0) {
        const uint8_t *full = source_weight(rank->run->source, weight);
        memcpy(
            rank->shards + rank->offsets[weight], full + rank_first_row(rank, weight) * row, size);
    }
}

static uint64_t gathered_bytes(const struct model *model)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < model->num_weights; i++) {
        bytes += model_elements(&model->weights[i]) * model_wire_size(&model->weights[i]);
    }
    return bytes;
}

/*
 * This rank's part of a plain copy that reads and writes as many bytes as a gather of everything:
 * from its own part of the full weights, to memory that it has touched before.
 */
static int prepare_copy(struct rank *rank)
{
    const struct run *run = rank->run;
    uint64_t ranks = run->options->ranks;
    uint64_t size = (run->source->bytes + gathered_bytes(run->model)) / 2 / ranks;
    uint64_t most = run->source->size / ranks;

    rank->copy_size = size < most ? size : most;
    rank->result->copied = rank->copy_size;
    rank->copy =
        mmap(NULL, rank->copy_size + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (rank->copy == MAP_FAILED) {
        rank->copy = NULL;
        return rank_no_memory(rank, "the plain copy");
    }
    madvise(rank->copy, rank->copy_size + 1, MADV_HUGEPAGE); /* as good as the kernel has it */
    memset(rank->copy, 0xff, rank->copy_size);
    return 0;
}

static int prepare(struct rank *rank)
{
    uint32_t num_weights = rank->run->model->num_weights;

    rank->offsets = calloc(num_weights, sizeof(*rank->offsets));
    rank->views = calloc(num_weights, sizeof(*rank->views));
    rank->checker = checker_new();
    if (rank->offsets == NULL || rank->views == NULL || rank->checker == NULL) {
        return rank_no_memory(rank, "the lists of a rank");
    }
    return prepare_copy(rank);
}

static int join(struct rank *rank)
{
    const struct run *run = rank->run;
    struct f8_connect_options options = {.socket = run->socket, .job = run->job};
    int status = f8_connect(&options, &rank->client);

    if (status != F8_OK) {
        return rank_fail(rank, status, "connect to", run->socket);
    }
    status = f8_group_join(rank->client, "dp", rank->rank, run->options->ranks, &rank->group);
    return status == F8_OK ? 0 : rank_fail(rank, status, "join", "group dp");
}

/* Allocates the region, and fills the shards in the full weights and in it. */
static int fill(struct rank *rank)
{
    const struct run *run = rank->run;
    uint64_t size = 0;
    void *address = NULL;
    int status = F8_OK;

    for (uint32_t i = 0; i < run->model->num_weights; i++) {
        uint64_t bytes = rank_num_rows(rank, i) * row_bytes(&run->model->weights[i]);
        rank->offsets[i] = size;
        size += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    if (size > 0) {
        status = f8_region_alloc(rank->client, size, &rank->region, &address);
    }
    if (status != F8_OK) {
        return rank_fail(rank, status, "allocate", "the region of the shards");
    }
    rank->shards = address;
    for (uint32_t i = 0; i < run->model->num_weights; i++) {
        source_fill(run->source, i, rank_first_row(rank, i), rank_num_rows(rank, i));
        publish(rank, i);
    }
    shared_barrier(run->shared);
    rank_static_scales(rank);
    shared_barrier(run->shared);
    return 0;
}

static void describe(const struct rank *rank, uint32_t weight, struct f8_weight_desc *desc)
{
    const struct run *run = rank->run;
    const struct model_weight *what = &run->model->weights[weight];

    *desc = (struct f8_weight_desc){.name = what->name,
        .ndim = what->ndim,
        .dtype = what->dtype,
        .flavour = what->flavour,
        .format = run->options->format,
        .power_of_two = run->options->power_of_two && what->flavour == F8_DYNAMIC,
        .static_scale = run->shared->static_scales[weight],
        .region = rank_num_rows(rank, weight) > 0 ? rank->region : NULL,
        .offset = rank->offsets[weight]};
    memcpy(desc->shape, what->shape, sizeof(desc->shape));
}

static int register_lists(
    struct rank *rank, struct f8_weight_desc *weights, struct f8_bucket_desc *buckets)
{
    const struct model *model = rank->run->model;
    int status;

    for (uint32_t i = 0; i < model->num_weights; i++) {
        describe(rank, i, &weights[i]);
    }
    for (uint32_t i = 0; i < model->num_buckets; i++) {
        buckets[i] = (struct f8_bucket_desc){.name = model->buckets[i].name,
            .first = model->buckets[i].first,
            .count = model->buckets[i].count,
            .shared = rank->run->options->slots > 0};
    }
    status = f8_register(rank->group, weights, model->num_weights, buckets, model->num_buckets);
    return status == F8_OK ? 0 : rank_fail(rank, status, "register", "the weights");
}

static int register_all(struct rank *rank)
{
    const struct model *model = rank->run->model;
    struct f8_weight_desc *weights = calloc(model->num_weights, sizeof(*weights));
    struct f8_bucket_desc *buckets = calloc(model->num_buckets, sizeof(*buckets));
    int result = weights != NULL && buckets != NULL ? register_lists(rank, weights, buckets)
                                                    : rank_no_memory(rank, "the lists of weights");

    free(weights);
    free(buckets);
    return result;
}

static int seal(struct rank *rank)
{
    struct f8_seal_options options = {.slots = rank->run->options->slots};
    int status = f8_seal(rank->group, &options);

    return status == F8_OK ? 0 : rank_fail(rank, status, "seal", "group dp");
}

static int rank_open(struct rank *rank)
{
    if (prepare(rank) != 0 || join(rank) != 0 || fill(rank) != 0 || register_all(rank) != 0) {
        return -1;
    }
    return seal(rank);
}

static void rank_close(struct rank *rank)
{
    f8_close(rank->client);
    if (rank->copy != NULL) {
        munmap(rank->copy, rank->copy_size + 1);
    }
    checker_free(rank->checker);
    free(rank->views);
    free(rank->offsets);
}

/* The time of this step that begins now; timed() ends it. */
static void timed(struct rank *rank, uint32_t step, enum shared_time time, double begin)
{
    *shared_time_of(rank->run->shared, step, rank->rank, time) += shared_now() - begin;
}

static int change(struct rank *rank, uint32_t step)
{
    const struct run *run = rank->run;
    double begin = shared_now();
    int status;

    for (uint32_t i = 0; i < run->model->num_weights; i++) {
        source_change(run->source, i, rank_first_row(rank, i), rank_num_rows(rank, i), step);
        publish(rank, i);
    }
    timed(rank, step, TIME_CHANGE, begin);
    status = f8_changed(rank->group, 0, run->model->num_weights);
    return status == F8_OK ? 0 : rank_fail(rank, status, "announce", "changed weights");
}

static void measure_memcpy(struct rank *rank, uint32_t step)
{
    struct shared *shared = rank->run->shared;
    const uint8_t *from = rank->run->source->base + rank->rank * rank->copy_size;

    shared_barrier(shared);
    *shared_time_of(shared, step, rank->rank, TIME_MEMCPY_BEGIN) = shared_now();
    memcpy(rank->copy, from, rank->copy_size);
    *shared_time_of(shared, step, rank->rank, TIME_MEMCPY_END) = shared_now();
    shared_barrier(shared);
}

static int precompute(struct rank *rank, uint32_t step)
{
    double begin = shared_now();
    f8_ticket ticket;
    int status = f8_precompute(rank->group, F8_DEFAULT_DEADLINE, &ticket);

    if (status == F8_OK) {
        status = f8_wait(rank->group, ticket, F8_FOREVER);
    }
    timed(rank, step, TIME_PRECOMPUTE, begin);
    return status == F8_OK ? 0 : rank_fail(rank, status, "precompute", "the scales");
}

static int send(struct rank *rank, uint32_t step, uint32_t bucket)
{
    double begin = shared_now();
    int status = F8_OK;

    if (rank->run->options->pre_gather) {
        status = f8_pre_gather(rank->group, bucket);
    }
    if (status == F8_OK) {
        status = f8_gather(rank->group, bucket, F8_DEFAULT_DEADLINE);
    }
    timed(rank, step, TIME_SEND, begin);
    return status == F8_OK
               ? 0
               : rank_fail(rank, status, "gather", rank->run->model->buckets[bucket].name);
}

/* Waits for the buckets *waited .. bucket, and counts *waited on. */
static int wait_through(struct rank *rank, uint32_t step, uint32_t bucket, uint32_t *waited)
{
    for (; *waited <= bucket; ++*waited) {
        const struct model_bucket *what = &rank->run->model->buckets[*waited];
        double begin = shared_now();
        int status = f8_post_gather(
            rank->group, *waited, F8_FOREVER, &rank->views[what->first], what->count);
        timed(rank, step, TIME_POST_GATHER, begin);
        if (status != F8_OK) {
            return rank_fail(rank, status, "gather", what->name);
        }
    }
    return 0;
}

static int release(struct rank *rank, uint32_t step, uint32_t bucket)
{
    double begin = shared_now();
    int status = f8_release(rank->group, bucket);

    timed(rank, step, TIME_RELEASE, begin);
    return status == F8_OK
               ? 0
               : rank_fail(rank, status, "release", rank->run->model->buckets[bucket].name);
}

/* The ranks take turns; those that do not check wait, so that no memory changes under it. */
static int check(struct rank *rank, uint32_t step, uint32_t bucket)
{
    bool mine = (bucket + step) % rank->run->options->ranks == rank->rank;
    int result = 0;

    shared_barrier(rank->run->shared);
    if (mine) {
        result = rank_check_bucket(rank, step, bucket);
    }
    shared_barrier(rank->run->shared);
    return result;
}

/*
 * All buckets, ahead by one: bucket b + 1 is asked for before b is waited for. Where b is checked,
 * b + 1 is waited for first: its work must not hide behind the check, which is not timed.
 */
static int gather_all(struct rank *rank, uint32_t step)
{
    uint32_t num_buckets = rank->run->model->num_buckets;
    bool checked = step % rank->run->options->check_every == 0;
    uint32_t waited = 0;

    if (send(rank, step, 0) != 0) {
        return -1;
    }
    for (uint32_t b = 0; b < num_buckets; b++) {
        bool more = b + 1 < num_buckets;
        if ((more && send(rank, step, b + 1) != 0) ||
            wait_through(rank, step, checked && more ? b + 1 : b, &waited) != 0 ||
            (checked && check(rank, step, b) != 0) || release(rank, step, b) != 0) {
            return -1;
        }
    }
    return 0;
}

/* gather_all, with its messages counted. */
static int gather_counted(struct rank *rank, uint32_t step)
{
    struct f8_traffic before = {0};
    struct f8_traffic after = {0};
    int status = f8_traffic_read(rank->client, &before);

    if (status == F8_OK) {
        if (gather_all(rank, step) != 0) {
            return -1;
        }
        status = f8_traffic_read(rank->client, &after);
    }
    if (status != F8_OK) {
        return rank_fail(rank, status, "read", "the traffic");
    }
    rank->result->received += after.received - before.received;
    rank->result->gathers += after.gathers - before.gathers;
    return 0;
}

static int run_step(struct rank *rank, uint32_t step)
{
    struct shared *shared = rank->run->shared;

    shared_barrier(shared); /* nobody checks any more */
    if (change(rank, step) != 0) {
        return -1;
    }
    measure_memcpy(rank, step);
    if (rank->run->options->precompute) {
        if (precompute(rank, step) != 0) {
            return -1;
        }
        shared_barrier(shared);
    }
    if (gather_counted(rank, step) != 0) {
        return -1;
    }
    if (rank->rank == 0) {
        atomic_store(&shared->steps_done, step + 1);
        shared_tell(shared);
    }
    return 0;
}

/* Keeps the group until the parent has looked at it. */
static void await_go(struct rank *rank)
{
    struct shared *shared = rank->run->shared;
    eventfd_t value;

    atomic_fetch_add(&shared->ranks_done, 1);
    shared_tell(shared);
    while (eventfd_read(shared->go_fd, &value) != 0 && errno == EINTR) {
    }
}

int rank_main(const struct run *run, uint32_t index)
{
    struct rank rank = {.run = run, .rank = index, .result = &run->shared->ranks[index]};
    int result = rank_open(&rank);

    for (uint32_t step = 0; result == 0 && step < run->options->steps; step++) {
        result = run_step(&rank, step);
    }
    if (result == 0) {
        await_go(&rank);
    }
    rank_close(&rank);
    return result == 0 ? 0 : 1;
}
