/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a test program ends: it runs its suite, and its exit status says how that went. CK_VERBOSITY
 * chooses how much it prints, CK_FORK whether each test has a process of its own. Called by main.
 */
#ifndef F8_TESTS_SUITE_H
#define F8_TESTS_SUITE_H

#include <check.h>
#include <stdlib.h>

static inline int run_runner(SRunner *runner)
{
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* Runs all cases of the suite and frees it; the program's exit status. */
static inline int run_cases(Suite *suite)
{
    return run_runner(srunner_create(suite));
}

/* The same in this process, for what would not survive a fork; with limits of ctest only. */
static inline int run_cases_unforked(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
    srunner_set_fork_status(runner, CK_NOFORK);
    return run_runner(runner);
}

/* run_cases for a suite of one case. */
static inline int run_suite(const char *name, TCase *tcase)
{
    Suite *suite = suite_create(name);
    suite_add_tcase(suite, tcase);
    return run_cases(suite);
}

#endif
