/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Entries of open requests in one array with a chain of unused ones through it. Called by
 * channel.c under its lock; allocates only when more requests are open than ever before.
 */
#include "client/pending.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/error.h"

/* Low bits of an id that are an index: 16 million open requests; 2^40 ids before they wrap. */
#define INDEX_BITS 24
#define MAX_SIZE   ((uint32_t)1 << INDEX_BITS)

int pending_init(struct pending_table *table, uint32_t size)
{
    *table = (struct pending_table){.unused = PENDING_NONE};
    return pending_reserve(table, size);
}

int pending_reserve(struct pending_table *table, uint32_t size)
{
    if (size <= table->size)
        return F8_OK;
    if (size > MAX_SIZE)
        return error_set(F8_ELIMIT, "more than %u requests are open; wait for some", MAX_SIZE);
    struct pending *entries = realloc(table->entries, size * sizeof(*entries));
    if (!entries)
        return error_set(F8_ENOMEM, "no memory for %u open requests", size);
    memset(entries + table->size, 0, (size - table->size) * sizeof(*entries));
    for (uint32_t i = table->size; i < size; i++)
        entries[i].next = i + 1 < size ? i + 1 : table->unused;
    table->unused = table->size;
    table->entries = entries;
    table->size = size;
    return F8_OK;
}

/* Frees what an entry owns. */
static void drop_reply(struct pending *entry)
{
    if (entry->message)
        f8__reply__free_unpacked(entry->message, NULL);
    if (entry->reply.fd >= 0)
        close(entry->reply.fd);
    free(entry->text);
}

void pending_done(struct pending_table *table)
{
    for (uint32_t i = 0; i < table->size; i++)
        if (table->entries[i].state != PENDING_UNUSED)
            drop_reply(&table->entries[i]);
    free(table->entries);
    *table = (struct pending_table){.unused = PENDING_NONE};
}

int pending_open(struct pending_table *table, bool whole, uint64_t *ret_id)
{
    if (table->unused == PENDING_NONE) {
        int status = pending_reserve(table, table->size * 2);
        if (status != F8_OK)
            return status;
    }
    uint32_t index = table->unused;
    struct pending *entry = &table->entries[index];
    table->unused = entry->next;
    *entry = (struct pending){.id = ++table->sequence << INDEX_BITS | index,
        .state = PENDING_OPEN,
        .whole = whole,
        .reply = {.fd = -1}};
    *ret_id = entry->id;
    return F8_OK;
}

struct pending *pending_find(const struct pending_table *table, uint64_t id)
{
    uint64_t index = id & (MAX_SIZE - 1);
    if (index >= table->size || table->entries[index].id != id)
        return NULL;
    return table->entries[index].state == PENDING_UNUSED ? NULL : &table->entries[index];
}

void pending_close(struct pending_table *table, struct pending *entry)
{
    assert(entry->state != PENDING_UNUSED);
    drop_reply(entry);
    *entry = (struct pending){.state = PENDING_UNUSED, .next = table->unused};
    table->unused = (uint32_t)(entry - table->entries);
}
