/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loading the CUDA module, and what it is given of the daemon: see backend_cuda.h. The module's
 * threads reach the loop by a uv_async_t, which keeps the loop running only while something is
 * outstanding; as long, a timer looks whether a call of CUDA has taken too long.
 */
#include "daemon/backend_cuda.h"

#include <assert.h>
#include <dlfcn.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/beside.h"
#include "proto/status.h"

/* From the folder of the program. */
#define MODULE_PATH "../lib/f8gather/f8gatherd-cuda.so"

/* The watchdog looks this often within its limit, but not more often than once a LOOK_MS. */
#define LOOKS   8
#define LOOK_MS 250

struct line {
    struct line *next;
    int level;
    char text[];
};

struct host {
    uv_async_t wake;
    uv_timer_t watchdog;
    struct backend *backend; /* borrowed: the module's; NULL while it opens, and once it is free */
    uint64_t limit_ms;
    unsigned open_handles;
    uv_mutex_t lock;
    struct line *lines, **lines_end; /* owned; under the lock */
};

/* ---- finding the module ---- */

int backend_cuda_load(
    const char *path, const struct backend_module **ret_module, struct reason *reason)
{
    if (access(path, F_OK) < 0)
        return reason_set(reason, F8_ENOENT,
            "no CUDA module: %s is not there; it is built where the CUDA toolkit is", path);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return reason_set(reason, F8_ENOENT, "the CUDA module does not load: %s", dlerror());
    const struct backend_module *module = dlsym(library, BACKEND_MODULE_SYMBOL);
    if (!module)
        return reason_set(reason, F8_ENOENT,
            "%s is no module of f8gather: it has no symbol " BACKEND_MODULE_SYMBOL, path);
    if (module->abi != BACKEND_MODULE_ABI)
        return reason_set(reason, F8_EVERSION,
            "the CUDA module %s has the interface %" PRIu32 ", this daemon the interface %d", path,
            module->abi, BACKEND_MODULE_ABI);
    if (strcmp(module->version, F8_VERSION) != 0)
        return reason_set(reason, F8_EVERSION,
            "the CUDA module %s is of f8gather %s, this daemon of %s", path, module->version,
            F8_VERSION);
    *ret_module = module;
    return F8_OK;
}

/* ---- lines of log from other threads ---- */

static void on_log(void *context, int level, const char *text)
{
    struct host *host = context;
    size_t size = strlen(text) + 1;
    struct line *line = malloc(sizeof(*line) + size);
    if (!line)
        return;
    line->next = NULL;
    line->level = level;
    memcpy(line->text, text, size);
    uv_mutex_lock(&host->lock);
    *host->lines_end = line;
    host->lines_end = &line->next;
    uv_mutex_unlock(&host->lock);
    (void)uv_async_send(&host->wake);
}

static void write_lines(struct host *host)
{
    uv_mutex_lock(&host->lock);
    struct line *line = host->lines;
    host->lines = NULL;
    host->lines_end = &host->lines;
    uv_mutex_unlock(&host->lock);
    while (line) {
        struct line *next = line->next;
        log_line((enum log_level)line->level, "cuda: %s", line->text);
        free(line);
        line = next;
    }
}

/* ---- the module's calls ---- */

static void on_wake(void *context)
{
    (void)uv_async_send(&((struct host *)context)->wake);
}

static void after_wake(uv_async_t *async)
{
    struct host *host = async->data;
    write_lines(host);
    if (host->backend)
        host->backend->ops->device->collect(host->backend);
}

/* The driver may never come back, and then nothing else of the daemon's does its work either:
 * clients find that it has ended, and the next daemon has a driver that works, or none. */
static void look(uv_timer_t *timer)
{
    struct host *host = timer->data;
    const char *call = NULL;
    uint64_t busy = host->backend ? host->backend->ops->device->busy_ms(host->backend, &call) : 0;
    if (busy < host->limit_ms)
        return;
    write_lines(host);
    log_error("CUDA has not come back for %" PRIu64 " seconds from %s: the daemon ends, because "
              "nothing can be done about that within it",
        busy / 1000, call);
    log_close(LOG_CLOSE_AT_ONCE_MS);
    _exit(EXIT_FAILURE);
}

static void on_hold(void *context, bool is_outstanding)
{
    struct host *host = context;
    uint64_t period = host->limit_ms / LOOKS > LOOK_MS ? host->limit_ms / LOOKS : LOOK_MS;
    if (is_outstanding) {
        uv_ref((uv_handle_t *)&host->wake);
        (void)uv_timer_start(&host->watchdog, look, period, period);
    } else {
        uv_unref((uv_handle_t *)&host->wake);
        (void)uv_timer_stop(&host->watchdog);
    }
}

static void after_close(uv_handle_t *handle)
{
    struct host *host = handle->data;
    if (--host->open_handles > 0)
        return;
    uv_mutex_destroy(&host->lock);
    free(host);
}

static void on_closed(void *context)
{
    struct host *host = context;
    write_lines(host);
    host->backend = NULL;
    uv_close((uv_handle_t *)&host->wake, after_close);
    uv_close((uv_handle_t *)&host->watchdog, after_close);
}

/* ---- opening ---- */

static struct host *new_host(uv_loop_t *loop, uint64_t limit_ms)
{
    struct host *host = calloc(1, sizeof(*host));
    if (!host || uv_mutex_init(&host->lock) < 0) {
        free(host);
        return NULL;
    }
    if (uv_async_init(loop, &host->wake, after_wake) < 0) {
        uv_mutex_destroy(&host->lock);
        free(host);
        return NULL;
    }
    (void)uv_timer_init(loop, &host->watchdog); /* cannot fail */
    host->wake.data = host;
    host->watchdog.data = host;
    host->open_handles = 2;
    host->limit_ms = limit_ms;
    host->lines_end = &host->lines;
    uv_unref((uv_handle_t *)&host->wake);
    return host;
}

int backend_cuda_start(uv_loop_t *loop, const struct config *config,
    const struct backend_module *module, struct backend **ret_backend, struct reason *reason)
{
    struct host *host = new_host(loop, config->cuda_limit_ms);
    if (!host)
        return reason_set(reason, F8_ENOMEM, "out of memory for the CUDA backend");
    struct backend_module_host hosted = {
        .wake = on_wake,
        .log = on_log,
        .hold = on_hold,
        .closed = on_closed,
        .context = host,
        .linger_ms = config->linger_ms,
    };
    int status = module->open(&hosted, &host->backend, reason);
    if (status < 0) {
        if (status != F8_EDEADLINE) /* else its thread may still call */
            on_closed(host);
        return status;
    }
    assert(host->backend && host->backend->ops->device);
    *ret_backend = host->backend;
    return F8_OK;
}

/*
 * NCCL is to go the way that the daemons go, and to take this one for the host that they take it
 * for: what its own variables do not say. Before there is another thread that reads them.
 */
static int tell_nccl(const struct config *config, struct reason *reason)
{
    static const char *const families[] = {
        [CONFIG_FAMILY_IPV4] = "AF_INET", [CONFIG_FAMILY_IPV6] = "AF_INET6"};
    bool one_family = config->socket_family != CONFIG_FAMILY_ANY;
    int failed = 0;
    if (config->host_name[0] != '\0')
        failed |= setenv("NCCL_HOSTID", config->host_name, 0);
    if (config->socket_ifname[0] != '\0')
        failed |= setenv("NCCL_SOCKET_IFNAME", config->socket_ifname, 0);
    if (one_family)
        failed |= setenv("NCCL_SOCKET_FAMILY", families[config->socket_family], 0);
    return failed ? reason_set(reason, F8_ENOMEM, "no memory for the environment of NCCL") : F8_OK;
}

int backend_cuda_open(uv_loop_t *loop, const struct config *config, struct backend **ret_backend,
    struct reason *reason)
{
    char path[PATH_MAX + sizeof(MODULE_PATH)];
    const struct backend_module *module;
    int status = beside_path(MODULE_PATH, path, sizeof(path), reason);
    if (status == F8_OK)
        status = tell_nccl(config, reason);
    if (status == F8_OK)
        status = backend_cuda_load(path, &module, reason);
    if (status < 0)
        return status;
    return backend_cuda_start(loop, config, module, ret_backend, reason);
}
