/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All interleavings of small systems of three ranks, two buckets and three rounds: whatever the
 * order of requests, ends of work, deaths, deadlines, releases and re-joins, the invariants of
 * tests/lib/round_model.h hold in every state. test_round_planted.c shows that they can fail.
 */
#include <check.h>
#include <stdio.h>
#include <time.h>

#include "tests/lib/round_explore.h"
#include "tests/lib/suite.h"

/* Sanitized builds are slow and see only the first states of each shape; they say so. */
#ifndef EXPLORE_STATES_MAX
#define EXPLORE_STATES_MAX UINT64_MAX
#endif

static double seconds(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

START_TEST(all_interleavings)
{
    const struct model_shape *shape = &model_shapes[_i];
    static struct exploration result;
    double begin = seconds();
    explore(shape, EXPLORE_STATES_MAX, &result);
    (void)printf("%-45s %9llu states %10llu transitions %4u deep %6.2f s%s\n", shape->name,
        (unsigned long long)result.states, (unsigned long long)result.transitions, result.deepest,
        seconds() - begin, result.cut ? " (cut short: not all states)" : "");
    (void)fflush(stdout);
    ck_assert_msg(!result.violation, "%s: not so: \"%s\", after\n%s", shape->name, result.violation,
        result.path);
    ck_assert_uint_gt(result.states, 1000);
}
END_TEST

static Suite *explore_suite(void)
{
    int shapes = 0;
    while (model_shapes[shapes].name)
        shapes++;
    Suite *suite = suite_create("round, explored");
    TCase *tcase = tcase_create("interleavings");
    tcase_set_timeout(tcase, 300);
    tcase_add_loop_test(tcase, all_interleavings, 0, shapes);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return run_cases(explore_suite());
}
