/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens libcuda.so.1 and looks up what driver.h lists, once a process. It is never closed: the
 * driver keeps threads of its own. Called by device*.c, region_cuda.c and f8bench on any thread.
 */
#include "client/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/error.h"
#include "proto/status.h"

#define LIBRARY "libcuda.so.1"

/* Written under `once`; read-only afterwards. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct driver table;
static int load_status;
static char load_text[512];
static pid_t user; /* the process that initialised it */

/* Fills the table; the symbol that is missing, or NULL. */
static const char *look_up(void *library)
{
    void *symbol;
#define LOOK_UP(field, name, parameters)                                                           \
    symbol = dlsym(library, #name);                                                                \
    if (!symbol)                                                                                   \
        return #name;                                                                              \
    memcpy(&table.field, &symbol, sizeof(symbol));
    DRIVER_CALLS(LOOK_UP)
#undef LOOK_UP
    return NULL;
}

static void load(void)
{
    load_status = F8_ENOENT;
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *reason = dlerror();
        snprintf(load_text, sizeof(load_text), "there is no CUDA driver: %s",
            reason ? reason : LIBRARY " cannot be opened");
        return;
    }
    const char *missing = look_up(library);
    if (missing) {
        snprintf(load_text, sizeof(load_text),
            "the CUDA driver is too old: " LIBRARY " lacks %s; install one for CUDA 11.4 or newer",
            missing);
        dlclose(library);
        return;
    }
    int status = driver_error(&table, table.init(0), "cuInit");
    if (status != F8_OK) {
        snprintf(load_text, sizeof(load_text), "the CUDA driver (" LIBRARY ") does not work: %s",
            error_text());
        return;
    }
    user = getpid();
    load_status = F8_OK;
}

int driver_get(const struct driver **ret_driver)
{
    pthread_once(&once, load);
    if (load_status != F8_OK)
        return error_set(load_status, "%s", load_text);
    if (user != getpid())
        return error_set(F8_EFORKED,
            "process %d used CUDA before it forked %d, where CUDA cannot work: start the process "
            "anew (such as by spawn), or fork before CUDA is used",
            (int)user, (int)getpid());
    *ret_driver = &table;
    return F8_OK;
}

int driver_error(const struct driver *driver, driver_status status, const char *call)
{
    const char *name = NULL, *text = NULL;
    if (status == DRIVER_SUCCESS)
        return F8_OK;
    if (driver->error_name(status, &name) != DRIVER_SUCCESS || !name)
        name = "an unknown error";
    if (driver->error_string(status, &text) != DRIVER_SUCCESS || !text)
        text = "no description";
    return error_set(status == DRIVER_OUT_OF_MEMORY ? F8_ENOMEM : F8_EIO, "%s: %s (%u): %s", call,
        name, status, text);
}
