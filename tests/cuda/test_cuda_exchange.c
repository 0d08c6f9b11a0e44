/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Works over several simulated GPUs: reduction, scales and spans with the ranks laid out in every
 * way, shards that are uneven and empty, amaxes of another arena. Streams are slowed at random.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "module_fixture.h"
#include "proto/status.h"
#include "shards.h"
#include "tests/lib/suite.h"

#define MIB       ((uint64_t)1 << 20)
#define MAX_RANKS 6
#define SLOTS     3
#define CHUNK     1501

/* Ranks on devices. */
static const struct layout {
    uint32_t ranks;
    int32_t devices[MAX_RANKS];
    enum backend_path path;
} layouts[] = {
    {2, {0, 1}, BACKEND_PATH_ALLGATHER},
    {2, {1, 0}, BACKEND_PATH_ALLGATHER},
    {3, {2, 0, 1}, BACKEND_PATH_ALLGATHER},
    {4, {3, 1, 2, 0}, BACKEND_PATH_ALLGATHER},
    {2, {1, 1}, BACKEND_PATH_NONE},
    {3, {0, 0, 1}, BACKEND_PATH_BROADCAST},
    {3, {1, 0, 1}, BACKEND_PATH_BROADCAST},
    {4, {0, 0, 1, 1}, BACKEND_PATH_BROADCAST},
    {6, {3, 3, 1, 0, 3, 0}, BACKEND_PATH_BROADCAST},
};
#define LAYOUTS ((int)(sizeof(layouts) / sizeof(layouts[0])))

static struct rng rng;

static void setup(void)
{
    rng.state = 11;
    module_open(0);
}

static void teardown(void)
{
    module_close();
}

/* A model of SLOTS weights, each with a shard a rank, and what its gather must give. */
struct model {
    const struct layout *layout;
    struct shard shards[SLOTS][MAX_RANKS];
    float scales[SLOTS];
    uint32_t amaxes[SLOTS];
    struct f8k_counts counts[SLOTS];
    struct backend_span spans[SLOTS];
    uint64_t size;
    uint8_t *gathered; /* owned: size bytes of the arena */
};

static enum f8k_dtype dtype_of(uint32_t slot)
{
    return all_dtypes[slot];
}

static enum f8k_format format_of(uint32_t slot)
{
    return all_formats[slot % 2];
}

static void model_new(struct model *model, const struct layout *layout)
{
    *model = (struct model){.layout = layout, .size = 4096 + SLOTS * MAX_RANKS * CHUNK};
    model->gathered = calloc(1, model->size);
    ck_assert_ptr_nonnull(model->gathered);
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        model->spans[slot] = (struct backend_span){
            .offset = 4096 + (uint64_t)slot * layout->ranks * CHUNK, .chunk = CHUNK};
        for (uint32_t rank = 0; rank < layout->ranks; rank++) {
            /* Full, a part, or nothing. */
            uint64_t count = rng_below(&rng, 3) == 0 ? 0 : CHUNK - rng_below(&rng, 2) * 700;
            struct shard *shard = &model->shards[slot][rank];
            *shard = shard_new(&rng, layout->devices[rank], dtype_of(slot), count, false);
            if (shard->amax > model->amaxes[slot])
                model->amaxes[slot] = shard->amax;
        }
        model->scales[slot] = f8k_scale(
            model->amaxes[slot], dtype_of(slot), format_of(slot), F8K_SCALE_PRECOMPUTE, slot == 2);
        memcpy(model->gathered + 4 * slot, &model->scales[slot], sizeof(float));
        for (uint32_t rank = 0; rank < layout->ranks; rank++)
            shard_cast(&model->shards[slot][rank], format_of(slot), model->scales[slot],
                model->gathered + model->spans[slot].offset + (uint64_t)rank * CHUNK,
                &model->counts[slot]);
    }
}

static void model_done(struct model *model)
{
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        for (uint32_t rank = 0; rank < model->layout->ranks; rank++)
            shard_done(&model->shards[slot][rank]);
    free(model->gathered);
}

/* One task of each shard, by weights or by ranks; returns how many. */
static uint32_t add_tasks(const struct model *model, const struct arena *arena, enum backend_op op,
    struct backend_task *tasks)
{
    uint32_t count = 0;
    for (uint32_t rank = 0; rank < model->layout->ranks; rank++)
        for (uint32_t slot = 0; slot < SLOTS; slot++) {
            int32_t device = model->layout->devices[rank];
            struct backend_task *task = &tasks[count++];
            *task = shard_task(&model->shards[slot][rank], op, device, rank, slot);
            if (op != BACKEND_CAST)
                continue;
            task->format = format_of(slot);
            task->dst =
                arena_on(arena, device)->base + model->spans[slot].offset + (uint64_t)rank * CHUNK;
        }
    return count;
}

static void set_scales(struct backend_scale *scales)
{
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        scales[slot] = (struct backend_scale){.slot = slot,
            .amax_slot = slot,
            .copy = 4 * slot,
            .dtype = (uint8_t)dtype_of(slot),
            .format = (uint8_t)format_of(slot),
            .path = F8K_SCALE_PRECOMPUTE,
            .power_of_two = slot == 2};
}

static void check_everywhere(const struct model *model, const struct arena *arena)
{
    uint8_t *there = malloc(model->size);
    ck_assert_ptr_nonnull(there);
    for (uint32_t d = 0; d < arena->device->num_devices; d++) {
        int32_t device = arena->device->devices[d].device;
        module_download(arena, device, 0, there, model->size);
        for (uint64_t i = 0; i < model->size; i++)
            ck_assert_msg(there[i] == model->gathered[i], "device %d, byte %llu: %02x, not %02x",
                device, (unsigned long long)i, there[i], model->gathered[i]);
    }
    free(there);
}

static void check_results(const struct model *model, const struct module_run *run)
{
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        ck_assert_uint_eq(run->amaxes[slot], model->amaxes[slot]);
        ck_assert_uint_eq(run->counts[slot].saturated, model->counts[slot].saturated);
        ck_assert_uint_eq(run->counts[slot].nan, model->counts[slot].nan);
    }
}

static struct arena *arena_of(const struct model *model)
{
    const struct layout *layout = model->layout;
    struct arena *arena =
        module_arena("0/job/dp", layout->devices, layout->ranks, SLOTS, model->size);
    ck_assert_int_eq(arena->device->path, layout->path);
    return arena;
}

/* In-gather scaling: amaxes, their reduction, scales, casts and the exchange in one work. */
START_TEST(scaling_in_the_gather)
{
    struct model model;
    struct backend_task tasks[2 * SLOTS * MAX_RANKS];
    struct backend_scale scales[SLOTS];
    model_new(&model, &layouts[_i]);
    struct arena *arena = arena_of(&model);
    uint32_t num_tasks = add_tasks(&model, arena, BACKEND_AMAX, tasks);
    num_tasks += add_tasks(&model, arena, BACKEND_CAST, tasks + num_tasks);
    set_scales(scales);
    struct module_run run = module_run_of(arena, tasks, num_tasks);
    run.steps.reduce_count = SLOTS;
    run.steps.scales = scales;
    run.steps.num_scales = SLOTS;
    run.steps.spans = model.spans;
    run.steps.num_spans = SLOTS;
    module_add_landing(&run, 0, SLOTS);
    module_do(&run);
    check_everywhere(&model, arena);
    check_results(&model, &run);
    uint64_t exchanges = arena->device->exchanges;
    if (layouts[_i].path == BACKEND_PATH_NONE)
        ck_assert_uint_eq(exchanges, 0);
    else
        ck_assert_uint_ge(exchanges, SLOTS);
    module_run_done(&run);
    module_free_arena(arena);
    model_done(&model);
}
END_TEST

/* Precomputed scaling: the amaxes are those of another arena, the amax group's, without bytes. */
START_TEST(scales_from_the_amaxes_of_another_arena)
{
    struct model model;
    struct backend_task amaxes[SLOTS * MAX_RANKS], casts[SLOTS * MAX_RANKS];
    struct backend_scale scales[SLOTS];
    const struct layout *layout = &layouts[_i];
    model_new(&model, layout);
    struct arena *group = module_arena("0/job/all", layout->devices, layout->ranks, SLOTS, 0);
    struct arena *arena = arena_of(&model);
    uint32_t num_tasks = add_tasks(&model, group, BACKEND_AMAX, amaxes);
    struct module_run precompute = module_run_of(group, amaxes, num_tasks);
    precompute.steps.reduce_count = SLOTS;

    num_tasks = add_tasks(&model, arena, BACKEND_CAST, casts);
    set_scales(scales);
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        scales[slot].foreign = true;
    struct module_run gather = module_run_of(arena, casts, num_tasks);
    gather.steps.amaxes = group;
    gather.steps.after = &group;
    gather.steps.num_after = 1;
    gather.steps.scales = scales;
    gather.steps.num_scales = SLOTS;
    gather.steps.spans = model.spans;
    gather.steps.num_spans = SLOTS;
    module_submit(&precompute);
    module_do(&gather); /* queued behind it, not waited for */
    ck_assert(precompute.has_finished);
    ck_assert_int_eq(precompute.status, F8_OK);
    check_everywhere(&model, arena);
    module_free_arena(arena);
    module_free_arena(group);
    model_done(&model);
}
END_TEST

/* Many gathers behind one another, each of other weights, none waited for. */
START_TEST(gathers_run_ahead)
{
    enum { ROUNDS = 8 };
    static struct module_run runs[ROUNDS];
    static struct backend_task tasks[ROUNDS][SLOTS * MAX_RANKS];
    struct model model;
    struct backend_scale scales[SLOTS];
    model_new(&model, &layouts[_i]);
    struct arena *arena = arena_of(&model);
    set_scales(scales);
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        scales[slot].known = true;
        scales[slot].value = model.scales[slot];
    }
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t num_tasks = add_tasks(&model, arena, BACKEND_CAST, tasks[round]);
        runs[round] = module_run_of(arena, tasks[round], num_tasks);
        runs[round].steps.scales = scales;
        runs[round].steps.num_scales = SLOTS;
        runs[round].steps.spans = model.spans;
        runs[round].steps.num_spans = SLOTS;
        runs[round].steps.wants_done = true;
        module_add_landing(&runs[round], 0, SLOTS);
        module_submit(&runs[round]);
    }
    for (uint32_t round = 0; round < ROUNDS; round++) {
        module_wait(&runs[round].has_landed);
        ck_assert_int_eq(runs[round].landed_status, F8_OK);
        ck_assert_uint_eq(runs[round].steps.done, round);
        for (uint32_t slot = 0; slot < SLOTS; slot++)
            ck_assert_uint_eq(
                runs[round].counts[slot].saturated, (round + 1) * model.counts[slot].saturated);
        module_run_done(&runs[round]);
    }
    check_everywhere(&model, arena);
    module_free_arena(arena);
    model_done(&model);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("exchange");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, scaling_in_the_gather, 0, LAYOUTS);
    tcase_add_loop_test(tcase, scales_from_the_amaxes_of_another_arena, 0, LAYOUTS);
    tcase_add_loop_test(tcase, gathers_run_ahead, 3, 6); /* one of each path */
    return run_suite("cuda exchange", tcase);
}
