/* SPDX-License-Identifier: Apache-2.0 */
/* Read before a source of the daemon (-include), so that a test can make its allocations fail. */
#ifndef F8_TESTS_FAIL_ALLOC_NAMES_H
#define F8_TESTS_FAIL_ALLOC_NAMES_H

#include <stdlib.h>
#include <string.h>

#include "tests/lib/fail_alloc.h"

#undef strdup
#define malloc(size)          fail_alloc_malloc(size)
#define calloc(count, size)   fail_alloc_calloc(count, size)
#define realloc(memory, size) fail_alloc_realloc(memory, size)
#define strdup(text)          fail_alloc_strdup(text)

#endif
