/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f8ctl: shows operators what f8gatherd is doing. main reads the command line, connects as ADMIN,
 * and runs one command. It never starts a daemon.
 */
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/ctl.h"

/* X(ID, "flag", "VALUE" or NULL, "help") */
#define OPTION_LIST(X)                                                                             \
    X(SOCKET, "socket", "PATH",                                                                    \
        "the daemon's socket (default: $F8GATHERD_SOCKET, then the usual "                         \
        "places)")                                                                                 \
    X(JOB, "job", "GLOB", "only jobs whose name matches")                                          \
    X(NAME, "name", "GLOB", "only groups or weights whose name matches")                           \
    X(TIMEOUT, "timeout", "SECONDS", "how long to wait for an answer (default 10)")                \
    X(JSON, "json", NULL, "print one JSON object")                                                 \
    X(HELP, "help", NULL, "print this")                                                            \
    X(VERSION, "version", NULL, "print the version of f8ctl")

enum option_id {
    OPTION_BASE = 256, /* above all characters, which getopt returns too */
#define OPTION_ENUM(id, flag, value, help) OPTION_##id,
    OPTION_LIST(OPTION_ENUM)
#undef OPTION_ENUM
};

static const struct option long_options[] = {
#define OPTION_ROW(id, flag, value, help)                                                          \
    {flag, (value) != NULL ? required_argument : no_argument, NULL, OPTION_##id},
    OPTION_LIST(OPTION_ROW)
#undef OPTION_ROW
        {NULL, 0, NULL, 0},
};

struct command {
    const char *name;
    const char *argument; /* NULL: it takes none */
    const char *help;
    int (*run)(struct ctl *ctl);
};

static const struct command commands[] = {
#define COMMAND_ROW(name, argument, help) {#name, argument, help, command_##name},
    CTL_COMMANDS(COMMAND_ROW)
#undef COMMAND_ROW
};

#define NUM_COMMANDS (sizeof(commands) / sizeof(commands[0]))

static void print_help_row(const char *name, const char *argument, const char *help)
{
    char text[64];

    snprintf(text, sizeof(text), "%s%s%s", name, argument != NULL ? " " : "",
        argument != NULL ? argument : "");
    printf("  %-20s %s\n", text, help);
}

static void print_help(void)
{
    printf("usage: f8ctl [OPTION]... COMMAND\n\nShows what f8gatherd is doing.\n\nCommands:\n");
    for (size_t i = 0; i < NUM_COMMANDS; i++) {
        print_help_row(commands[i].name, commands[i].argument, commands[i].help);
    }
    printf("\nOptions:\n");
#define OPTION_HELP(id, flag, value, help) print_help_row("--" flag, value, help);
    OPTION_LIST(OPTION_HELP)
#undef OPTION_HELP
    printf(
        "\nExit status: 0 all is well; 1 the daemon refused, or there is no such weight; 2 wrong\n"
        "usage; 3 no daemon answers (the sockets tried are named). f8ctl never starts a daemon.\n");
}

static int take_timeout(const char *text, struct ctl *ctl)
{
    char *end;
    double seconds = strtod(text, &end);

    if (end == text || *end != '\0' || !(seconds > 0) || seconds > 86400) {
        fprintf(
            stderr, "f8ctl: --timeout %s: must be seconds, more than 0 and at most 86400\n", text);
        return -1;
    }
    ctl->timeout_ms = (int)ceil(seconds * 1000);
    return 0;
}

/* 0: go on; 1: help was printed; -1: it is wrong. */
static int take_option(int id, char **argv, struct ctl *ctl)
{
    switch (id) {
    case OPTION_SOCKET:
        ctl->socket = optarg;
        return 0;
    case OPTION_JOB:
        ctl->job = optarg;
        return 0;
    case OPTION_NAME:
        ctl->name = optarg;
        return 0;
    case OPTION_TIMEOUT:
        return take_timeout(optarg, ctl);
    case OPTION_JSON:
        ctl->json = true;
        return 0;
    case 'h':
    case OPTION_HELP:
        print_help();
        return 1;
    case OPTION_VERSION:
        printf("f8ctl %s\n", F8_VERSION);
        return 1;
    default:
        fprintf(stderr, "f8ctl: %s: %s (see f8ctl --help)\n", argv[optind - 1],
            id == ':' ? "a value is missing" : "no such flag, or it takes no value");
        return -1;
    }
}

static const struct command *find_command(const char *name)
{
    for (size_t i = 0; i < NUM_COMMANDS; i++) {
        if (strcmp(commands[i].name, name) == 0) {
            return &commands[i];
        }
    }
    return NULL;
}

/* The command and its argument; NULL if they are wrong. */
static const struct command *take_command(int argc, char **argv, struct ctl *ctl)
{
    const struct command *command;
    int num_arguments;

    if (argc == 0) {
        fprintf(stderr, "f8ctl: a command is missing (see f8ctl --help)\n");
        return NULL;
    }
    command = find_command(argv[0]);
    if (command == NULL) {
        fprintf(stderr, "f8ctl: no command is called %s (see f8ctl --help)\n", argv[0]);
        return NULL;
    }
    num_arguments = command->argument != NULL ? 1 : 0;
    if (argc - 1 < num_arguments) {
        fprintf(stderr, "f8ctl: %s: a %s is missing\n", command->name, command->argument);
        return NULL;
    }
    if (argc - 1 > num_arguments) {
        fprintf(
            stderr, "f8ctl: %s: takes no argument %s\n", command->name, argv[1 + num_arguments]);
        return NULL;
    }
    ctl->what = command->argument != NULL ? argv[1] : NULL;
    return command;
}

static int run(struct ctl *ctl, const struct command *command)
{
    struct channel_options options = {.socket = ctl->socket, .role = F8__ROLE__ADMIN};
    int status = channel_open(&options, &ctl->channel);
    int result;

    if (status != F8_OK) {
        return ctl_failed(status);
    }
    result = command->run(ctl);
    channel_close(ctl->channel);
    return result;
}

int main(int argc, char **argv)
{
    struct ctl ctl = {.timeout_ms = 10000};
    const struct command *command;
    int result;
    int id;

    while ((id = getopt_long(argc, argv, ":h", long_options, NULL)) != -1) {
        result = take_option(id, argv, &ctl);
        if (result != 0) {
            return result > 0 ? CTL_OK : CTL_USAGE;
        }
    }
    command = take_command(argc - optind, argv + optind, &ctl);
    if (command == NULL) {
        return CTL_USAGE;
    }
    result = run(&ctl, command);
    if (fflush(stdout) != 0 && result == CTL_OK) {
        fprintf(stderr, "f8ctl: standard output: %s\n", strerror(errno));
        return CTL_REFUSED;
    }
    return result;
}
