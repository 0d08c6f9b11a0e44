/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Communicators: which path the bytes take, who keeps them warm and for how long, and what becomes
 * of an arena whose NCCL is missing, too old, fails or hangs. Failures are planted by a library
 * that stands in for NCCL (failing_nccl.c).
 */
#include <check.h>
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "failing_nccl.h"
#include "module_fixture.h"
#include "proto/status.h"
#include "tests/cudasim/cudasim.h"
#include "tests/lib/suite.h"

#define KIB 1024
/* More than any test takes. */
#define LONG_LINGER_MS 600000
#define MAX_KEPT       16 /* comm.h's CUDA_MAX_KEPT */

static const int32_t pair[2] = {0, 1}, swapped[2] = {1, 0}, shared[3] = {0, 0, 1}, single[1] = {2};
static _Atomic int *failing;

/* Opens the module with an NCCL: a path, or "" for the loader's own. */
static void open_with(const char *nccl, enum failing what, uint64_t linger_ms)
{
    void *library = dlopen(FAILING_NCCL_PATH, RTLD_NOW);
    ck_assert_msg(library != NULL, "%s", dlerror());
    failing = dlsym(library, FAILING_SYMBOL);
    ck_assert_ptr_nonnull(failing);
    *failing = (int)what;
    ck_assert_int_eq(setenv("F8GATHERD_NCCL", nccl, 1), 0);
    module_open(linger_ms);
}

static void teardown(void)
{
    if (failing)
        *failing = FAILING_NOTHING;
    module_close();
}

static struct backend_info info(void)
{
    struct backend_info info;
    module_backend->ops->device->info(module_backend, &info);
    return info;
}

/* Waits until that many communicators are there, and kept. */
static void expect_communicators(uint32_t all, uint32_t warm)
{
    for (int i = 0; info().communicators != all || info().warm_communicators != warm; i++) {
        ck_assert_msg(i < 1000, "%u communicators, %u of them warm; must be %u and %u",
            info().communicators, info().warm_communicators, all, warm);
        module_pause(10);
    }
}

/* A byte of each rank, filled on its device and exchanged. */
static struct module_run fill_run(struct arena *arena, const int32_t *devices, uint32_t ranks,
    struct backend_task *tasks, struct backend_span *span)
{
    for (uint32_t rank = 0; rank < ranks; rank++)
        tasks[rank] = (struct backend_task){.op = BACKEND_FILL,
            .dst = arena_on(arena, devices[rank])->base + rank * KIB,
            .count = KIB,
            .byte = (uint8_t)(rank + 1),
            .device = devices[rank]};
    *span = (struct backend_span){.chunk = KIB};
    struct module_run run = module_run_of(arena, tasks, ranks);
    run.steps.spans = span;
    run.steps.num_spans = 1;
    module_add_landing(&run, 0, 1);
    return run;
}

static void expect_bytes(const struct arena *arena, uint32_t ranks)
{
    uint8_t bytes[3 * KIB];
    for (uint32_t d = 0; d < arena->device->num_devices; d++) {
        module_download(arena, arena->device->devices[d].device, 0, bytes, ranks * KIB);
        for (uint32_t i = 0; i < ranks * KIB; i++)
            ck_assert_uint_eq(bytes[i], i / KIB + 1);
    }
}

/* A gather of all ranks, and what it gave. */
static void gather(struct arena *arena, const int32_t *devices, uint32_t ranks)
{
    struct backend_task tasks[3];
    struct backend_span span;
    struct module_run run = fill_run(arena, devices, ranks, tasks, &span);
    module_do(&run);
    module_run_done(&run);
    expect_bytes(arena, ranks);
}

/* ---- paths ---- */

START_TEST(paths_are_shown_and_counted)
{
    open_with("", FAILING_NOTHING, 0);
    struct arena *gathers = module_arena("0/job/a", swapped, 2, 1, 2 * KIB);
    struct arena *broadcasts = module_arena("0/job/b", shared, 3, 1, 3 * KIB);
    struct arena *alone = module_arena("0/job/c", single, 1, 1, KIB);
    struct arena *tables = module_arena("0/job/d", pair, 2, 1, 0);
    uint64_t by_copy_engines = cudasim_counted(CUDASIM_COPY_ENGINE_COLLECTIVES);
    ck_assert_uint_eq(info().nccl_version, 22809);
    expect_communicators(6, 0);

    gather(gathers, swapped, 2);
    ck_assert_int_eq(gathers->device->path, BACKEND_PATH_ALLGATHER);
    ck_assert(gathers->device->window && !gathers->device->warm);
    ck_assert_uint_eq(gathers->device->exchanges, 1);
    ck_assert_uint_eq(gathers->device->copy_engine_exchanges, 1);
    /* The simulator decides as NCCL does; one call a device. */
    by_copy_engines = cudasim_counted(CUDASIM_COPY_ENGINE_COLLECTIVES) - by_copy_engines;
    ck_assert_uint_eq(by_copy_engines, 2);

    gather(broadcasts, shared, 3);
    ck_assert_int_eq(broadcasts->device->path, BACKEND_PATH_BROADCAST);
    ck_assert_uint_eq(broadcasts->device->exchanges, 2); /* ranks 0 and 1 go together */
    ck_assert_uint_eq(broadcasts->device->copy_engine_exchanges, 0);
    gather(alone, single, 1);
    ck_assert_int_eq(alone->device->path, BACKEND_PATH_NONE);
    ck_assert_uint_eq(alone->device->exchanges, 0);
    ck_assert(!tables->device->window);

    module_free_arena(gathers);
    module_free_arena(broadcasts);
    module_free_arena(alone);
    module_free_arena(tables);
    expect_communicators(0, 0);
}
END_TEST

/* ---- warm ones ---- */

START_TEST(communicators_are_kept_for_their_group)
{
    open_with("", FAILING_NOTHING, LONG_LINGER_MS);
    struct arena *arena = module_arena("0/job/dp", pair, 2, 1, 2 * KIB);
    module_free_arena(arena);
    expect_communicators(2, 2);

    uint64_t inits = cudasim_counted(CUDASIM_COMM_INITS);
    arena = module_arena("0/job/dp", pair, 2, 1, 2 * KIB);
    ck_assert(arena->device->warm && arena->device->window);
    ck_assert_uint_eq(cudasim_counted(CUDASIM_COMM_INITS), inits);
    expect_communicators(2, 0);
    gather(arena, pair, 2);
    ck_assert_uint_eq(arena->device->copy_engine_exchanges, 1); /* in its new window */

    /* Not while they are in use, nor for another group, nor for other devices. */
    struct arena *same = module_arena("0/job/dp", pair, 2, 1, 2 * KIB);
    module_free_arena(arena);
    struct arena *named = module_arena("0/job/tp", pair, 2, 1, 2 * KIB);
    struct arena *turned = module_arena("0/job/dp", swapped, 2, 1, 2 * KIB);
    ck_assert(!same->device->warm && !named->device->warm && !turned->device->warm);
    expect_communicators(8, 2);
    gather(turned, swapped, 2);
    module_free_arena(same);
    module_free_arena(named);
    module_free_arena(turned);
    expect_communicators(8, 8);
}
END_TEST

START_TEST(communicators_are_kept_for_the_linger)
{
    open_with("", FAILING_NOTHING, 50);
    module_free_arena(module_arena("0/job/dp", pair, 2, 1, 2 * KIB));
    expect_communicators(0, 0);
}
END_TEST

START_TEST(the_oldest_kept_ones_go_first)
{
    char name[32];
    open_with("", FAILING_NOTHING, LONG_LINGER_MS);
    for (int i = 0; i <= MAX_KEPT; i++) {
        (void)snprintf(name, sizeof(name), "0/job/%d", i);
        module_free_arena(module_arena(name, pair, 2, 1, 0));
    }
    expect_communicators(2 * MAX_KEPT, 2 * MAX_KEPT);
    struct arena *first = module_arena("0/job/0", pair, 2, 1, 0);
    struct arena *second = module_arena("0/job/1", pair, 2, 1, 0);
    ck_assert(!first->device->warm && second->device->warm);
    module_free_arena(first);
    module_free_arena(second);
}
END_TEST

static uint32_t drop_kept(const char *prefix)
{
    return module_backend->ops->device->drop_kept(module_backend, prefix);
}

/* Of one job, in the midst of others' and with one of its own in use. */
START_TEST(kept_ones_of_a_job_are_dropped)
{
    open_with("", FAILING_NOTHING, LONG_LINGER_MS);
    struct arena *used = module_arena("0/job/used", pair, 2, 1, 2 * KIB);
    module_free_arena(module_arena("0/other/dp", pair, 2, 1, 0));
    module_free_arena(module_arena("0/job/dp", pair, 2, 1, 0));
    module_free_arena(module_arena("1/job/dp", pair, 2, 1, 0));
    module_free_arena(module_arena("0/job/tp", swapped, 2, 1, 0));
    expect_communicators(10, 8);
    ck_assert_uint_eq(drop_kept("0/jo/"), 0);
    ck_assert_uint_eq(drop_kept("0/job/"), 4);
    struct arena *again = module_arena("0/job/dp", pair, 2, 1, 0); /* they are not given any more */
    ck_assert(!again->device->warm);
    expect_communicators(8, 4);
    ck_assert_uint_eq(drop_kept("0/job/"), 0);
    gather(used, pair, 2);
    module_free_arena(used);
    module_free_arena(again);
    expect_communicators(8, 8);
    struct arena *other = module_arena("0/other/dp", pair, 2, 1, 0);
    ck_assert(other->device->warm);
    module_free_arena(other);
}
END_TEST

/* Given back a moment ago: whether they are kept by then or not, they go. */
START_TEST(those_of_a_leaving_arena_are_dropped)
{
    open_with("", FAILING_NOTHING, LONG_LINGER_MS);
    for (int i = 0; i < 50; i++) {
        struct arena *arena = module_arena("0/job/dp", pair, 2, 1, 2 * KIB);
        struct arena *other = module_arena("0/other/dp", pair, 2, 1, 2 * KIB);
        ck_assert(!arena->device->warm && other->device->warm == (i > 0));
        gather(arena, pair, 2);
        module_backend->ops->device->free_arena(module_backend, arena->device);
        module_backend->ops->device->free_arena(module_backend, other->device);
        module_pause((unsigned)i % 3);
        ck_assert_uint_eq(drop_kept("0/job/"), 2);
        expect_communicators(2, 2);
        ck_assert_uint_eq(drop_kept("0/job/"), 0);
    }
}
END_TEST

/* ---- no NCCL ---- */

START_TEST(without_nccl_only_one_device)
{
    static const struct {
        const char *nccl;
        enum failing failing;
        const char *words;
    } cases[] = {
        {"/nowhere/libnccl.so.2", FAILING_NOTHING, "/nowhere/libnccl.so.2"},
        {"libm.so.6", FAILING_NOTHING, "has no ncclGetVersion"},
        {FAILING_NCCL_PATH, FAILING_VERSION, "2.17.1"},
    };
    struct backend_reserve reserve;
    open_with(cases[_i].nccl, cases[_i].failing, 0);
    int r = module_reserve("0/job/dp", pair, 2, 1, 2 * KIB, &reserve);
    ck_assert_int_eq(r, F8_ENOENT);
    ck_assert_ptr_nonnull(strstr(reserve.reason.text, "0/job/dp"));
    ck_assert_msg(strstr(reserve.reason.text, cases[_i].words), "%s", reserve.reason.text);
    ck_assert_uint_eq(info().nccl_version, 0);
    ck_assert_msg(strlen(info().nccl_reason) > 10, "%s", info().nccl_reason);

    struct arena *alone = module_arena("0/job/dp", single, 1, 1, KIB);
    gather(alone, single, 1);
    module_free_arena(alone);
    ck_assert_uint_eq(drop_kept("0/job/"), 0);
}
END_TEST

/* ---- an NCCL that fails ---- */

START_TEST(no_arena_without_communicators)
{
    struct backend_reserve reserve;
    open_with(FAILING_NCCL_PATH, FAILING_INIT, LONG_LINGER_MS);
    ck_assert_int_eq(module_reserve("0/job/dp", pair, 2, 1, 2 * KIB, &reserve), F8_EIO);
    ck_assert_msg(strstr(reserve.reason.text, "ncclCommInitRankConfig"), "%s", reserve.reason.text);
    expect_communicators(0, 0);
    *failing = FAILING_NOTHING;
    struct arena *arena = module_arena("0/job/dp", pair, 2, 1, 2 * KIB);
    ck_assert(!arena->device->warm);
    gather(arena, pair, 2);
    module_free_arena(arena);
    expect_communicators(2, 2);
}
END_TEST

static void on_reserved(struct backend_reserve *reserve, int status)
{
    reserve->status = status;
    *(bool *)reserve->owner = true;
}

START_TEST(communicators_that_never_form)
{
    bool done = false;
    struct backend_reserve reserve = {.name = "0/job/dp",
        .devices = pair,
        .ranks = 2,
        .slots = 1,
        .deadline_ms = 300,
        .finished = on_reserved,
        .owner = &done};
    open_with(FAILING_NCCL_PATH, FAILING_INIT_HANGS, 0);
    backend_reserve(module_backend, &reserve);
    module_wait(&done);
    ck_assert_int_eq(reserve.status, F8_EDEADLINE);
    ck_assert_msg(strstr(reserve.reason.text, "2 devices"), "%s", reserve.reason.text);
    expect_communicators(0, 0);
}
END_TEST

START_TEST(an_arena_goes_without_a_window)
{
    open_with(FAILING_NCCL_PATH, FAILING_WINDOW, 0);
    struct arena *arena = module_arena("0/job/dp", pair, 2, 1, 2 * KIB);
    ck_assert(!arena->device->window);
    ck_assert(module_has_logged("no window"));
    gather(arena, pair, 2);
    ck_assert_uint_eq(arena->device->exchanges, 1);
    ck_assert_uint_eq(arena->device->copy_engine_exchanges, 0);
    module_free_arena(arena);
    expect_communicators(0, 0);
}
END_TEST

static void expect_failure(struct module_run *run, const char *words)
{
    module_submit(run);
    module_wait(&run->has_finished);
    ck_assert_int_eq(run->status, F8_EIO);
    ck_assert_msg(strstr(run->landing.reason.text, words), "%s", run->landing.reason.text);
}

/* A collective that is refused breaks its arena, not another, and is not kept. */
START_TEST(a_failed_collective_breaks_its_arena)
{
    struct backend_task tasks[3];
    struct backend_span span;
    open_with(FAILING_NCCL_PATH, FAILING_NOTHING, LONG_LINGER_MS);
    struct arena *arena = module_arena("0/job/dp", pair, 2, 1, 2 * KIB);
    struct arena *other = module_arena("0/job/tp", pair, 2, 1, 2 * KIB);
    struct module_run run = fill_run(arena, pair, 2, tasks, &span);
    run.steps.reduce_count = 1;
    *failing = _i ? FAILING_GATHER : FAILING_REDUCE;
    expect_failure(&run, _i ? "ncclAllGather" : "ncclAllReduce");
    *failing = FAILING_NOTHING;
    expect_failure(&run, _i ? "ncclAllGather" : "ncclAllReduce"); /* refused */
    module_run_done(&run);
    gather(other, pair, 2);
    module_free_arena(arena);
    expect_communicators(2, 0);
    module_free_arena(other);
    expect_communicators(2, 2);
}
END_TEST

/* ---- collectives that hang ---- */

struct stuck {
    struct trainer trainer;
    struct module_client client;
    struct backend_ready ready;
    struct arena *arena, *other;
    struct backend_task tasks[3];
    struct backend_span span;
    struct module_run run;
};

/* A gather over two devices of which one waits for a trainer that does not come. */
static void stuck_begin(struct stuck *stuck, uint64_t deadline_ms)
{
    stuck->arena = module_arena("0/job/dp", pair, 2, 1, 2 * KIB);
    stuck->other = module_arena("0/job/tp", swapped, 2, 1, 2 * KIB);
    trainer_start(&stuck->trainer, 1, 4096);
    stuck->client = module_attach(&stuck->trainer, 4096);
    stuck->ready = (struct backend_ready){.client = stuck->client.client};
    trainer_hold(&stuck->trainer);
    trainer_record(&stuck->trainer, 0);
    stuck->run = fill_run(stuck->arena, pair, 2, stuck->tasks, &stuck->span);
    stuck->run.steps.ready = &stuck->ready;
    stuck->run.steps.num_ready = 1;
    stuck->run.landing.deadline_ms = deadline_ms;
    module_submit(&stuck->run);
    module_wait(&stuck->run.has_finished);
    ck_assert_int_eq(stuck->run.status, F8_OK);
}

static void stuck_end(struct stuck *stuck)
{
    gather(stuck->other, swapped, 2); /* goes on, on the same devices */
    trainer_go(&stuck->trainer);
    trainer_end(&stuck->trainer);
    module_detach(&stuck->client);
    module_free_arena(stuck->arena);
    ck_assert(module_has_logged("aborted its 2 communicators"));
    expect_communicators(2, 0);
    module_free_arena(stuck->other);
    expect_communicators(2, 2);
    module_run_done(&stuck->run);
}

START_TEST(a_hanging_collective_ends_at_its_deadline)
{
    struct stuck stuck;
    char words[32];
    open_with("", FAILING_NOTHING, LONG_LINGER_MS);
    stuck_begin(&stuck, 300);
    gather(stuck.other, swapped, 2);
    module_wait(&stuck.run.has_landed);
    ck_assert_int_eq(stuck.run.landed_status, F8_EDEADLINE);
    (void)snprintf(words, sizeof(words), "pid %d ", stuck.trainer.pid);
    ck_assert_msg(
        strstr(stuck.run.landing.reason.text, words), "%s", stuck.run.landing.reason.text);
    stuck_end(&stuck);
}
END_TEST

START_TEST(a_communicator_that_fails_meanwhile)
{
    struct stuck stuck;
    open_with(FAILING_NCCL_PATH, FAILING_NOTHING, LONG_LINGER_MS);
    stuck_begin(&stuck, MODULE_PATIENCE_MS);
    *failing = FAILING_LATER;
    module_wait(&stuck.run.has_landed);
    ck_assert_int_eq(stuck.run.landed_status, F8_EIO);
    ck_assert_msg(strstr(stuck.run.landing.reason.text, "remote process"), "%s",
        stuck.run.landing.reason.text);
    *failing = FAILING_NOTHING;
    trainer_go(&stuck.trainer);
    trainer_end(&stuck.trainer);
    module_detach(&stuck.client);
    module_free_arena(stuck.arena);
    module_free_arena(stuck.other);
    module_run_done(&stuck.run);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("nccl");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, NULL, teardown);
    tcase_add_test(tcase, paths_are_shown_and_counted);
    tcase_add_test(tcase, communicators_are_kept_for_their_group);
    tcase_add_test(tcase, communicators_are_kept_for_the_linger);
    tcase_add_test(tcase, the_oldest_kept_ones_go_first);
    tcase_add_test(tcase, kept_ones_of_a_job_are_dropped);
    tcase_add_test(tcase, those_of_a_leaving_arena_are_dropped);
    tcase_add_loop_test(tcase, without_nccl_only_one_device, 0, 3);
    tcase_add_test(tcase, no_arena_without_communicators);
    tcase_add_test(tcase, communicators_that_never_form);
    tcase_add_test(tcase, an_arena_goes_without_a_window);
    tcase_add_loop_test(tcase, a_failed_collective_breaks_its_arena, 0, 2);
    tcase_add_test(tcase, a_hanging_collective_ends_at_its_deadline);
    tcase_add_test(tcase, a_communicator_that_fails_meanwhile);
    return run_suite("cuda nccl", tcase);
}
