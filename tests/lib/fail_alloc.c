/* SPDX-License-Identifier: Apache-2.0 */
/* Allocations that fail: see fail_alloc.h. */
#include "tests/lib/fail_alloc.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static atomic_bool armed, from_then_on;
static _Atomic uint64_t seen, failed_at;
static atomic_bool hit;

void fail_alloc_at(uint64_t n, bool onwards)
{
    atomic_store(&seen, 0);
    atomic_store(&failed_at, n);
    atomic_store(&from_then_on, onwards);
    atomic_store(&hit, false);
    atomic_store(&armed, true);
}

bool fail_alloc_end(void)
{
    atomic_store(&armed, false);
    return atomic_load(&hit);
}

bool fail_alloc_hit(void)
{
    return atomic_load(&hit);
}

static bool fails(void)
{
    if (!atomic_load(&armed))
        return false;
    uint64_t n = atomic_fetch_add(&seen, 1) + 1, at = atomic_load(&failed_at);
    if (n != at && !(n > at && atomic_load(&from_then_on)))
        return false;
    atomic_store(&hit, true);
    errno = ENOMEM;
    return true;
}

void *fail_alloc_malloc(size_t size)
{
    return fails() ? NULL : malloc(size);
}

void *fail_alloc_calloc(size_t count, size_t size)
{
    return fails() ? NULL : calloc(count, size);
}

void *fail_alloc_realloc(void *memory, size_t size)
{
    return fails() ? NULL : realloc(memory, size);
}

char *fail_alloc_strdup(const char *text)
{
    return fails() ? NULL : strdup(text);
}
