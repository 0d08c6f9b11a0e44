/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f8bench run as a newcomer runs it, the whole program with its own daemon: over ranks, flavours,
 * formats, types and places, what its JSON says against what follows from the shapes; differences
 * that it plants itself; and wrong flags.
 */
#include <check.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/program.h"
#include "lib/suite.h"
#include "lib/test_daemon.h"
#include "proto/protocol.h"

#define STEPS 3

/* One block of --model tiny, written down anew. */
static const struct {
    uint64_t rows, cols;
    bool matrix;
    int bucket;
} tiny[] = {{7, 1, false, 0}, {5, 7, true, 0}, {3, 9, true, 0}, {1, 33, true, 1},
    {131, 61, true, 1}, {3, 1, false, 1}};

#define NUM_TINY (sizeof(tiny) / sizeof(tiny[0]))
#define BLOCKS   2

/* One way to run f8bench. */
struct way {
    unsigned ranks;
    const char *flavour, *fp8, *dtype;
    unsigned slots;
    bool pre_gather, no_precompute, power_of_two;
};

static bool is_flavour(const struct way *way, const char *flavour)
{
    return strcmp(way->flavour, flavour) == 0;
}

static uint64_t element_size(const struct way *way, size_t weight)
{
    if (tiny[weight].matrix)
        return 1;
    return strcmp(way->dtype, "float32") == 0 ? 4 : 2;
}

/* Bytes with the padding that the checker must have looked at, of one step, scales included. */
static uint64_t checked_bytes(const struct way *way)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < NUM_TINY; i++) {
        uint64_t chunk = (tiny[i].rows + way->ranks - 1) / way->ranks;
        bytes += chunk * way->ranks * tiny[i].cols * element_size(way, i);
        bytes += tiny[i].matrix ? sizeof(float) : 0;
    }
    return BLOCKS * bytes;
}

/* One unsharded copy: every bucket's place, or the slots, each as large as the largest bucket. */
static uint64_t arena_bytes(const struct way *way)
{
    uint64_t span[2] = {0};
    for (size_t i = 0; i < NUM_TINY; i++)
        span[tiny[i].bucket] += f8_proto_weight_span(
            tiny[i].rows, tiny[i].cols, way->ranks, (uint32_t)element_size(way, i));
    span[0] += f8_proto_scales_span(3);
    span[1] += f8_proto_scales_span(3);
    if (way->slots > 0)
        return way->slots * (span[0] > span[1] ? span[0] : span[1]);
    return BLOCKS * (span[0] + span[1]);
}

static uint64_t fp8_bytes(void)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < NUM_TINY; i++)
        bytes += tiny[i].matrix ? tiny[i].rows * tiny[i].cols : 0;
    return BLOCKS * bytes;
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

static const char *string(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    ck_assert_msg(json_is_string(value), "%s is no string", key);
    return json_string_value(value);
}

/* The phases that there must be, and nothing else; each with figures that can be. */
static void check_phases(const json_t *report, const char *more)
{
    const char *const names[] = {"gather", "post_gather", "total", "send", "release", more};
    const json_t *phases = json_object_get(report, "phases");
    size_t count = more ? 6 : 5;
    ck_assert_uint_eq(json_object_size(phases), count);
    for (size_t i = 0; i < count; i++) {
        const json_t *phase = json_object_get(phases, names[i]);
        bool moves = i < 3 || strcmp(names[i], "precompute") == 0;
        ck_assert_uint_eq(json_object_size(phase), 3);
        ck_assert_msg(number(phase, "median_s") > 0, "%s takes no time", names[i]);
        ck_assert_msg((number(phase, "gbps") > 0) == moves, "%s", names[i]);
        ck_assert_msg((number(phase, "memcpy_ratio") > 0) == moves, "%s", names[i]);
    }
}

/* What is the same for every model. */
static void check_report(const json_t *report, const struct way *way, unsigned steps)
{
    ck_assert_str_eq(string(report, "schema"), "f8bench/1");
    ck_assert(json_is_true(json_object_get(report, "ok")));
    ck_assert(json_is_null(json_object_get(report, "error")));
    ck_assert(json_is_null(json_object_get(report, "first_mismatch")));
    ck_assert_uint_eq(integer(report, "mismatches"), 0);
    ck_assert_uint_eq(integer(report, "ranks"), way->ranks);
    ck_assert_uint_eq(integer(report, "steps"), steps);
    ck_assert_uint_eq(integer(report, "slots"), way->slots);
    ck_assert_str_eq(string(report, "flavour"), way->flavour);
    ck_assert_str_eq(string(report, "fp8"), way->fp8);
    ck_assert_str_eq(string(report, "dtype"), way->dtype);
    /* one, and one more where each gather is announced */
    ck_assert_double_eq(number(report, "round_trips_per_bucket"), way->pre_gather ? 2 : 1);
    ck_assert(number(report, "memcpy_gbps") > 0);
    ck_assert_str_eq(string(report, "daemon_version"), F8_VERSION);
    ck_assert_uint_eq(integer(report, "syncs"), is_flavour(way, "delayed") ? steps : 0);
    bool precompute = is_flavour(way, "dynamic") && !way->no_precompute;
    check_phases(report, is_flavour(way, "delayed") ? "sync" : (precompute ? "precompute" : NULL));
}

/* Runs f8bench in that way; what it reports. */
static json_t *run(const struct way *way, const char *more, int status)
{
    struct program bench;
    program_start(&bench, F8_TEST_BENCH, NULL,
        "run --json %s --ranks %u --flavour %s --fp8 %s --dtype %s --slots %u%s%s%s %s",
        program_bench_device(), way->ranks, way->flavour, way->fp8, way->dtype, way->slots,
        way->pre_gather ? " --pre-gather" : "", way->no_precompute ? " --no-precompute" : "",
        way->power_of_two ? " --power-of-two" : "", more);
    program_expect(&bench, status);
    json_t *report = program_json(&bench);
    program_done(&bench);
    return report;
}

static void check_tiny(const struct way *way)
{
    json_t *report = run(way, "--model tiny --steps 3", 0);
    check_report(report, way, STEPS);
    ck_assert_str_eq(string(report, "model"), "tiny");
    ck_assert_uint_eq(integer(report, "weights"), BLOCKS * NUM_TINY);
    ck_assert_uint_eq(integer(report, "buckets"), BLOCKS * 2);
    ck_assert_uint_eq(integer(report, "fp8_bytes"), fp8_bytes());
    ck_assert_uint_eq(integer(report, "checked_bytes"), STEPS * checked_bytes(way));
    ck_assert_uint_eq(
        integer(report, "arena_bytes"), arena_bytes(way) * program_bench_copies(way->ranks));
    json_decref(report);
}

/* Every flavour, format and type with this number of ranks; places and switches in turn. */
START_TEST(test_ways)
{
    static const char *const flavours[] = {"dynamic", "delayed", "static"};
    static const char *const formats[] = {"e4m3fn", "e5m2"};
    static const char *const dtypes[] = {"float32", "bfloat16", "float16"};
    static const unsigned slots[] = {0, 2, 3};
    unsigned ranks = (unsigned)_i;
    for (unsigned i = 0; i < 18; i += WAYS_STEP) {
        unsigned turn = i + 5 * ranks;
        check_tiny(&(struct way){.ranks = ranks,
            .flavour = flavours[i / 6],
            .fp8 = formats[i / 3 % 2],
            .dtype = dtypes[i % 3],
            .slots = slots[turn % 7 % 3],
            .pre_gather = turn % 2,
            .no_precompute = turn / 2 % 2,
            .power_of_two = turn / 3 % 2});
    }
}
END_TEST

/* Of the file below: more than a chunk of the daemon's, and no multiple of any. */
#define FILE_ROWS 1031
#define FILE_COLS 769

/* A safetensors file with a bf16 matrix and an fp32 vector, numbers of all signs around 0.01. */
static void write_file(int fd)
{
    static uint16_t matrix[FILE_ROWS * FILE_COLS];
    static float vector[FILE_COLS];
    char header[256];
    uint32_t random = 1;
    int length = snprintf(header + 8, sizeof(header) - 8,
        "{\"h.0.w\":{\"dtype\":\"BF16\",\"shape\":[%d,%d],\"data_offsets\":[0,%zu]},"
        "\"h.0.b\":{\"dtype\":\"F32\",\"shape\":[%d],\"data_offsets\":[%zu,%zu]}}",
        FILE_ROWS, FILE_COLS, sizeof(matrix), FILE_COLS, sizeof(matrix),
        sizeof(matrix) + sizeof(vector));
    uint64_t size = (uint64_t)length;
    memcpy(header, &size, sizeof(size));
    for (size_t i = 0; i < FILE_ROWS * FILE_COLS; i++) {
        random = random * 1664525 + 1013904223;
        matrix[i] = (uint16_t)(0x3c00 | (random >> 16 & 0x81ff));
    }
    for (size_t i = 0; i < FILE_COLS; i++)
        vector[i] = (float)i / FILE_COLS;
    ck_assert_int_eq(write(fd, header, size + 8), (ssize_t)size + 8);
    ck_assert_int_eq(write(fd, matrix, sizeof(matrix)), (ssize_t)sizeof(matrix));
    ck_assert_int_eq(write(fd, vector, sizeof(vector)), (ssize_t)sizeof(vector));
}

/* Weights of a file; work that the daemon cuts into several chunks. */
START_TEST(test_file)
{
    const struct way way = {.ranks = 3,
        .flavour = "dynamic",
        .fp8 = "e5m2",
        .dtype = "mixed",
        .slots = 2,
        .no_precompute = true};
    char path[] = "/tmp/f8test-XXXXXX";
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    write_file(fd);
    struct program bench;
    program_start(&bench, F8_TEST_BENCH, NULL,
        "run --json %s --weights %s --ranks 3 --steps 2 --fp8 e5m2 --slots 2 --no-precompute",
        program_bench_device(), path);
    program_wait(&bench);
    (void)close(fd);
    (void)unlink(path);
    ck_assert_msg(bench.status == 0, "%s%s", bench.out, bench.err);
    json_t *report = program_json(&bench);
    check_report(report, &way, 2);
    ck_assert_uint_eq(integer(report, "weights"), 2);
    ck_assert_uint_eq(integer(report, "fp8_bytes"), FILE_ROWS * FILE_COLS);
    json_decref(report);
    program_done(&bench);
}
END_TEST

/* A model's true shapes. Too many values for a sanitizer: test_file is what runs there. */
START_TEST(test_real_shapes)
{
    const struct way way = {.ranks = 3,
        .flavour = "dynamic",
        .fp8 = "e4m3fn",
        .dtype = "bfloat16",
        .slots = 2,
        .pre_gather = true};
    json_t *report = run(&way, "--model gpt2-small --blocks 1 --steps 1", 0);
    check_report(report, &way, 1);
    ck_assert_uint_eq(integer(report, "weights"), 16);
    ck_assert_uint_eq(integer(report, "fp8_bytes"),
        50257 * 768 + 1024 * 768 + 768 * 2304 + 768 * 768 + 2 * 768 * 3072);
    json_decref(report);
}
END_TEST

/* A planted difference is found, once, and told with the weight's name. */
START_TEST(test_plants)
{
    static const char *const kinds[] = {"byte", "scale"};
    const struct way way = {.ranks = 4, .flavour = "dynamic", .fp8 = "e4m3fn", .dtype = "bfloat16"};
    for (int seed = 1; seed <= 3; seed++) {
        char more[128];
        (void)snprintf(
            more, sizeof(more), "--model tiny --steps 2 --plant %s --seed %d", kinds[_i], seed);
        json_t *report = run(&way, more, 1);
        const char *first = string(report, "first_mismatch");
        ck_assert(json_is_false(json_object_get(report, "ok")));
        ck_assert_uint_eq(integer(report, "mismatches"), 1);
        ck_assert_str_eq(string(report, "error"), "a difference was planted, and found");
        ck_assert_msg(strncmp(first, "weight layers.", 14) == 0, "%s", first);
        ck_assert_msg(strstr(first, _i == 0 ? ": element " : ": scale: "), "%s", first);
        json_decref(report);
    }
}
END_TEST

/* The report for people, with f8ctl's view in it. */
START_TEST(test_text)
{
    struct program bench;
    program_start(&bench, F8_TEST_BENCH, NULL, "run %s --model tiny --ranks 2 --steps 2 --ctl",
        program_bench_device());
    program_expect(&bench, 0);
    size_t length = strlen(bench.out);
    ck_assert_msg(
        length > 12 && strcmp(bench.out + length - 12, "f8bench: OK\n") == 0, "%s", bench.out);
    ck_assert_ptr_nonnull(strstr(bench.out, "layers.1.odd.weight"));
    ck_assert_ptr_nonnull(strstr(bench.out, "1.00 round trips a bucket"));
    ck_assert_ptr_null(strchr(bench.out, '\033'));
    ck_assert_str_eq(bench.err, ""); /* no progress bar where there is no terminal */
    program_done(&bench);
}
END_TEST

/* Arguments, exit status, and what must be told on standard error. */
static const struct {
    const char *arguments;
    int status;
    const char *text;
} wrong[] = {
    {"", 2, "a command is missing"},
    {"walk", 2, "no command is called walk"},
    {"run --ranks 0", 2, "--ranks 0: must be a number from 1 to 256"},
    {"run --ranks 257", 2, "--ranks 257: "},
    {"run --ranks", 2, "--ranks: a value is missing"},
    {"run --steps -1", 2, "--steps -1: must be a number"},
    {"run --steps 3x", 2, "--steps 3x: must be a number"},
    {"run --flavour late", 2, "--flavour late: must be one of dynamic delayed static"},
    {"run --history 3", 2, "--history 3: only --flavour delayed has one"},
    {"run --history-algorithm most-recent", 2, "only --flavour delayed has one"},
    {"run --flavour delayed --history 1025", 2, "--history 1025: must be a number from 1 to 1024"},
    {"run --mesh 2x2", 2, "--mesh 2x2: must be dp=D,tp=T with D x T ranks, 1 to 256 of them"},
    {"run --mesh dp=2,tp=0", 2, "--mesh dp=2,tp=0: must be"},
    {"run --mesh dp=2,tp=2x", 2, "--mesh dp=2,tp=2x: must be"},
    {"run --mesh dp=16,tp=17", 2, "--mesh dp=16,tp=17: must be"},
    {"run --mesh dp=2,tp=2 --ranks 3", 2, "--ranks 3: --mesh dp=2,tp=2 has 4"},
    {"run --mesh dp=2,tp=2 --hsdp 2", 2, "--hsdp 2: cannot go with --mesh dp=2,tp=2"},
    {"run --ranks 5 --hsdp 2", 2, "--hsdp 2: 5 ranks are not as many in each group"},
    {"run --jobs 65", 2, "--jobs 65: must be a number from 1 to 64"},
    {"run --fp8 e4m3", 2, "--fp8 e4m3: must be one of e4m3fn e5m2"},
    {"run --dtype float64", 2, "--dtype float64: must be one of"},
    {"run --slots 1", 2, "--slots 1: gathering ahead by one needs at least 2"},
    {"run --plant rank", 2, "--plant rank: must be one of byte scale"},
    {"run --device gpu", 2, "--device gpu: must be one of host cuda"},
    {"run --devices 0", 2, "--devices: only --device cuda has any"},
    {"run --device cuda --devices 0,", 2, "--devices 0,: must be numbers such as 0,1"},
    {"run --cuda-memory vmm", 2, "--cuda-memory: only --device cuda has any"},
    {"run --model huge", 2, "--model huge: no model is called huge; there are llama3-8b-block"},
    {"run --model tiny --weights x", 2, "--model tiny: cannot go with --weights x"},
    {"run --socket a --daemon b", 2, "--daemon b: cannot go with --socket a"},
    {"run --json=1", 2, "--json=1: no such flag, or it takes no value"},
    {"run --hosts 1", 2, "--hosts 1: must be a number from 2 to 64"},
    {"run --hosts 65", 2, "--hosts 65: must be a number from 2 to 64"},
    {"run --hosts 3 --ranks 2", 2, "--hosts 3: each needs a rank, of 2"},
    {"run --hosts 2 --jobs 2", 2, "--hosts 2: cannot go with several --jobs"},
    {"run --hosts 2 --socket a", 2, "--socket a: each of the hosts has a socket, not 1 in all"},
    {"run --hosts 2 --socket a,b,", 2,
        "--socket a,b,: each of the hosts has a socket, not 3 in all"},
    {"run --hosts 2 --socket a,", 2, "--socket a,: the path of a socket has 1 to 107 bytes"},
    {"run --hosts 2 --ifname lo --rate-mbit 9", 2, "--rate-mbit: only network namespaces have"},
    {"run --hosts 2 --socket a,b --delay-us 9", 2, "--delay-us: only network namespaces have"},
    {"run --ifname lo", 2, "--ifname: goes with --hosts only"},
    {"run --rate-mbit 9", 2, "--rate-mbit: goes with --hosts only"},
    {"run --delay-us 9", 2, "--delay-us: goes with --hosts only"},
    {"run --torch", 2, "--torch: goes with --hosts only"},
    {"run --rate-mbit 0 --hosts 2", 2, "--rate-mbit 0: must be a number from 1 to 1000000"},
    {"exchange --hosts 1", 2, "--hosts 1: must be a number from 2 to 64"},
    {"exchange --rounds 0", 2, "--rounds 0: must be a number from 1 to 1000"},
    {"exchange --bytes -1", 2, "--bytes -1: must be a number"},
    {"exchange --bytes", 2, "--bytes: a value is missing"},
    {"exchange --bogus", 2, "--bogus: no such flag"},
    {"exchange tiny", 2, "tiny: arguments must be flags"},
    {"run --bogus", 2, "--bogus: no such flag"},
    {"run tiny", 2, "tiny: arguments must be flags"},
    {"run --weights /nonexistent.safetensors", 1, "/nonexistent.safetensors: cannot be opened"},
};

START_TEST(test_wrong_flags)
{
    struct program bench;
    program_start(&bench, F8_TEST_BENCH, NULL, "%s", wrong[_i].arguments);
    program_expect(&bench, wrong[_i].status);
    ck_assert_msg(strstr(bench.err, wrong[_i].text), "%s", bench.err);
    ck_assert_str_eq(bench.out, "");
    program_done(&bench);
}
END_TEST

/* A program that asked for JSON gets some, also if the files are no checkpoints. */
START_TEST(test_wrong_file)
{
    struct program bench;
    program_start(&bench, F8_TEST_BENCH, NULL, "run --json --weights /dev/null");
    program_expect(&bench, 1);
    json_t *report = program_json(&bench);
    ck_assert(json_is_false(json_object_get(report, "ok")));
    ck_assert_ptr_nonnull(strstr(string(report, "error"), "/dev/null"));
    json_decref(report);
    program_done(&bench);
}
END_TEST

/* A result that nobody can have read is no success. */
START_TEST(test_full_disk)
{
    char command[512];
    (void)snprintf(command, sizeof(command),
        "%s run --model tiny --ranks 1 --steps 1 %s >/dev/full 2>/dev/null", F8_TEST_BENCH,
        _i ? "--json" : "");
    int status = system(command);
    ck_assert(WIFEXITED(status));
    ck_assert_int_eq(WEXITSTATUS(status), 1);
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("bench");
    tcase_set_timeout(cases, 120);
    tcase_add_loop_test(cases, test_ways, 1, 6);
    tcase_add_test(cases, test_file);
    if (WAYS_STEP == 1)
        tcase_add_test(cases, test_real_shapes);
    tcase_add_loop_test(cases, test_plants, 0, 2);
    tcase_add_test(cases, test_text);
    tcase_add_loop_test(cases, test_wrong_flags, 0, (int)(sizeof(wrong) / sizeof(wrong[0])));
    tcase_add_test(cases, test_wrong_file);
    tcase_add_loop_test(cases, test_full_disk, 0, 2);
    return run_suite("bench", cases);
}
