/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocations that fail when a test wants them to: those of code that was compiled with
 * fail_alloc_names.h before it, so that the test, Check and libraries keep theirs. Counts over all
 * threads.
 */
#ifndef F8_TESTS_FAIL_ALLOC_H
#define F8_TESTS_FAIL_ALLOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The n-th allocation from now on fails, n from 1 on; with `onwards` all later ones too. */
void fail_alloc_at(uint64_t n, bool onwards);

/* No further one fails. Gives whether one did. */
bool fail_alloc_end(void);

/* Whether one has failed since fail_alloc_at. */
bool fail_alloc_hit(void);

/* What malloc, calloc, realloc and strdup are in that code. */
void *fail_alloc_malloc(size_t size);
void *fail_alloc_calloc(size_t count, size_t size);
void *fail_alloc_realloc(void *memory, size_t size);
char *fail_alloc_strdup(const char *text);

#endif
