/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of one rank process: in each step it changes its shards, precomputes, gathers every
 * bucket ahead by one, and syncs, timing each part. Single-threaded; started by run.c's fork. All
 * ranks of a job run the same code in the same order; barriers keep checks and changes apart, and
 * the timed parts begin together.
 */
#include "rank.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>

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

void rank_barrier(struct rank *rank)
{
    shared_barrier(rank->run->shared, rank->run->index);
}

/* The time of this step that begins now; timed() ends it. */
static void timed(struct rank *rank, uint32_t step, enum shared_time time, double begin)
{
    *shared_time_of(rank->run->shared, step, rank->index, time) += shared_now() - begin;
}

/* What others have too is changed by one of them, and published by all. */
static int change(struct rank *rank, uint32_t step)
{
    const struct run *run = rank->run;
    double begin = shared_now();
    int status;

    rank_change(rank, step);
    timed(rank, step, TIME_CHANGE, begin);
    rank_barrier(rank);
    begin = shared_now();
    if (rank_publish(rank) != 0) {
        return -1;
    }
    timed(rank, step, TIME_CHANGE, begin);
    rank_take_amaxes(rank);
    status = f8_changed(rank->group, 0, run->model->num_weights);
    return status == F8_OK ? 0 : rank_fail(rank, status, "announce", "changed weights");
}

static int measure_memcpy(struct rank *rank, uint32_t step)
{
    struct shared *shared = rank->run->shared;
    const uint8_t *from = rank->run->source->base + rank->place.rank * rank->copy_size;
    int status = F8_OK;

    rank_barrier(rank);
    *shared_time_of(shared, step, rank->index, TIME_MEMCPY_BEGIN) = shared_now();
    if (rank->gpu != NULL) {
        status = gpu_copy(rank->gpu);
    } else {
        memcpy(rank->copy, from, rank->copy_size);
    }
    *shared_time_of(shared, step, rank->index, TIME_MEMCPY_END) = shared_now();
    rank_barrier(rank);
    return status == F8_OK ? 0 : rank_fail(rank, status, "make", "a plain copy");
}

/* On a device nothing in the library waits for it; what is timed is until the data are there. */
static int await_device(struct rank *rank)
{
    return rank->gpu != NULL ? gpu_await(rank->gpu) : F8_OK;
}

/* Waits for a collective of the amax group that was asked for with this status. */
static int await(struct rank *rank, int status, f8_ticket ticket)
{
    if (status == F8_OK) {
        status = f8_wait(rank->amax_group, ticket, F8_FOREVER, rank->stream);
    }
    return status == F8_OK ? await_device(rank) : status;
}

static int precompute(struct rank *rank, uint32_t step)
{
    double begin = shared_now();
    f8_ticket ticket = 0;
    int status = f8_precompute(
        rank->amax_group, options_deadline_ms(rank->run->options), rank->stream, &ticket);

    status = await(rank, status, ticket);
    timed(rank, step, TIME_PRECOMPUTE, begin);
    return status == F8_OK ? 0 : rank_fail(rank, status, "precompute", "the scales");
}

static int sync_scales(struct rank *rank, uint32_t step)
{
    double begin = shared_now();
    f8_ticket ticket = 0;
    int status = f8_sync(rank->amax_group, options_deadline_ms(rank->run->options), &ticket);

    status = await(rank, status, ticket);
    timed(rank, step, TIME_SYNC, begin);
    if (status != F8_OK) {
        return rank_fail(rank, status, "sync", "the delayed scales");
    }
    rank_follow_sync(rank);
    return 0;
}

static int ask(struct rank *rank, uint32_t step, uint32_t bucket)
{
    double begin = shared_now();
    int status = F8_OK;

    rank->asked[bucket] = begin;
    if (rank->run->options->pre_gather) {
        status = f8_pre_gather(rank->group, bucket, rank->stream);
    }
    if (status == F8_OK) {
        status =
            f8_gather(rank->group, bucket, options_deadline_ms(rank->run->options), rank->stream);
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
            rank->group, *waited, F8_FOREVER, &rank->views[what->first], what->count, rank->stream);
        if (status == F8_OK) {
            status = await_device(rank);
        }
        timed(rank, step, TIME_POST_GATHER, begin);
        if (status != F8_OK) {
            return rank_fail(rank, status, "gather", what->name);
        }
        histogram_add(&rank->result->gather_times, shared_now() - rank->asked[*waited]);
    }
    return 0;
}

static int release(struct rank *rank, uint32_t step, uint32_t bucket)
{
    double begin = shared_now();
    int status = f8_release(rank->group, bucket, rank->stream);

    timed(rank, step, TIME_RELEASE, begin);
    return status == F8_OK
               ? 0
               : rank_fail(rank, status, "release", rank->run->model->buckets[bucket].name);
}

/* The ranks of a gather group that share a host, and so what was gathered, take turns; those that
 * do not check wait, so that no memory changes under it. */
static int check(struct rank *rank, uint32_t step, uint32_t bucket)
{
    bool mine = (bucket + step) % rank->turns == rank->turn;
    int result = 0;

    rank_barrier(rank);
    if (mine) {
        result = rank_check_bucket(rank, step, bucket);
    }
    rank_barrier(rank);
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

    if (ask(rank, step, 0) != 0) {
        return -1;
    }
    for (uint32_t b = 0; b < num_buckets; b++) {
        bool more = b + 1 < num_buckets;
        if ((more && ask(rank, step, b + 1) != 0) ||
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

    rank_barrier(rank); /* nobody checks any more */
    if (change(rank, step) != 0) {
        return -1;
    }
    if (measure_memcpy(rank, step) != 0 || rank_yardstick_measure(rank, step) != 0) {
        return -1;
    }
    if (rank_count_begin(rank) != 0) {
        return -1;
    }
    if (rank->run->options->precompute) {
        if (precompute(rank, step) != 0) {
            return -1;
        }
        rank_barrier(rank);
    }
    rank_follow_gathers(rank);
    if (gather_counted(rank, step) != 0 ||
        (rank->run->options->flavour == F8_DELAYED && sync_scales(rank, step) != 0) ||
        rank_count_end(rank, step) != 0) {
        return -1;
    }
    if (rank->place.rank == rank->crew_first) {
        atomic_fetch_add(&shared->steps_done, 1);
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

/* The library must have counted a sync in each step of a delayed run, and none otherwise. */
static int check_syncs(struct rank *rank)
{
    const struct options *options = rank->run->options;
    uint64_t expected = options->flavour == F8_DELAYED ? options->steps : 0;
    int status = f8_syncs(rank->amax_group, &rank->result->syncs);

    if (status != F8_OK) {
        return rank_fail(rank, status, "count", "the syncs");
    }
    if (rank->result->syncs != expected) {
        rank->result->status = F8_EINTERNAL;
        return bench_fail(&rank->result->error, "f8_syncs says %llu after %llu syncs",
            (unsigned long long)rank->result->syncs, (unsigned long long)expected);
    }
    return 0;
}

int rank_main(const struct run *run, uint32_t number)
{
    uint32_t index = run->index * run->options->ranks + number;
    struct rank rank = {.run = run,
        .place = layout_place(run->options, number),
        .index = index,
        .host = layout_host(run->options, number),
        .crew_first = layout_crew_first(run->options),
        .crew = layout_crew_size(run->options),
        .turn = layout_local_index(run->options, number),
        .result = &run->shared->ranks[index]};
    int result;

    rank.turns = layout_local_ranks(run->options, rank.place.group, rank.host);
    result = rank_open(&rank);

    if (result == 0) {
        shared_start(run->shared);
    }
    for (uint32_t step = 0; result == 0 && step < run->options->steps; step++) {
        result = run_step(&rank, step);
    }
    if (result == 0) {
        result = check_syncs(&rank);
    }
    if (result == 0) {
        await_go(&rank);
    }
    rank_close(&rank);
    return result == 0 ? 0 : 1;
}
