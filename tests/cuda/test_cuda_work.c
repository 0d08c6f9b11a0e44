/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Works on simulated GPUs: each operation on each type against the reference kernels, on one
 * device and over several, with ranks laid out in every way. Streams are slowed at random.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "module_fixture.h"
#include "proto/status.h"
#include "shards.h"
#include "tests/lib/suite.h"

#define MIB ((uint64_t)1 << 20)

static struct rng rng;

static void setup(void)
{
    rng.state = 7;
    module_open(0);
}

static void teardown(void)
{
    module_close();
}

/* ---- one device ---- */

static const int32_t device_0[1] = {0};

static void check_bytes(
    const struct arena *arena, int32_t device, uint64_t offset, const void *bytes, uint64_t size)
{
    uint8_t *there = malloc(size + 1);
    ck_assert_ptr_nonnull(there);
    module_download(arena, device, offset, there, size);
    for (uint64_t i = 0; i < size; i++)
        ck_assert_msg(there[i] == ((const uint8_t *)bytes)[i],
            "device %d, byte %llu: %02x, must be %02x", device, (unsigned long long)(offset + i),
            there[i], ((const uint8_t *)bytes)[i]);
    free(there);
}

/* amax, scale from it, cast, all in one work; the scale is handed out too. */
START_TEST(one_work_scales_and_casts)
{
    enum f8k_dtype dtype = all_dtypes[_i / 2];
    enum f8k_format format = all_formats[_i % 2];
    struct arena *arena = module_arena("", device_0, 1, 2, MIB);
    uint8_t *base = arena->device->devices[0].base;
    struct shard shard = shard_new(&rng, 0, dtype, 40009, false);
    struct backend_task tasks[2] = {
        shard_task(&shard, BACKEND_AMAX, 0, 0, 1), shard_task(&shard, BACKEND_CAST, 0, 0, 1)};
    tasks[1].format = format;
    tasks[1].dst = base + 4096 + 3;
    struct backend_scale scale = {.slot = 1,
        .amax_slot = 1,
        .copy = 64,
        .dtype = (uint8_t)dtype,
        .format = (uint8_t)format,
        .path = F8K_SCALE_DIRECT};
    struct module_run run = module_run_of(arena, tasks, 2);
    run.steps.reduce_first = 1;
    run.steps.reduce_count = 1;
    run.steps.scales = &scale;
    run.steps.num_scales = 1;
    module_add_landing(&run, 0, 2);
    module_do(&run);

    struct f8k_counts counts = {0};
    uint8_t *bytes = malloc(shard.count);
    float value = f8k_scale(shard.amax, dtype, format, F8K_SCALE_DIRECT, false);
    shard_cast(&shard, format, value, bytes, &counts);
    check_bytes(arena, 0, 4096 + 3, bytes, shard.count);
    check_bytes(arena, 0, 64, &value, sizeof(value));
    ck_assert_uint_eq(run.amaxes[0], 0);
    ck_assert_uint_eq(run.amaxes[1], shard.amax);
    ck_assert_uint_eq(run.counts[1].saturated, counts.saturated);
    ck_assert_uint_eq(run.counts[1].nan, counts.nan);
    ck_assert_uint_eq(run.steps.done, BACKEND_NO_EVENT);
    free(bytes);
    shard_done(&shard);
    module_run_done(&run);
    module_free_arena(arena);
}
END_TEST

/* Delayed scaling: the scale is known, the amax comes from the same pass, specials are counted. */
START_TEST(known_scales_and_amaxes_in_passing)
{
    enum f8k_dtype dtype = all_dtypes[_i / 2];
    enum f8k_format format = all_formats[_i % 2];
    struct arena *arena = module_arena("", device_0, 1, 1, MIB);
    struct shard shard = shard_new(&rng, 0, dtype, 35001, true);
    struct backend_task task = shard_task(&shard, BACKEND_CAST, 0, 0, 0);
    task.format = format;
    task.dst = arena->device->devices[0].base;
    task.take_amax = true;
    struct backend_scale scale = {
        .known = true, .value = 37.5F, .copy = UINT64_MAX, .dtype = (uint8_t)dtype};
    struct module_run run = module_run_of(arena, &task, 1);
    run.steps.scales = &scale;
    run.steps.num_scales = 1;
    module_add_landing(&run, 0, 1);

    struct f8k_counts counts = {0};
    uint8_t *bytes = malloc(shard.count);
    for (int times = 1; times <= 3; times++) { /* counts are totals, amaxes are not */
        module_do(&run);
        shard_cast(&shard, format, 37.5F, bytes, &counts);
        check_bytes(arena, 0, 0, bytes, shard.count);
        ck_assert_uint_eq(run.amaxes[0], shard.amax);
        ck_assert_uint_eq(run.counts[0].saturated, counts.saturated);
        ck_assert_uint_eq(run.counts[0].nan, counts.nan);
        ck_assert_uint_gt(counts.nan, 0);
    }
    free(bytes);
    shard_done(&shard);
    module_run_done(&run);
    module_free_arena(arena);
}
END_TEST

/* An amax begins anew in each work: a smaller one follows a larger one. */
START_TEST(amaxes_begin_anew)
{
    struct arena *arena = module_arena("", device_0, 1, 3, 0);
    const float large[2] = {1.0F, -1024.0F}, small[2] = {0.25F, 0.5F};
    const void *sources[2] = {
        module_shard(0, large, sizeof(large)), module_shard(0, small, sizeof(small))};
    for (int i = 0; i < 4; i++) {
        struct backend_task task = {
            .src = sources[i % 2], .count = 2, .op = BACKEND_AMAX, .dtype = F8K_F32, .slot = 1};
        struct module_run run = module_run_of(arena, &task, 1);
        float amax = i % 2 ? 0.5F : 1024.0F;
        module_add_landing(&run, 0, 3);
        module_do(&run);
        ck_assert_mem_eq(&run.amaxes[1], &amax, sizeof(amax));
        ck_assert_uint_eq(run.amaxes[0] | run.amaxes[2], 0);
        module_run_done(&run);
    }
    module_free_arena(arena);
}
END_TEST

START_TEST(copies_conversions_and_fills)
{
    struct arena *arena = module_arena("", device_0, 1, 1, MIB);
    uint8_t *base = arena->device->devices[0].base;
    struct shard half = shard_new(&rng, 0, F8K_F16, 5001, true);
    struct shard single = shard_new(&rng, 0, F8K_F32, 33333, true);
    struct backend_task tasks[4] = {shard_task(&half, BACKEND_COPY, 0, 0, 0),
        shard_task(&single, BACKEND_COPY, 0, 0, 0), shard_task(&single, BACKEND_TO_BF16, 0, 0, 0),
        {.op = BACKEND_FILL, .dst = base + 900000, .count = 1234, .byte = 0x7f}};
    tasks[0].dst = base + 1;
    tasks[1].dst = base + 100000;
    tasks[2].dst = base + 400000;
    struct module_run run = module_run_of(arena, tasks, 4);
    module_do(&run);

    uint16_t *converted = malloc(single.count * sizeof(*converted));
    uint8_t filled[1236] = {0};
    f8k_variant(0)->to_bf16(single.host, converted, single.count);
    memset(filled + 1, 0x7f, 1234);
    check_bytes(arena, 0, 1, half.host, half.count * 2);
    check_bytes(arena, 0, 100000, single.host, single.count * 4);
    check_bytes(arena, 0, 400000, converted, single.count * 2);
    check_bytes(arena, 0, 900000 - 1, filled, sizeof(filled));
    free(converted);
    shard_done(&half);
    shard_done(&single);
    module_free_arena(arena);
}
END_TEST

/* Tables that no piece of the ring takes whole are sent in parts. */
START_TEST(more_tasks_than_the_ring_takes)
{
    enum { TASKS = 1500 };
    struct arena *arena = module_arena("", device_0, 1, 1, MIB);
    struct backend_task *tasks = calloc(TASKS, sizeof(*tasks));
    uint8_t *bytes = malloc(TASKS);
    for (uint32_t i = 0; i < TASKS; i++) {
        bytes[i] = (uint8_t)(i * 7 + i / 256);
        tasks[i] = (struct backend_task){.op = BACKEND_FILL,
            .dst = arena->device->devices[0].base + i,
            .count = i % 100 != 99, /* some have nothing to do */
            .byte = bytes[i]};
        if (i % 100 == 99)
            bytes[i] = 0;
    }
    struct module_run run = module_run_of(arena, tasks, TASKS);
    module_do(&run);
    check_bytes(arena, 0, 0, bytes, TASKS);
    free(tasks);
    free(bytes);
    module_free_arena(arena);
}
END_TEST

/* A work of nothing ends, and so does one whose shards are all empty. */
START_TEST(works_of_nothing)
{
    struct arena *arena = module_arena("", device_0, 1, 1, 0);
    struct backend_task task = {.op = BACKEND_AMAX, .dtype = F8K_F32};
    struct module_run run = module_run_of(arena, NULL, 0);
    module_do(&run);
    run = module_run_of(arena, &task, 1);
    run.steps.wants_done = true;
    module_add_landing(&run, 0, 1);
    module_do(&run);
    ck_assert_uint_eq(run.amaxes[0], 0);
    ck_assert_uint_eq(run.steps.done, 0);
    module_do(&run);
    ck_assert_uint_eq(run.steps.done, 1);
    module_run_done(&run);
    module_free_arena(arena);
}
END_TEST

/* What a work names must be on the devices of its arena; nothing has been queued then. */
START_TEST(works_that_are_refused)
{
    struct arena *arena = module_arena("", device_0, 1, 2, 4096);
    struct backend_task task = {.op = BACKEND_FILL, .dst = arena->device->devices[0].base};
    struct backend_span span = {.offset = 4095, .chunk = 2};
    struct module_run run = module_run_of(arena, &task, 1);
    module_add_landing(&run, 1, 1);
    const char *words = NULL;
    switch (_i) {
    case 0:
        task.device = 1;
        words = "device 1";
        break;
    case 1:
        task.op = BACKEND_AMAX;
        task.row = 1;
        words = "rank 1";
        break;
    case 2:
        run.steps.reduce_first = 2;
        run.steps.reduce_count = 1;
        words = "1 slots from 2";
        break;
    case 3:
        run.landing.count = 2;
        words = "2 slots from 1";
        break;
    default:
        run.steps.spans = &span;
        run.steps.num_spans = 1;
        words = "byte 4095";
        break;
    }
    module_submit(&run);
    module_wait(&run.has_finished);
    ck_assert_int_eq(run.status, F8_EINVAL);
    ck_assert_ptr_nonnull(strstr(run.landing.reason.text, words));

    struct module_run next = module_run_of(arena, NULL, 0);
    module_do(&next);
    module_run_done(&run);
    module_free_arena(arena);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("one device");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, one_work_scales_and_casts, 0, 6);
    tcase_add_loop_test(tcase, known_scales_and_amaxes_in_passing, 0, 6);
    tcase_add_test(tcase, amaxes_begin_anew);
    tcase_add_test(tcase, copies_conversions_and_fills);
    tcase_add_test(tcase, more_tasks_than_the_ring_takes);
    tcase_add_test(tcase, works_of_nothing);
    tcase_add_loop_test(tcase, works_that_are_refused, 0, 5);
    return run_suite("cuda work", tcase);
}
