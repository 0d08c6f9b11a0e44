/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Legacy IPC: the handle of a cudaMalloc allocation names the memfd of it by process, descriptor
 * and inode. Opening one again counts and gives the same address; the exporter cannot open it. The
 * exporter's cudaFree takes the pages away from all; its death takes nothing away.
 */
#include "core.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MEMORY_MAGIC 0x6d656d31

/* 64 bytes, as CUDA's. */
struct memory_handle {
    uint32_t magic;
    int32_t pid, fd, device;
    uint64_t inode, size, id;
    char rest[24];
};
_Static_assert(sizeof(struct memory_handle) == sizeof(CUipcMemHandle), "size of an IPC handle");

CUresult cudasim_ipc_export(CUdeviceptr pointer, void *ret_handle64)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    memory_lock();
    const struct range *range = memory_live_at((uintptr_t)pointer);
    if (range && range->kind == RANGE_MALLOC) {
        struct memory_handle handle = {
            .magic = MEMORY_MAGIC,
            .pid = getpid(),
            .fd = range->fd,
            .device = range->device,
            .inode = range->inode,
            .size = range->size,
            .id = range->id,
        };
        memcpy(ret_handle64, &handle, sizeof handle);
        result = CUDA_SUCCESS;
    }
    memory_unlock();
    return result;
}

static bool is_import_of(const struct range *range, const void *key)
{
    const struct memory_handle *handle = key;
    return range->kind == RANGE_IMPORT && range->exporter == handle->pid &&
           range->exporter_id == handle->id && range->inode == handle->inode;
}

/* A mapping of the exporter's memfd; the range's fd and base are its. */
static CUresult map_import(struct range *range, const struct memory_handle *handle)
{
    range->fd = process_open_fd(handle->pid, handle->fd, handle->inode);
    if (range->fd < 0)
        return CUDA_ERROR_MAP_FAILED;
    range->base = memory_reserve(range->size);
    void *map = range->base ? mmap((void *)range->base, round_up(range->size, 4096), PROT_NONE,
                                  MAP_SHARED | MAP_FIXED, range->fd, 0)
                            : MAP_FAILED;
    if (map == MAP_FAILED) {
        close(range->fd);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

/* Of an open one; a handle belongs to the device that was current when it was opened first. */
static CUresult open_again(CUdeviceptr *ret, const struct memory_handle *handle, int current)
{
    CUresult result = CUDA_ERROR_NOT_FOUND;
    memory_lock();
    struct range *range = memory_search(is_import_of, handle);
    if (range && range->opened_on != current) {
        result = CUDA_ERROR_INVALID_CONTEXT;
    } else if (range) {
        range->num_opens++;
        *ret = range->base;
        result = CUDA_SUCCESS;
    }
    memory_unlock();
    return result;
}

CUresult cudasim_ipc_open(CUdeviceptr *ret, const void *handle64, int current, const char *what)
{
    struct memory_handle handle;
    memcpy(&handle, handle64, sizeof handle);
    if (!ret || handle.magic != MEMORY_MAGIC || handle.device >= settings_get()->num_devices)
        return CUDA_ERROR_INVALID_VALUE;
    if (handle.pid == getpid())
        return CUDA_ERROR_INVALID_CONTEXT;
    strict_no_collective(what, current);
    access_install();
    CUresult result = open_again(ret, &handle, current);
    if (result != CUDA_ERROR_NOT_FOUND)
        return result;
    struct range range = {
        .size = handle.size,
        .kind = RANGE_IMPORT,
        .device = handle.device,
        .inode = handle.inode,
        .readers = 1u << current | 1u << handle.device,
        .writers = 1u << current | 1u << handle.device,
        .num_opens = 1,
        .opened_on = current,
        .exporter = handle.pid,
        .exporter_id = handle.id,
    };
    result = map_import(&range, &handle);
    if (result)
        return result;
    memory_lock();
    memory_add(&range);
    memory_unlock();
    cudasim_count(CUDASIM_IPC_OPENS, 1);
    *ret = range.base;
    return CUDA_SUCCESS;
}

CUresult cudasim_ipc_close(CUdeviceptr pointer, const char *what)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    memory_lock();
    struct range *range = memory_live_at((uintptr_t)pointer);
    if (range && range->kind == RANGE_IMPORT && range->base == (uintptr_t)pointer) {
        strict_no_collective(what, range->device);
        if (--range->num_opens == 0) {
            memory_kill(range, what);
            close(range->fd);
            range->fd = -1;
            cudasim_count(CUDASIM_IPC_CLOSES, 1);
        }
        result = CUDA_SUCCESS;
    }
    memory_unlock();
    return result;
}
