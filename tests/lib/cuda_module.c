/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Modules that pretend to be f8gatherd-cuda.so, for what the daemon does with any. Built several
 * times; MODULE_ABI, MODULE_VERSION and the like say with what is wrong. One with nothing wrong has
 * a backend of no devices whose works end on another thread, and whose thread may be stuck.
 */
#include <pthread.h>
#include <stdlib.h>

#include "daemon/backend_device.h"
#include "daemon/log.h"
#include "proto/status.h"

#ifndef MODULE_ABI
#define MODULE_ABI BACKEND_MODULE_ABI
#endif
#ifndef MODULE_VERSION
#define MODULE_VERSION F8_VERSION
#endif

struct fake {
    struct backend base;
    struct backend_module_host host;
    struct backend_work *work;
    pthread_t thread;
    bool is_stuck;
};

#ifdef MODULE_NEEDS
/* What no library has: the module cannot be loaded. */
void MODULE_NEEDS(void);
#endif

static void *end_work(void *argument)
{
    struct fake *fake = argument;
    fake->host.log(fake->host.context, LOG_LEVEL_WARNING, "a line from another thread");
    fake->host.wake(fake->host.context);
    return NULL;
}

/* A work of job 13 never ends, and the call of CUDA in it neither. */
static void fake_submit(struct backend *backend, struct backend_work *work)
{
    struct fake *fake = (struct fake *)backend;
    fake->host.hold(fake->host.context, true);
    fake->work = work;
    fake->is_stuck = work->job == 13;
    if (!fake->is_stuck && pthread_create(&fake->thread, NULL, end_work, fake) != 0)
        abort();
}

static void fake_collect(struct backend *backend)
{
    struct fake *fake = (struct fake *)backend;
    struct backend_work *work = fake->work;
    if (!work || fake->is_stuck)
        return;
    (void)pthread_join(fake->thread, NULL);
    fake->work = NULL;
    fake->host.hold(fake->host.context, false);
    work->finished(work, F8_OK);
}

static uint64_t fake_busy_ms(struct backend *backend, const char **ret_call)
{
    *ret_call = "cudaTestOfPatience";
    return ((struct fake *)backend)->is_stuck ? 1000000 : 0;
}

static void fake_free(struct backend *backend)
{
    struct backend_module_host host = ((struct fake *)backend)->host;
    free(backend);
    host.closed(host.context);
}

static const struct backend_device_ops device_ops = {
    .collect = fake_collect, .busy_ms = fake_busy_ms};
static const struct backend_ops ops = {
    .name = "fake", .submit = fake_submit, .free = fake_free, .device = &device_ops};

static int fake_open(
    const struct backend_module_host *host, struct backend **ret_backend, struct reason *reason)
{
#ifdef MODULE_NEEDS
    MODULE_NEEDS();
#endif
    if (getenv("FAKE_MODULE_REFUSES"))
        return reason_set(reason, F8_ENOENT, "the fake module was told to refuse");
    struct fake *fake = calloc(1, sizeof(*fake));
    if (!fake)
        return reason_set(reason, F8_ENOMEM, "no memory for the fake module");
    fake->base.ops = &ops;
    fake->host = *host;
    *ret_backend = &fake->base;
    return F8_OK;
}

#ifdef MODULE_HAS_NO_SYMBOL /* as a library that is no module */
#define f8_backend_module f8_other_symbol
#endif

extern const struct backend_module f8_backend_module;
const struct backend_module f8_backend_module = {
    .abi = MODULE_ABI, .version = MODULE_VERSION, .open = fake_open};
