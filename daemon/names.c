/* SPDX-License-Identifier: Apache-2.0 */
/* A set of names: see names.h. Linear probing, kept at most half full. */
#include "daemon/names.h"

#include <stdlib.h>
#include <string.h>

#include "status.h"

#define FIRST_CAPACITY 64

/* FNV-1a: names are short and not chosen to collide; a peer that does only slows its own job. */
static uint32_t hash(const char *name)
{
    uint32_t h = 2166136261u;
    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * 16777619u;
    return h;
}

/* The slot where the name is, or the free one where it would go. */
static uint32_t find(const struct names *names, const char *name)
{
    uint32_t mask = names->capacity - 1;
    uint32_t i = hash(name) & mask;
    while (names->slots[i] && strcmp(names->slots[i], name) != 0)
        i = (i + 1) & mask;
    return i;
}

static int grow(struct names *names)
{
    struct names bigger = {
        .capacity = names->capacity ? names->capacity * 2 : FIRST_CAPACITY, .count = names->count};
    bigger.slots = calloc(bigger.capacity, sizeof(*bigger.slots));
    if (!bigger.slots)
        return F8_ENOMEM;
    for (uint32_t i = 0; i < names->capacity; i++)
        if (names->slots[i])
            bigger.slots[find(&bigger, names->slots[i])] = names->slots[i];
    free(names->slots);
    *names = bigger;
    return F8_OK;
}

int names_add(struct names *names, const char *name, const char **ret_name)
{
    if (names->count * 2 >= names->capacity && grow(names) < 0)
        return F8_ENOMEM;
    uint32_t i = find(names, name);
    if (names->slots[i])
        return F8_EEXIST;
    char *copy = strdup(name);
    if (!copy)
        return F8_ENOMEM;
    names->slots[i] = copy;
    names->count++;
    *ret_name = copy;
    return F8_OK;
}

void names_remove(struct names *names, const char *name)
{
    uint32_t mask = names->capacity - 1;
    uint32_t i = find(names, name);
    free(names->slots[i]);
    names->slots[i] = NULL;
    names->count--;
    /* Names that had probed past this slot move up, or they would not be found any more. */
    for (uint32_t j = (i + 1) & mask; names->slots[j]; j = (j + 1) & mask) {
        char *moved = names->slots[j];
        names->slots[j] = NULL;
        names->slots[find(names, moved)] = moved;
    }
}

void names_done(struct names *names)
{
    for (uint32_t i = 0; i < names->capacity; i++)
        free(names->slots[i]);
    free(names->slots);
    *names = (struct names){0};
}
