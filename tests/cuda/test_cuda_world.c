/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arenas that have parts on other hosts: two processes, each with the module and one part, stand
 * for two hosts. What both must end up with, and what becomes of one when the other does not do its
 * part.
 */
#include <check.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "module_fixture.h"
#include "proto/status.h"
#include "tests/lib/suite.h"

#define KIB 1024

/* Rank 0 here and rank 1 there, or the other way; two devices of a host may have three ranks. */
struct part {
    uint32_t host;
    uint32_t ranks;
    int32_t devices[3];  /* by rank; -1: of the other host */
    uint32_t members[3]; /* by rank */
    uint32_t first, count;
};

static const struct part pairs[2] = {
    {0, 2, {0, -1}, {0, 1}, 0, 2},
    {1, 2, {-1, 0}, {0, 1}, 1, 2},
};

/* Host 0 has ranks 0 and 2 on its one device, host 1 has rank 1: no all-gather. */
static const struct part crossed[2] = {
    {0, 3, {1, -1, 1}, {0, 1, 0}, 0, 2},
    {1, 3, {-1, 0, -1}, {0, 1, 0}, 1, 2},
};

static int other_host = -1; /* a socket */
static pid_t child;

/* ---- the two processes ---- */

static void begin(uint32_t host)
{
    char name[16];
    (void)snprintf(name, sizeof(name), "host-%u", host);
    ck_assert_int_eq(setenv("NCCL_HOSTID", name, 1), 0);
    module_open(0);
}

/* The other host, which ends when its body has; before this process uses CUDA. */
static void start_other(void (*body)(void))
{
    int ends[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    child = fork();
    ck_assert_int_ge(child, 0);
    other_host = ends[child > 0 ? 0 : 1];
    (void)close(ends[child > 0 ? 1 : 0]);
    if (child > 0) {
        begin(0);
        return;
    }
    begin(1);
    body();
    module_close();
    _exit(0);
}

static void end_other(void)
{
    int status = -1;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    module_close();
    (void)close(other_host);
}

static void tell(const void *bytes, size_t size)
{
    ck_assert_int_eq(write(other_host, bytes, size), (ssize_t)size);
}

static void hear(void *bytes, size_t size)
{
    ck_assert_int_eq(read(other_host, bytes, size), (ssize_t)size);
}

/* ---- reservations ---- */

static void on_unique(struct backend_unique *unique, int status)
{
    ck_assert_msg(status == F8_OK, "%s", unique->reason.text);
    *(bool *)unique->owner = true;
}

static void make_unique(uint8_t id[BACKEND_UNIQUE_SIZE])
{
    bool done = false;
    struct backend_unique unique = {.finished = on_unique, .owner = &done};
    module_backend->ops->device->unique(module_backend, &unique);
    module_wait(&done);
    memcpy(id, unique.id, BACKEND_UNIQUE_SIZE);
}

static void on_reserved(struct backend_reserve *reserve, int status)
{
    reserve->status = status;
    *(bool *)reserve->owner = true;
}

static void reserve(const struct part *part, const uint8_t *id, struct backend_reserve *ret_reserve)
{
    bool done = false;
    const struct backend_world world = {
        .unique = id, .members = part->members, .first = part->first, .count = part->count};
    *ret_reserve = (struct backend_reserve){.name = "0/job/dp",
        .devices = part->devices,
        .ranks = part->ranks,
        .slots = 2,
        .size = (uint64_t)part->ranks * KIB,
        .world = &world,
        .deadline_ms = MODULE_PATIENCE_MS,
        .finished = on_reserved,
        .owner = &done};
    backend_reserve(module_backend, ret_reserve);
    module_wait(&done);
}

/* The part of this host; the id goes from host 0 to host 1. */
static struct arena *arena_of(const struct part *part)
{
    uint8_t id[BACKEND_UNIQUE_SIZE];
    struct backend_reserve reserved;
    if (part->host == 0) {
        make_unique(id);
        tell(id, sizeof(id));
    } else {
        hear(id, sizeof(id));
    }
    reserve(part, id, &reserved);
    ck_assert_msg(reserved.status == F8_OK, "no arena: %s", reserved.reason.text);
    ck_assert(reserved.arena->device->spans && !reserved.arena->device->window);
    ck_assert_uint_eq(reserved.arena->device->num_devices, 1);
    return reserved.arena;
}

/* ---- works ---- */

/* Of each rank here: its bytes, and an amax of rank + 1 in slot 1. */
static uint32_t make_tasks(const struct part *part, struct arena *arena, struct backend_task *tasks)
{
    uint32_t count = 0;
    for (uint32_t r = 0; r < part->ranks; r++) {
        float value = -(float)(r + 1);
        if (part->devices[r] < 0)
            continue;
        tasks[count++] = (struct backend_task){.op = BACKEND_AMAX,
            .src = module_shard(part->devices[r], &value, sizeof(value)),
            .count = 1,
            .dtype = F8K_F32,
            .device = part->devices[r],
            .row = r,
            .slot = 1};
        tasks[count++] = (struct backend_task){.op = BACKEND_FILL,
            .dst = arena_on(arena, part->devices[r])->base + r * KIB,
            .count = KIB,
            .byte = (uint8_t)(r + 1),
            .device = part->devices[r]};
    }
    return count;
}

static float value_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* A gather, and what it must give: amaxes of the ranks here, and of all; everybody's bytes. */
static void gather(const struct part *part, enum backend_path path)
{
    struct arena *arena = arena_of(part);
    struct backend_task tasks[6];
    struct backend_span span = {.chunk = KIB};
    uint32_t count = make_tasks(part, arena, tasks), reduced[2] = {0}, here = 0;
    uint8_t bytes[3 * KIB];
    struct module_run run = module_run_of(arena, tasks, count);
    ck_assert_int_eq(arena->device->path, path);
    run.steps.reduce_count = 2;
    run.steps.spans = &span;
    run.steps.num_spans = 1;
    module_add_landing(&run, 0, 2);
    run.landing.reduced = reduced;
    module_do(&run);
    for (uint32_t r = 0; r < part->ranks; r++)
        here = part->devices[r] >= 0 ? r + 1 : here;
    ck_assert(value_of(run.amaxes[1]) == (float)here);
    ck_assert(value_of(reduced[1]) == (float)part->ranks);
    ck_assert_uint_eq(reduced[0], 0);
    module_run_done(&run);
    module_download(arena, arena->device->devices[0].device, 0, bytes, part->ranks * KIB);
    for (uint32_t i = 0; i < part->ranks * KIB; i++)
        ck_assert_uint_eq(bytes[i], i / KIB + 1);
    module_free_arena(arena);
}

static void gather_pair_there(void)
{
    gather(&pairs[1], BACKEND_PATH_ALLGATHER);
}

START_TEST(gathers_and_reduces_over_hosts)
{
    start_other(gather_pair_there);
    gather(&pairs[0], BACKEND_PATH_ALLGATHER);
    end_other();
}
END_TEST

static void gather_crossed_there(void)
{
    gather(&crossed[1], BACKEND_PATH_BROADCAST);
}

START_TEST(broadcasts_what_lies_crossed)
{
    start_other(gather_crossed_there);
    gather(&crossed[0], BACKEND_PATH_BROADCAST);
    end_other();
}
END_TEST

/* ---- the other does not do its part ---- */

static void reserve_only(void)
{
    char over;
    struct arena *arena = arena_of(&pairs[1]);
    hear(&over, sizeof(over));
    module_backend->ops->device->break_arena(
        module_backend, arena->device, F8_EBROKEN, "host-0 has broken it");
    module_free_arena(arena);
}

START_TEST(works_of_a_broken_arena_fail_with_its_reason)
{
    start_other(reserve_only);
    struct arena *arena = arena_of(&pairs[0]);
    struct backend_span span = {.chunk = KIB};
    struct module_run run = module_run_of(arena, NULL, 0), late = module_run_of(arena, NULL, 0);
    run.steps.spans = &span;
    run.steps.num_spans = 1;
    module_add_landing(&run, 0, 1);
    module_submit(&run);
    module_backend->ops->device->break_arena(
        module_backend, arena->device, F8_ERANKDEAD, "host-1 is lost");
    module_wait(&run.has_finished);
    if (run.status == F8_OK) /* it was queued before; else there is no landing */
        module_wait(&run.has_landed);
    ck_assert_int_eq(run.status == F8_OK ? run.landed_status : run.status, F8_ERANKDEAD);
    ck_assert_str_eq(run.landing.reason.text, "host-1 is lost");
    module_add_landing(&late, 0, 1);
    module_submit(&late);
    module_wait(&late.has_finished);
    ck_assert_int_eq(late.status, F8_ERANKDEAD);
    ck_assert_str_eq(late.steps.reason.text, "host-1 is lost");
    module_run_done(&run);
    module_run_done(&late);
    module_free_arena(arena);
    tell("", 1);
    end_other();
}
END_TEST

/* Queues an exchange, before which it waits for the trainer's event, if there is one. */
static void begin_exchange(struct arena *arena, struct module_run *run, struct backend_span *span,
    struct backend_ready *ready)
{
    *run = module_run_of(arena, NULL, 0);
    run->steps.ready = ready;
    run->steps.num_ready = ready != NULL;
    run->steps.spans = span;
    run->steps.num_spans = 1;
    run->steps.wants_done = true;
    module_add_landing(run, 0, 1);
    module_submit(run);
    module_wait(&run->has_finished);
    ck_assert_int_eq(run->status, F8_OK);
}

/* The trainer is to be ready for the second work once it has seen the first, which the other host
 * takes no part in: the second must not hold up the end of the first. */
START_TEST(a_trainer_that_waits_for_a_broken_work_goes_on)
{
    start_other(reserve_only);
    struct arena *arena = arena_of(&pairs[0]);
    struct trainer trainer;
    trainer_start(&trainer, 0, KIB);
    struct module_client client = module_attach(&trainer, KIB);
    struct backend_ready ready = {.client = client.client, .event = 0};
    struct backend_span span = {.chunk = KIB};
    struct module_run first, second;
    begin_exchange(arena, &first, &span, NULL);
    trainer_wait_done(&trainer, arena->device->devices[0].done[first.steps.done]);
    trainer_record(&trainer, 0);
    begin_exchange(arena, &second, &span, &ready);
    module_pause(50);
    module_backend->ops->device->break_arena(
        module_backend, arena->device, F8_ERANKDEAD, "host-1 is lost");
    module_wait(&first.has_landed);
    module_wait(&second.has_landed);
    ck_assert_int_eq(first.landed_status, F8_ERANKDEAD);
    ck_assert_int_eq(second.landed_status, F8_ERANKDEAD);
    trainer_end(&trainer);
    module_detach(&client);
    module_run_done(&first);
    module_run_done(&second);
    module_free_arena(arena);
    tell("", 1);
    end_other();
}
END_TEST

static void nobody_there(void)
{
}

START_TEST(abandons_hosts_that_do_not_come)
{
    start_other(nobody_there);
    bool done = false;
    uint8_t id[BACKEND_UNIQUE_SIZE];
    make_unique(id);
    const struct part *part = &pairs[0];
    const struct backend_world world = {.unique = id, .members = part->members, .count = 2};
    struct backend_reserve reserve = {.name = "0/job/dp",
        .devices = part->devices,
        .ranks = 2,
        .slots = 1,
        .size = 2 * KIB,
        .world = &world,
        .deadline_ms = 10 * MODULE_PATIENCE_MS,
        .finished = on_reserved,
        .owner = &done};
    backend_reserve(module_backend, &reserve);
    module_pause(50);
    ck_assert(!done);
    atomic_store(&reserve.is_abandoned, true);
    module_wait(&done);
    ck_assert_int_eq(reserve.status, F8_ECANCELED);
    ck_assert_msg(
        strstr(reserve.reason.text, "another host takes no part in it"), "%s", reserve.reason.text);
    end_other();
}
END_TEST

START_TEST(refuses_worlds_that_do_not_fit)
{
    begin(0);
    uint8_t id[BACKEND_UNIQUE_SIZE] = {0};
    struct backend_reserve reserved;
    struct part part = pairs[0];
    part.members[1] = 2;
    reserve(&part, id, &reserved);
    ck_assert_int_eq(reserved.status, F8_EINVAL);
    ck_assert_msg(strstr(reserved.reason.text, "rank 1 is on device 2 of all hosts"), "%s",
        reserved.reason.text);
    part = pairs[0];
    part.devices[0] = -1;
    reserve(&part, id, &reserved);
    ck_assert_int_eq(reserved.status, F8_EINVAL);
    ck_assert_int_eq(module_reserve("0/job/dp", pairs[0].devices, 2, 1, KIB, &reserved), F8_EINVAL);
    module_close();
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("world");
    tcase_add_test(tcase, gathers_and_reduces_over_hosts);
    tcase_add_test(tcase, broadcasts_what_lies_crossed);
    tcase_add_test(tcase, works_of_a_broken_arena_fail_with_its_reason);
    tcase_add_test(tcase, a_trainer_that_waits_for_a_broken_work_goes_on);
    tcase_add_test(tcase, abandons_hosts_that_do_not_come);
    tcase_add_test(tcase, refuses_worlds_that_do_not_fit);
    return run_suite("cuda_world", tcase);
}
