/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between memory.c and memory_vmm.c: an allocation of a client that is open here. Device thread.
 */
#ifndef F8_DAEMON_CUDA_MEMORY_H
#define F8_DAEMON_CUDA_MEMORY_H

#include "daemon/cuda/cuda_private.h"

struct cuda_opened {
    struct cuda_opened *next; /* of cuda.opened */
    enum backend_memory_kind kind;
    int32_t device;
    uint32_t pid;
    uint32_t num_mappings; /* that use it */
    /* Legacy: the address is another allocation's by now, so this one is not closed any more. */
    bool is_stale;
    uint8_t handle[BACKEND_HANDLE_SIZE];
    CUdeviceptr base;
    uint64_t size; /* bytes that may be read from base on */
};

/*
 * Imports the descriptors and maps them one after the other, to be read by the device. Sets base
 * and size. F8_EREGION names the descriptor that is wrong.
 */
int cuda_vmm_open(struct cuda *cuda, const struct backend_map *map, struct cuda_opened *opened,
    struct reason *reason);

void cuda_vmm_close(struct cuda *cuda, struct cuda_opened *opened);

#endif
