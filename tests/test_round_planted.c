/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The explorer over a copy of round.c with a fault of round_faults.cmake planted in it: it must
 * report the invariant that the fault breaks, PLANTED_INVARIANT. Built once per fault.
 */
#include <check.h>
#include <stdio.h>

#include "tests/lib/round_explore.h"
#include "tests/lib/suite.h"

START_TEST(the_planted_fault_is_found)
{
    static struct exploration result;
    for (const struct model_shape *shape = model_shapes; shape->name; shape++) {
        explore(shape, UINT64_MAX, &result);
        if (!result.violation)
            continue;
        (void)printf("%s: not so: \"%s\", after\n%s", shape->name, result.violation, result.path);
        (void)fflush(stdout);
        ck_assert_str_eq(result.violation, PLANTED_INVARIANT);
        return;
    }
    ck_abort_msg("not found in any shape; expected: \"%s\"", PLANTED_INVARIANT);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("fault");
    tcase_set_timeout(tcase, 300);
    tcase_add_test(tcase, the_planted_fault_is_found);
    return run_suite("round, planted", tcase);
}
