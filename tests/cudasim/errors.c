/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The names and words of the results that the simulator gives, as the driver and the runtime have
 * them. Any thread.
 */
#include "core.h"

static const struct cudasim_error errors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "cudaSuccess", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "cudaErrorInvalidValue",
        "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "cudaErrorMemoryAllocation",
        "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "cudaErrorInitializationError",
        "initialization error"},
    {CUDA_ERROR_STUB_LIBRARY, "CUDA_ERROR_STUB_LIBRARY", "cudaErrorStubLibrary",
        "CUDA driver is a stub library"},
    {(CUresult)35, "CUDA_ERROR_UNKNOWN", "cudaErrorInsufficientDriver",
        "CUDA driver version is insufficient for CUDA runtime version"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "cudaErrorNoDevice",
        "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "cudaErrorInvalidDevice",
        "invalid device ordinal"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "cudaErrorDeviceUninitialized",
        "invalid device context"},
    {CUDA_ERROR_MAP_FAILED, "CUDA_ERROR_MAP_FAILED", "cudaErrorMapBufferObjectFailed",
        "mapping of buffer object failed"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "cudaErrorInvalidResourceHandle",
        "invalid resource handle"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "cudaErrorSymbolNotFound",
        "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "cudaErrorNotReady", "device not ready"},
    {CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED",
        "cudaErrorPeerAccessAlreadyEnabled", "peer access is already enabled"},
    {CUDA_ERROR_NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED", "cudaErrorNotPermitted",
        "operation not permitted"},
    {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "cudaErrorNotSupported",
        "operation not supported"},
};

const struct cudasim_error *cudasim_error(int code)
{
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if ((int)errors[i].code == code)
            return &errors[i];
    return NULL;
}
