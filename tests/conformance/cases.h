/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cases that main.c can run for a row of an index. Each counts what it did in the row's tally.
 */
#ifndef F8_TESTS_CONFORMANCE_CASES_H
#define F8_TESTS_CONFORMANCE_CASES_H

#include "tests/conformance/vectors.h"

/* kernel_cases.c: through every kernel variant of this CPU, one count a variant. */
row_fn kernel_cast_row;
row_fn kernel_pattern_row;
row_fn kernel_fsdp_row;

/*
 * daemon_cases.c: what the rows want of a real daemon, added to row->tensors. daemon_run.c does it
 * once the index has been read: one count a tensor and run.
 */
row_fn daemon_cast_row;
row_fn daemon_pattern_row;
row_fn daemon_fsdp_row;

#endif
