/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels compiled for the CPU: that threads, warps and blocks work together as on a device, that a
 * missing barrier gives wrong data for every seed, and that threads which do not meet are found.
 */
#include "child.h"
#include "test_kernels.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <cuda_runtime_api.h>

struct setting {
    cudaStream_t stream;
    uint32_t *src, *out; /* src[i] = i * i */
};

static struct setting set_up(void)
{
    struct setting set;
    uint32_t squares[KERNEL_THREADS];
    void *memory[2];
    for (uint32_t i = 0; i < KERNEL_THREADS; i++)
        squares[i] = i * i;
    CHILD_OK(cudaStreamCreateWithFlags(&set.stream, cudaStreamNonBlocking));
    CHILD_OK(cudaMalloc(&memory[0], sizeof squares));
    CHILD_OK(cudaMalloc(&memory[1], 4096));
    CHILD_OK(cudaMemcpy(memory[0], squares, sizeof squares, cudaMemcpyHostToDevice));
    CHILD_OK(cudaMemset(memory[1], 0, 4096));
    set.src = memory[0];
    set.out = memory[1];
    return set;
}

static uint32_t result(const struct setting *set, unsigned index)
{
    uint32_t value;
    CHILD_OK(cudaStreamSynchronize(set->stream));
    CHILD_OK(cudaMemcpy(&value, set->out + index, sizeof value, cudaMemcpyDeviceToHost));
    return value;
}

static uint32_t sum_of_squares(void)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < KERNEL_THREADS; i++)
        sum += i * i;
    return sum;
}

static void sum_rightly(void *argument)
{
    (void)argument;
    struct setting set = set_up();
    CHILD_OK(kernel_sum(set.out, set.src, 1, set.stream));
    CHILD_REQUIRE(result(&set, 0) == sum_of_squares());
    CHILD_OK(cudaMemset(set.out, 0, 4));
    CHILD_OK(kernel_warp_sum(set.out, set.src, set.stream));
    CHILD_REQUIRE(result(&set, 0) == 2 * sum_of_squares());
}

static void sum_without_barrier(void *argument)
{
    (void)argument;
    struct setting set = set_up();
    CHILD_OK(kernel_sum(set.out, set.src, 0, set.stream));
    CHILD_REQUIRE(result(&set, 0) != sum_of_squares());
}

START_TEST(a_missing_barrier_gives_wrong_data)
{
    for (int seed = 0; seed < 8; seed++) {
        char text[32];
        snprintf(text, sizeof text, "CUDASIM_SEED=%d", seed);
        const char *const environment[] = {text, NULL};
        child_must_pass(sum_rightly, NULL, environment);
        child_must_pass(sum_without_barrier, NULL, environment);
    }
}
END_TEST

static void vote(void *argument)
{
    static const uint32_t expected[] = {0xaaaaaaaa, 1, 1, 8, 13, 7, 2, 0xaaaa};
    (void)argument;
    struct setting set = set_up();
    CHILD_OK(kernel_votes(set.out, set.stream));
    for (unsigned i = 0; i < 8; i++)
        CHILD_REQUIRE(result(&set, i) == expected[i]);
}

static void launch_shapes(void *argument)
{
    (void)argument;
    struct setting set = set_up();
    CHILD_OK(kernel_shape(3, 1024, set.stream));
    CHILD_OK(kernel_shape(70000, 1, set.stream));
    CHILD_REQUIRE(kernel_shape(1, 1025, set.stream) == (int)cudaErrorInvalidValue);
    CHILD_REQUIRE(kernel_shape(0, 1, set.stream) == (int)cudaErrorInvalidValue);
    CHILD_REQUIRE(cudaGetLastError() == cudaErrorInvalidValue);
    CHILD_OK(cudaSetDevice(1)); /* not the stream's */
    CHILD_REQUIRE(kernel_shape(1, 1, set.stream) == (int)cudaErrorInvalidResourceHandle);
    CHILD_OK(cudaStreamSynchronize(set.stream));
}

START_TEST(warps_and_shapes)
{
    child_must_pass(vote, NULL, NULL);
    child_must_pass(launch_shapes, NULL, NULL);
}
END_TEST

static void diverge(void *argument)
{
    struct setting set = set_up();
    CHILD_OK(kernel_divergent(*(const enum kernel_divergence *)argument, set.stream));
    CHILD_OK(cudaStreamSynchronize(set.stream));
}

START_TEST(threads_that_do_not_meet_are_found)
{
    static const char *const texts[] = {
        [DIVERGENT_END] = "thread 5 has ended",
        [DIVERGENT_PLACE] = "but thread 32 waits for the block at",
        [DIVERGENT_LANE] = "but thread 3 waits for the block at",
        [DIVERGENT_MASK] = "with the mask 00000001, which it is not in",
    };
    for (int seed = 0; seed < 3; seed++)
        for (int how = DIVERGENT_END; how <= DIVERGENT_MASK; how++) {
            char text[32];
            snprintf(text, sizeof text, "CUDASIM_SEED=%d", seed);
            child_must_fault(diverge, &how, (const char *const[]){text, NULL}, texts[how]);
        }
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("kernels");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, a_missing_barrier_gives_wrong_data);
    tcase_add_test(tcase, warps_and_shapes);
    tcase_add_test(tcase, threads_that_do_not_meet_are_found);
    return run_suite("emulation", tcase);
}
