/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the functions of the simulated driver begin. CUDA's header gives some of them other names
 * (cuMemAlloc is cuMemAlloc_v2); those are the names that they have in the library too.
 */
#ifndef CUDASIM_DRIVER_H
#define CUDASIM_DRIVER_H

#include "calls.h"

/* cudasim_enter, and CUDA_ERROR_NOT_INITIALIZED before the process's first cuInit or runtime
 * call. */
CUresult driver_enter(const char *function);

/* The device of the thread's current context; -1 without one. */
int driver_device(void);

/* First in each function but cuInit and those that ask nothing of a device. */
#define DRIVER_ENTER()                                                                             \
    do {                                                                                           \
        CUresult entered = driver_enter(__func__);                                                 \
        if (entered)                                                                               \
            return entered;                                                                        \
    } while (0)

/* The same for those that need a current context. */
#define DRIVER_ENTER_CONTEXT()                                                                     \
    DRIVER_ENTER();                                                                                \
    if (driver_device() < 0)                                                                       \
    return CUDA_ERROR_INVALID_CONTEXT

#endif
