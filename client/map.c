/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mappings at 2 MiB-aligned addresses: only there can a huge page of the file be a huge page of
 * the process, which makes mapping and reading cheaper. And the memfds that the library makes.
 * Called by region.c, seal.c and state.c.
 */
#include "client/map.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/error.h"
#include "proto/protocol.h"

#define HUGE_PAGE ((uint64_t)2 << 20)

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1 */
#endif

static uint64_t page_round(uint64_t size)
{
    return (size + 4095) & ~(uint64_t)4095;
}

int map_create(const char *what, uint64_t size, int *ret_memfd)
{
    int memfd = memfd_create(what, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (memfd < 0)
        return error_set(F8_ELIMIT, "no memfd for %s: %s", what, strerror(errno));
    int rc;
    do
        rc = fallocate(memfd, 0, 0, (off_t)size);
    while (rc != 0 && errno == EINTR);
    if (rc != 0) {
        int error = errno;
        close(memfd);
        return error_set(F8_ENOMEM, "no memory for %s of %llu bytes: %s", what,
            (unsigned long long)size, strerror(error));
    }
    *ret_memfd = memfd;
    return F8_OK;
}

int map_shared(int fd, uint64_t size, int protection, void **ret_address)
{
    uint64_t length = page_round(size);
    if (length < size || length + HUGE_PAGE < length)
        return error_set(F8_ENOMEM, "%llu bytes cannot be mapped", (unsigned long long)size);
    /* A larger range is reserved, the file mapped over its aligned part, the rest given back. */
    char *range = mmap(
        NULL, length + HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED)
        return error_set(F8_ENOMEM, "no address space for %llu bytes: %s", (unsigned long long)size,
            strerror(errno));
    uint64_t before = -(uintptr_t)range & (HUGE_PAGE - 1);
    void *address = mmap(range + before, length, protection, MAP_SHARED | MAP_FIXED, fd, 0);
    if (address == MAP_FAILED) {
        int error = errno;
        munmap(range, length + HUGE_PAGE);
        return error_set(error == ENOMEM ? F8_ENOMEM : F8_EIO,
            "%llu bytes of shared memory cannot be mapped: %s", (unsigned long long)size,
            strerror(error));
    }
    if (before > 0)
        munmap(range, before);
    munmap(range + before + length, HUGE_PAGE - before);
    *ret_address = address;
    return F8_OK;
}

void map_release(void *address, uint64_t size)
{
    if (address)
        munmap(address, page_round(size));
}

void map_collapse(void *address, uint64_t size)
{
    uint64_t whole = size & ~(HUGE_PAGE - 1);
    if (whole > 0)
        (void)madvise(address, whole, MADV_COLLAPSE); /* a wish; small pages do as well */
}
