/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of the backends' contract that is about results: every task gives, to the bit, what
 * the reference kernels give for it in one go, and writes nothing beside it.
 */
#include "backend_contract.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "kernel_support.h"
#include "proto/status.h"

#define MIB ((size_t)1 << 20)

#define MAX_COUNT 1200000 /* several chunks, the last one partial */
#define NUM_TASKS 40
#define MARGIN    64
#define SENTINEL  0xa5

static size_t random_count(struct rng *rng)
{
    static const size_t counts[] = {0, 1, 2, 3, 31, 33, 4095, 4096, 4097, 262143, 262144, 262145,
        524288, 524289, MAX_COUNT - 1, MAX_COUNT};
    if (rng_below(rng, 2))
        return rng_below(rng, 3000);
    return counts[rng_below(rng, sizeof(counts) / sizeof(counts[0]))];
}

static size_t output_bytes(const struct backend_task *task)
{
    switch (task->op) {
    case BACKEND_AMAX:
        return 0;
    case BACKEND_COPY:
        return task->count * f8k_dtype_size(task->dtype);
    case BACKEND_TO_BF16:
        return task->count * 2;
    default:
        return task->count;
    }
}

/* A task over a random part of `source`, which has MAX_COUNT + 64 elements of every dtype. */
static struct backend_task random_task(struct rng *rng, uint8_t *const source[4])
{
    struct backend_task task = {
        .op = (enum backend_op)rng_below(rng, 5),
        .dtype = all_dtypes[rng_below(rng, 3)],
        .format = all_formats[rng_below(rng, 2)],
        .scale = random_scale(rng),
        .byte = (uint8_t)rng_next(rng),
        .take_amax = rng_below(rng, 2), /* only a cast heeds it */
        .count = random_count(rng),
        .amax = 0xdeadbeef, /* submit zeroes the results */
        .counts = {.saturated = 1, .nan = 1},
    };
    if (task.op == BACKEND_TO_BF16)
        task.dtype = F8K_F32;
    if (task.op != BACKEND_FILL)
        task.src = source[task.dtype] + rng_below(rng, 64) * f8k_dtype_size(task.dtype);
    if (task.op != BACKEND_AMAX) {
        size_t bytes = output_bytes(&task) + 2 * MARGIN;
        task.dst = malloc(bytes);
        ck_assert_ptr_nonnull(task.dst);
        memset(task.dst, SENTINEL, bytes);
        task.dst += MARGIN;
    }
    return task;
}

/* The whole task in one go by the reference kernels; dst is a fresh buffer. */
static void run_reference(struct backend_task *task)
{
    const struct f8k_ops *ref = f8k_variant(0);
    struct f8k_cast cast = {.src = task->src,
        .dst = task->dst,
        .count = task->count,
        .scale = task->scale,
        .dtype = task->dtype,
        .format = task->format};
    switch (task->op) {
    case BACKEND_AMAX:
        task->amax = ref->amax(task->dtype, task->src, task->count);
        break;
    case BACKEND_CAST:
        ref->cast(&cast, &task->counts);
        if (task->take_amax)
            task->amax = ref->amax(task->dtype, task->src, task->count);
        break;
    case BACKEND_COPY:
        memcpy(task->dst, task->src, output_bytes(task));
        break;
    case BACKEND_TO_BF16:
        ref->to_bf16(task->src, (void *)task->dst, task->count);
        break;
    case BACKEND_FILL:
        memset(task->dst, task->byte, task->count);
        break;
    }
}

/* Compares a finished task with the reference and frees its output. */
static void check_task(struct backend_task *task, int i)
{
    struct backend_task want = *task;
    size_t bytes = output_bytes(task);
    want.amax = 0;
    want.counts = (struct f8k_counts){0};
    want.dst = malloc(bytes + 1);
    ck_assert_ptr_nonnull(want.dst);
    run_reference(&want);

    ck_assert_msg(
        task->amax == want.amax, "task %d: amax %08x, not %08x", i, task->amax, want.amax);
    ck_assert_uint_eq(task->counts.saturated, want.counts.saturated);
    ck_assert_uint_eq(task->counts.nan, want.counts.nan);
    if (task->dst) {
        ck_assert_msg(memcmp(task->dst, want.dst, bytes) == 0, "task %d (op %d, %ju elements)", i,
            (int)task->op, (uintmax_t)task->count);
        for (int k = 1; k <= MARGIN; k++) {
            ck_assert_uint_eq(task->dst[-k], SENTINEL);
            ck_assert_uint_eq(task->dst[bytes + (size_t)k - 1], SENTINEL);
        }
        free(task->dst - MARGIN);
    }
    free(want.dst);
}

/* Specials are rare, so that most amaxes are finite and a NaN is in one chunk of several. */
static uint32_t source_element(struct rng *rng, enum f8k_dtype dtype)
{
    if (rng_below(rng, 10000) == 0)
        return random_element(rng, dtype);
    uint32_t bits = (uint32_t)rng_next(rng);
    return dtype == F8K_F32 ? (bits & 0x83ffffff) | 0x3c000000 : (bits & 0x9fff) | 0x2000;
}

START_TEST(results_equal_the_reference)
{
    struct rng rng = {.state = 4711 + (uint64_t)_i};
    struct backend_task tasks[NUM_TASKS];
    uint8_t *source[4] = {NULL};
    for (int d = 0; d < 3; d++) {
        enum f8k_dtype dtype = all_dtypes[d];
        source[dtype] = malloc((MAX_COUNT + 64) * f8k_dtype_size(dtype));
        ck_assert_ptr_nonnull(source[dtype]);
        for (size_t i = 0; i < MAX_COUNT + 64; i++)
            set_element(dtype, source[dtype], i, source_element(&rng, dtype));
    }
    for (int i = 0; i < NUM_TASKS; i++)
        tasks[i] = random_task(&rng, source);

    struct run run = run_of(tasks, NUM_TASKS, 1);
    run_submit(&run);
    run_wait(&run);
    ck_assert_int_eq(run.status, F8_OK);
    ck_assert_uint_eq(run.finished, 1);
    for (int i = 0; i < NUM_TASKS; i++)
        check_task(&tasks[i], i);
    for (int d = 0; d < 4; d++)
        free(source[d]);
}
END_TEST

/* Elements at the ends of first and last chunks: the chunks' amaxes and counts are combined. */
START_TEST(amax_and_counts_are_over_all_chunks)
{
    size_t count = 2 * MIB;
    float *src = (float *)map_zeros(count * sizeof(*src));
    uint8_t *dst = map_zeros(count);
    struct backend_task tasks[] = {
        {.op = BACKEND_AMAX, .src = src, .count = count, .dtype = F8K_F32},
        {.op = BACKEND_CAST,
            .src = src,
            .dst = dst,
            .count = count,
            .dtype = F8K_F32,
            .format = F8K_E4M3FN,
            .scale = 1.0F},
        {0},
    };
    tasks[2] = tasks[1];
    tasks[2].take_amax = true;
    tasks[2].dst = map_zeros(count);
    struct run run = run_of(tasks, 3, 1);
    src[0] = -2000.0F;
    src[count / 2] = 3000.0F;
    src[count - 1] = 1000.0F;
    run_submit(&run);
    run_wait(&run);

    float amax;
    memcpy(&amax, &tasks[0].amax, sizeof(amax));
    ck_assert_float_eq(amax, 3000.0F);
    ck_assert_uint_eq(tasks[1].amax, 0);
    ck_assert_uint_eq(tasks[2].amax, tasks[0].amax);
    ck_assert_uint_eq(tasks[2].counts.saturated, 3);
    ck_assert_mem_eq(tasks[2].dst, dst, count);
    ck_assert_uint_eq(tasks[1].counts.saturated, 3);
    ck_assert_uint_eq(dst[0], 0xfe);
    ck_assert_uint_eq(dst[count - 1], 0x7e);

    src[1] = src[count - 2] = src[count / 2 + 1] = NAN;
    run_submit(&run);
    run_out();
    ck_assert_uint_eq(run.finished, 2);
    ck_assert_uint_gt(tasks[0].amax, 0x7f800000);
    ck_assert_uint_eq(tasks[2].amax, tasks[0].amax);
    ck_assert_uint_eq(tasks[1].counts.saturated, 3);
    ck_assert_uint_eq(tasks[1].counts.nan, 3);
    (void)munmap(src, count * sizeof(*src));
    (void)munmap(dst, count);
    (void)munmap(tasks[2].dst, count);
}
END_TEST

void backend_results(TCase *tcase)
{
    tcase_add_loop_test(tcase, results_equal_the_reference, 0, 4);
    tcase_add_test(tcase, amax_and_counts_are_over_all_chunks);
}
