/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated NCCL with one function that fails: what is not here, a look-up finds in the library
 * that this one is linked with.
 */
#include "failing_nccl.h"

#include <dlfcn.h>
#include <nccl.h>
#include <stdlib.h>
#include <string.h>

extern _Atomic int failing_nccl;
_Atomic int failing_nccl;

/* Finds the simulated function of that name, into a pointer to it. */
static void find(const char *name, void *ret_function)
{
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD);
    void *function = library ? dlsym(library, name) : NULL;
    if (!function)
        abort();
    memcpy(ret_function, &function, sizeof(function));
}

static ncclResult_t given(enum failing failing, ncclResult_t result)
{
    return failing_nccl == (int)failing ? result : ncclSuccess;
}

ncclResult_t ncclGetVersion(int *version)
{
    *version = failing_nccl == FAILING_VERSION ? NCCL_VERSION(2, 17, 1) : NCCL_VERSION_CODE;
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(
    ncclComm_t *newcomm, int nranks, ncclUniqueId commId, int rank, ncclConfig_t *config)
{
    ncclResult_t result = given(FAILING_INIT, ncclSystemError);
    __typeof__(&(ncclCommInitRankConfig)) simulated;
    find("ncclCommInitRankConfig", &simulated);
    return result ? result : simulated(newcomm, nranks, commId, rank, config);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError)
{
    __typeof__(&(ncclCommGetAsyncError)) simulated;
    find("ncclCommGetAsyncError", &simulated);
    ncclResult_t result = simulated(comm, asyncError);
    if (failing_nccl == FAILING_INIT_HANGS)
        *asyncError = ncclInProgress;
    if (failing_nccl == FAILING_LATER && *asyncError == ncclSuccess)
        *asyncError = ncclRemoteError;
    return result;
}

ncclResult_t ncclCommWindowRegister(
    ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win, int winFlags)
{
    ncclResult_t result = given(FAILING_WINDOW, ncclInvalidUsage);
    __typeof__(&(ncclCommWindowRegister)) simulated;
    find("ncclCommWindowRegister", &simulated);
    return result ? result : simulated(comm, buff, size, win, winFlags);
}

ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count,
    ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    ncclResult_t result = given(FAILING_REDUCE, ncclInternalError);
    __typeof__(&(ncclAllReduce)) simulated;
    find("ncclAllReduce", &simulated);
    return result ? result : simulated(sendbuff, recvbuff, count, datatype, op, comm, stream);
}

ncclResult_t ncclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount,
    ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream)
{
    ncclResult_t result = given(FAILING_GATHER, ncclInternalError);
    __typeof__(&(ncclAllGather)) simulated;
    find("ncclAllGather", &simulated);
    return result ? result : simulated(sendbuff, recvbuff, sendcount, datatype, comm, stream);
}
