/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a greedy job does to its neighbours, for people; no test. 63 quiet jobs, each with a uid of
 * its own where the user may give them, gather a small bucket at a steady pace; one further job
 * floods by turns: with large gathers, with pipelined requests, with both, and not at all. Phases
 * are interleaved, since neighbours on the machine move all of them; the figure is the median of
 * the rounds' ratios of p99. Starts its own daemon.
 */
#include <check.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "lib/crew.h"
#include "lib/suite.h"
#include "lib/test_daemon.h"
#include "lib/toy_rank.h"

#define QUIET     63
#define FLOODERS  8 /* clients of the greedy job; half of them flood in each of two ways */
#define FIRST_UID 20000
#define PERIOD_NS 10000000L /* of a quiet job's gathers */
#define PHASE_MS  700
#define ROUNDS    5
#define SAMPLES   128 /* most of one job in a phase */
#define AHEAD     128 /* buckets that a pipelining client asks for at once */

/* What floods; a sum of two. */
enum { LARGE = 1, REQUESTS = 2, KINDS = 4 };

struct phase {
    _Atomic uint32_t counts[QUIET];
    float micros[QUIET][SAMPLES];
};

/* Shared by all processes. */
struct stage {
    char socket[96];
    _Atomic int phase;              /* round * KINDS + kind; -1: the end */
    _Atomic uint64_t floods[KINDS]; /* by way: buckets gathered */
    struct phase phases[ROUNDS * KINDS];
};

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- the quiet jobs ---- */

static void become(uint32_t index)
{
    if (geteuid() == 0 && setuid(FIRST_UID + index) != 0)
        perror("setuid");
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* a change of uid drops it */
}

static void wait_for_tick(struct timespec *tick)
{
    tick->tv_nsec += PERIOD_NS;
    if (tick->tv_nsec >= 1000000000L) {
        tick->tv_nsec -= 1000000000L;
        tick->tv_sec++;
    }
    (void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, tick, NULL);
}

static int gather_once(struct toy_rank *toy)
{
    int status = f8_gather(toy->group, 0, F8_DEFAULT_DEADLINE, NULL);
    return status == F8_OK ? f8_post_gather(toy->group, 0, F8_FOREVER, toy->views, 1, NULL)
                           : status;
}

/* A gather counts for the phase that it lies in. */
static int gather_quietly(struct stage *stage, struct toy_rank *toy, uint32_t job)
{
    struct timespec tick;
    (void)clock_gettime(CLOCK_MONOTONIC, &tick);
    int status = F8_OK, number;
    while (status == F8_OK && (number = atomic_load(&stage->phase)) >= 0) {
        struct phase *phase = &stage->phases[number];
        double begin = now();
        status = gather_once(toy);
        double end = now();
        uint32_t count = atomic_load(&phase->counts[job]);
        if (count < SAMPLES && atomic_load(&stage->phase) == number) {
            phase->micros[job][count] = (float)(1e6 * (end - begin));
            atomic_store(&phase->counts[job], count + 1);
        }
        if (status == F8_OK)
            status = f8_release(toy->group, 0, NULL);
        wait_for_tick(&tick);
    }
    return status;
}

static int quiet_job(struct crew_member *member, const void *argument)
{
    struct stage *stage = *(struct stage *const *)argument;
    char name[32];
    (void)snprintf(name, sizeof(name), "quiet-%u", member->index);
    const struct toy_job job = {.socket = stage->socket,
        .name = name,
        .ranks = 1,
        .buckets = 1,
        .weights = 1,
        .rows = 64,
        .cols = 64,
        .flavour = F8_DYNAMIC,
        .precompute = true};
    struct toy_rank toy;
    become(member->index);
    int status = toy_rank_join(&toy, &job, 0);
    if (status == F8_OK)
        status = toy_rank_seal(&toy);
    if (status == F8_OK)
        status = toy_rank_step(&toy);
    crew_mark(member);
    if (status == F8_OK)
        status = gather_quietly(stage, &toy, member->index);
    if (status != F8_OK)
        (void)fprintf(stderr, "%s: %s\n", name, f8_error_text());
    toy_rank_close(&toy);
    return status != F8_OK;
}

/* ---- the greedy job ---- */

/* Asks for all buckets, then takes them one by one. */
static int gather_all_ahead(struct toy_rank *toy)
{
    int status = F8_OK;
    for (uint32_t b = 0; status == F8_OK && b < toy->job.buckets; b++)
        status = f8_gather(toy->group, b, F8_DEFAULT_DEADLINE, NULL);
    for (uint32_t b = 0; status == F8_OK && b < toy->job.buckets; b++) {
        status = f8_post_gather(toy->group, b, F8_FOREVER, toy->views, 1, NULL);
        if (status == F8_OK)
            status = f8_release(toy->group, b, NULL);
    }
    return status;
}

static int flood(struct stage *stage, struct toy_rank *toy, int way)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    int status = F8_OK, number;
    while (status == F8_OK && (number = atomic_load(&stage->phase)) >= 0) {
        if (!(number % KINDS & way)) {
            (void)nanosleep(&pause, NULL);
            continue;
        }
        status = gather_all_ahead(toy);
        atomic_fetch_add(&stage->floods[way], toy->job.buckets);
    }
    return status;
}

static int flooder(struct crew_member *member, const void *argument)
{
    struct stage *stage = *(struct stage *const *)argument;
    int way = member->index % 2 ? REQUESTS : LARGE;
    char group[32];
    (void)snprintf(group, sizeof(group), "group-%u", member->index);
    const struct toy_job job = {.socket = stage->socket,
        .name = "greedy",
        .group = group,
        .ranks = 1,
        .buckets = way == LARGE ? 2 : AHEAD,
        .weights = 1,
        .rows = way == LARGE ? 8192 : 1, /* 64 MiB gathered */
        .cols = way == LARGE ? 8192 : 16,
        .flavour = F8_STATIC};
    struct toy_rank toy;
    become(QUIET);
    int status = toy_rank_join(&toy, &job, 0);
    if (status == F8_OK)
        status = toy_rank_seal(&toy);
    crew_mark(member);
    if (status == F8_OK)
        status = flood(stage, &toy, way);
    if (status != F8_OK)
        (void)fprintf(stderr, "greedy: %s\n", f8_error_text());
    toy_rank_close(&toy);
    return status != F8_OK;
}

/* ---- figures ---- */

static int by_float(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

struct figures {
    float p50, p99;
};

static struct figures figures_of(const struct phase *phase)
{
    static float all[QUIET * SAMPLES];
    uint32_t count = 0;
    for (uint32_t q = 0; q < QUIET; q++)
        for (uint32_t i = 0; i < phase->counts[q]; i++)
            all[count++] = phase->micros[q][i];
    ck_assert_uint_gt(count, 0);
    qsort(all, count, sizeof(*all), by_float);
    return (struct figures){.p50 = all[count / 2], .p99 = all[(uint64_t)count * 99 / 100]};
}

static float median(float *values)
{
    qsort(values, ROUNDS, sizeof(*values), by_float);
    return values[ROUNDS / 2];
}

static void report(const struct stage *stage, int kind, const char *title)
{
    float p50[ROUNDS], p99[ROUNDS], ratios[ROUNDS];
    for (int r = 0; r < ROUNDS; r++) {
        struct figures without = figures_of(&stage->phases[r * KINDS]);
        struct figures with = figures_of(&stage->phases[r * KINDS + kind]);
        p50[r] = with.p50;
        p99[r] = with.p99;
        ratios[r] = with.p99 / without.p99;
    }
    printf("%-36s p50 %7.0f us, p99 %7.0f us, p99 with : without %.2f\n", title, median(p50),
        median(p99), median(ratios));
}

static void play(struct stage *stage)
{
    const struct timespec length = {.tv_nsec = PHASE_MS * 1000000L};
    for (int number = 0; number < ROUNDS * KINDS; number++) {
        atomic_store(&stage->phase, number);
        (void)nanosleep(&length, NULL);
    }
    atomic_store(&stage->phase, -1);
}

/* Other uids need a way to the socket, which is its owner's and its group's. */
static void open_to_all(const struct test_daemon *daemon)
{
    ck_assert_int_eq(chmod(daemon->directory, 0711), 0);
    ck_assert_int_eq(chmod(daemon->socket, 0666), 0);
}

static void report_all(const struct stage *stage)
{
    printf("gathers of %d quiet jobs, one each %ld ms:\n", QUIET, PERIOD_NS / 1000000);
    report(stage, 0, "nobody floods");
    report(stage, LARGE, "large gathers");
    report(stage, REQUESTS, "pipelined requests");
    report(stage, LARGE | REQUESTS, "both");
    printf("the greedy job gathered %llu buckets of 64 MiB and %llu small ones\n",
        (unsigned long long)atomic_load(&stage->floods[LARGE]),
        (unsigned long long)atomic_load(&stage->floods[REQUESTS]));
}

/* Check's own frame: what the test library asserts ends the bench with its words. */
START_TEST(bench)
{
    struct stage *stage =
        mmap(NULL, sizeof(*stage), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(stage, MAP_FAILED);
    struct test_daemon daemon;
    struct crew quiet, greedy;
    test_daemon_start(&daemon, NULL);
    open_to_all(&daemon);
    (void)snprintf(stage->socket, sizeof(stage->socket), "%s", daemon.socket);
    crew_start(&quiet, QUIET, quiet_job, &stage);
    crew_await(&quiet);
    crew_start(&greedy, FLOODERS, flooder, &stage);
    crew_await(&greedy);
    crew_go(&quiet);
    crew_go(&greedy);
    play(stage);
    crew_end(&quiet, 0);
    crew_end(&greedy, 0);
    report_all(stage);
    test_daemon_stop(&daemon);
    (void)munmap(stage, sizeof(*stage));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fairness");
    TCase *tcase = tcase_create("bench");
    tcase_set_timeout(tcase, 600);
    tcase_add_test(tcase, bench);
    suite_add_tcase(suite, tcase);
    return run_cases_unforked(suite);
}
