/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens NCCL: one package serves hosts with and without it, and the daemon's own is found before
 * the system's by the module's RUNPATH. A library that lacks a function, or is too old, is as good
 * as none, and its sentence says which and what to do.
 */
#include "nccl_library.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "proto/status.h"

#define NCCL_LIBRARY_NAME "libnccl.so.2"

static bool is_missing(struct nccl_library *library, const char *name, const char *function)
{
    (void)reason_set(&library->reason, F8_ENOENT,
        "%s has no %s: it is no NCCL, or a damaged one; install NCCL 2.18 or newer", name,
        function);
    return false;
}

static bool find_functions(struct nccl_library *library, const char *name)
{
    /* POSIX: a symbol's address fits a function pointer; ISO C has no conversion for it. */
#define NCCL_FIND(function)                                                                        \
    {                                                                                              \
        void *symbol = dlsym(library->handle, #function);                                          \
        memcpy(&library->function, &symbol, sizeof(symbol));                                       \
    }
#define NCCL_NEED(function)                                                                        \
    NCCL_FIND(function)                                                                            \
    if (!library->function)                                                                        \
        return is_missing(library, name, #function);

    NCCL_FUNCTIONS(NCCL_NEED)
    NCCL_NEWER_FUNCTIONS(NCCL_FIND)
    return true;
#undef NCCL_NEED
#undef NCCL_FIND
}

static bool check_version(struct nccl_library *library, const char *name)
{
    int version = 0;
    ncclResult_t result = library->ncclGetVersion(&version);
    if (result != ncclSuccess) {
        (void)nccl_library_failed(library, "ncclGetVersion", result, NULL, &library->reason);
        return false;
    }
    if (version < NCCL_OLDEST_VERSION) {
        (void)reason_set(&library->reason, F8_ENOENT,
            "%s is NCCL %d.%d.%d; needed is 2.18 or newer", name, version / 10000,
            version / 100 % 100, version % 100);
        return false;
    }
    library->version = version;
    return true;
}

bool nccl_library_open(struct nccl_library *library)
{
    const char *name = getenv(NCCL_LIBRARY_VARIABLE);
    if (!name || !*name)
        name = NCCL_LIBRARY_NAME;
    *library = (struct nccl_library){.handle = dlopen(name, RTLD_NOW | RTLD_LOCAL)};
    if (!library->handle) {
        const char *why = dlerror();
        (void)reason_set(&library->reason, F8_ENOENT, "no NCCL: %s", why ? why : name);
        return false;
    }
    if (find_functions(library, name) && check_version(library, name))
        return true;

    (void)dlclose(library->handle);
    struct reason reason = library->reason;
    *library = (struct nccl_library){.reason = reason};
    return false;
}

int nccl_library_failed(const struct nccl_library *library, const char *function,
    ncclResult_t result, ncclComm_t comm, struct reason *reason)
{
    const char *last = library->ncclGetLastError(comm);
    return reason_set(reason, F8_EIO, "%s failed: %s%s%s", function,
        library->ncclGetErrorString(result), last && *last ? "; NCCL says: " : "",
        last && *last ? last : "");
}
