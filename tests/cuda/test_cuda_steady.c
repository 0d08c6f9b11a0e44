/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a step costs the device thread: in the steady state no allocation, no mapping, nothing
 * created, and no wait for a device, counted by the simulator; and how many launches and copies.
 */
#include <check.h>
#include <stdlib.h>

#include "module_fixture.h"
#include "proto/status.h"
#include "tests/cudasim/cudasim.h"
#include "tests/lib/suite.h"

#define SLOTS 24
#define CHUNK 64
#define STEPS 3

/* What must not be called in a step. */
static const enum cudasim_counter forbidden[] = {CUDASIM_ALLOCATIONS, CUDASIM_FREES, CUDASIM_MAPS,
    CUDASIM_UNMAPS, CUDASIM_IPC_OPENS, CUDASIM_IPC_CLOSES, CUDASIM_HOST_SYNCS,
    CUDASIM_STREAM_CREATIONS, CUDASIM_EVENT_CREATIONS, CUDASIM_COMM_INITS, CUDASIM_MODULE_LOADS};
#define FORBIDDEN (sizeof(forbidden) / sizeof(forbidden[0]))

static const struct layout {
    uint32_t ranks;
    int32_t devices[4];
} layouts[] = {{1, {0}}, {2, {0, 1}}, {4, {0, 0, 1, 1}}};

/* A model of SLOTS weights, a small shard of each on each rank. */
struct job {
    const struct layout *layout;
    struct arena *arena;
    struct backend_task *amaxes, *casts; /* owned */
    struct backend_scale *scales;        /* owned */
    struct backend_span span;
    uint32_t num_tasks;
};

static void job_new(struct job *job, const struct layout *layout)
{
    static const float values[CHUNK] = {1.0F, 2.0F, -3.0F};
    uint32_t ranks = layout->ranks;
    uint64_t size = (uint64_t)ranks * SLOTS * CHUNK;
    *job = (struct job){.layout = layout, .num_tasks = ranks * SLOTS};
    job->span = (struct backend_span){.chunk = SLOTS * CHUNK};
    job->arena = module_arena("0/job/dp", layout->devices, ranks, SLOTS, size);
    job->amaxes = calloc(job->num_tasks, sizeof(*job->amaxes));
    job->casts = calloc(job->num_tasks, sizeof(*job->casts));
    job->scales = calloc(SLOTS, sizeof(*job->scales));
    ck_assert(job->amaxes && job->casts && job->scales);
    for (uint32_t rank = 0; rank < ranks; rank++) {
        int32_t device = layout->devices[rank];
        const void *src = module_shard(device, values, sizeof(values));
        for (uint32_t slot = 0; slot < SLOTS; slot++) {
            struct backend_task task = {.src = src,
                .count = CHUNK,
                .op = BACKEND_AMAX,
                .dtype = F8K_F32,
                .format = F8K_E4M3FN,
                .device = device,
                .row = rank,
                .slot = slot};
            job->amaxes[rank * SLOTS + slot] = task;
            task.op = BACKEND_CAST;
            task.take_amax = slot % 2;
            task.dst = arena_on(job->arena, device)->base + ((uint64_t)rank * SLOTS + slot) * CHUNK;
            job->casts[rank * SLOTS + slot] = task;
        }
    }
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        job->scales[slot] = (struct backend_scale){.slot = slot,
            .amax_slot = slot,
            .copy = UINT64_MAX,
            .dtype = F8K_F32,
            .format = F8K_E4M3FN};
}

static void job_done(struct job *job)
{
    module_free_arena(job->arena);
    free(job->amaxes);
    free(job->casts);
    free(job->scales);
}

/* A step of a trainer: precompute, then the gather, and the landing of what it met. */
static void step(const struct job *job, const struct backend_ready *ready, uint32_t num_ready)
{
    struct module_run precompute = module_run_of(job->arena, job->amaxes, job->num_tasks);
    struct module_run gather = module_run_of(job->arena, job->casts, job->num_tasks);
    precompute.steps.ready = ready;
    precompute.steps.num_ready = num_ready;
    precompute.steps.reduce_count = SLOTS;
    precompute.steps.scales = job->scales;
    precompute.steps.num_scales = SLOTS;
    gather.steps.spans = &job->span;
    gather.steps.num_spans = 1;
    gather.steps.wants_done = true;
    module_add_landing(&gather, 0, SLOTS);
    module_submit(&precompute);
    module_do(&gather);
    ck_assert_int_eq(precompute.status, F8_OK);
    module_run_done(&gather);
}

static void take(uint64_t counters[FORBIDDEN])
{
    for (size_t i = 0; i < FORBIDDEN; i++)
        counters[i] = cudasim_counted(forbidden[i]);
}

static void setup(void)
{
    module_open(0);
}

static void teardown(void)
{
    module_close();
}

START_TEST(steps_allocate_and_wait_for_nothing)
{
    struct job job;
    uint64_t before[FORBIDDEN], after[FORBIDDEN];
    job_new(&job, &layouts[_i]);
    step(&job, NULL, 0);
    take(before);
    uint64_t launches = cudasim_counted(CUDASIM_LAUNCHES);
    uint64_t reduces = cudasim_counted(CUDASIM_ALL_REDUCES);
    for (int i = 0; i < STEPS; i++)
        step(&job, NULL, 0);
    take(after);
    for (size_t i = 0; i < FORBIDDEN; i++)
        ck_assert_msg(after[i] == before[i], "counter %d: %llu more in %d steps", (int)forbidden[i],
            (unsigned long long)(after[i] - before[i]), STEPS);

    /* One launch a device each: zeros, amaxes, maximum of rows, scales; zeros, casts. */
    uint32_t num_devices = job.arena->device->num_devices;
    launches = cudasim_counted(CUDASIM_LAUNCHES) - launches;
    ck_assert_uint_eq(launches, (uint64_t)STEPS * num_devices * 6);
    reduces = cudasim_counted(CUDASIM_ALL_REDUCES) - reduces;
    ck_assert_uint_eq(reduces, num_devices > 1 ? (uint64_t)STEPS * num_devices : 0);
    job_done(&job);
}
END_TEST

/* The same with a trainer whose events are waited for. */
START_TEST(steps_with_trainers_allocate_and_wait_for_nothing)
{
    struct job job;
    struct trainer trainer;
    uint64_t before[FORBIDDEN], after[FORBIDDEN];
    job_new(&job, &layouts[1]);
    trainer_start(&trainer, 1, 4096);
    struct module_client client = module_attach(&trainer, 4096);
    struct backend_ready ready = {.client = client.client};
    trainer_record(&trainer, 0);
    step(&job, &ready, 1);
    take(before);
    for (uint32_t i = 0; i < STEPS; i++) {
        ready.event = i % TRAINER_EVENTS;
        trainer_record(&trainer, ready.event);
        step(&job, &ready, 1);
    }
    take(after);
    for (size_t i = 0; i < FORBIDDEN; i++)
        ck_assert_msg(after[i] == before[i], "counter %d: %llu more in %d steps", (int)forbidden[i],
            (unsigned long long)(after[i] - before[i]), STEPS);
    trainer_end(&trainer);
    module_detach(&client);
    job_done(&job);
}
END_TEST

/* The counters do count: what is not a step moves them. */
START_TEST(reservations_are_counted)
{
    uint64_t before[FORBIDDEN], after[FORBIDDEN];
    take(before);
    struct arena *arena = module_arena("", layouts[1].devices, 2, 1, 4096);
    take(after);
    ck_assert_uint_gt(after[0], before[0]); /* allocations */
    ck_assert_uint_gt(after[2], before[2]); /* maps */
    ck_assert_uint_gt(after[6], before[6]); /* waits */
    ck_assert_uint_gt(after[7] + after[8] + after[9], before[7] + before[8] + before[9]);
    module_free_arena(arena);
    take(after);
    ck_assert_uint_gt(after[1], before[1]); /* frees */
    ck_assert_uint_gt(after[3], before[3]); /* unmaps */
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("steady");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, steps_allocate_and_wait_for_nothing, 0, 3);
    tcase_add_test(tcase, steps_with_trainers_allocate_and_wait_for_nothing);
    tcase_add_test(tcase, reservations_are_counted);
    return run_suite("cuda steady", tcase);
}
