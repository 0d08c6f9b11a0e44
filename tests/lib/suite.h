/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a test program ends: it runs its suite, and its exit status says how that went. CK_VERBOSITY
 * chooses how much it prints, CK_FORK whether each test has a process of its own. Called by main.
 */
#ifndef F8_TESTS_SUITE_H
#define F8_TESTS_SUITE_H

#include <check.h>
#include <stdlib.h>

/* Runs all cases of the suite and frees it; the program's exit status. */
static inline int run_cases(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* The same for a suite of one case. */
static inline int run_suite(const char *name, TCase *tcase)
{
    Suite *suite = suite_create(name);
    suite_add_tcase(suite, tcase);
    return run_cases(suite);
}

#endif
