/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NCCL as the module finds it at run time: libnccl.so.2 by dlopen, a table of the functions that
 * are used, and sentences for its results. Filled once, on the device thread, and only read then.
 */
#ifndef F8_DAEMON_CUDA_NCCL_LIBRARY_H
#define F8_DAEMON_CUDA_NCCL_LIBRARY_H

#include <nccl.h>
#include <stdbool.h>

#include "daemon/reason.h"

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 28, 9)
#error "nccl.h of NCCL 2.28.9 or newer is needed; the library may be older"
#endif

/* Names another libnccl than the loader's own search: a path, as for dlopen. */
#define NCCL_LIBRARY_VARIABLE "F8GATHERD_NCCL"

/* Older ones lack what cannot be gone without, such as non-blocking communicators that abort. */
#define NCCL_OLDEST_VERSION NCCL_VERSION(2, 18, 0)

/* From these versions on. */
#define NCCL_VERSION_GROUP_ABORT NCCL_VERSION(2, 22, 0)
#define NCCL_VERSION_COPY_ENGINE NCCL_VERSION(2, 28, 0)

/* Functions that every NCCL has which is new enough, and those that only newer ones have. */
#define NCCL_FUNCTIONS(X)                                                                          \
    X(ncclGetVersion)                                                                              \
    X(ncclGetErrorString)                                                                          \
    X(ncclGetLastError)                                                                            \
    X(ncclGetUniqueId)                                                                             \
    X(ncclCommInitRankConfig)                                                                      \
    X(ncclCommGetAsyncError)                                                                       \
    X(ncclCommFinalize)                                                                            \
    X(ncclCommDestroy)                                                                             \
    X(ncclCommAbort)                                                                               \
    X(ncclAllGather)                                                                               \
    X(ncclAllReduce)                                                                               \
    X(ncclBroadcast)                                                                               \
    X(ncclGroupStart)                                                                              \
    X(ncclGroupEnd)
#define NCCL_NEWER_FUNCTIONS(X)                                                                    \
    X(ncclCommRevoke)                                                                              \
    X(ncclCommWindowRegister)                                                                      \
    X(ncclCommWindowDeregister)

struct nccl_library {
    void *handle; /* owned: of dlopen; NULL: there is no NCCL, and `reason` says why */
    int version;  /* as NCCL numbers it: 22809; 0 if there is none */
    struct reason reason;
#define NCCL_MEMBER(name) __typeof__(&(name)) name;
    NCCL_FUNCTIONS(NCCL_MEMBER)
    NCCL_NEWER_FUNCTIONS(NCCL_MEMBER) /* NULL in an NCCL that lacks it */
#undef NCCL_MEMBER
};

/* False without a usable NCCL. Nothing of it stays open then. */
bool nccl_library_open(struct nccl_library *library);

/* Writes "FUNCTION failed: what NCCL says" and returns F8_EIO. comm: whose last error; may be NULL.
 */
int nccl_library_failed(const struct nccl_library *library, const char *function,
    ncclResult_t result, ncclComm_t comm, struct reason *reason);

#endif
