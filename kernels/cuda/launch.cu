/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The last error of the runtime, for each thread that launches.
 */
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/launch.cuh"
#include "proto/status.h"

static thread_local const char *last_error = "no error";

int launch_result(cudaError_t error)
{
    if (error == cudaSuccess)
        return F8_OK;
    last_error = cudaGetErrorString(error);
    (void)cudaGetLastError(); /* it is reported here: the next call is not to be blamed for it */
    return F8_EIO;
}

const char *f8cu_error(void)
{
    return last_error;
}
