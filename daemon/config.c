/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings, layer by layer, each over the one before: see config.h. What a layer has is checked
 * even where a later one wins: what is wrong is told when it is written, not when it would count.
 */
#include "daemon/config.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/config_metrics.h"
#include "daemon/config_private.h"
#include "protocol.h"

#define OPTION_HELP    1000
#define OPTION_VERSION 1001
#define OPTION_CONFIG  1002
#define OPTION_CHECK   1003
#define OPTION_PRINT   1004

/* The system's directory of snapshots. */
#define STATE_DIRECTORY "/var/lib/f8gatherd"

#define NUM_OPTIONS (CONFIG_NUM_SETTINGS + 5)

/* What the command line asks for besides settings. */
struct command {
    const char *file; /* borrowed: argv's; NULL: none */
    bool help, version, check, print;
};

static void print_help_line(const char *flag, const char *help)
{
    printf("  %-24s %s\n", flag, help);
}

static void print_help(void)
{
    printf("Usage: f8gatherd [OPTION]...\n"
           "Gathers float8 weights for the training processes of this host.\n\n");
    for (size_t i = 0; i < CONFIG_NUM_SETTINGS; i++) {
        char flag[40];
        (void)snprintf(
            flag, sizeof(flag), "--%s %s", config_settings[i].flag, config_settings[i].argument);
        print_help_line(flag, config_settings[i].help);
    }
    print_help_line("--config PATH", "instead of /etc/f8gatherd/f8gatherd.conf; its directory is "
                                     "PATH.d");
    print_help_line("--check-config", "read all settings, and end: with 2 if one is bad");
    print_help_line("--print-config", "print all settings and where each comes from");
    print_help_line("--help", "this text");
    print_help_line("--version", "the version");
    printf(
        "\nEach can be set in the environment too, as --log-level by F8GATHERD_LOG_LEVEL, and in "
        "the files\nby its name without dashes (log-level = debug). Flags win over the "
        "environment, that over files.\nSIGHUP reads the files again. The socket is %s, or\n"
        "f8gatherd.sock in $XDG_RUNTIME_DIR where that cannot be made.\n"
        "Exit status: 0 after SIGTERM or SIGINT, 1 if it cannot serve or save its last snapshots, "
        "2 for a\n"
        "bad setting.\n",
        F8_PROTO_SOCKET);
}

/* getopt is at `argument`; in a cluster of letters it has not passed it yet, but names the letter.
 */
static int refuse_flag(int option, const char *argument, struct reason *reason)
{
    if (option == '?' && optopt < OPTION_HELP && isgraph(optopt))
        return reason_set(reason, F8_EINVAL, "-%c is no option of f8gatherd: see --help", optopt);
    return reason_set(reason, F8_EINVAL, "%s %s: see --help", argument,
        option == '?' ? "is no option of f8gatherd" : "wants a value");
}

static void make_options(struct option options[NUM_OPTIONS + 1])
{
    for (size_t i = 0; i < CONFIG_NUM_SETTINGS; i++)
        options[i] = (struct option){config_settings[i].flag, required_argument, NULL, (int)i};
    struct option *more = options + CONFIG_NUM_SETTINGS;
    more[0] = (struct option){"help", no_argument, NULL, OPTION_HELP};
    more[1] = (struct option){"version", no_argument, NULL, OPTION_VERSION};
    more[2] = (struct option){"config", required_argument, NULL, OPTION_CONFIG};
    more[3] = (struct option){"check-config", no_argument, NULL, OPTION_CHECK};
    more[4] = (struct option){"print-config", no_argument, NULL, OPTION_PRINT};
    more[5] = (struct option){0};
}

/* The first time through the flags: that all are ours, and which file there is to read. */
static int read_command(int argc, char **argv, struct command *command, struct reason *reason)
{
    struct option options[NUM_OPTIONS + 1];
    int option;
    make_options(options);
    opterr = 0;
    optind = 0; /* glibc's way to begin anew */
    while ((option = getopt_long(argc, argv, ":", options, NULL)) != -1) {
        if (option == '?' || option == ':')
            return refuse_flag(option, argv[optind - 1], reason);
        command->help |= option == OPTION_HELP;
        command->version |= option == OPTION_VERSION;
        command->check |= option == OPTION_CHECK;
        command->print |= option == OPTION_PRINT;
        if (option == OPTION_CONFIG)
            command->file = optarg;
    }
    if (optind < argc)
        return reason_set(
            reason, F8_EINVAL, "%s: f8gatherd takes no arguments, see --help", argv[optind]);
    return F8_OK;
}

/* The second time: their values, which win. */
static int read_flags(int argc, char **argv, struct config_draft *draft, struct reason *reason)
{
    struct option options[NUM_OPTIONS + 1];
    int option, status = F8_OK;
    make_options(options);
    optind = 0;
    while (status == F8_OK && (option = getopt_long(argc, argv, ":", options, NULL)) != -1) {
        char from[64], origin[CONFIG_TEXT_SIZE];
        if (option >= CONFIG_NUM_SETTINGS)
            continue;
        (void)snprintf(from, sizeof(from), "--%s", config_settings[option].flag);
        (void)snprintf(origin, sizeof(origin), "flag %s", from);
        status = config_set(draft, &config_settings[option], from, origin, optarg, reason);
    }
    return status;
}

/* Whether a directory of the system's is there and ours to write, or can be made. */
static bool can_have(const char *directory)
{
    char parent[64];
    (void)snprintf(parent, sizeof(parent), "%s", directory);
    *strrchr(parent, '/') = '\0';
    if (access(directory, W_OK) == 0)
        return true;
    return errno == ENOENT && access(parent, W_OK) == 0;
}

/* The system's socket if its directory is there or can be made, else the user's own. */
static int default_socket(struct config_draft *draft, struct reason *reason)
{
    const struct config_setting *setting = config_find("socket");
    char directory[] = F8_PROTO_SOCKET;
    *strrchr(directory, '/') = '\0';
    if (can_have(directory))
        return config_set(draft, setting, "--socket", "default", F8_PROTO_SOCKET, reason);
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    if (!runtime || runtime[0] == '\0')
        return reason_set(reason, F8_EINVAL,
            "%s cannot be used (%s) and XDG_RUNTIME_DIR is not set: give --socket", directory,
            strerror(errno));
    char path[sizeof(draft->config.socket) + 32];
    (void)snprintf(path, sizeof(path), "%.100s/%s", runtime, F8_PROTO_SOCKET_NAME);
    return config_set(draft, setting, "XDG_RUNTIME_DIR", "default", path, reason);
}

/* What the service manager names, the first of several; else the system's, with its socket. */
static int default_state_dir(struct config_draft *draft, struct reason *reason)
{
    const struct config_setting *setting = config_find("state-dir");
    const char *passed = getenv("STATE_DIRECTORY");
    if (strcmp(draft->origins[setting - config_settings], "default") != 0)
        return F8_OK;
    if (passed && passed[0] != '\0') {
        char path[CONFIG_TEXT_SIZE];
        (void)snprintf(path, sizeof(path), "%.*s", (int)strcspn(passed, ":"), passed);
        return config_set(
            draft, setting, "STATE_DIRECTORY", "environment STATE_DIRECTORY", path, reason);
    }
    if (strcmp(draft->config.socket, F8_PROTO_SOCKET) != 0 || !can_have(STATE_DIRECTORY))
        return F8_OK;
    return config_set(draft, setting, "--state-dir", "default", STATE_DIRECTORY, reason);
}

static int check_together(const struct config_draft *draft, struct reason *reason)
{
    const struct config *config = &draft->config;
    if (config->host_timeout_ms >= 4 * config->heartbeat_ms)
        return F8_OK;
    return reason_set(reason, F8_EINVAL,
        "--host-timeout %" PRIu64 " is less than four heartbeats of %" PRIu64
        " ms (host-timeout: %s; heartbeat: %s)",
        config->host_timeout_ms, config->heartbeat_ms,
        draft->origins[config_find("host-timeout") - config_settings],
        draft->origins[config_find("heartbeat") - config_settings]);
}

/* All layers. */
static int read_all(int argc, char **argv, const struct command *command,
    struct config_draft *draft, struct reason *reason)
{
    const char *file = command->file ? command->file : getenv(CONFIG_ENV_FILE);
    config_set_defaults(draft);
    int status = config_read_files(draft, file && file[0] != '\0' ? file : NULL, reason);
    if (status == F8_OK)
        status = config_read_environment(draft, reason);
    if (status == F8_OK)
        status = read_flags(argc, argv, draft, reason);
    if (status == F8_OK)
        status = check_together(draft, reason);
    if (status == F8_OK)
        status = config_check_metrics(
            &draft->config, draft->origins[config_find("metrics") - config_settings], reason);
    if (status == F8_OK && draft->config.socket[0] == '\0')
        status = default_socket(draft, reason);
    if (status == F8_OK)
        status = default_state_dir(draft, reason);
    return status;
}

/* In the form of a file, so that it can be used as one. */
static void print_config(const struct config_draft *draft)
{
    for (size_t i = 0; i < CONFIG_NUM_SETTINGS; i++) {
        char value[CONFIG_TEXT_SIZE], line[2 * CONFIG_TEXT_SIZE];
        config_format(&draft->config, &config_settings[i], value);
        (void)snprintf(line, sizeof(line), "%s%s = %s", value[0] == '\0' ? "# " : "",
            config_settings[i].flag, value);
        printf("%-40s ; %s\n", line, draft->origins[i]);
    }
}

int config_parse(int argc, char **argv, struct config *ret_config, enum config_action *ret_action,
    struct reason *reason)
{
    struct config_draft draft;
    struct command command = {0};
    int status = read_command(argc, argv, &command, reason);
    if (status < 0)
        return status;
    if (command.help || command.version) {
        if (command.help)
            print_help();
        else
            printf("f8gatherd %s\n", F8_VERSION);
        *ret_action = CONFIG_EXIT;
        return F8_OK;
    }
    status = read_all(argc, argv, &command, &draft, reason);
    if (status < 0)
        return status;
    if (command.print)
        print_config(&draft);
    if (command.check)
        config_warn_paths(&draft);
    *ret_config = draft.config;
    *ret_action = command.check || command.print ? CONFIG_EXIT : CONFIG_RUN;
    return F8_OK;
}

/* Takes over one setting that differs, if it can change now. */
static void reload_one(const struct config_setting *setting, const struct config_draft *draft,
    struct config *told, struct config *live)
{
    char before[CONFIG_TEXT_SIZE], after[CONFIG_TEXT_SIZE];
    const char *origin = draft->origins[setting - config_settings];
    config_format(told, setting, before);
    config_format(&draft->config, setting, after);
    if (strcmp(before, after) == 0)
        return;
    if (!setting->reloads) {
        log_warning("SIGHUP: %s stays \"%s\" until a restart, now it would be \"%s\" (%s)",
            setting->flag, before, after, origin);
        return;
    }
    log_info("SIGHUP: %s is \"%s\" now, it was \"%s\" (%s)", setting->flag, after, before, origin);
    config_copy(told, &draft->config, setting);
    config_copy(live, &draft->config, setting);
}

int config_reload(
    int argc, char **argv, struct config *told, struct config *live, struct reason *reason)
{
    struct config_draft draft;
    struct command command = {0};
    int status = read_command(argc, argv, &command, reason);
    if (status == F8_OK)
        status = read_all(argc, argv, &command, &draft, reason);
    for (size_t i = 0; status == F8_OK && i < CONFIG_NUM_SETTINGS; i++)
        reload_one(&config_settings[i], &draft, told, live);
    return status;
}
