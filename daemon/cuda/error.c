/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CUDA's errors as F8_* and sentences. Called on the device thread, on the line where an error
 * appears, so that none of them is found again later by a call that has nothing to do with it.
 */
#include "daemon/cuda/cuda_private.h"

#include "proto/status.h"

static int finish_sentence(struct reason *reason, const char *format, va_list args)
{
    (void)vsnprintf(reason->text, sizeof(reason->text), format, args);
    reason_trim(reason);
    return F8_EIO;
}

int cuda_failed(cudaError_t error, struct reason *reason, const char *format, ...)
{
    if (error == cudaSuccess)
        return F8_OK;
    (void)cudaGetLastError();
    va_list args;
    va_start(args, format);
    int status = finish_sentence(reason, format, args);
    va_end(args);
    reason_append(reason, ": %s (%s)", cudaGetErrorString(error), cudaGetErrorName(error));
    return error == cudaErrorMemoryAllocation ? F8_ENOMEM : status;
}

int cuda_driver_failed(
    struct cuda *cuda, CUresult error, struct reason *reason, const char *format, ...)
{
    if (error == CUDA_SUCCESS)
        return F8_OK;
    va_list args;
    va_start(args, format);
    int status = finish_sentence(reason, format, args);
    va_end(args);
    const char *name = NULL, *text = NULL;
    (void)cuda->driver.p_cuGetErrorName(error, &name);
    (void)cuda->driver.p_cuGetErrorString(error, &text);
    reason_append(
        reason, ": %s (%s)", text ? text : "an error unknown to the driver", name ? name : "?");
    return error == CUDA_ERROR_OUT_OF_MEMORY ? F8_ENOMEM : status;
}
