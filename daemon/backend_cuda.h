/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's side of the CUDA backend, which is a module of its own, f8gatherd-cuda.so, so that
 * the same daemon runs on hosts that have no GPU: finds it, opens it, brings what its threads say
 * to the loop, and ends the process if CUDA does not come back. Loop only.
 */
#ifndef F8_DAEMON_BACKEND_CUDA_H
#define F8_DAEMON_BACKEND_CUDA_H

#include <uv.h>

#include "daemon/backend_device.h"
#include "daemon/config.h"

/*
 * Opens the module beside the running program, ../lib/f8gather/f8gatherd-cuda.so from its folder,
 * and the devices; this takes as long as the driver does. F8_ENOENT: the reason says what is not
 * there: the module, a driver, a device. F8_EVERSION: the module is of another f8gather. After a
 * failure too the loop has closing handles left to run.
 */
int backend_cuda_open(uv_loop_t *loop, const struct config *config, struct backend **ret_backend,
    struct reason *reason);

/* The module at a path, for the life of the process. F8_ENOENT, F8_EVERSION. */
int backend_cuda_load(
    const char *path, const struct backend_module **ret_module, struct reason *reason);

/* The same with a module that is there already. */
int backend_cuda_start(uv_loop_t *loop, const struct config *config,
    const struct backend_module *module, struct backend **ret_backend, struct reason *reason);

#endif
