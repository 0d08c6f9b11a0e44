/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arenas: reserve every page before anybody counts on it, put them on huge pages where the kernel
 * can, then seal, so that only the mapping made here ever writes. Created on a worker thread by
 * the backend, used and freed on the loop.
 */
#include "arena.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mapping.h"
#include "proto/status.h"

/* Linux 6.1; Debian 12's libc has no name for it. */
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define PAGE      4096
#define ALL_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL)

/* Bytes that can be had without killing anyone; UINT64_MAX where the kernel does not say. */
static uint64_t memory_available(void)
{
    FILE *file = fopen("/proc/meminfo", "re");
    uint64_t total = 0, kib;
    char line[128];
    if (!file)
        return UINT64_MAX;
    while (fgets(line, sizeof(line), file))
        if (sscanf(line, "MemAvailable: %" SCNu64 " kB", &kib) == 1 ||
            sscanf(line, "SwapFree: %" SCNu64 " kB", &kib) == 1)
            total += kib * 1024;
    (void)fclose(file);
    return total > 0 ? total : UINT64_MAX;
}

/* Sizes that no file can have count as memory that there is not. */
static int no_memory(struct reason *reason, uint64_t size, const char *call)
{
    int error = errno;
    bool descriptors = error == EMFILE || error == ENFILE;
    return reason_set(reason, descriptors ? F8_ELIMIT : F8_ENOMEM,
        "cannot reserve an arena of %" PRIu64 " bytes: %s: %s; %s", size, call, strerror(error),
        descriptors ? "raise the daemon's limit on open files"
                    : "free memory on the host or gather fewer buckets at once");
}

/* fallocate gives every page or none; a signal makes it give them back and ask again. */
static int allocate(int fd, uint64_t size)
{
    int r;
    do
        r = fallocate(fd, 0, 0, (off_t)size);
    while (r < 0 && errno == EINTR);
    return r;
}

/* Speed only: a kernel that can do none of this still has a right arena. */
static void prepare_pages(struct arena *arena)
{
    (void)madvise(arena->data, arena->size, MADV_COLLAPSE);
    (void)madvise(arena->data, arena->size, MADV_POPULATE_WRITE);
}

static int fill(struct arena *arena, struct reason *reason)
{
    /* Without this look, fallocate would take the host's last page and wake the OOM killer. */
    uint64_t available = memory_available();
    if (arena->size > available)
        return reason_set(reason, F8_ENOMEM,
            "cannot reserve an arena of %" PRIu64 " bytes: the host has %" PRIu64
            " bytes available; free memory or gather fewer buckets at once",
            arena->size, available);

    arena->fd = memfd_create("f8gather-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (arena->fd < 0)
        return no_memory(reason, arena->size, "memfd_create");
    if (ftruncate(arena->fd, (off_t)arena->size) < 0)
        return no_memory(reason, arena->size, "ftruncate");
    arena->data = mapping_create(arena->fd, arena->size, PROT_READ | PROT_WRITE);
    if (!arena->data)
        return no_memory(reason, arena->size, "mmap");
    if (allocate(arena->fd, arena->size) < 0)
        return no_memory(reason, arena->size, "fallocate");
    prepare_pages(arena);
    /* A child of the daemon must not inherit the one mapping that writes. */
    if (madvise(arena->data, arena->size, MADV_DONTFORK) < 0)
        return no_memory(reason, arena->size, "MADV_DONTFORK");
    return F8_OK;
}

int arena_reserve(uint64_t size, struct arena **ret_arena, struct reason *reason)
{
    assert(size > 0 && size % PAGE == 0);
    struct arena *arena = malloc(sizeof(*arena));
    if (!arena)
        return reason_set(reason, F8_ENOMEM, "no memory for the record of an arena");
    *arena = (struct arena){.size = size, .fd = -1};

    int r = fill(arena, reason);
    if (r < 0) {
        arena_free(arena);
        return r;
    }
    *ret_arena = arena;
    return F8_OK;
}

int arena_seal(const struct arena *arena, struct reason *reason)
{
    if (fcntl(arena->fd, F_ADD_SEALS, ALL_SEALS) == 0)
        return F8_OK;
    return reason_set(reason, F8_EINTERNAL,
        "cannot seal an arena of %" PRIu64 " bytes: %s; F_SEAL_FUTURE_WRITE needs Linux 5.1",
        arena->size, strerror(errno));
}

int arena_create(uint64_t size, struct arena **ret_arena, struct reason *reason)
{
    struct arena *arena;
    int r = arena_reserve(size, &arena, reason);
    if (r < 0)
        return r;
    r = arena_seal(arena, reason);
    if (r < 0)
        arena_free(arena);
    else
        *ret_arena = arena;
    return r;
}

void arena_free(struct arena *arena)
{
    if (!arena)
        return;
    if (arena->device) {
        arena->free_device(arena);
        return;
    }
    if (arena->data)
        (void)munmap(arena->data, arena->size);
    if (arena->fd >= 0)
        (void)close(arena->fd);
    free(arena);
}
