/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Versions, texts of results, and the text of the last error, which NCCL keeps for a whole process.
 * Called on every thread.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nccl_comm.h"

static pthread_mutex_t text_lock = PTHREAD_MUTEX_INITIALIZER;
static char last_text[1024];

ncclResult_t nccl_warn(ncclResult_t result, const char *format, ...)
{
    const char *debug = getenv("NCCL_DEBUG");
    char text[sizeof(last_text)];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    pthread_mutex_lock(&text_lock);
    memcpy(last_text, text, sizeof(text));
    pthread_mutex_unlock(&text_lock);
    if (debug != NULL && (strcmp(debug, "WARN") == 0 || strcmp(debug, "INFO") == 0))
        cudasim_note("NCCL WARN %s", text);
    return result;
}

ncclResult_t nccl_from_cuda(int status, const char *what)
{
    if (status == 0)
        return ncclSuccess;
    return nccl_warn(ncclUnhandledCudaError, "Cuda failure %d in %s", status, what);
}

ncclResult_t ncclGetVersion(int *version)
{
    if (version == NULL)
        return nccl_warn(ncclInvalidArgument, "GetVersion : version argument is NULL");
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    switch (result) {
    case ncclSuccess:
        return "no error";
    case ncclUnhandledCudaError:
        return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
        return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError:
        return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument:
        return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
        return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
        return "remote process exited or there was a network error";
    case ncclInProgress:
        return "NCCL operation in progress";
    default:
        return "unknown result code";
    }
}

const char *ncclGetLastError(ncclComm_t comm)
{
    static _Thread_local char copy[sizeof(last_text)];
    (void)comm;
    pthread_mutex_lock(&text_lock);
    memcpy(copy, last_text, sizeof(copy));
    pthread_mutex_unlock(&text_lock);
    return copy;
}
