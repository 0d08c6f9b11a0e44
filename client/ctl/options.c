/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line of f8ctl: what its commands and flags are called, which flag belongs to which
 * command, and what is wrong with those that were given. Called by main, before it connects.
 */
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/help.h"
#include "client/ctl/options.h"
#include "client/ctl/sort.h"

/* X(ID, "flag", "VALUE" or NULL, what a command must take for it or 0, "help") */
#define OPTION_LIST(X)                                                                             \
    X(SOCKET, "socket", "PATH", 0,                                                                 \
        "the daemon's socket (default: $F8GATHERD_SOCKET, else the usual places)")                 \
    X(JOB, "job", "GLOB", CTL_TAKES_JOB, "only jobs whose name matches")                           \
    X(NAME, "name", "GLOB", CTL_TAKES_NAME, "only groups, weights or buckets whose name matches")  \
    X(SORT, "sort", "COLUMN", CTL_TAKES_SORT,                                                      \
        "sort a list by a column, such as saturated; -COLUMN: descending")                         \
    X(TOP, "top", "N", CTL_TAKES_TOP,                                                              \
        "only the first N rows of a list; report: of a ranking, and plots")                        \
    X(LAST, "last", "N", CTL_TAKES_LAST, "history: only the last N syncs")                         \
    X(PLOT, "plot", NULL, CTL_TAKES_PLOT, "history: draw it (so it is done on a terminal)")        \
    X(TABLE, "table", NULL, CTL_TAKES_TABLE, "history: list it (so it is done elsewhere)")         \
    X(SVG, "svg", "FILE", CTL_TAKES_SVG, "history: write a drawing; - is standard output")         \
    X(OVER, "over", "SECONDS", CTL_TAKES_OVER,                                                     \
        "stats: rates and times of so long from now on, not of all time")                          \
    X(HTML, "html", "FILE", CTL_TAKES_HTML, "report: the page to write; - is standard output")     \
    X(UID, "uid", "UID", CTL_TAKES_UID,                                                            \
        "evict, export, import: whose job it is (default: your own)")                              \
    X(FORCE, "force", NULL, CTL_TAKES_FORCE, "export, --svg, --html: replace FILE if it is there") \
    X(FORMAT, "format", "FORM", CTL_TAKES_FORMAT, "export: binary (the default) or json")          \
    X(WEIGHTS, "weights", NULL, CTL_TAKES_WEIGHTS, "metrics: those of each weight too")            \
    X(YES, "yes", NULL, CTL_TAKES_YES, "do what destroys without being asked")                     \
    X(WAIT, "wait", NULL, CTL_TAKES_WAIT, "drain: until the daemon has ended")                     \
    X(CANCEL, "cancel", NULL, CTL_TAKES_CANCEL, "drain: call it off")                              \
    X(PEER, "peer", "HOST", CTL_TAKES_PEER,                                                        \
        "doctor: a name or address; or new, or the id that new printed on the other host")         \
    X(EVENTS, "events", "LIST", CTL_TAKES_EVENTS,                                                  \
        "watch, monitor: only these, such as rank-died,round-failed")                              \
    X(SINCE, "since", "SEQUENCE", CTL_TAKES_SINCE,                                                 \
        "watch, monitor: from after this event on; 0: from the oldest that is kept")               \
    X(COUNT, "count", "N", CTL_TAKES_COUNT, "watch, monitor, top: end after N events or frames")   \
    X(INTERVAL, "interval", "SECONDS", CTL_TAKES_INTERVAL,                                         \
        "top: between two frames (default 1, least 0.1)")                                          \
    X(TIMEOUT, "timeout", "SECONDS", 0,                                                            \
        "how long to wait for an answer, not an event (default 10; a disk's: 30, a peer's: 300)")  \
    X(JSON, "json", NULL, 0, "print one JSON object")                                              \
    X(HELP, "help", NULL, 0, "print this, or what there is to say of the command")                 \
    X(VERSION, "version", NULL, 0, "print the version of f8ctl")

enum option_id {
    OPTION_BASE = 256, /* above all characters, which getopt returns too */
#define OPTION_ENUM(id, flag, value, special, help) OPTION_##id,
    OPTION_LIST(OPTION_ENUM)
#undef OPTION_ENUM
};

const struct ctl_option ctl_options[] = {
#define OPTION_ROW(id, flag, value, special, help) {flag, value, special, help},
    OPTION_LIST(OPTION_ROW)
#undef OPTION_ROW
};

const size_t ctl_num_options = sizeof(ctl_options) / sizeof(ctl_options[0]);

static const struct option long_options[] = {
#define OPTION_ROW(id, flag, value, special, help)                                                 \
    {flag, (value) != NULL ? required_argument : no_argument, NULL, OPTION_##id},
    OPTION_LIST(OPTION_ROW)
#undef OPTION_ROW
        {NULL, 0, NULL, 0},
};

const struct command ctl_commands[] = {
#define COMMAND_ROW(name, arguments, columns, takes, help)                                         \
    {#name, arguments, columns, takes, help, command_##name},
    CTL_COMMANDS(COMMAND_ROW)
#undef COMMAND_ROW
        {"unique-id", NULL, NULL, 0, "the id of a new group over several hosts, in hexadecimal",
            command_unique_id},
    {"reset-amax", "NAME", NULL, CTL_TAKES_YES | CTL_TAKES_JOB,
        "have delayed weights, by name or glob, begin their amax history anew", command_reset_amax},
    {"log-level", "[LEVEL]", NULL, 0,
        "what is logged: error, warning, info or debug; without LEVEL, shows it",
        command_log_level},
};

const size_t ctl_num_commands = sizeof(ctl_commands) / sizeof(ctl_commands[0]);

/* A list can be sorted and cut, which its row in the table need not say. */
bool options_take(const struct command *command, const struct ctl_option *option)
{
    unsigned int list = command->sortable != NULL ? CTL_TAKES_SORT | CTL_TAKES_TOP : 0;

    return (option->special & ~(command->takes | list)) == 0;
}

static int take_seconds(const char *flag, const char *text, int *ret_ms)
{
    char *end;
    double seconds = strtod(text, &end);

    if (end == text || *end != '\0' || !(seconds > 0) || seconds > 86400) {
        fprintf(
            stderr, "f8ctl: --%s %s: must be seconds, more than 0 and at most 86400\n", flag, text);
        return -1;
    }
    *ret_ms = (int)ceil(seconds * 1000);
    return 0;
}

static int take_number(
    const char *flag, const char *text, unsigned long least, uint32_t *ret_number)
{
    char *end;
    unsigned long number;

    errno = 0;
    number = strtoul(text, &end, 10);
    if (!isdigit((unsigned char)text[0]) || *end != '\0' || errno != 0 || number < least ||
        number > UINT32_MAX) {
        fprintf(stderr, "f8ctl: --%s %s: must be a number from %lu to %u\n", flag, text, least,
            UINT32_MAX);
        return -1;
    }
    *ret_number = (uint32_t)number;
    return 0;
}

static int take_format(const char *text, struct ctl *ctl)
{
    if (strcmp(text, "binary") != 0 && strcmp(text, "json") != 0) {
        fprintf(stderr, "f8ctl: --format %s: must be binary or json\n", text);
        return -1;
    }
    ctl->format = text;
    return 0;
}

/* The flags of single commands: as take_option. */
static int take_special(int id, struct ctl *ctl)
{
    switch (id) {
    case OPTION_JOB:
        ctl->job = optarg;
        return 0;
    case OPTION_NAME:
        ctl->name = optarg;
        return 0;
    case OPTION_SORT:
        ctl->sort = optarg;
        return 0;
    case OPTION_TOP:
        return take_number("top", optarg, 1, &ctl->top);
    case OPTION_LAST:
        return take_number("last", optarg, 1, &ctl->last);
    case OPTION_UID:
        return take_number("uid", optarg, 0, &ctl->uid);
    case OPTION_HTML:
        ctl->html = optarg;
        return 0;
    case OPTION_OVER:
        return take_seconds("over", optarg, &ctl->over_ms);
    case OPTION_SVG:
        ctl->svg = optarg;
        return 0;
    case OPTION_EVENTS:
        return ctl_take_events(optarg, ctl);
    case OPTION_SINCE:
        return ctl_take_since(optarg, ctl);
    case OPTION_COUNT:
        return take_number("count", optarg, 1, &ctl->count);
    case OPTION_INTERVAL:
        return ctl_take_interval(optarg, ctl);
    case OPTION_PEER:
        ctl->peer = optarg;
        return 0;
    case OPTION_FORMAT:
        return take_format(optarg, ctl);
    default: /* its being given is all that there is to it */
        return 0;
    }
}

static int refuse_flag(const char *flag, bool lacks_value)
{
    const char *meant = lacks_value ? NULL : help_suggest_flag(flag);

    fprintf(stderr, "f8ctl: %s: %s%s%s%s (see f8ctl --help)\n", flag,
        lacks_value ? "a value is missing" : "no such flag, or it takes no value",
        meant != NULL ? "; did you mean --" : "", meant != NULL ? meant : "",
        meant != NULL ? "?" : "");
    return -1;
}

/* 0: go on; 1: the version was printed; -1: it is wrong. */
static int take_option(int id, char **argv, struct ctl *ctl)
{
    const struct ctl_option *option = id > OPTION_BASE ? &ctl_options[id - OPTION_BASE - 1] : NULL;

    if (option != NULL && option->special != 0) {
        ctl->given |= option->special;
        return take_special(id, ctl);
    }
    switch (id) {
    case OPTION_SOCKET:
        ctl->socket = optarg;
        return 0;
    case OPTION_TIMEOUT:
        ctl->timeout_given = true;
        return take_seconds("timeout", optarg, &ctl->timeout_ms);
    case OPTION_JSON:
        ctl->json = true;
        return 0;
    case 'h':
    case OPTION_HELP:
        ctl->help = true;
        return 0;
    case OPTION_VERSION:
        printf("f8ctl %s\n", F8_VERSION);
        return 1;
    default:
        return refuse_flag(argv[optind - 1], id == ':');
    }
}

static const struct command *find_command(const char *name)
{
    for (size_t i = 0; i < ctl_num_commands; i++) {
        if (strcmp(ctl_commands[i].name, name) == 0) {
            return &ctl_commands[i];
        }
    }
    return NULL;
}

/* The n-th word of the command's arguments, from 0 on: false if it takes fewer. */
static bool word_of(const struct command *command, int n, const char **ret_word, int *ret_length)
{
    const char *word = command->arguments;

    while (word != NULL && n > 0) {
        word = strchr(word, ' ');
        word = word != NULL ? word + 1 : NULL;
        n--;
    }
    if (word == NULL) {
        return false;
    }
    *ret_word = word;
    *ret_length = (int)strcspn(word, " ");
    return true;
}

static int take_arguments(const struct command *command, int argc, char **argv, struct ctl *ctl)
{
    const char *word;
    int length, taken = 0;

    for (; word_of(command, taken, &word, &length); taken++) {
        if (taken == argc && word[0] == '[') {
            return 0;
        }
        if (taken == argc) {
            fprintf(stderr, "f8ctl: %s: a %.*s is missing\n", command->name, length, word);
            return -1;
        }
        ctl->arguments[taken] = argv[taken];
    }
    if (argc > taken) {
        fprintf(stderr, "f8ctl: %s: takes no argument %s\n", command->name, argv[taken]);
        return -1;
    }
    return 0;
}

/* A flag that the command would pass over is a mistake of whoever gave it. */
static int check_flags(const struct command *command, const struct ctl *ctl)
{
    for (size_t i = 0; i < ctl_num_options; i++) {
        if ((ctl_options[i].special & ctl->given) != 0 && !options_take(command, &ctl_options[i])) {
            fprintf(stderr, "f8ctl: %s: takes no --%s\n", command->name, ctl_options[i].flag);
            return -1;
        }
    }
    return 0;
}

static int take_sort(const struct command *command, struct ctl *ctl)
{
    char titles[512];
    const char *title = ctl->sort;

    if (title == NULL) {
        return 0;
    }
    ctl->descending = title[0] == '-';
    title += ctl->descending;
    ctl->sort_column = sort_find(command->sortable, title);
    if (ctl->sort_column == NULL) {
        fprintf(stderr, "f8ctl: --sort %s: %s has no column %s; its columns are: %s\n", ctl->sort,
            command->name, title, sort_titles(command->sortable, titles, sizeof(titles)));
        return -1;
    }
    return 0;
}

/* NULL after standard error has said that there is no such command, and which was meant. */
static const struct command *named_command(int argc, char **argv)
{
    const struct command *command;
    const char *meant;

    if (argc == 0) {
        fprintf(stderr, "f8ctl: a command is missing (see f8ctl --help)\n");
        return NULL;
    }
    command = find_command(argv[0]);
    if (command == NULL) {
        meant = help_suggest_command(argv[0]);
        fprintf(stderr, "f8ctl: no command is called %s%s%s%s (see f8ctl --help)\n", argv[0],
            meant != NULL ? "; did you mean " : "", meant != NULL ? meant : "",
            meant != NULL ? "?" : "");
    }
    return command;
}

/* The command, its arguments and its flags; NULL if they are wrong. */
static const struct command *take_command(int argc, char **argv, struct ctl *ctl)
{
    const struct command *command = named_command(argc, argv);

    if (command == NULL) {
        return NULL;
    }
    if (take_arguments(command, argc - 1, argv + 1, ctl) != 0 || check_flags(command, ctl) != 0 ||
        take_sort(command, ctl) != 0) {
        return NULL;
    }
    return command;
}

/* The help that was asked for: of f8ctl, or of the command. */
static int print_help(int argc, char **argv)
{
    const struct command *command = argc > 0 ? named_command(argc, argv) : NULL;

    if (argc > 0 && command == NULL) {
        return CTL_USAGE;
    }
    if (command != NULL) {
        help_print_command(command);
    } else {
        help_print();
    }
    return CTL_OK;
}

const struct command *options_read(int argc, char **argv, struct ctl *ctl, int *ret_exit)
{
    const struct command *command;
    int id, result;

    while ((id = getopt_long(argc, argv, ":h", long_options, NULL)) != -1) {
        result = take_option(id, argv, ctl);
        if (result != 0) {
            *ret_exit = result > 0 ? CTL_OK : CTL_USAGE;
            return NULL;
        }
    }
    if (ctl->help) {
        *ret_exit = print_help(argc - optind, argv + optind);
        return NULL;
    }
    command = take_command(argc - optind, argv + optind, ctl);
    *ret_exit = command != NULL ? CTL_OK : CTL_USAGE;
    return command;
}
