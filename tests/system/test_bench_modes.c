/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f8bench run over meshes, replicas and several jobs, with each flavour: that the whole program
 * finds all right, looks at every byte that each gather group must have, and still finds what it
 * plants itself. The parts of --model tiny are written down anew.
 */
#include <check.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>

#include "lib/program.h"
#include "lib/suite.h"
#include "lib/test_daemon.h"
#include "proto/protocol.h"

#define STEPS   4
#define BLOCKS  2
#define BUCKETS (2 * BLOCKS)

/* One block, as each part of `tp` has it; the first and the last weight are no matrices. */
enum { NUM_TINY = 6, FIRST_MATRIX = 1, LAST_MATRIX = 4, MAX_TP = 4 };
static const struct {
    uint64_t rows, cols;
} tiny[MAX_TP + 1][MAX_TP][NUM_TINY] = {
    [1] = {{{7, 1}, {5, 7}, {3, 9}, {1, 33}, {131, 61}, {3, 1}}},
    [2] = {{{7, 1}, {3, 7}, {2, 9}, {1, 17}, {66, 61}, {3, 1}},
        {{7, 1}, {2, 7}, {1, 9}, {1, 16}, {65, 61}, {3, 1}}},
    [3] = {{{7, 1}, {2, 7}, {1, 9}, {1, 11}, {44, 61}, {3, 1}},
        {{7, 1}, {2, 7}, {1, 9}, {1, 11}, {44, 61}, {3, 1}},
        {{7, 1}, {1, 7}, {1, 9}, {1, 11}, {43, 61}, {3, 1}}},
    [4] = {{{7, 1}, {5, 2}, {3, 9}, {1, 9}, {33, 61}, {3, 1}},
        {{7, 1}, {5, 2}, {3, 9}, {1, 9}, {33, 61}, {3, 1}},
        {{7, 1}, {5, 2}, {3, 9}, {1, 9}, {33, 61}, {3, 1}},
        {{7, 1}, {5, 1}, {3, 9}, {1, 6}, {32, 61}, {3, 1}}},
};

/* Groups of `world` ranks each: `tp` parts of the weights, or `replicas` of them, in each job. */
static const struct mode {
    const char *flags;
    const char *flavour;
    unsigned world, tp, replicas, jobs, slots;
} modes[] = {
    {"--mesh dp=2,tp=2", "dynamic", 2, 2, 1, 1, 0},
    {"--mesh dp=2,tp=2 --no-precompute", "dynamic", 2, 2, 1, 1, 2},
    {"--mesh dp=2,tp=2 --history 2", "delayed", 2, 2, 1, 1, 2},
    {"--mesh dp=1,tp=4 --history 1 --pre-gather", "delayed", 1, 4, 1, 1, 3},
    {"--mesh dp=1,tp=4 --no-precompute --pre-gather", "dynamic", 1, 4, 1, 1, 0},
    {"--mesh dp=3,tp=1", "delayed", 3, 1, 1, 1, 0},
    {"--mesh dp=2,tp=3 --history-algorithm most-recent", "delayed", 2, 3, 1, 1, 0},
    {"--mesh dp=2,tp=3 --ranks 6", "static", 2, 3, 1, 1, 2},
    {"--mesh dp=1,tp=1", "dynamic", 1, 1, 1, 1, 0},
    {"--hsdp 2 --ranks 4", "dynamic", 2, 1, 2, 1, 0},
    {"--hsdp 3 --ranks 6 --pre-gather --history 3", "delayed", 2, 1, 3, 1, 2},
    {"--hsdp 2 --ranks 2 --no-precompute", "dynamic", 1, 1, 2, 1, 2},
    {"--jobs 3 --ranks 1", "dynamic", 1, 1, 1, 3, 0},
    {"--jobs 2 --ranks 3 --pre-gather", "delayed", 3, 1, 1, 2, 2},
    {"--jobs 2 --mesh dp=1,tp=2", "delayed", 1, 2, 1, 2, 0},
};

/* Under sanitizers, where WAYS_STEP is more than 1, every other one. */
#define MODES_STEP (WAYS_STEP > 1 ? 2 : 1)
#define NUM_MODES  (int)(sizeof(modes) / sizeof(modes[0]) + MODES_STEP - 1) / MODES_STEP

static unsigned ranks_of(const struct mode *mode)
{
    return mode->world * mode->tp * mode->replicas;
}

static bool is_delayed(const struct mode *mode)
{
    return strcmp(mode->flavour, "delayed") == 0;
}

static bool is_matrix(int weight)
{
    return weight >= FIRST_MATRIX && weight <= LAST_MATRIX;
}

/* What one gather group of a part has: bytes with padding and scales, and places in the arena. */
static void add_group(const struct mode *mode, unsigned part, uint64_t *bytes, uint64_t *arena)
{
    uint64_t span[2] = {f8_proto_scales_span(3), f8_proto_scales_span(3)};
    for (int i = 0; i < NUM_TINY; i++) {
        uint64_t rows = tiny[mode->tp][part][i].rows;
        uint64_t cols = tiny[mode->tp][part][i].cols;
        uint32_t size = is_matrix(i) ? 1 : 2;
        uint64_t chunk = (rows + mode->world - 1) / mode->world;
        *bytes += BLOCKS * (chunk * mode->world * cols * size + (is_matrix(i) ? 4 : 0));
        span[i / 3] += f8_proto_weight_span(rows, cols, mode->world, size);
    }
    *arena += mode->slots > 0 ? mode->slots * (span[0] > span[1] ? span[0] : span[1])
                              : BLOCKS * (span[0] + span[1]);
}

static uint64_t integer(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    ck_assert_msg(json_is_integer(value), "%s is no integer", key);
    return (uint64_t)json_integer_value(value);
}

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    ck_assert_msg(json_is_number(value), "%s is no number", key);
    return json_number_value(value);
}

/* A mode's flags, with what goes with all. */
static void start(const struct mode *mode, const char *more, struct program *bench)
{
    program_start(bench, F8_TEST_BENCH, NULL, "run %s --model tiny --flavour %s --slots %u %s %s",
        program_bench_device(), mode->flavour, mode->slots, mode->flags, more);
}

/* How the ranks stood to each other. */
static void check_arrangement(const json_t *report, const struct mode *mode)
{
    const json_t *mesh = json_object_get(report, "mesh");
    const json_t *replicas = json_object_get(report, "hsdp");
    ck_assert_uint_eq(integer(report, "ranks"), ranks_of(mode));
    ck_assert_uint_eq(integer(report, "jobs"), mode->jobs);
    if (strstr(mode->flags, "--mesh")) {
        ck_assert_uint_eq(integer(mesh, "dp"), mode->world);
        ck_assert_uint_eq(integer(mesh, "tp"), mode->tp);
    } else {
        ck_assert(json_is_null(mesh));
    }
    if (strstr(mode->flags, "--hsdp"))
        ck_assert_uint_eq((uint64_t)json_integer_value(replicas), mode->replicas);
    else
        ck_assert(json_is_null(replicas));
}

static void check_jobs(const json_t *report, const struct mode *mode, uint64_t checked)
{
    const json_t *jobs = json_object_get(report, "per_job");
    double all_p99 = number(report, "gather_p99_s"), most = 0;
    ck_assert_uint_eq(json_array_size(jobs), mode->jobs);
    for (unsigned i = 0; i < mode->jobs; i++) {
        const json_t *job = json_array_get(jobs, i);
        ck_assert(json_is_true(json_object_get(job, "ok")));
        ck_assert_uint_eq(integer(job, "checked_bytes"), checked);
        ck_assert_uint_eq(integer(job, "mismatches"), 0);
        ck_assert_uint_eq(integer(job, "gathers"), (uint64_t)STEPS * BUCKETS * ranks_of(mode));
        ck_assert_uint_eq(integer(job, "syncs"), is_delayed(mode) ? STEPS : 0);
        ck_assert_double_gt(number(job, "gather_p50_s"), 0);
        ck_assert_double_ge(number(job, "gather_p99_s"), number(job, "gather_p50_s"));
        ck_assert_ptr_nonnull(json_object_get(json_object_get(job, "phases"), "total"));
        most = number(job, "gather_p99_s") > most ? number(job, "gather_p99_s") : most;
    }
    ck_assert_msg(
        all_p99 > 0 && all_p99 <= most, "p99 of all is %g, of the worst %g", all_p99, most);
}

/* Each mode is right, and all of it was looked at. */
START_TEST(test_modes)
{
    const struct mode *mode = &modes[_i * MODES_STEP];
    uint64_t bytes = 0, arena = 0;
    struct program bench;
    for (unsigned group = 0; group < mode->tp * mode->replicas; group++)
        add_group(mode, group % mode->tp, &bytes, &arena);
    start(mode, "--json --steps 4", &bench);
    program_expect(&bench, 0);
    json_t *report = program_json(&bench);
    program_done(&bench);
    ck_assert(json_is_true(json_object_get(report, "ok")));
    check_arrangement(report, mode);
    check_jobs(report, mode, STEPS * bytes);
    ck_assert_uint_eq(integer(report, "checked_bytes"), mode->jobs * STEPS * bytes);
    ck_assert_uint_eq(
        integer(report, "arena_bytes"), mode->jobs * arena * program_bench_copies(mode->world));
    ck_assert_uint_eq(integer(report, "syncs"), is_delayed(mode) ? STEPS : 0);
    ck_assert_double_eq(
        number(report, "round_trips_per_bucket"), strstr(mode->flags, "--pre-gather") ? 2 : 1);
    bool sync = json_object_get(json_object_get(report, "phases"), "sync") != NULL;
    ck_assert_int_eq(sync, is_delayed(mode));
    json_decref(report);
}
END_TEST

/* In each mode a planted difference is found, once: by one group of one job. */
START_TEST(test_plants)
{
    static const char *const kinds[] = {"byte", "scale"};
    char more[64];
    struct program bench;
    (void)snprintf(more, sizeof(more), "--json --steps 2 --plant %s --seed %d", kinds[_i % 2], _i);
    start(&modes[_i * MODES_STEP], more, &bench);
    program_expect(&bench, 1);
    json_t *report = program_json(&bench);
    program_done(&bench);
    const char *error = json_string_value(json_object_get(report, "error"));
    const char *first = json_string_value(json_object_get(report, "first_mismatch"));
    ck_assert_uint_eq(integer(report, "mismatches"), 1);
    ck_assert_str_eq(error, "a difference was planted, and found");
    ck_assert_msg(strstr(first, _i % 2 ? ": scale: " : ": element "), "%s", first);
    json_decref(report);
}
END_TEST

/* The lines for people: one for each job, and f8ctl's view of each. */
START_TEST(test_text)
{
    struct program bench;
    program_start(&bench, F8_TEST_BENCH, NULL,
        "run %s --model tiny --ranks 2 --steps 2 --jobs 2 --flavour delayed --ctl",
        program_bench_device());
    program_expect(&bench, 0);
    ck_assert_msg(strstr(bench.out, "2 ranks, 2 steps, 2 jobs\n"), "%s", bench.out);
    ck_assert_msg(strstr(bench.out, "\nsync  "), "%s", bench.out);
    ck_assert_msg(strstr(bench.out, "\n1      "), "%s", bench.out);
    ck_assert_msg(strstr(bench.out, "\nall    "), "%s", bench.out);
    const char *other = strstr(bench.out, "layers.1.odd.weight");
    ck_assert_msg(other && strstr(other + 1, "layers.1.odd.weight"), "%s", bench.out);
    ck_assert_str_eq(bench.err, "");
    program_done(&bench);
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("bench_modes");
    tcase_set_timeout(cases, 120);
    tcase_add_loop_test(cases, test_modes, 0, NUM_MODES);
    tcase_add_loop_test(cases, test_plants, 0, NUM_MODES);
    tcase_add_test(cases, test_text);
    return run_suite("bench_modes", cases);
}
