/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Within config: the list of settings, and settings while they are read, each with where its value
 * came from. On the thread that reads them: main's before the loop, the loop's at SIGHUP.
 */
#ifndef F8_DAEMON_CONFIG_PRIVATE_H
#define F8_DAEMON_CONFIG_PRIVATE_H

#include <stddef.h>

#include "daemon/config.h"

enum config_kind {
    KIND_COUNT,   /* uint32_t */
    KIND_BYTES,   /* uint64_t, with K, M, G, T */
    KIND_SECONDS, /* uint64_t milliseconds */
    KIND_MS,      /* uint64_t */
    KIND_SOCKET,
    KIND_STATE_DIR,
    KIND_LEVEL,
    KIND_GROUP,
    KIND_CUDA,
    KIND_IFNAME,
    KIND_FAMILY,
    KIND_HOST,
    KIND_METRICS,
    KIND_REACH,
};

struct config_setting {
    const char *flag; /* without the dashes: the key in files; in the environment see
                         config_environment.c */
    const char *argument;
    const char *help;
    enum config_kind kind;
    bool reloads;  /* may change while the daemon runs */
    size_t offset; /* in struct config */
    uint64_t least, most;
};

#define CONFIG_NUM_SETTINGS 33

extern const struct config_setting config_settings[]; /* CONFIG_NUM_SETTINGS */

/* The value of state-dir that keeps no snapshots. */
#define CONFIG_NO_STATE_DIR "none"

/* The setting of that flag, or NULL. */
const struct config_setting *config_find(const char *flag);

/* Room for a value or for where it came from, as text; longer ones are cut. */
#define CONFIG_TEXT_SIZE 320

/* Settings while they are read. */
struct config_draft {
    struct config config;
    char origins[CONFIG_NUM_SETTINGS][CONFIG_TEXT_SIZE]; /* "default", "PATH:LINE", ... */
};

void config_set_defaults(struct config_draft *draft);

/*
 * Sets one; `from` begins the reason of a refusal, `origin` is what --print-config shows. F8_EINVAL
 * changes nothing.
 */
int config_set(struct config_draft *draft, const struct config_setting *setting, const char *from,
    const char *origin, const char *text, struct reason *reason);

/* The value as a file would have it; "" if it is not set. */
void config_format(
    const struct config *config, const struct config_setting *setting, char text[CONFIG_TEXT_SIZE]);

/* Takes one setting over. */
void config_copy(
    struct config *to, const struct config *from, const struct config_setting *setting);

/*
 * The file, then the files *.conf of PATH.d in order of names. NULL: the system's, which need not
 * be there. F8_EINVAL with file and line.
 */
int config_read_files(struct config_draft *draft, const char *path, struct reason *reason);

/* Logs a warning of each path that cannot work here, for --check-config. */
void config_warn_paths(const struct config_draft *draft);

/* In the environment a setting has this and its flag in capitals; this one names the file. */
#define CONFIG_ENV_PREFIX "F8GATHERD_"
#define CONFIG_ENV_FILE   CONFIG_ENV_PREFIX "CONFIG"

/* F8_EINVAL with the variable, also for one of our prefix that is none of ours. */
int config_read_environment(struct config_draft *draft, struct reason *reason);

#endif
