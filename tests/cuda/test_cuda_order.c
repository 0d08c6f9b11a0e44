/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Order between processes: a work comes after what a trainer's stream did before its ready event,
 * and a trainer's stream after the work whose done event it waits for, though nobody waits for a
 * device. Each of the two is left out once, to see that it is what gives the right bytes.
 */
#include <check.h>
#include <string.h>

#include "module_fixture.h"
#include "proto/status.h"
#include "tests/lib/suite.h"

#define SHARD ((uint64_t)72 << 10)
#define LOOK  4096

static struct trainer trainer;
static struct module_client client;
static struct arena *arena;
static const int32_t devices[1] = {1};

static void setup(void)
{
    module_open(0);
    trainer_start(&trainer, devices[0], SHARD);
    client = module_attach(&trainer, SHARD);
    ck_assert_int_eq(client.device, devices[0]);
    arena = module_arena("", devices, 1, 1, SHARD);
    trainer_map(&trainer, arena->device->devices[0].fd, SHARD);
}

static void teardown(void)
{
    trainer_end(&trainer);
    module_detach(&client);
    module_free_arena(arena);
    module_close();
}

static struct backend_task copy_of_shard(void)
{
    return (struct backend_task){.src = client.shard,
        .dst = arena->device->devices[0].base,
        .count = SHARD / sizeof(float),
        .op = BACKEND_COPY,
        .dtype = F8K_F32,
        .device = devices[0]};
}

static void expect(uint8_t byte)
{
    uint8_t bytes[LOOK];
    for (uint64_t offset = 0; offset < SHARD; offset += SHARD - LOOK) { /* first and last */
        trainer_read(&trainer, offset, LOOK, bytes);
        for (uint32_t i = 0; i < LOOK; i++)
            ck_assert_msg(bytes[i] == byte, "byte %llu is %u, must be %u",
                (unsigned long long)(offset + i), bytes[i], byte);
    }
}

/* A gather of the shard as a trainer does it; without waiting for any of it here. */
static void gather(struct module_run *run, struct backend_task *task, uint32_t event)
{
    struct backend_ready ready = {.client = client.client, .event = event};
    *task = copy_of_shard();
    *run = module_run_of(arena, task, 1);
    run->steps.ready = &ready;
    run->steps.num_ready = 1;
    run->steps.wants_done = true;
    module_submit(run);
    module_wait(&run->has_finished);
    ck_assert_int_eq(run->status, F8_OK);
    trainer_wait_done(&trainer, arena->device->devices[0].done[run->steps.done]);
}

START_TEST(gathers_see_what_was_ready)
{
    struct module_run run;
    struct backend_task task;
    for (uint32_t round = 1; round <= BACKEND_NUM_DONE + 2; round++) {
        trainer_fill(&trainer, (uint8_t)round);
        trainer_record(&trainer, round % TRAINER_EVENTS);
        gather(&run, &task, round % TRAINER_EVENTS);
        expect((uint8_t)round);
    }
}
END_TEST

/* Issued, and reported as such, while the trainer's stream has not come to any of it. */
START_TEST(a_work_is_issued_before_its_shard_is_ready)
{
    struct module_run run;
    struct backend_task task;
    trainer_hold(&trainer);
    trainer_fill(&trainer, 77);
    trainer_record(&trainer, 0);
    gather(&run, &task, 0);
    trainer_go(&trainer);
    expect(77);
}
END_TEST

START_TEST(without_the_ready_event_the_bytes_are_old)
{
    struct backend_task task = copy_of_shard();
    struct module_run run = module_run_of(arena, &task, 1);
    module_add_landing(&run, 0, 0);
    trainer_hold(&trainer);
    trainer_fill(&trainer, 78);
    trainer_record(&trainer, 0);
    module_do(&run);
    trainer_go(&trainer);
    expect(0);
    module_run_done(&run);
}
END_TEST

START_TEST(without_the_done_event_the_bytes_are_old)
{
    struct trainer other;
    struct backend_task task = copy_of_shard();
    struct module_run run = module_run_of(arena, &task, 1);
    trainer_start(&other, devices[0], 4096);
    struct module_client other_client = module_attach(&other, 4096);
    struct backend_ready ready = {.client = other_client.client, .event = 2};
    trainer_fill(&trainer, 79);
    trainer_hold(&other);
    trainer_record(&other, 2);
    run.steps.ready = &ready;
    run.steps.num_ready = 1;
    run.steps.wants_done = true;
    module_submit(&run);
    module_wait(&run.has_finished);
    ck_assert_int_eq(run.status, F8_OK);
    expect(0);
    trainer_go(&other);
    trainer_wait_done(&trainer, arena->device->devices[0].done[run.steps.done]);
    expect(79);
    trainer_end(&other);
    module_detach(&other_client);
}
END_TEST

/* A trainer that is killed before its event takes nobody with it. */
START_TEST(a_killed_trainer_holds_up_nobody)
{
    struct trainer other;
    trainer_start(&other, devices[0], 4096);
    struct module_client other_client = module_attach(&other, 4096);
    trainer_kill(&other);
    module_detach(&other_client);
    struct module_run run;
    struct backend_task task;
    trainer_fill(&trainer, 80);
    trainer_record(&trainer, 1);
    gather(&run, &task, 1);
    expect(80);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("order");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, gathers_see_what_was_ready);
    tcase_add_test(tcase, a_work_is_issued_before_its_shard_is_ready);
    tcase_add_test(tcase, without_the_ready_event_the_bytes_are_old);
    tcase_add_test(tcase, without_the_done_event_the_bytes_are_old);
    tcase_add_test(tcase, a_killed_trainer_holds_up_nobody);
    return run_suite("cuda order", tcase);
}
