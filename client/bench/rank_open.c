/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The beginning and the end of a rank process: memory, connection, the groups of its place, the
 * first values of its shards, registration and seal. Called by rank.c, in the rank's only thread.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "client/bench/rank.h"

/* Shards begin at multiples of this in the region. */
#define ALIGNMENT 64

struct model_part rank_shard(const struct rank *rank, uint32_t weight)
{
    const struct run *run = rank->run;
    return layout_shard(run->options, &run->model->weights[weight], &rank->place);
}

static uint64_t shard_bytes(const struct rank *rank, uint32_t weight)
{
    struct model_part shard = rank_shard(rank, weight);
    return model_part_size(&shard) * model_source_size(&rank->run->model->weights[weight]);
}

/* One weight's first values, or those of a step, where a rank of this machine or another has it. */
static void write_part(
    const struct rank *rank, uint32_t weight, const struct place *place, int64_t step)
{
    const struct run *run = rank->run;
    const struct model_weight *what = &run->model->weights[weight];
    struct model_part shard = layout_shard(run->options, what, place);

    if (!layout_writes(run->options, what, place)) {
        return;
    }
    if (step < 0) {
        source_fill(run->source, weight, &shard);
    } else {
        source_change(run->source, weight, &shard, (uint32_t)step);
    }
}

static void write_all(const struct rank *rank, int64_t step)
{
    const struct options *options = rank->run->options;

    for (uint32_t other = rank->place.rank % rank->crew; other < options->ranks;
         other += rank->crew) {
        struct place place = layout_place(options, other);
        for (uint32_t i = 0; i < rank->run->model->num_weights; i++) {
            write_part(rank, i, &place, step);
        }
    }
}

void rank_change(const struct rank *rank, uint32_t step)
{
    write_all(rank, step);
}

int rank_publish(struct rank *rank)
{
    int status = F8_OK;

    for (uint32_t i = 0; i < rank->run->model->num_weights; i++) {
        struct model_part shard = rank_shard(rank, i);
        if (model_part_size(&shard) > 0) {
            source_copy(rank->run->source, i, &shard, rank->shards + rank->offsets[i]);
        }
    }
    if (rank->gpu != NULL && rank->shards_size > 0) {
        status = gpu_upload(rank->gpu, rank->shards, rank->shards_size);
    }
    return status == F8_OK ? 0 : rank_fail(rank, status, "copy", "the shards to the device");
}

/*
 * This rank's part of a plain copy that reads and writes as many bytes as a gather of everything:
 * from its own part of the full weights, to memory that it has touched before. On a device it is
 * one within the device.
 */
static int prepare_copy(struct rank *rank)
{
    const struct run *run = rank->run;
    struct layout_bytes bytes = layout_bytes(run->options, run->model);
    uint64_t ranks = run->options->ranks;
    uint64_t size = (bytes.source + bytes.gathered) / 2 / ranks;
    uint64_t most = run->source->size / ranks;

    rank->copy_size = size < most ? size : most;
    rank->result->copied = rank->copy_size;
    if (rank->gpu != NULL) {
        int status = gpu_prepare_copy(rank->gpu, rank->copy_size);
        return status == F8_OK ? 0 : rank_fail(rank, status, "prepare", "a plain copy");
    }
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

/* The rank's device, before anything of CUDA is used for it. */
static int open_device(struct rank *rank)
{
    const struct options *options = rank->run->options;
    /* Each host has all of the devices. */
    uint32_t host = layout_host(options, rank->place.rank);
    uint32_t here = rank->place.rank - layout_first_rank(options, host);
    uint32_t turn = options->num_devices > 0 ? here % options->num_devices : 0;
    int status;

    if (!options->cuda) {
        return 0;
    }
    status = gpu_open(options->num_devices > 0 ? options->devices[turn] : -1, here, &rank->gpu);
    if (status != F8_OK) {
        return rank_fail(rank, status, "open", "a CUDA device");
    }
    rank->stream = gpu_stream(rank->gpu);
    snprintf(rank->result->device, sizeof(rank->result->device), "%s", gpu_name(rank->gpu));
    return 0;
}

static int prepare(struct rank *rank)
{
    const struct model *model = rank->run->model;

    rank->offsets = calloc(model->num_weights, sizeof(*rank->offsets));
    rank->views = calloc(model->num_weights, sizeof(*rank->views));
    rank->asked = calloc(model->num_buckets, sizeof(*rank->asked));
    rank->checker = checker_new();
    if (rank->offsets == NULL || rank->views == NULL || rank->asked == NULL ||
        rank->checker == NULL) {
        return rank_no_memory(rank, "the lists of a rank");
    }
    if (open_device(rank) != 0) {
        return -1;
    }
    return rank_delayed_new(rank) != 0 ? -1 : prepare_copy(rank);
}

static bool has_amax(const struct model_weight *weight)
{
    return weight->flavour == F8_DYNAMIC || weight->flavour == F8_DELAYED;
}

/* Whether there is anything for an amax group of its own. */
static bool wants_mesh(const struct run *run)
{
    bool any = false;

    for (uint32_t i = 0; i < run->model->num_weights; i++) {
        any = any || has_amax(&run->model->weights[i]);
    }
    return any && run->options->dp > 0;
}

/* Its gather group, and what all ranks of a mesh have in common. */
static int join_groups(struct rank *rank)
{
    const struct run *run = rank->run;
    const struct options *options = run->options;
    uint32_t first = layout_first_rank(options, rank->host);
    uint32_t end = options->hosts > 0 ? layout_first_rank(options, rank->host + 1) : options->ranks;
    const struct rank_group gathers = {.name = rank->group_name,
        .number = rank->place.group,
        .rank = rank->place.shard,
        .world_size = layout_world_size(options),
        .local_ranks = layout_local_ranks(options, rank->place.group, rank->host)};
    const struct rank_group mesh = {.name = "mesh",
        .number = layout_num_groups(options),
        .rank = rank->place.rank,
        .world_size = options->ranks,
        .local_ranks = end - first};

    layout_group_name(options, rank->place.group, rank->group_name, sizeof(rank->group_name));
    if (rank_join(rank, &gathers, &rank->group) != 0) {
        return -1;
    }
    rank->amax_group = rank->group;
    return wants_mesh(run) ? rank_join(rank, &mesh, &rank->amax_group) : 0;
}

static int join(struct rank *rank)
{
    const struct run *run = rank->run;
    struct f8_connect_options options = {.socket = run->socket, .job = run->job};
    int status = f8_connect(&options, &rank->client);

    if (status != F8_OK) {
        return rank_fail(rank, status, "connect to", run->socket);
    }
    if (rank->gpu != NULL) {
        status = f8_set_device(rank->client, gpu_ordinal(rank->gpu));
        if (status != F8_OK) {
            return rank_fail(rank, status, "work on", rank->result->device);
        }
    }
    return join_groups(rank);
}

/* The region on the device, and its copy on the host. */
static int allocate_on_device(struct rank *rank)
{
    void *address = NULL;
    int status =
        gpu_allocate(rank->gpu, rank->run->options->cuda_memory, rank->shards_size, &address);

    if (status == F8_OK) {
        status = f8_region_share_pointer(rank->client, address, rank->shards_size, &rank->region);
    }
    if (status != F8_OK) {
        return rank_fail(rank, status, "allocate", "the region of the shards");
    }
    rank->shards = calloc(1, rank->shards_size);
    return rank->shards != NULL ? 0 : rank_no_memory(rank, "the shards");
}

static int allocate(struct rank *rank)
{
    void *address = NULL;
    int status;

    for (uint32_t i = 0; i < rank->run->model->num_weights; i++) {
        rank->offsets[i] = rank->shards_size;
        rank->shards_size += (shard_bytes(rank, i) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    if (rank->shards_size == 0) {
        return 0;
    }
    if (rank->gpu != NULL) {
        return allocate_on_device(rank);
    }
    status = f8_region_alloc(rank->client, rank->shards_size, &rank->region, &address);
    if (status != F8_OK) {
        return rank_fail(rank, status, "allocate", "the region of the shards");
    }
    rank->shards = address;
    return 0;
}

/* Allocates the region, and fills the shards in the full weights and in it. */
static int fill(struct rank *rank)
{
    if (allocate(rank) != 0) {
        return -1;
    }
    write_all(rank, -1);
    rank_barrier(rank);
    if (rank_publish(rank) != 0) {
        return -1;
    }
    rank_static_scales(rank);
    rank_barrier(rank);
    return 0;
}

/* A part of a weight is a whole tensor to its gather group. */
static void describe(const struct rank *rank, uint32_t weight, struct f8_weight_desc *desc)
{
    const struct run *run = rank->run;
    const struct options *options = run->options;
    const struct model_weight *what = &run->model->weights[weight];
    struct model_part part = layout_part(options, what, rank->place.group);
    bool foreign = has_amax(what) && rank->amax_group != rank->group;

    *desc = (struct f8_weight_desc){.name = what->name,
        .ndim = what->ndim,
        .dtype = what->dtype,
        .flavour = what->flavour,
        .format = options->format,
        .power_of_two = options->power_of_two && has_amax(what),
        .static_scale = shared_static_scales(run->shared, run->index)[weight],
        .amax_group = foreign ? rank->amax_group : NULL,
        .region = shard_bytes(rank, weight) > 0 ? rank->region : NULL,
        .offset = rank->offsets[weight]};
    if (what->flavour == F8_DELAYED) {
        desc->history_length = options->history_length;
        desc->history = options->history;
    }
    memcpy(desc->shape, what->shape, sizeof(desc->shape));
    if (what->ndim == 2) {
        desc->shape[0] = part.num_rows;
        desc->shape[1] = part.num_cols;
    }
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
    struct f8_seal_options options = {
        .slots = rank->run->options->slots, .deadline_ms = options_deadline_ms(rank->run->options)};
    int status = f8_seal(rank->group, &options);

    if (status != F8_OK) {
        return rank_fail(rank, status, "seal group", rank->group_name);
    }
    if (rank->amax_group != rank->group) {
        options.slots = 0;
        status = f8_seal(rank->amax_group, &options);
    }
    return status == F8_OK ? 0 : rank_fail(rank, status, "seal", "group mesh");
}

int rank_open(struct rank *rank)
{
    if (prepare(rank) != 0 || rank_yardstick_open(rank) != 0 || join(rank) != 0 ||
        fill(rank) != 0 || register_all(rank) != 0) {
        return -1;
    }
    return seal(rank);
}

void rank_close(struct rank *rank)
{
    f8_close(rank->client);
    rank_yardstick_close(rank);
    if (rank->gpu != NULL) {
        free(rank->shards);
    }
    gpu_close(rank->gpu);
    free(rank->gathered);
    if (rank->copy != NULL) {
        munmap(rank->copy, rank->copy_size + 1);
    }
    for (uint32_t i = 0; rank->delayed != NULL && i < rank->run->model->num_weights; i++) {
        free(rank->delayed[i]);
    }
    free(rank->delayed);
    checker_free(rank->checker);
    free(rank->asked);
    free(rank->views);
    free(rank->offsets);
}
