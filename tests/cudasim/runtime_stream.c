/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated libcudart.so.13: streams and events. A cudaStream_t is a CUstream and a cudaEvent_t
 * a CUevent, as in the real one.
 */
#include "runtime.h"

cudaError_t cudaStreamCreate(cudaStream_t *pStream)
{
    RUNTIME_ENTER();
    return runtime_done(
        cudasim_stream_create(pStream, cudasim_current_device(), CU_STREAM_DEFAULT, __func__));
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *pStream, unsigned int flags)
{
    RUNTIME_ENTER();
    return runtime_done(cudasim_stream_create(pStream, cudasim_current_device(), flags, __func__));
}

/* All streams are equal here. */
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *pStream, unsigned int flags, int priority)
{
    RUNTIME_ENTER();
    (void)priority;
    return runtime_done(cudasim_stream_create(pStream, cudasim_current_device(), flags, __func__));
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *leastPriority, int *greatestPriority)
{
    RUNTIME_ENTER();
    if (leastPriority)
        *leastPriority = 0;
    if (greatestPriority)
        *greatestPriority = -5;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    RUNTIME_ENTER();
    return runtime_done(cudasim_stream_destroy(stream, __func__));
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    RUNTIME_ENTER();
    return runtime_done(cudasim_stream_synchronize(stream, __func__));
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    RUNTIME_ENTER();
    return runtime_done(cudasim_stream_query(stream, __func__));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)
{
    RUNTIME_ENTER();
    if (flags)
        return runtime_done(CUDA_ERROR_INVALID_VALUE);
    return runtime_done(cudasim_event_wait(event, stream, __func__));
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *userData)
{
    RUNTIME_ENTER();
    return runtime_done(cudasim_host_function(stream, fn, userData, __func__));
}

/* ---- events ---- */

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    RUNTIME_ENTER();
    return runtime_done(
        cudasim_event_create(event, cudasim_current_device(), CU_EVENT_DEFAULT, __func__));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
    RUNTIME_ENTER();
    return runtime_done(cudasim_event_create(event, cudasim_current_device(), flags, __func__));
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    RUNTIME_ENTER();
    return runtime_done(cudasim_event_destroy(event, __func__));
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    RUNTIME_ENTER();
    return runtime_done(cudasim_event_record(event, stream, __func__));
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    RUNTIME_ENTER();
    return runtime_done(cudasim_event_query(event, __func__));
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    RUNTIME_ENTER();
    return runtime_done(cudasim_event_synchronize(event, __func__));
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    RUNTIME_ENTER();
    return runtime_done(cudasim_event_elapsed(ms, start, end, __func__));
}

cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t *handle, cudaEvent_t event)
{
    RUNTIME_ENTER();
    return runtime_done(cudasim_event_export(event, handle, __func__));
}

cudaError_t cudaIpcOpenEventHandle(cudaEvent_t *event, cudaIpcEventHandle_t handle)
{
    RUNTIME_ENTER();
    return runtime_done(cudasim_event_import(event, &handle, __func__));
}
