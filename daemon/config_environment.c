/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings from the environment: see config_private.h. A variable with our prefix that names no
 * setting is refused like an unknown key of a file: it would be passed over in silence, and what
 * it was to change would be found out when it is too late. On the thread that reads settings.
 */
#include <ctype.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/config_private.h"
#include "status.h"

#define PREFIX   CONFIG_ENV_PREFIX
#define MAX_NAME 64

/* Kubernetes lets a service have 63 characters, and a port 15. */
#define MAX_FOREIGN 128

/* Of ours, and no settings. */
static const char *const others[] = {CONFIG_ENV_FILE, PREFIX "NCCL"};
#define NUM_OTHERS (sizeof(others) / sizeof(others[0]))

/* "F8GATHERD_LOG_LEVEL" for "log-level". */
static void env_name(const struct config_setting *setting, char name[MAX_NAME])
{
    (void)snprintf(name, MAX_NAME, PREFIX "%s", setting->flag);
    for (char *c = name; *c; c++)
        *c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
}

/* The i-th of all names that are known. */
static void known_name(size_t i, char name[MAX_NAME])
{
    if (i < CONFIG_NUM_SETTINGS)
        env_name(&config_settings[i], name);
    else
        (void)snprintf(name, MAX_NAME, "%s", others[i - CONFIG_NUM_SETTINGS]);
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* How many letters must be put in, taken out or changed to make the one of the other. */
static size_t distance(const char *a, size_t length, const char *b)
{
    size_t row[MAX_NAME], width = strlen(b);
    for (size_t j = 0; j <= width; j++)
        row[j] = j;
    for (size_t i = 1; i <= length; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= width; j++) {
            size_t above = row[j];
            row[j] = least(least(above, row[j - 1]) + 1, diagonal + (a[i - 1] != b[j - 1]));
            diagonal = above;
        }
    }
    return row[width];
}

static int refuse(const char *name, size_t length, struct reason *reason)
{
    char known[MAX_NAME], nearest[MAX_NAME] = "";
    size_t best = SIZE_MAX;
    for (size_t i = 0; i < CONFIG_NUM_SETTINGS + NUM_OTHERS; i++) {
        known_name(i, known);
        size_t away = distance(name, least(length, MAX_NAME), known);
        if (away < best)
            memcpy(nearest, known, sizeof(known));
        best = least(away, best);
    }
    return reason_set(reason, F8_EINVAL,
        "environment %.*s: it is no setting of f8gatherd, the nearest is %s: see --help",
        (int)least(length, 200), name, nearest);
}

static bool is_known(const char *name, size_t length)
{
    for (size_t i = 0; i < CONFIG_NUM_SETTINGS + NUM_OTHERS; i++) {
        char known[MAX_NAME];
        known_name(i, known);
        if (strlen(known) == length && strncmp(name, known, length) == 0)
            return true;
    }
    return false;
}

/*
 * What Kubernetes puts into every container of a namespace for a service whose name begins with
 * f8gatherd. NAME_PORT is told from a mistake of ours by its value, which is tcp://ADDRESS:PORT.
 */
static bool is_of_kubernetes(const char *variable, size_t length)
{
    static const char *const forms[] = {
        "*_SERVICE_HOST", "*_SERVICE_PORT", "*_SERVICE_PORT_*", "*_PORT_[0-9]*"};
    char name[MAX_FOREIGN];
    (void)snprintf(name, sizeof(name), "%.*s", (int)least(length, MAX_FOREIGN), variable);
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++)
        if (fnmatch(forms[i], name, 0) == 0)
            return true;
    return fnmatch("*_PORT", name, 0) == 0 && strstr(variable + length, "://");
}

static int check_names(struct reason *reason)
{
    for (char **variable = environ; variable && *variable; variable++) {
        size_t length = strcspn(*variable, "=");
        if (strncmp(*variable, PREFIX, strlen(PREFIX)) == 0 && !is_known(*variable, length) &&
            !is_of_kubernetes(*variable, length))
            return refuse(*variable, length, reason);
    }
    return F8_OK;
}

static int read_variable(struct config_draft *draft, const struct config_setting *setting,
    const char *name, struct reason *reason)
{
    char origin[CONFIG_TEXT_SIZE];
    const char *text = getenv(name);
    if (!text)
        return F8_OK;
    (void)snprintf(origin, sizeof(origin), "environment %s", name);
    return config_set(draft, setting, name, origin, text, reason);
}

/* All tools of a job may be told once which interface to use; our own variable wins. */
static int read_common(struct config_draft *draft, struct reason *reason)
{
    const char *name = "F8_SOCKET_IFNAME", *text = getenv(name);
    if (!text || text[0] == '\0')
        return F8_OK;
    return read_variable(draft, config_find("socket-ifname"), name, reason);
}

int config_read_environment(struct config_draft *draft, struct reason *reason)
{
    int status = check_names(reason);
    if (status == F8_OK)
        status = read_common(draft, reason);
    for (size_t i = 0; status == F8_OK && i < CONFIG_NUM_SETTINGS; i++) {
        char name[MAX_NAME];
        env_name(&config_settings[i], name);
        status = read_variable(draft, &config_settings[i], name, reason);
    }
    return status;
}
