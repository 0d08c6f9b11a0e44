/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the running program lies: see beside.h. Called by the rooms that open such files, when they
 * do; nothing is kept, because a program that is replaced is still the one that runs.
 */
#include "daemon/beside.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "proto/status.h"

int beside_path(const char *name, char *ret_path, size_t size, struct reason *reason)
{
    char program[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - 1);
    char *slash = NULL;
    if (length > 0) {
        program[length] = '\0';
        slash = strrchr(program, '/');
    }
    if (!slash)
        return reason_set(reason, F8_ENOENT,
            "cannot find the program's own folder, so not %s either: /proc/self/exe cannot be read",
            name);
    *slash = '\0';
    if (snprintf(ret_path, size, "%s/%s", program, name) >= (int)size)
        return reason_set(reason, F8_ENOENT, "the path of %s, from %s, is too long", name, program);
    return F8_OK;
}
