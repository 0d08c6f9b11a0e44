/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Landings that go wrong: a deadline, a device that is lost, a call of CUDA that fails. Each ends
 * with a sentence that names who or what, once; the arena refuses later works, others go on, and
 * what comes late touches nothing of the caller's. Calls that fail are planted: the module finds
 * this program's functions before the runtime's.
 */
#include <check.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "module_fixture.h"
#include "proto/status.h"
#include "tests/lib/suite.h"

/* ---- planted failures ---- */

enum planted {
    PLANTED_NOTHING,
    PLANTED_COPY,   /* to a device */
    PLANTED_WAIT,   /* for an event */
    PLANTED_RECORD, /* of an event */
    PLANTED_LANDING,
    PLANTED_LOSS, /* of the device: host functions do not come, streams say so */
};

static _Atomic enum planted planted;

/* Finds the runtime's own function, into a pointer to it. */
static void find_next(const char *name, void *ret_function)
{
    void *function = dlsym(RTLD_NEXT, name);
    if (!function)
        abort(); /* on a thread of the module's, which must not assert */
    memcpy(ret_function, &function, sizeof(function));
}

cudaError_t cudaMemcpyAsync(
    void *dst, const void *src, size_t count, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    if (planted == PLANTED_COPY && kind == cudaMemcpyHostToDevice)
        return cudaErrorInvalidValue;
    __typeof__(&(cudaMemcpyAsync)) next;
    find_next("cudaMemcpyAsync", &next);
    return next(dst, src, count, kind, stream);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    if (planted == PLANTED_WAIT)
        return cudaErrorInvalidResourceHandle;
    __typeof__(&(cudaStreamWaitEvent)) next;
    find_next("cudaStreamWaitEvent", &next);
    return next(stream, event, flags);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    if (planted == PLANTED_RECORD)
        return cudaErrorInvalidResourceHandle;
    __typeof__(&(cudaEventRecord)) next;
    find_next("cudaEventRecord", &next);
    return next(event, stream);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data)
{
    if (planted == PLANTED_LANDING)
        return cudaErrorNotSupported;
    if (planted == PLANTED_LOSS)
        return cudaSuccess; /* queued, and never run */
    __typeof__(&(cudaLaunchHostFunc)) next;
    find_next("cudaLaunchHostFunc", &next);
    return next(stream, function, data);
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    if (planted == PLANTED_LOSS)
        return cudaErrorDeviceUninitialized;
    __typeof__(&(cudaStreamQuery)) next;
    find_next("cudaStreamQuery", &next);
    return next(stream);
}

/* ---- tests ---- */

static const int32_t devices[1] = {1};
static struct arena *arena, *other;
static const float values[4] = {1.0F, -5.0F, 2.0F, 0.5F};
static const void *shard;

static void setup(void)
{
    planted = PLANTED_NOTHING;
    module_open(0);
    shard = module_shard(devices[0], values, sizeof(values));
    arena = module_arena("7/job/dp", devices, 1, 2, 4096);
    other = module_arena("7/job/tp", devices, 1, 2, 4096);
}

static void teardown(void)
{
    planted = PLANTED_NOTHING;
    module_free_arena(arena);
    module_free_arena(other);
    module_close();
}

static struct backend_task amax_task(void)
{
    return (struct backend_task){
        .src = shard, .count = 4, .op = BACKEND_AMAX, .dtype = F8K_F32, .device = devices[0]};
}

/* A work whose results land in slots 0 and 1. */
static struct module_run amax_run(struct arena *of, struct backend_task *task)
{
    *task = amax_task();
    struct module_run run = module_run_of(of, task, 1);
    module_add_landing(&run, 0, 2);
    return run;
}

static void expect_amax(const struct module_run *run)
{
    const float amax = 5.0F;
    ck_assert_mem_eq(run->amaxes, &amax, sizeof(amax));
    ck_assert_uint_eq(run->amaxes[1], 0);
}

static void expect_words(const struct module_run *run, const char *words)
{
    ck_assert_msg(strstr(run->landing.reason.text, words) != NULL, "no \"%s\" in: %s", words,
        run->landing.reason.text);
}

/* Another group is not touched by what happened to the first. */
static void expect_other_goes_on(void)
{
    struct backend_task task;
    struct module_run run = amax_run(other, &task);
    module_do(&run);
    expect_amax(&run);
    module_run_done(&run);
}

/* A later work of the arena fails with the words of the first failure. */
static void expect_refusal(int status, const char *words)
{
    struct backend_task task;
    struct module_run run = amax_run(arena, &task);
    module_submit(&run);
    module_wait(&run.has_finished);
    ck_assert_int_eq(run.status, status);
    expect_words(&run, words);
    module_run_done(&run);
}

/* Without a landed() the end of the work is the end of its landing. */
START_TEST(finished_with_the_landing)
{
    struct backend_task task;
    struct module_run run = amax_run(arena, &task);
    run.landing.landed = NULL;
    module_submit(&run);
    module_wait(&run.has_finished);
    ck_assert_int_eq(run.status, F8_OK);
    expect_amax(&run);
    module_run_done(&run);
}
END_TEST

/* Landings of one arena come in order, each with what was true at its place in the stream. */
START_TEST(landings_in_order)
{
    enum { RUNS = 100 };
    static struct module_run runs[RUNS];
    static struct backend_task tasks[RUNS];
    for (int i = 0; i < RUNS; i++) {
        runs[i] = amax_run(arena, &tasks[i]);
        tasks[i].count = 1 + (uint64_t)(i % 2);
        module_submit(&runs[i]);
    }
    for (int i = RUNS - 1; i >= 0; i--) {
        float amax = i % 2 ? 5.0F : 1.0F;
        module_wait(&runs[i].has_landed);
        ck_assert_int_eq(runs[i].landed_status, F8_OK);
        ck_assert_mem_eq(runs[i].amaxes, &amax, sizeof(amax));
        module_run_done(&runs[i]);
    }
}
END_TEST

/* Who has not come is named; the rest of the arena's works fail with it; others go on. */
START_TEST(a_deadline_names_the_trainer)
{
    struct trainer trainer;
    struct backend_task tasks[2];
    char words[64];
    trainer_start(&trainer, devices[0], 4096);
    struct module_client client = module_attach(&trainer, 4096);
    struct backend_ready ready = {.client = client.client, .event = 3};
    struct module_run late = amax_run(arena, &tasks[0]), behind = amax_run(arena, &tasks[1]);
    late.landing.deadline_ms = 200;
    late.steps.ready = &ready;
    late.steps.num_ready = 1;
    trainer_hold(&trainer);
    trainer_record(&trainer, 3);
    module_submit(&late);
    module_submit(&behind);
    expect_other_goes_on();
    module_wait(&late.has_landed);
    module_wait(&behind.has_landed);
    ck_assert_int_eq(late.status, F8_OK); /* it was issued */
    ck_assert_int_eq(late.landed_status, F8_EDEADLINE);
    ck_assert_int_eq(behind.landed_status, F8_EDEADLINE);
    (void)snprintf(words, sizeof(words), "pid %d ", trainer.pid);
    expect_words(&late, words);
    expect_words(&late, "200 ms");
    expect_words(&late, "7/job/dp");
    expect_words(&behind, words);
    expect_refusal(F8_EDEADLINE, words);

    /* What comes late finds nothing of the caller's. */
    memset(late.amaxes, 0x5a, 2 * sizeof(*late.amaxes));
    memset(behind.amaxes, 0x5a, 2 * sizeof(*behind.amaxes));
    trainer_go(&trainer);
    trainer_end(&trainer);
    module_detach(&client); /* once the streams have run all of it */
    ck_assert_uint_eq(late.amaxes[0], 0x5a5a5a5a);
    ck_assert_uint_eq(behind.amaxes[0], 0x5a5a5a5a);
    expect_other_goes_on();
    module_run_done(&late);
    module_run_done(&behind);
}
END_TEST

/* A call that fails in the middle of a work: its landing does not come, its reason does. */
START_TEST(a_failed_call_is_told)
{
    static const struct {
        enum planted planted;
        const char *words;
    } cases[] = {
        {PLANTED_COPY, "invalid argument"},
        {PLANTED_WAIT, "invalid resource handle"},
        {PLANTED_RECORD, "invalid resource handle"},
        {PLANTED_LANDING, "not supported"},
    };
    struct backend_task task;
    struct module_run run = amax_run(arena, &task);
    run.steps.after = &other;
    run.steps.num_after = 1;
    planted = cases[_i].planted;
    module_submit(&run);
    module_wait(&run.has_finished);
    planted = PLANTED_NOTHING;
    ck_assert_int_eq(run.status, F8_EIO);
    expect_words(&run, cases[_i].words);
    expect_words(&run, "7/job/dp");
    module_pause(50);
    ck_assert(!run.landed_status);
    expect_refusal(F8_EIO, cases[_i].words);
    expect_other_goes_on();
    module_run_done(&run);
}
END_TEST

/* Of a lost device nothing comes any more, but the sentence does, long before the deadline. */
START_TEST(a_lost_device_is_told)
{
    struct backend_task task;
    struct module_run run = amax_run(arena, &task);
    run.landing.landed = _i ? NULL : run.landing.landed;
    planted = PLANTED_LOSS;
    module_submit(&run);
    module_wait(&run.has_finished);
    module_wait(&run.has_landed);
    ck_assert_int_eq(_i ? run.status : run.landed_status, F8_EIO);
    expect_words(&run, "invalid device context");
    expect_words(&run, "device 1 (simulated");
    planted = PLANTED_NOTHING;
    expect_refusal(F8_EIO, "invalid device context");
    expect_other_goes_on();
    module_run_done(&run);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("results");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, finished_with_the_landing);
    tcase_add_test(tcase, landings_in_order);
    tcase_add_test(tcase, a_deadline_names_the_trainer);
    tcase_add_loop_test(tcase, a_failed_call_is_told, 0, 4);
    tcase_add_loop_test(tcase, a_lost_device_is_told, 0, 2);
    return run_suite("cuda results", tcase);
}
