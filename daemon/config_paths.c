/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether the paths of the settings can work here, for --check-config: warnings only, for the host
 * or the user may be another one than the daemon's. Makes nothing. On main's thread.
 */
#include <errno.h>
#include <limits.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "daemon/config_private.h"
#include "daemon/log.h"
#include "protocol.h"

static void warn(const struct config_draft *draft, const char *flag, const char *path,
    const char *where, const char *why)
{
    log_warning("%s = %s (%s) cannot work for uid %u here: %s: %s", flag, path,
        draft->origins[config_find(flag) - config_settings], (unsigned)geteuid(), where, why);
}

/* Why nobody can make files there, not even root, whom access() always lets; NULL: they can. */
static const char *fault_of_system(const char *directory)
{
    struct statfs fs;
    if (statfs(directory, &fs) < 0)
        return strerror(errno);
    if (fs.f_type == PROC_SUPER_MAGIC || fs.f_type == SYSFS_MAGIC ||
        fs.f_type == CGROUP2_SUPER_MAGIC)
        return "is of the kernel's own, where no files can be made";
    return NULL;
}

/* Where something is to be made. */
static const char *fault_of_directory(const char *directory)
{
    struct stat st;
    if (stat(directory, &st) < 0)
        return strerror(errno);
    if (!S_ISDIR(st.st_mode))
        return "is no directory";
    const char *fault = fault_of_system(directory);
    if (!fault && access(directory, W_OK | X_OK) < 0)
        fault = strerror(errno);
    return fault;
}

/* Of `path`, which is made for the setting of this value. */
static void check_parent(
    const struct config_draft *draft, const char *flag, const char *value, const char *path)
{
    char parent[PATH_MAX];
    (void)snprintf(parent, sizeof(parent), "%s", path);
    size_t end = strlen(parent);
    while (end > 1 && parent[end - 1] == '/')
        parent[--end] = '\0';
    char *slash = strrchr(parent, '/');
    if (!slash)
        (void)strcpy(parent, ".");
    else
        slash[slash == parent] = '\0';
    const char *fault = fault_of_directory(parent);
    if (fault)
        warn(draft, flag, value, parent, fault);
}

/* The system's socket has a directory of its own, which the daemon makes where it is not there. */
static void check_socket(const struct config_draft *draft)
{
    const char *socket = draft->config.socket;
    char directory[] = F8_PROTO_SOCKET;
    struct stat st;
    *strrchr(directory, '/') = '\0';
    bool makes_directory =
        strcmp(socket, F8_PROTO_SOCKET) == 0 && stat(directory, &st) < 0 && errno == ENOENT;
    check_parent(draft, "socket", socket, makes_directory ? directory : socket);
}

void config_warn_paths(const struct config_draft *draft)
{
    const struct config *config = &draft->config;
    struct stat st;
    check_socket(draft);
    if (config->state_dir[0] == '\0')
        return;
    if (stat(config->state_dir, &st) < 0 && errno == ENOENT) {
        check_parent(draft, "state-dir", config->state_dir, config->state_dir);
        return;
    }
    const char *fault = fault_of_directory(config->state_dir);
    if (fault)
        warn(draft, "state-dir", config->state_dir, config->state_dir, fault);
}
