/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Virtual memory management: a block is a memfd, which a POSIX descriptor of it shares; address
 * reservations; mappings of blocks into them, with rights for each device. Shared memory lives as
 * long as any process has a descriptor or a mapping. All state is under the memory's lock.
 */
#include "core.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOCK_NAME "cudasim-vmm-device-%d"

struct vmm_block {
    int fd; /* owned */
    ino_t inode;
    size_t size;
    int device;
    unsigned handle_types;
    bool is_imported;
    unsigned num_handles, num_mappings; /* freed when both are 0 */
    struct vmm_block *next;
};

struct reservation {
    uintptr_t base;
    size_t size;
    struct reservation *next;
};

static struct vmm_block *blocks;         /* owned */
static struct reservation *reservations; /* owned */

unsigned vmm_handle_types(const struct vmm_block *block)
{
    return block->handle_types;
}

static bool is_granular(uint64_t value)
{
    return value % CUDASIM_GRANULARITY == 0;
}

/* ---- blocks ---- */

/* NULL for what is no handle, or a released one. Locked. */
static struct vmm_block *block_of(CUmemGenericAllocationHandle handle)
{
    struct vmm_block *block = blocks;
    while (block && (uintptr_t)block != (uintptr_t)handle)
        block = block->next;
    return block && block->num_handles ? block : NULL;
}

/* Locked. */
static void block_free_if_unused(struct vmm_block *block)
{
    if (block->num_handles || block->num_mappings)
        return;
    struct vmm_block **link = &blocks;
    while (*link != block)
        link = &(*link)->next;
    *link = block->next;
    if (!block->is_imported)
        allocate_charge(block->device, -(int64_t)block->size);
    close(block->fd);
    free(block);
}

static CUmemGenericAllocationHandle block_add(const struct vmm_block *block)
{
    struct vmm_block *added = malloc(sizeof *added);
    if (!added)
        cudasim_fault("out of host memory");
    *added = *block;
    memory_lock();
    added->next = blocks;
    blocks = added;
    memory_unlock();
    return (CUmemGenericAllocationHandle)(uintptr_t)added;
}

CUresult cudasim_vmm_create(CUmemGenericAllocationHandle *ret, size_t size,
    const CUmemAllocationProp *properties, const char *what)
{
    const unsigned known = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    if (!size || !is_granular(size) || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
        properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    int device = cudasim_physical(properties->location.id);
    if (device < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    if (properties->requestedHandleTypes & ~known)
        return CUDA_ERROR_NOT_SUPPORTED;
    strict_no_collective(what, device);
    if (!allocate_charge(device, (int64_t)size))
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct vmm_block block = {
        .size = size,
        .device = device,
        .handle_types = properties->requestedHandleTypes,
        .num_handles = 1,
    };
    char name[64];
    snprintf(name, sizeof name, BLOCK_NAME, device);
    block.fd = allocate_memfd(name, size, &block.inode);
    if (block.fd < 0) {
        allocate_charge(device, -(int64_t)size);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    cudasim_count(CUDASIM_ALLOCATIONS, 1);
    *ret = block_add(&block);
    return CUDA_SUCCESS;
}

CUresult cudasim_vmm_release(CUmemGenericAllocationHandle handle, const char *what)
{
    memory_lock();
    struct vmm_block *block = block_of(handle);
    if (block) {
        strict_no_collective(what, block->device);
        block->num_handles--;
        if (!block->num_handles && !block->is_imported)
            cudasim_count(CUDASIM_FREES, 1);
        block_free_if_unused(block);
    }
    memory_unlock();
    return block ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cudasim_vmm_retain(CUmemGenericAllocationHandle *ret, const void *address)
{
    memory_lock();
    const struct range *range = memory_live_at((uintptr_t)address);
    struct vmm_block *block = range ? range->block : NULL;
    if (block) {
        block->num_handles++;
        *ret = (CUmemGenericAllocationHandle)(uintptr_t)block;
    }
    memory_unlock();
    return block ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cudasim_vmm_properties(CUmemAllocationProp *ret, CUmemGenericAllocationHandle handle)
{
    memory_lock();
    const struct vmm_block *block = block_of(handle);
    if (block) {
        memset(ret, 0, sizeof *ret);
        ret->type = CU_MEM_ALLOCATION_TYPE_PINNED;
        ret->requestedHandleTypes = (CUmemAllocationHandleType)block->handle_types;
        ret->location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        ret->location.id = cudasim_ordinal(block->device);
    }
    memory_unlock();
    return block ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- between processes ---- */

CUresult cudasim_vmm_export(int *ret_fd, CUmemGenericAllocationHandle handle)
{
    memory_lock();
    const struct vmm_block *block = block_of(handle);
    bool is_exportable = block && block->handle_types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    int fd = is_exportable ? fcntl(block->fd, F_DUPFD_CLOEXEC, 3) : -1;
    memory_unlock();
    if (fd < 0)
        return CUDA_ERROR_INVALID_VALUE;
    *ret_fd = fd;
    return CUDA_SUCCESS;
}

/* The memfd's name says the device, so that a descriptor is all that has to travel. */
static int device_of_fd(int fd)
{
    char path[64], name[128];
    int device;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(path, name, sizeof name - 1);
    if (length < 0)
        return -1;
    name[length] = '\0';
    bool is_block = sscanf(name, "/memfd:" BLOCK_NAME, &device) == 1;
    return is_block && device >= 0 && device < CUDASIM_MAX_DEVICES ? device : -1;
}

CUresult cudasim_vmm_import(CUmemGenericAllocationHandle *ret, int fd, const char *what)
{
    struct stat status;
    int device = device_of_fd(fd);
    if (device < 0 || fstat(fd, &status))
        return CUDA_ERROR_INVALID_VALUE;
    strict_no_collective(what, device);
    struct vmm_block block = {
        .fd = fcntl(fd, F_DUPFD_CLOEXEC, 3),
        .inode = status.st_ino,
        .size = (size_t)status.st_size,
        .device = device,
        .handle_types = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .is_imported = true,
        .num_handles = 1,
    };
    if (block.fd < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    cudasim_count(CUDASIM_IPC_OPENS, 1);
    *ret = block_add(&block);
    return CUDA_SUCCESS;
}

/* ---- addresses ---- */

CUresult cudasim_vmm_reserve(CUdeviceptr *ret, size_t size, size_t alignment, CUdeviceptr hint)
{
    (void)hint; /* real drivers may ignore it too */
    if (!size || !is_granular(size) || alignment & (alignment - 1))
        return CUDA_ERROR_INVALID_VALUE;
    size_t slack = alignment > CUDASIM_GRANULARITY ? alignment : 0;
    struct reservation *reservation = malloc(sizeof *reservation);
    uintptr_t base = memory_reserve(size + slack);
    if (!base || !reservation) {
        free(reservation);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    base = slack ? round_up(base, alignment) : base;
    memory_lock();
    *reservation = (struct reservation){base, size, reservations};
    reservations = reservation;
    memory_unlock();
    *ret = base;
    return CUDA_SUCCESS;
}

struct span {
    uintptr_t base, end;
};

static bool overlaps(const struct range *range, const void *key)
{
    const struct span *span = key;
    return range->base < span->end && range->base + range->size > span->base;
}

CUresult cudasim_vmm_unreserve(CUdeviceptr address, size_t size)
{
    struct span span = {(uintptr_t)address, (uintptr_t)address + size};
    memory_lock();
    struct reservation **link = &reservations;
    while (*link && ((*link)->base != span.base || (*link)->size != size))
        link = &(*link)->next;
    struct reservation *found = *link;
    if (found && memory_search(overlaps, &span))
        found = NULL;
    if (found)
        *link = found->next;
    memory_unlock();
    free(found);
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static bool is_reserved(const struct span *span)
{
    for (const struct reservation *r = reservations; r; r = r->next)
        if (span->base >= r->base && span->end <= r->base + r->size)
            return true;
    return false;
}

/* ---- mappings ---- */

static CUresult map_block(const struct span *span, struct vmm_block *block)
{
    size_t size = span->end - span->base;
    void *map = mmap((void *)span->base, size, PROT_NONE, MAP_SHARED | MAP_FIXED, block->fd, 0);
    if (map == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct range range = {
        .base = span->base,
        .size = size,
        .kind = RANGE_MAPPING,
        .device = block->device,
        .fd = block->fd,
        .inode = block->inode,
        .block = block,
    };
    memory_add(&range);
    block->num_mappings++;
    return CUDA_SUCCESS;
}

CUresult cudasim_vmm_map(CUdeviceptr address, size_t size, size_t offset,
    CUmemGenericAllocationHandle handle, const char *what)
{
    struct span span = {(uintptr_t)address, (uintptr_t)address + size};
    if (!size || !is_granular(size) || !is_granular(address) || offset)
        return CUDA_ERROR_INVALID_VALUE;
    access_install();
    memory_lock();
    struct vmm_block *block = block_of(handle);
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    if (block && size <= block->size && is_reserved(&span) && !memory_search(overlaps, &span)) {
        strict_no_collective(what, block->device);
        result = map_block(&span, block);
    }
    memory_unlock();
    if (!result)
        cudasim_count(CUDASIM_MAPS, 1);
    return result;
}

/* Whether whole mappings, without gaps, make up the span. Locked. */
static bool is_mapped(const struct span *span)
{
    for (uintptr_t at = span->base; at < span->end;) {
        const struct range *range = memory_live_at(at);
        if (!range || range->kind != RANGE_MAPPING)
            return false;
        if (range->base != at || range->base + range->size > span->end)
            return false;
        at = range->base + range->size;
    }
    return true;
}

CUresult cudasim_vmm_unmap(CUdeviceptr address, size_t size, const char *what)
{
    struct span span = {(uintptr_t)address, (uintptr_t)address + size};
    memory_lock();
    bool is_valid = size && is_mapped(&span);
    for (uintptr_t at = span.base; is_valid && at < span.end;) {
        struct range *range = memory_live_at(at);
        strict_no_collective(what, range->device);
        memory_kill(range, what);
        range->fd = -1;
        range->block->num_mappings--;
        block_free_if_unused(range->block);
        range->block = NULL;
        at = range->base + range->size;
        cudasim_count(CUDASIM_UNMAPS, 1);
    }
    memory_unlock();
    return is_valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* What is open now is opened anew by whoever still uses it. */
static void set_access(struct range *range, int device, CUmemAccess_flags flags)
{
    uint32_t bit = 1u << device;
    range->readers =
        flags & CU_MEM_ACCESS_FLAGS_PROT_READ ? range->readers | bit : range->readers & ~bit;
    range->writers =
        flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? range->writers | bit : range->writers & ~bit;
    if (range->is_open &&
        mprotect((void *)range->base, range->size, PROT_READ | (range->writers ? PROT_WRITE : 0)))
        cudasim_fault("mprotect: %s", strerror(errno));
}

CUresult cudasim_vmm_access(
    CUdeviceptr address, size_t size, const CUmemAccessDesc *descriptions, size_t count)
{
    struct span span = {(uintptr_t)address, (uintptr_t)address + size};
    for (size_t i = 0; i < count; i++)
        if (descriptions[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
            cudasim_physical(descriptions[i].location.id) < 0)
            return CUDA_ERROR_INVALID_DEVICE;
    memory_lock();
    bool is_valid = size && count && is_mapped(&span);
    for (uintptr_t at = span.base; is_valid && at < span.end;) {
        struct range *range = memory_live_at(at);
        for (size_t i = 0; i < count; i++)
            set_access(range, cudasim_physical(descriptions[i].location.id), descriptions[i].flags);
        at = range->base + range->size;
    }
    memory_unlock();
    return is_valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
