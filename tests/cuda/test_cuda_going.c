/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What clients give back while devices still use it: nothing goes before the streams have run what
 * they had, works pass meanwhile, and what never ends is left alone within its limit. A trainer's
 * stream that stands still, and a work that waits for its event, make the time. Simulated.
 */
#include <check.h>
#include <cudasim.h>
#include <string.h>

#include "fixture.h"
#include "proto/status.h"
#include "tests/lib/suite.h"

#define SIZE ((uint64_t)4096)

static struct cuda_client client;
static struct backend_map map;
static struct arena *arena;

/* A work that copies the client's memory into the arena, after its event 0. */
struct copy {
    struct backend_work work;
    struct backend_task task;
    struct backend_steps steps;
    struct backend_ready ready;
    bool finished;
    int status;
};
static struct copy copies[8];

static void on_copied(struct backend_work *work, int status)
{
    struct copy *copy = work->owner;
    copy->finished = true;
    copy->status = status;
}

static void submit_copy_and(
    struct copy *copy, bool waits, const struct backend_span *spans, uint32_t num_spans)
{
    *copy = (struct copy){
        .task = {.src = map.data,
            .dst = arena->device->devices[0].base,
            .count = SIZE,
            .op = BACKEND_COPY,
            .dtype = F8K_BF16,
            .device = client.attach.device},
        .ready = {.client = client.attach.client, .event = 0},
        .steps = {.arena = arena,
            .ready = &copy->ready,
            .num_ready = waits ? 1 : 0,
            .spans = spans,
            .num_spans = num_spans},
        .work = {.tasks = &copy->task,
            .num_tasks = 1,
            .finished = on_copied,
            .owner = copy,
            .steps = &copy->steps},
    };
    backend_submit(cuda_backend, &copy->work);
}

static void submit_copy(struct copy *copy, bool waits)
{
    submit_copy_and(copy, waits, NULL, 0);
}

static void await_copy(const struct copy *copy)
{
    cuda_turn_until(&copy->finished);
    ck_assert_int_eq(copy->status, F8_OK);
}

static void ask(enum exporter_op op)
{
    exporter_ask(&client.exporter, &(struct exporter_request){.op = op}, -1);
}

static void make(const int32_t *devices, uint32_t ranks)
{
    struct backend_reserve reserve = {.size = CHUNK,
        .devices = devices,
        .ranks = ranks,
        .slots = 1,
        .name = "0/job/dp",
        .deadline_ms = 20000};
    int status = cuda_reserve(&reserve);
    ck_assert_msg(status == F8_OK, "%s", reserve.reason.text);
    arena = reserve.arena;
    cuda_client_start(&client, 0, 1);
    map = cuda_legacy(&client, 2 * SIZE, 0, 2 * SIZE);
    cuda_fill(&client, 0, 0, 2 * SIZE, 7);
    ck_assert_int_eq(cuda_map(&map), F8_OK);
}

static void setup(void)
{
    static const int32_t devices[] = {0};
    cuda_fixture_open();
    make(devices, 1);
}

static void setup_short(void)
{
    cuda_fixture_limits(300);
    setup();
}

static void teardown(void)
{
    exporter_stop(&client.exporter);
    cuda_fixture_close();
}

static void give_all_back(void)
{
    cuda_backend->ops->device->unmap(cuda_backend, map.mapping);
    cuda_backend->ops->device->detach(cuda_backend, client.attach.client);
    cuda_free_arena(arena);
}

/* The client's stream stands still before its event, and a work waits for that. */
static void submit_held_copy(struct copy *copy)
{
    ask(EXPORTER_HOLD);
    ask(EXPORTER_RECORD);
    submit_copy(copy, true);
    await_copy(copy); /* queued: nobody waits for the device */
}

START_TEST(what_is_in_use_stays_until_its_work_has_run)
{
    struct backend_fence fence, all;
    bool is_gone, all_gone;
    submit_held_copy(&copies[0]);
    cuda_backend->ops->device->unmap(cuda_backend, map.mapping);
    cuda_backend->ops->device->detach(cuda_backend, client.attach.client);
    cuda_fence_later(&fence, client.attach.pid, &is_gone);
    cuda_fence_later(&all, 0, &all_gone);
    /* A fence of nobody, and one that comes later than they, show that there was time. */
    ck_assert_int_eq(cuda_fence(1), F8_OK);
    cuda_pause(100);
    ck_assert(!is_gone && !all_gone);
    ck_assert_uint_eq(cuda_info().devices[0].clients, 1);
    ck_assert_uint_eq(cuda_info().devices[0].mapped_bytes, 2 * SIZE);
    ask(EXPORTER_RELEASE);
    cuda_turn_until(&is_gone);
    cuda_turn_until(&all_gone);
    ck_assert_uint_eq(cuda_info().devices[0].clients, 0);
    ck_assert_uint_eq(cuda_info().devices[0].mapped_bytes, 0);
    uint8_t bytes[2];
    cuda_read(arena->device->devices[0].base + SIZE - 1, bytes, 2);
    ck_assert_uint_eq(bytes[0], 7);
    cuda_free_arena(arena);
}
END_TEST

START_TEST(works_pass_what_waits)
{
    struct backend_fence fence;
    struct backend_map second = map;
    bool is_gone;
    submit_held_copy(&copies[0]);
    second.offset = SIZE;
    second.size = SIZE;
    ck_assert_int_eq(cuda_map(&second), F8_OK);
    cuda_backend->ops->device->unmap(cuda_backend, second.mapping);
    cuda_fence_later(&fence, client.attach.pid, &is_gone);
    for (int i = 1; i < 8; i++) {
        submit_copy(&copies[i], false);
        await_copy(&copies[i]);
    }
    ck_assert(!is_gone);
    ask(EXPORTER_RELEASE);
    cuda_turn_until(&is_gone);
    give_all_back();
    ck_assert_int_eq(cuda_fence(0), F8_OK);
}
END_TEST

START_TEST(a_dead_trainer_holds_nothing_up)
{
    submit_held_copy(&copies[0]);
    exporter_kill(&client.exporter);
    give_all_back();
    ck_assert_int_eq(cuda_fence(0), F8_OK);
    ck_assert_uint_eq(cuda_info().devices[0].clients, 0);
    ck_assert_uint_eq(cuda_info().devices[0].arena_bytes, 0);
    cuda_client_start(&client, 0, 1); /* for the teardown */
    cuda_backend->ops->device->detach(cuda_backend, client.attach.client);
}
END_TEST

START_TEST(works_that_wait_in_the_queue_can_be_cancelled)
{
    for (int i = 0; i < 8; i++)
        submit_copy(&copies[i], false);
    for (int i = 0; i < 8; i++)
        backend_cancel(cuda_backend, &copies[i].work);
    for (int i = 0; i < 8; i++) {
        cuda_turn_until(&copies[i].finished);
        ck_assert(copies[i].status == F8_OK || copies[i].status == F8_ECANCELED);
    }
    give_all_back();
}
END_TEST

/* ---- limits ---- */

START_TEST(what_never_ends_is_left_alone)
{
    submit_held_copy(&copies[0]);
    cuda_backend->ops->device->unmap(cuda_backend, map.mapping);
    ck_assert_int_eq(cuda_fence(client.attach.pid), F8_EDEADLINE);
    ck_assert_uint_eq(cuda_info().devices[0].mapped_bytes, 2 * SIZE);
    /* Others are not told of it, and go on. */
    ck_assert_int_eq(cuda_fence(1), F8_OK);
    submit_copy(&copies[1], false);
    await_copy(&copies[1]);
    ask(EXPORTER_RELEASE);
    cuda_backend->ops->device->detach(cuda_backend, client.attach.client);
    cuda_free_arena(arena);
    ck_assert_int_eq(cuda_fence(0), F8_OK);
}
END_TEST

START_TEST(an_arena_that_never_ends_is_left_alone)
{
    submit_held_copy(&copies[0]);
    cuda_free_arena(arena);
    ck_assert_int_eq(cuda_fence(0), F8_EDEADLINE);
    ck_assert_uint_eq(cuda_info().devices[0].arena_bytes, CHUNK);
    ask(EXPORTER_RELEASE);
    cuda_backend->ops->device->unmap(cuda_backend, map.mapping);
    cuda_backend->ops->device->detach(cuda_backend, client.attach.client);
}
END_TEST

/* The end of the backend does not wait for ever either. */
START_TEST(the_end_leaves_alone_what_never_ends)
{
    submit_held_copy(&copies[0]);
    give_all_back();
    cuda_fixture_close();
    ask(EXPORTER_RELEASE);
    exporter_stop(&client.exporter);
}
END_TEST

/* ---- collectives ---- */

static void setup_exchange(void)
{
    static const int32_t devices[] = {0, 1};
    cuda_fixture_open();
    make(devices, 2);
}

static void setup_short_exchange(void)
{
    cuda_fixture_limits(300);
    setup_exchange();
}

/* Both devices exchange, once the client's stream goes on. */
static void submit_held_exchange(struct copy *copy)
{
    static const struct backend_span span = {.offset = 0, .chunk = 4096};
    ask(EXPORTER_HOLD);
    ask(EXPORTER_RECORD);
    submit_copy_and(copy, true, &span, 1);
    await_copy(copy);
}

static void on_mapped_flag(struct backend_map *request, int status)
{
    ck_assert_msg(status == F8_OK, "%s", request->reason.text);
    *(bool *)request->owner = true;
}

START_TEST(mapping_waits_for_collectives)
{
    bool is_mapped = false;
    struct backend_map second = cuda_legacy(&client, SIZE, 0, SIZE);
    submit_held_exchange(&copies[0]);
    second.finished = on_mapped_flag;
    second.owner = &is_mapped;
    cuda_backend->ops->device->map(cuda_backend, &second);
    cuda_pause(100);
    ck_assert(!is_mapped);
    /* What comes behind it keeps its place. */
    submit_copy(&copies[1], false);
    cuda_pause(100);
    ck_assert(!copies[1].finished);
    ask(EXPORTER_RELEASE);
    cuda_turn_until(&is_mapped);
    await_copy(&copies[1]);
    cuda_backend->ops->device->unmap(cuda_backend, second.mapping);
    give_all_back();
    ck_assert_int_eq(cuda_fence(0), F8_OK);
}
END_TEST

START_TEST(mapping_does_not_wait_for_ever)
{
    struct backend_map second = cuda_legacy(&client, SIZE, 0, SIZE);
    submit_held_exchange(&copies[0]);
    ck_assert_int_eq(cuda_map(&second), F8_EDEADLINE);
    ck_assert_msg(strstr(second.reason.text, "mapping a client's memory must wait") != NULL, "%s",
        second.reason.text);
    submit_copy(&copies[1], false);
    await_copy(&copies[1]);
    ask(EXPORTER_RELEASE);
    cuda_free_arena(arena);
    cuda_backend->ops->device->unmap(cuda_backend, map.mapping);
    cuda_backend->ops->device->detach(cuda_backend, client.attach.client);
    ck_assert_int_eq(cuda_fence(0), F8_OK);
}
END_TEST

static TCase *add(Suite *suite, const char *name, void (*begin)(void), void (*end)(void))
{
    TCase *tests = tcase_create(name);
    tcase_add_checked_fixture(tests, begin, end);
    tcase_set_timeout(tests, 60);
    suite_add_tcase(suite, tests);
    return tests;
}

int main(void)
{
    Suite *suite = suite_create("cuda_going");
    TCase *tests = add(suite, "going", setup, teardown);
    tcase_add_test(tests, what_is_in_use_stays_until_its_work_has_run);
    tcase_add_test(tests, works_pass_what_waits);
    tcase_add_test(tests, a_dead_trainer_holds_nothing_up);
    tests = add(suite, "cancel", setup, teardown);
    tcase_add_test(tests, works_that_wait_in_the_queue_can_be_cancelled);
    tests = add(suite, "limits", setup_short, teardown);
    tcase_add_test(tests, what_never_ends_is_left_alone);
    tcase_add_test(tests, an_arena_that_never_ends_is_left_alone);
    tests = add(suite, "end", setup_short, NULL);
    tcase_add_test(tests, the_end_leaves_alone_what_never_ends);
    tests = add(suite, "collectives", setup_exchange, teardown);
    tcase_add_test(tests, mapping_waits_for_collectives);
    tests = add(suite, "limits of collectives", setup_short_exchange, teardown);
    tcase_add_test(tests, mapping_does_not_wait_for_ever);
    return run_cases(suite);
}
