/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What gathers over hosts cost on the wire: bytes against the least that must pass, and time
 * against plain TCP. By f8bench over network namespaces, as root, on a build that is optimised;
 * nothing runs beside it. What other work adds, as packets that are sent again or cores that are
 * waited for, comes and goes: each figure is a median of steps, and the best of some runs counts.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/bench/network.h"
#include "lib/program.h"
#include "lib/suite.h"

#define SKIP 77
#define RUNS 10 /* at most: the first that is good enough is the last */

static char directory[] = "/tmp/f8-bench-wire-XXXXXX";

static void make_directory(void)
{
    memcpy(directory + sizeof(directory) - 7, "XXXXXX", 6);
    ck_assert_ptr_nonnull(mkdtemp(directory));
}

static void check_directory(void)
{
    ck_assert_msg(rmdir(directory) == 0, "something is left in %s", directory);
}

/* A figure of the report's network, of one run. */
static double measure(const char *flags, const char *key)
{
    struct program bench;
    program_start(&bench, F8_TEST_BENCH, directory, "run --json %s", flags);
    program_expect(&bench, 0);
    json_t *report = program_json(&bench);
    const json_t *value = json_object_get(json_object_get(report, "network"), key);
    ck_assert_msg(json_is_number(value), "%s is no number", key);
    double figure = json_number_value(value);
    json_decref(report);
    program_done(&bench);
    return figure;
}

/*
 * One host's part goes once to each other, whatever its ranks. What comes on top are 144 bytes a
 * weight and other host, and some hundred a bucket: docs/scaling.md says from which size on that is
 * less than a hundredth. Here a weight's part is 420 KB.
 */
static const char *const shapes[] = {
    "--hosts 2 --ranks 2", "--hosts 2 --ranks 4", "--hosts 3 --ranks 6"};

#define NUM_SHAPES (int)(sizeof(shapes) / sizeof(shapes[0]))

START_TEST(a_hundredth_more_passes_than_must)
{
    char flags[128];
    double least = 2;
    (void)snprintf(flags, sizeof(flags), "--model gpt2-small --steps 5 --check 5 %s", shapes[_i]);
    for (int run = 0; run < RUNS && least > 1.01; run++) {
        double payload = measure(flags, "payload_ratio");
        ck_assert_msg(payload >= 1, "%s: payload is %f of the least", shapes[_i], payload);
        least = payload < least ? payload : least;
    }
    ck_assert_msg(least <= 1.01, "%s: payload is %f of the least", shapes[_i], least);
}
END_TEST

/* Plain TCP moves the same bytes in each step; 0.91 to 0.94 of its rate are seen, on busy machines
 * too. */
START_TEST(gathers_are_nearly_as_fast_as_plain_tcp)
{
    double best = 0;
    for (int run = 0; run < RUNS && best < 0.75; run++) {
        double ratio = measure("--model llama3-8b-block --hosts 2 --ranks 2 --rate-mbit 2000 "
                               "--steps 5 --check 100",
            "raw_ratio");
        best = ratio > best ? ratio : best;
    }
    ck_assert_msg(best >= 0.75, "gathers have %f of the rate of plain TCP", best);
}
END_TEST

int main(void)
{
    struct bench_error error;
    if (network_check(&error) != 0) {
        printf("skipped: %s\n", error.text);
        return SKIP;
    }
    TCase *cases = tcase_create("bench_wire");
    tcase_set_timeout(cases, 600);
    tcase_add_checked_fixture(cases, make_directory, check_directory);
    tcase_add_loop_test(cases, a_hundredth_more_passes_than_must, 0, NUM_SHAPES);
    tcase_add_test(cases, gathers_are_nearly_as_fast_as_plain_tcp);
    return run_suite("bench_wire", cases);
}
