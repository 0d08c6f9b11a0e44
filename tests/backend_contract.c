/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract of backend.h as tests: finished() once and never inside a call, turns between
 * jobs, nothing left on the loop; results and cancels have files of their own. Order
 * comes from the loop's turns and callbacks, never from time.
 */
#include "backend_contract.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "lib/loop_turn.h"
#include "proto/status.h"

#define MIB ((size_t)1 << 20)

uv_loop_t *test_loop;
struct backend *test_backend;

static uv_loop_t loop;
static bool inside_call;
static unsigned num_finished;

/* ---- Means ---- */

void backend_fixture_open(int (*make)(uv_loop_t *loop, struct backend **ret_backend))
{
    num_finished = 0;
    test_loop = &loop;
    ck_assert_int_eq(uv_loop_init(test_loop), 0);
    ck_assert_int_eq(make(test_loop, &test_backend), F8_OK);
}

void backend_fixture_close(void)
{
    ck_assert_msg(!uv_loop_alive(test_loop), "a backend without works keeps the loop alive");
    backend_free(test_backend);
    ck_assert_int_eq(uv_run(test_loop, UV_RUN_DEFAULT), 0);
    ck_assert_int_eq(uv_loop_close(test_loop), 0);
}

static void on_finished(struct backend_work *work, int status)
{
    struct run *run = work->owner;
    ck_assert_msg(!inside_call, "finished() is called inside submit or cancel");
    ck_assert_uint_eq(work->chunks_in_flight, 0);
    run->status = status;
    run->finished++;
    run->place = ++num_finished;
    if (run->then)
        run->then(run);
}

struct run run_of(struct backend_task *tasks, uint32_t num_tasks, uint32_t job)
{
    return (struct run){
        .work = {.tasks = tasks, .num_tasks = num_tasks, .job = job, .finished = on_finished}};
}

void run_submit(struct run *run)
{
    run->work.owner = run;
    inside_call = true;
    backend_submit(test_backend, &run->work);
    inside_call = false;
}

void run_cancel(struct run *run)
{
    inside_call = true;
    backend_cancel(test_backend, &run->work);
    inside_call = false;
}

void run_wait(struct run *run)
{
    while (!run->finished) {
        int alive = loop_turn(test_loop);
        ck_assert_msg(alive || run->finished, "finished() never comes: the loop has ended");
    }
}

void run_out(void)
{
    ck_assert_int_eq(uv_run(test_loop, UV_RUN_DEFAULT), 0);
}

struct backend_task fill_task(void *data, uint64_t bytes, uint8_t value)
{
    return (struct backend_task){.op = BACKEND_FILL, .dst = data, .count = bytes, .byte = value};
}

uint8_t *map_zeros(size_t size)
{
    void *data = mmap(
        NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ck_assert_ptr_ne(data, MAP_FAILED);
    return data;
}

bool is_filled(const uint8_t *data, size_t size, uint8_t byte)
{
    return size == 0 || (data[0] == byte && memcmp(data, data + 1, size - 1) == 0);
}

/* ---- Many works ---- */

#define MANY 300

START_TEST(many_works_at_once)
{
    static struct run runs[MANY];
    static struct backend_task tasks[MANY][3];
    size_t bytes = 10000;
    uint8_t *memory = map_zeros(MANY * bytes);
    for (size_t i = 0; i < MANY; i++) {
        uint8_t *data = memory + i * bytes;
        tasks[i][0] = fill_task(data, i, (uint8_t)(i % 251 + 1));
        tasks[i][1] = fill_task(data, 0, 0xff);
        tasks[i][2] = fill_task(data + i, bytes - i, (uint8_t)(i % 241 + 2));
        runs[i] = run_of(tasks[i], 3, (uint32_t)(i * 7 % 11));
        run_submit(&runs[i]);
    }
    run_out();
    for (size_t i = 0; i < MANY; i++) {
        uint8_t *data = memory + i * bytes;
        ck_assert_uint_eq(runs[i].finished, 1);
        ck_assert_int_eq(runs[i].status, F8_OK);
        ck_assert(is_filled(data, i, (uint8_t)(i % 251 + 1)));
        ck_assert(is_filled(data + i, bytes - i, (uint8_t)(i % 241 + 2)));
    }
    (void)munmap(memory, MANY * bytes);
}
END_TEST

/* ---- Turns ---- */

#define LARGE 50

/*
 * One job with many large works must not keep others waiting, however many it has. So large that
 * only the first of them end before the small ones are there, whoever else has the processor.
 */
START_TEST(jobs_take_turns)
{
    static struct run large[LARGE];
    static struct backend_task tasks[LARGE];
    uint8_t *memory = map_zeros(32 * MIB);
    uint8_t byte[2] = {0};
    for (int i = 0; i < LARGE; i++) {
        tasks[i] = (struct backend_task){
            .op = BACKEND_AMAX, .src = memory, .count = 16 * MIB, .dtype = F8K_BF16};
        large[i] = run_of(&tasks[i], 1, 7);
        run_submit(&large[i]);
    }
    struct backend_task small_tasks[2] = {fill_task(&byte[0], 1, 1), fill_task(&byte[1], 1, 2)};
    struct run small[2] = {run_of(&small_tasks[0], 1, 8), run_of(&small_tasks[1], 1, 9)};
    run_submit(&small[0]);
    run_submit(&small[1]);
    run_out();
    for (int i = 0; i < 2; i++)
        ck_assert_msg(small[i].place <= LARGE / 2, "the work of job %u came %u-th",
            small[i].work.job, small[i].place);
    ck_assert_uint_eq(num_finished, LARGE + 2);
    (void)munmap(memory, 32 * MIB);
}
END_TEST

/* Two jobs with the same work each, but cut in many works in one of them: they end together. */
START_TEST(many_works_are_no_more_turns_than_one)
{
    static struct run pieces[LARGE];
    static struct backend_task tasks[LARGE];
    uint8_t *memory = map_zeros(LARGE * MIB), *source = map_zeros(LARGE * MIB / 2);
    for (int i = 0; i < LARGE; i++) {
        tasks[i] = fill_task(memory + (size_t)i * MIB, MIB, 0);
        pieces[i] = run_of(&tasks[i], 1, 1);
        run_submit(&pieces[i]);
    }
    struct backend_task whole_task = {
        .op = BACKEND_AMAX, .src = source, .count = LARGE * MIB / 8, .dtype = F8K_F32};
    struct run whole = run_of(&whole_task, 1, 2);
    run_submit(&whole);
    run_wait(&whole);
    /* Half the bytes of the other job, in turns: half of that one's works, give or take. */
    ck_assert_msg(whole.place < LARGE * 3 / 4, "the single work came %u-th", whole.place);
    run_out();
    (void)munmap(memory, LARGE * MIB);
    (void)munmap(source, LARGE * MIB / 2);
}
END_TEST

/* ---- Nothing to do ---- */

START_TEST(works_without_elements_finish_in_order)
{
    struct backend_task empty[2] = {fill_task(NULL, 0, 0), {.op = BACKEND_AMAX, .dtype = F8K_F32}};
    struct run runs[3] = {run_of(NULL, 0, 1), run_of(empty, 2, 2), run_of(NULL, 0, 1)};
    for (int i = 0; i < 3; i++)
        run_submit(&runs[i]);
    ck_assert_uint_eq(num_finished, 0);
    run_out();
    for (unsigned i = 0; i < 3; i++) {
        ck_assert_int_eq(runs[i].status, F8_OK);
        ck_assert_uint_eq(runs[i].finished, 1);
        ck_assert_uint_eq(runs[i].place, i + 1);
    }
    ck_assert_uint_eq(empty[1].amax, 0);
}
END_TEST

static void close_nothing(uv_handle_t *handle)
{
    (void)handle;
}

/* With nothing to do, a loop that others keep alive sleeps until they wake it. */
START_TEST(idle_makes_no_wakeups)
{
    uv_async_t other;
    uint8_t byte = 0;
    struct backend_task task = fill_task(&byte, 1, 1);
    struct run runs[2] = {run_of(NULL, 0, 1), run_of(&task, 1, 1)};
    ck_assert_int_eq(uv_async_init(test_loop, &other, NULL), 0);
    (void)uv_run(test_loop, UV_RUN_NOWAIT); /* the loop takes note of its own handles */
    ck_assert_int_eq(uv_backend_timeout(test_loop), -1);
    for (int i = 0; i < 2; i++) {
        run_submit(&runs[i]);
        run_wait(&runs[i]);
        ck_assert_int_eq(uv_backend_timeout(test_loop), -1);
    }
    uv_close((uv_handle_t *)&other, close_nothing);
    run_out();
}
END_TEST

/* ---- Again ---- */

#define TIMES 100

static void submit_again(struct run *run)
{
    if (run->finished < TIMES)
        run_submit(run);
}

START_TEST(resubmission_from_finished)
{
    uint8_t byte = 0;
    struct backend_task task = fill_task(&byte, 1, 1);
    struct run runs[2] = {run_of(&task, 1, 1), run_of(NULL, 0, 1)};
    for (int i = 0; i < 2; i++) {
        runs[i].then = submit_again;
        run_submit(&runs[i]);
    }
    run_out();
    ck_assert_uint_eq(runs[0].finished, TIMES);
    ck_assert_uint_eq(runs[1].finished, TIMES);
}
END_TEST

static struct run *next_run;

static void submit_next(struct run *run)
{
    (void)run;
    run_submit(next_run);
}

/* As a round does: amax, then the cast with the scale that follows. */
START_TEST(new_work_from_finished)
{
    uint8_t bytes[2] = {0};
    struct backend_task tasks[2] = {fill_task(&bytes[0], 1, 1), fill_task(&bytes[1], 1, 2)};
    struct run first = run_of(&tasks[0], 1, 1), second = run_of(&tasks[1], 1, 1);
    first.then = submit_next;
    next_run = &second;
    run_submit(&first);
    run_wait(&second);
    ck_assert_uint_eq(first.finished, 1);
    ck_assert_uint_eq(bytes[1], 2);
}
END_TEST

/* ---- Reservation ---- */

static int reserve_status;
static bool reserved;

static void on_reserved(struct backend_reserve *reserve, int status)
{
    ck_assert(!inside_call);
    ck_assert_ptr_eq(reserve->owner, &reserved);
    reserve_status = status;
    reserved = true;
}

static void reserve(struct backend_reserve *request)
{
    request->finished = on_reserved;
    request->owner = &reserved;
    reserved = false;
    inside_call = true;
    backend_reserve(test_backend, request);
    inside_call = false;
    run_out();
    ck_assert(reserved);
}

START_TEST(reservation_gives_an_arena)
{
    struct backend_reserve request = {.size = MIB};
    reserve(&request);
    ck_assert_int_eq(reserve_status, F8_OK);
    ck_assert_uint_eq(request.arena->size, MIB);

    struct backend_task task = fill_task(request.arena->data, MIB, 3);
    struct run run = run_of(&task, 1, 1);
    run_submit(&run);
    run_wait(&run);
    ck_assert_uint_eq(request.arena->data[MIB - 1], 3);
    arena_free(request.arena);
}
END_TEST

START_TEST(reservation_leaves_the_seal_to_who_wants_it)
{
    struct backend_reserve sealed = {.size = MIB}, unsealed = {.size = MIB, .unsealed = true};
    struct reason reason;
    reserve(&sealed);
    reserve(&unsealed);
    ck_assert_int_eq(reserve_status, F8_OK);
    ck_assert_int_ne(fcntl(sealed.arena->fd, F_GET_SEALS), 0);
    ck_assert_int_eq(fcntl(unsealed.arena->fd, F_GET_SEALS), 0);
    ck_assert_int_eq(arena_seal(unsealed.arena, &reason), F8_OK);
    arena_free(sealed.arena);
    arena_free(unsealed.arena);
}
END_TEST

START_TEST(reservation_fails_with_a_reason)
{
    struct backend_reserve request = {.size = (uint64_t)1 << 60};
    reserve(&request);
    ck_assert_int_eq(reserve_status, F8_ENOMEM);
    ck_assert_ptr_null(request.arena);
    ck_assert_ptr_nonnull(strstr(request.reason.text, "1152921504606846976 bytes"));
}
END_TEST

TCase *backend_contract(void (*setup)(void))
{
    TCase *tcase = tcase_create("contract");
    tcase_add_checked_fixture(tcase, setup, backend_fixture_close);
    tcase_set_timeout(tcase, 120);
    backend_results(tcase);
    backend_cancels(tcase);
    tcase_add_test(tcase, many_works_at_once);
    tcase_add_test(tcase, jobs_take_turns);
    tcase_add_test(tcase, many_works_are_no_more_turns_than_one);
    tcase_add_test(tcase, works_without_elements_finish_in_order);
    tcase_add_test(tcase, idle_makes_no_wakeups);
    tcase_add_test(tcase, resubmission_from_finished);
    tcase_add_test(tcase, new_work_from_finished);
    tcase_add_test(tcase, reservation_gives_an_arena);
    tcase_add_test(tcase, reservation_leaves_the_seal_to_who_wants_it);
    tcase_add_test(tcase, reservation_fails_with_a_reason);
    return tcase;
}
