/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver's functions for virtual memory. The runtime, which is linked statically, has opened
 * libcuda.so.1 and knows where they are; so the module loads on hosts that have no driver.
 */
#include "daemon/cuda/cuda_private.h"

#include <stddef.h>

#include "proto/status.h"

struct entry {
    const char *name;
    size_t offset; /* in struct cuda_driver */
    unsigned version;
};

static const struct entry entries[] = {
#define ENTRY(name, version) {#name, offsetof(struct cuda_driver, p_##name), version},
    CUDA_DRIVER_LIST(ENTRY)
#undef ENTRY
};

int cuda_driver_open(struct cuda_driver *driver, struct reason *reason)
{
    for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
        enum cudaDriverEntryPointQueryResult found;
        void *function = NULL;
        cudaError_t error = cudaGetDriverEntryPointByVersion(
            entries[i].name, &function, entries[i].version, cudaEnableDefault, &found);
        if (error != cudaSuccess || found != cudaDriverEntryPointSuccess || !function) {
            (void)cudaGetLastError();
            return reason_set(reason, F8_ENOENT,
                "the CUDA driver has no function %s as of CUDA %u.%u", entries[i].name,
                entries[i].version / 1000, entries[i].version % 1000 / 10);
        }
        memcpy((char *)driver + entries[i].offset, &function, sizeof(function));
    }
    return F8_OK;
}
