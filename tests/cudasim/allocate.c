/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocation and freeing of device memory, of memory for the host that devices reach, and of
 * stream-ordered memory. Each is a memfd of its own, begins at a granule and has a guard behind it.
 * New memory holds garbage: zeros would hide a missing memset.
 */
#include "core.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define GARBAGE_BYTE 0xcb
#define GARBAGE_SIZE ((size_t)1 << 20) /* of an allocation; all of a large one would take long */

static int64_t charged[CUDASIM_MAX_DEVICES];
static pthread_mutex_t charge_lock = PTHREAD_MUTEX_INITIALIZER;

bool allocate_charge(int device, int64_t size)
{
    pthread_mutex_lock(&charge_lock);
    bool has_room = size <= 0 || charged[device] + size <= (int64_t)settings_get()->memory;
    if (has_room)
        charged[device] += size;
    pthread_mutex_unlock(&charge_lock);
    return has_room;
}

size_t cudasim_memory_left(int device)
{
    pthread_mutex_lock(&charge_lock);
    size_t left = settings_get()->memory - (size_t)charged[device];
    pthread_mutex_unlock(&charge_lock);
    return left;
}

static void fill_garbage(int fd, size_t size)
{
    char garbage[4096];
    memset(garbage, GARBAGE_BYTE, sizeof garbage);
    for (size_t at = 0; at < size && at < GARBAGE_SIZE; at += sizeof garbage) {
        size_t length = size - at < sizeof garbage ? size - at : sizeof garbage;
        if (pwrite(fd, garbage, length, (off_t)at) < 0)
            cudasim_fault("pwrite to a memfd: %s", strerror(errno));
    }
}

int allocate_memfd(const char *name, size_t size, ino_t *ret_inode)
{
    struct stat status;
    int fd = memfd_create(name, MFD_CLOEXEC);
    if (fd < 0)
        return -1;
    if (ftruncate(fd, (off_t)size) || fstat(fd, &status)) {
        close(fd);
        return -1;
    }
    fill_garbage(fd, size);
    *ret_inode = status.st_ino;
    return fd;
}

/* What a range takes of its device's memory. */
static int64_t charge_of(size_t size)
{
    return (int64_t)round_up(size, CUDASIM_GRANULARITY);
}

/* Puts the pages in their place. On failure nothing is left. */
static CUresult place(struct range *range)
{
    size_t length = round_up(range->size, 4096);
    bool is_for_host = range_is_for_host(range);
    range->base = memory_reserve(range->size);
    if (!range->base)
        return CUDA_ERROR_OUT_OF_MEMORY;
    range->fd = allocate_memfd("cudasim-memory", length, &range->inode);
    if (range->fd < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    void *map = mmap((void *)range->base, length, is_for_host ? PROT_READ | PROT_WRITE : PROT_NONE,
        MAP_SHARED | MAP_FIXED, range->fd, 0);
    if (map == MAP_FAILED) {
        close(range->fd);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

static CUresult allocate(
    uintptr_t *ret, enum range_kind kind, size_t size, int device, const char *what)
{
    strict_no_collective(what, device);
    access_install();
    if (!size || !ret)
        return CUDA_ERROR_INVALID_VALUE;
    int64_t charge = kind == RANGE_HOST ? 0 : charge_of(size);
    if (size > (size_t)1 << 42 || !allocate_charge(device, charge))
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct range range = {
        .size = size,
        .kind = kind,
        .device = device,
        .readers = UINT32_MAX,
        .writers = UINT32_MAX,
    };
    CUresult result = place(&range);
    if (result) {
        allocate_charge(device, -charge);
        return result;
    }
    memory_lock();
    memory_add(&range);
    memory_unlock();
    cudasim_count(CUDASIM_ALLOCATIONS, 1);
    *ret = range.base;
    return CUDA_SUCCESS;
}

CUresult cudasim_malloc(CUdeviceptr *ret, size_t size, int device, const char *what)
{
    uintptr_t address;
    CUresult result = allocate(&address, RANGE_MALLOC, size, device, what);
    if (!result)
        *ret = address;
    return result;
}

CUresult cudasim_malloc_managed(CUdeviceptr *ret, size_t size, int device, const char *what)
{
    uintptr_t address;
    CUresult result = allocate(&address, RANGE_MANAGED, size, device, what);
    if (!result)
        *ret = address;
    return result;
}

CUresult cudasim_malloc_host(void **ret, size_t size, int device, const char *what)
{
    uintptr_t address;
    CUresult result = allocate(&address, RANGE_HOST, size, device, what);
    if (!result)
        *ret = (void *)address;
    return result;
}

/* The addresses are valid at once; that the memory is, only in the stream's order, is not checked
 * before it is freed. */
CUresult cudasim_malloc_async(CUdeviceptr *ret, size_t size, CUstream stream, const char *what)
{
    uintptr_t address;
    CUresult result = allocate(&address, RANGE_POOL, size, cudasim_stream_device(stream), what);
    if (!result)
        *ret = address;
    return result;
}

/* ---- freeing ---- */

/* Gives the pages back at once, also those that another process has opened. Locked. */
static void end_range(struct range *range, const char *what)
{
    memory_kill(range, what);
    if (ftruncate(range->fd, 0))
        cudasim_fault("ftruncate: %s", strerror(errno));
    close(range->fd);
    range->fd = -1;
    if (range->kind != RANGE_HOST)
        allocate_charge(range->device, -charge_of(range->size));
    cudasim_count(CUDASIM_FREES, 1);
}

/* The range that begins at the pointer, if it is live and of this kind. Locked. */
static struct range *freeable(uintptr_t address, bool is_host, const char *what)
{
    struct range *range = memory_at(address);
    if (range && range->end && range->base == address && range->kind != RANGE_MAPPING) {
        char text[160];
        memory_describe(range, text, sizeof text);
        cudasim_fault("double free: %s of %s", what, text);
    }
    if (!range || range->base != address || (range->kind == RANGE_HOST) != is_host ||
        range->kind == RANGE_IMPORT || range->kind == RANGE_MAPPING)
        return NULL;
    return range;
}

static CUresult free_range(uintptr_t address, bool is_host, const char *what)
{
    memory_lock();
    const struct range *range = freeable(address, is_host, what);
    int device = range ? range->device : -1;
    memory_unlock();
    if (device < 0)
        return CUDA_ERROR_INVALID_VALUE;
    strict_no_collective(what, device);
    cudasim_count(CUDASIM_HOST_SYNCS, 1);
    stream_drain_device(device); /* as the real one does */
    memory_lock();
    struct range *found = freeable(address, is_host, what);
    if (found)
        end_range(found, what);
    memory_unlock();
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cudasim_free(CUdeviceptr pointer, const char *what)
{
    return pointer ? free_range((uintptr_t)pointer, false, what) : CUDA_SUCCESS;
}

CUresult cudasim_free_host(void *pointer, const char *what)
{
    return pointer ? free_range((uintptr_t)pointer, true, what) : CUDA_SUCCESS;
}

struct free_job {
    uintptr_t address;
    const char *what;
};

static void run_free(void *argument)
{
    struct free_job *job = argument;
    memory_lock();
    struct range *range = freeable(job->address, false, job->what);
    if (range)
        end_range(range, job->what);
    memory_unlock();
    free(job);
}

CUresult cudasim_free_async(CUdeviceptr pointer, CUstream stream, const char *what)
{
    memory_lock();
    const struct range *range = freeable((uintptr_t)pointer, false, what);
    memory_unlock();
    if (!range)
        return CUDA_ERROR_INVALID_VALUE;
    struct free_job *job = malloc(sizeof *job);
    if (!job)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *job = (struct free_job){(uintptr_t)pointer, what};
    return stream_push(stream, what, OPERATION_DEVICE, run_free, job);
}

/* ---- queries ---- */

CUresult cudasim_pointer(const void *pointer, struct cudasim_pointer *ret)
{
    memory_lock();
    const struct range *range = memory_live_at((uintptr_t)pointer);
    if (range)
        *ret = (struct cudasim_pointer){
            .type = range->kind == RANGE_HOST ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE,
            .is_managed = range->kind == RANGE_MANAGED,
            .is_pool = range->kind == RANGE_POOL,
            .is_legacy_ipc_capable = range->kind == RANGE_MALLOC,
            .handle_types = range->block ? vmm_handle_types(range->block) : 0,
            .base = range->base,
            .size = range->size,
            .device = range->device,
            .id = range->id,
        };
    memory_unlock();
    return range ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
