/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A preloaded shim that counts what a process asks of malloc. It stands before the C library's
 * allocator and hands every call on to it. Any thread; allocates nothing itself.
 */
#include <errno.h>
#include <stdlib.h>

#include "tests/system/shim_entry.h"

/* glibc's own names of its allocator, which need no look-up that allocates. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *memory, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *memory);

static void count_allocation(void)
{
    if (shim_self)
        shim_add(&shim_self->allocations, 1);
}

void *malloc(size_t size)
{
    count_allocation();
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    count_allocation();
    return __libc_calloc(count, size);
}

void *realloc(void *memory, size_t size)
{
    count_allocation();
    return __libc_realloc(memory, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    count_allocation();
    return __libc_memalign(alignment, size);
}

int posix_memalign(void **ret_memory, size_t alignment, size_t size)
{
    count_allocation();
    void *memory = __libc_memalign(alignment, size);
    if (!memory)
        return ENOMEM;
    *ret_memory = memory;
    return 0;
}

void free(void *memory)
{
    if (shim_self && memory)
        shim_add(&shim_self->frees, 1);
    __libc_free(memory);
}
