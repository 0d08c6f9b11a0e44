/* SPDX-License-Identifier: Apache-2.0 */
/* What the explorers share: see explored.h. */
#include "tests/lib/explored.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/round_tables.h"

void *must_calloc(size_t count, size_t size)
{
    void *memory = calloc(count, size);
    if (!memory) {
        (void)fprintf(stderr, "explored: no memory for %zu x %zu bytes\n", count, size);
        exit(EXIT_FAILURE);
    }
    return memory;
}

void visited_init(struct visited *visited)
{
    *visited = (struct visited){.mask = (1u << 16) - 1};
    visited->cells = must_calloc(visited->mask + 1, sizeof(*visited->cells));
}

void visited_done(struct visited *visited)
{
    free(visited->cells);
}

static bool put(struct visited *visited, uint64_t hash)
{
    for (uint64_t at = hash & visited->mask;; at = (at + 1) & visited->mask) {
        if (visited->cells[at] == hash)
            return false;
        if (visited->cells[at] == 0) {
            visited->cells[at] = hash;
            visited->count++;
            return true;
        }
    }
}

static void grow(struct visited *visited)
{
    struct visited larger = {.mask = visited->mask * 2 + 1};
    larger.cells = must_calloc(larger.mask + 1, sizeof(*larger.cells));
    for (uint64_t i = 0; i <= visited->mask; i++)
        if (visited->cells[i] != 0)
            (void)put(&larger, visited->cells[i]);
    free(visited->cells);
    *visited = larger;
}

bool visited_put(struct visited *visited, uint64_t hash)
{
    if (!put(visited, hash ? hash : 1))
        return false;
    if (visited->count * 5 > visited->mask * 3)
        grow(visited);
    return true;
}

uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t size)
{
    const uint8_t *at = bytes;
    for (; size > 0; size -= size < 8 ? size : 8, at += 8) {
        uint64_t word = 0;
        memcpy(&word, at, size < 8 ? size : 8);
        hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
    }
    return hash;
}

void make_canonical(struct rounds *copy)
{
    for (uint64_t n = copy->tail; n < copy->head + copy->depth; n++) {
        memset(record_at(copy, n), 0, sizeof(struct record));
        memset(tag_at(copy, n, 0), 0, copy->num_ranks * sizeof(uint64_t));
    }
    for (uint64_t n = copy->head; n < copy->tail; n++)
        for (uint32_t r = 0; r < copy->num_ranks; r++)
            if (rank_at(copy, r)->next <= n)
                *tag_at(copy, n, r) = 0;
    for (uint32_t b = 0; b < copy->num_buckets; b++) {
        bool used = copy->running || copy->paused;
        for (uint32_t r = 0; r < copy->num_ranks; r++)
            used |= *use_at(copy, r, b) == USE_HELD;
        if (!used && bucket_at(copy, b)->shared)
            bucket_at(copy, b)->place = ROUND_NO_PLACE;
    }
}

uint64_t hash_rounds(uint64_t hash, const struct rounds *rounds)
{
    struct rounds *copy = must_calloc(1, round_size(rounds));
    memcpy(copy, rounds, round_size(rounds));
    make_canonical(copy);
    copy->ops = NULL;
    copy->context = NULL;
    hash = hash_bytes(hash, copy, copy->size);
    free(copy);
    return hash;
}

bool is_paused(const struct rounds *rounds)
{
    return rounds->paused;
}

uint32_t early_running(const struct rounds *rounds)
{
    return rounds->early_running;
}
