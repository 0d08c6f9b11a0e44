/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Part of every counting shim: maps the table that the test made, and takes an entry for this
 * process, and another one for each child that it forks. Runs in the constructor and in fork.
 */
#include "tests/system/shim_entry.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct shim_entry *shim_self; /* borrowed: in the table */

static struct shim_table *table; /* owned: for the life of the process */

static void take_entry(void)
{
    uint32_t index = atomic_fetch_add(&table->used, 1);
    shim_self = index < SHIM_ENTRIES ? &table->entries[index] : NULL;
    if (shim_self)
        atomic_store(&shim_self->pid, getpid());
}

__attribute__((constructor)) static void begin(void)
{
    const char *number = getenv(SHIM_TABLE_ENV);
    if (!number)
        return;
    void *address = mmap(
        NULL, sizeof(*table), PROT_READ | PROT_WRITE, MAP_SHARED, (int)strtol(number, NULL, 10), 0);
    if (address == MAP_FAILED)
        return;
    table = address;
    take_entry();
    (void)pthread_atfork(NULL, NULL, take_entry);
}
