/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that are found from where the running program lies, so that a build's and an installation's
 * find their own: the CUDA module, the helper of the fabric. No state, any thread.
 */
#ifndef F8_DAEMON_BESIDE_H
#define F8_DAEMON_BESIDE_H

#include <stddef.h>

#include "daemon/reason.h"

/*
 * The path of `name`, a path from the program's own folder, wherever it was called from; whether
 * there is a file is not looked at. F8_ENOENT: /proc is not there, or it does not fit.
 */
int beside_path(const char *name, char *ret_path, size_t size, struct reason *reason);

#endif
