/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the functions of the simulated runtime begin and end. The runtime's error codes have the
 * driver's numbers, so a result is only cast.
 */
#ifndef CUDASIM_RUNTIME_H
#define CUDASIM_RUNTIME_H

#include "calls.h"

#include <cuda_runtime_api.h>

#define RUNTIME_VERSION 13000

static inline cudaError_t runtime_done(CUresult result)
{
    return (cudaError_t)cudasim_remember(result);
}

static inline CUresult runtime_enter(const char *function)
{
    cudasim_enter_anywhere(function);
    if (cudasim_driver_version() < RUNTIME_VERSION)
        return (CUresult)cudaErrorInsufficientDriver;
    CUresult result = cudasim_enter(function);
    if (!result)
        cudasim_initialise();
    return result;
}

/* First in each function that needs a device. */
#define RUNTIME_ENTER()                                                                            \
    do {                                                                                           \
        CUresult entered = runtime_enter(__func__);                                                \
        if (entered)                                                                               \
            return runtime_done(entered);                                                          \
    } while (0)

#endif
