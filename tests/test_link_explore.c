/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All interleavings of small systems of three ranks and two or three groups, some of which share
 * amaxes, over the daemon's own collectives: whatever the order of requests, ends of work, deaths,
 * deadlines and re-joins, the invariants of tests/lib/link_model.h hold in every state.
 * test_link_planted.c shows that they can fail.
 */
#include <check.h>
#include <stdio.h>
#include <time.h>

#include "tests/lib/link_explore.h"
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
    const struct link_shape *shape = &link_shapes[_i];
    static struct link_exploration result;
    double begin = seconds();
    link_explore(shape, EXPLORE_STATES_MAX, &result);
    (void)printf("%-40s %8llu states %9llu transitions %8llu recovered %4u deep %6.2f s%s\n",
        shape->name, (unsigned long long)result.states, (unsigned long long)result.transitions,
        (unsigned long long)result.recovered, result.deepest, seconds() - begin,
        result.cut ? " (cut short: not all states)" : "");
    (void)fflush(stdout);
    ck_assert_msg(!result.violation, "%s: not so: \"%s\", after\n%s", shape->name, result.violation,
        result.path);
    ck_assert_uint_gt(result.states, 50);
    ck_assert(result.cut || shape->crossed || shape->faults == 0 || result.recovered > 0);
}
END_TEST

static Suite *explore_suite(void)
{
    int shapes = 0;
    while (link_shapes[shapes].name)
        shapes++;
    Suite *suite = suite_create("links, explored");
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
