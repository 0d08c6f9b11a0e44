/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for protobuf's unpack: see unpack.h. */
#include "daemon/unpack.h"

#include <stdlib.h>

#include "status.h"

/* A packet of ordinary requests needs far less; one of a thousand weights spills. */
#define BLOCK_SIZE ((size_t)256 << 10)

struct unpack_spill {
    struct unpack_spill *next; /* owned */
    _Alignas(16) char memory[];
};

static void *allocate(void *data, size_t size)
{
    struct unpack *unpack = data;
    size_t rounded = (size + 15) & ~(size_t)15;
    if (rounded < size)
        return NULL;
    if (rounded <= BLOCK_SIZE - unpack->used) {
        void *memory = unpack->block + unpack->used;
        unpack->used += rounded;
        return memory;
    }
    struct unpack_spill *spill = malloc(sizeof(*spill) + rounded);
    if (!spill)
        return NULL;
    spill->next = unpack->spills;
    unpack->spills = spill;
    return spill->memory;
}

/* Everything is freed at once, by unpack_reset. */
static void release(void *data, void *memory)
{
    (void)data;
    (void)memory;
}

int unpack_init(struct unpack *unpack)
{
    *unpack = (struct unpack){.block = malloc(BLOCK_SIZE)};
    unpack->allocator =
        (ProtobufCAllocator){.alloc = allocate, .free = release, .allocator_data = unpack};
    return unpack->block ? F8_OK : F8_ENOMEM;
}

void unpack_reset(struct unpack *unpack)
{
    while (unpack->spills) {
        struct unpack_spill *spill = unpack->spills;
        unpack->spills = spill->next;
        free(spill);
    }
    unpack->used = 0;
}

void unpack_done(struct unpack *unpack)
{
    unpack_reset(unpack);
    free(unpack->block);
    unpack->block = NULL;
}
