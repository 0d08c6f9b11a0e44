/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of all ranges of addresses that were ever given out, and the address space that they
 * come from: large reservations that nothing may touch, used from the bottom and never twice, so
 * that a late access hits a range that is known to be dead. Any thread, under memory_lock().
 */
#include "core.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CHUNK_SIZE ((size_t)32 << 30)
#define MAX_CHUNKS 256

struct chunk {
    uintptr_t base, next, end;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct chunk chunks[MAX_CHUNKS];
static int num_chunks;

/* Sorted by base; owned. Of ranges that overlap only one is in here. */
static struct range **table;
static size_t num_ranges, table_size;
static struct range *buried; /* out of the table, by next_open: some operation may still know it */
static uint64_t last_id;

void memory_lock(void)
{
    pthread_mutex_lock(&lock);
}

void memory_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

/* ---- addresses ---- */

static bool chunk_new(size_t size)
{
    if (num_chunks == MAX_CHUNKS)
        return false;
    size = round_up(size > CHUNK_SIZE ? size : CHUNK_SIZE, CUDASIM_GRANULARITY);
    void *map = mmap(NULL, size + CUDASIM_GRANULARITY, PROT_NONE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return false;
    uintptr_t base = round_up((uintptr_t)map, CUDASIM_GRANULARITY);
    chunks[num_chunks++] = (struct chunk){base, base, base + size};
    return true;
}

uintptr_t memory_reserve(size_t size)
{
    if (size > (size_t)1 << 42)
        return 0;
    size = round_up(size, CUDASIM_GRANULARITY) + CUDASIM_GRANULARITY;
    memory_lock();
    uintptr_t address = 0;
    struct chunk *chunk = num_chunks ? &chunks[num_chunks - 1] : NULL;
    if ((chunk && chunk->end - chunk->next >= size) || chunk_new(size)) {
        chunk = &chunks[num_chunks - 1];
        address = chunk->next;
        chunk->next += size;
    }
    memory_unlock();
    return address;
}

bool memory_is_reserved(uintptr_t address)
{
    for (int i = 0; i < num_chunks; i++)
        if (address >= chunks[i].base && address < chunks[i].end)
            return true;
    return false;
}

/* ---- the table ---- */

/* How many ranges begin at or before the address. */
static size_t table_upper(uintptr_t address)
{
    size_t low = 0, high = num_ranges;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (table[middle]->base <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void table_remove(size_t index)
{
    memmove(&table[index], &table[index + 1], (num_ranges - index - 1) * sizeof(struct range *));
    num_ranges--;
}

static void table_bury_overlapping(uintptr_t base, size_t size)
{
    size_t index = table_upper(base + size - 1);
    while (index > 0 && table[index - 1]->base + table[index - 1]->size > base) {
        struct range *range = table[--index];
        table_remove(index);
        range->next_open = buried;
        buried = range;
    }
}

struct range *memory_add(const struct range *range)
{
    struct range *added = malloc(sizeof *added);
    if (!added)
        cudasim_fault("out of host memory");
    *added = *range;
    added->id = ++last_id;
    table_bury_overlapping(range->base, range->size);
    if (num_ranges == table_size) {
        table_size = table_size ? 2 * table_size : 64;
        table = realloc(table, table_size * sizeof(struct range *));
        if (!table)
            cudasim_fault("out of host memory");
    }
    size_t index = table_upper(range->base);
    memmove(&table[index + 1], &table[index], (num_ranges - index) * sizeof(struct range *));
    table[index] = added;
    num_ranges++;
    return added;
}

struct range *memory_at(uintptr_t address)
{
    size_t index = table_upper(address);
    if (!index || address - table[index - 1]->base >= table[index - 1]->size)
        return NULL;
    return table[index - 1];
}

struct range *memory_live_at(uintptr_t address)
{
    struct range *range = memory_at(address);
    return range && !range->end ? range : NULL;
}

struct range *memory_before(uintptr_t address)
{
    size_t index = table_upper(address);
    return index ? table[index - 1] : NULL;
}

struct range *memory_search(
    bool (*visit)(const struct range *range, const void *key), const void *key)
{
    for (size_t i = 0; i < num_ranges; i++)
        if (!table[i]->end && visit(table[i], key))
            return table[i];
    return NULL;
}

void memory_kill(struct range *range, const char *end)
{
    void *dead = mmap((void *)range->base, round_up(range->size, 4096), PROT_NONE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    if (dead == MAP_FAILED)
        cudasim_fault("mmap: %s", strerror(errno));
    range->end = end;
    range->is_open = false;
}

void memory_describe(const struct range *range, char *ret_text, size_t size)
{
    static const char *const kinds[] = {
        [RANGE_MALLOC] = "cudaMalloc",
        [RANGE_POOL] = "cudaMallocAsync",
        [RANGE_MANAGED] = "cudaMallocManaged",
        [RANGE_HOST] = "cudaHostAlloc",
        [RANGE_IMPORT] = "cudaIpcOpenMemHandle",
        [RANGE_MAPPING] = "cuMemMap",
    };
    snprintf(ret_text, size, "allocation %llu (%zu bytes by %s on device %d%s%s)",
        (unsigned long long)range->id, range->size, kinds[range->kind], range->device,
        range->end ? ", ended by " : "", range->end ? range->end : "");
}

bool cudasim_find(const void *pointer, struct cudasim_range *ret)
{
    memory_lock();
    const struct range *range = memory_live_at((uintptr_t)pointer);
    bool is_found = range && !range_is_for_host(range);
    if (is_found)
        *ret = (struct cudasim_range){
            .base = range->base,
            .size = range->size,
            .device = range->device,
            .fd = range->fd,
            .pid = getpid(),
            .inode = range->inode,
            .offset = range->offset + ((uintptr_t)pointer - range->base),
            .id = range->id,
            .is_vmm = range->kind == RANGE_MAPPING,
            .is_imported = range->kind == RANGE_IMPORT,
        };
    memory_unlock();
    return is_found;
}
