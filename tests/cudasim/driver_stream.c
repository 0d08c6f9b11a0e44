/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated libcuda.so.1: streams, events, and IPC of events and of cudaMalloc memory.
 */
#include "driver.h"

CUresult cuStreamCreate(CUstream *phStream, unsigned int Flags)
{
    DRIVER_ENTER_CONTEXT();
    return cudasim_stream_create(phStream, driver_device(), Flags, __func__);
}

CUresult cuStreamDestroy(CUstream hStream)
{
    DRIVER_ENTER_CONTEXT();
    return cudasim_stream_destroy(hStream, __func__);
}

CUresult cuStreamSynchronize(CUstream hStream)
{
    DRIVER_ENTER_CONTEXT();
    return cudasim_stream_synchronize(hStream, __func__);
}

CUresult cuStreamQuery(CUstream hStream)
{
    DRIVER_ENTER_CONTEXT();
    return cudasim_stream_query(hStream, __func__);
}

CUresult cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags)
{
    DRIVER_ENTER_CONTEXT();
    if (Flags)
        return CUDA_ERROR_INVALID_VALUE;
    return cudasim_event_wait(hEvent, hStream, __func__);
}

CUresult cuStreamGetCtx(CUstream hStream, CUcontext *pctx)
{
    DRIVER_ENTER();
    *pctx = cudasim_context_of(cudasim_stream_device(hStream));
    return CUDA_SUCCESS;
}

CUresult cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void *userData)
{
    DRIVER_ENTER_CONTEXT();
    return cudasim_host_function(hStream, fn, userData, __func__);
}

/* ---- events ---- */

CUresult cuEventCreate(CUevent *phEvent, unsigned int Flags)
{
    DRIVER_ENTER_CONTEXT();
    return cudasim_event_create(phEvent, driver_device(), Flags, __func__);
}

CUresult cuEventDestroy(CUevent hEvent)
{
    DRIVER_ENTER_CONTEXT();
    return cudasim_event_destroy(hEvent, __func__);
}

CUresult cuEventRecord(CUevent hEvent, CUstream hStream)
{
    DRIVER_ENTER_CONTEXT();
    return cudasim_event_record(hEvent, hStream, __func__);
}

CUresult cuEventQuery(CUevent hEvent)
{
    DRIVER_ENTER();
    return cudasim_event_query(hEvent, __func__);
}

CUresult cuEventSynchronize(CUevent hEvent)
{
    DRIVER_ENTER();
    return cudasim_event_synchronize(hEvent, __func__);
}

CUresult cuEventElapsedTime(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
    DRIVER_ENTER();
    return cudasim_event_elapsed(pMilliseconds, hStart, hEnd, __func__);
}

/* ---- IPC ---- */

CUresult cuIpcGetEventHandle(CUipcEventHandle *pHandle, CUevent event)
{
    DRIVER_ENTER_CONTEXT();
    return cudasim_event_export(event, pHandle, __func__);
}

CUresult cuIpcOpenEventHandle(CUevent *phEvent, CUipcEventHandle handle)
{
    DRIVER_ENTER_CONTEXT();
    return cudasim_event_import(phEvent, &handle, __func__);
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
    DRIVER_ENTER_CONTEXT();
    return cudasim_ipc_export(dptr, pHandle);
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
    DRIVER_ENTER_CONTEXT();
    if (Flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
        return CUDA_ERROR_INVALID_VALUE;
    return cudasim_ipc_open(pdptr, &handle, driver_device(), __func__);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr dptr)
{
    DRIVER_ENTER_CONTEXT();
    return cudasim_ipc_close(dptr, __func__);
}
