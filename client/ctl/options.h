/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line of f8ctl: its tables of commands and of flags, by which it is read, explained
 * and completed. Called by main and by the command that prints completions.
 */
#ifndef F8CTL_OPTIONS_H
#define F8CTL_OPTIONS_H

#include <stddef.h>

#include "client/ctl/ctl.h"

struct command {
    const char *name;
    const char *arguments;          /* words; NULL: it takes none */
    const struct columns *sortable; /* NULL: it is no list */
    unsigned int takes;             /* of enum ctl_takes */
    const char *help;
    int (*run)(struct ctl *ctl);
};

struct ctl_option {
    const char *flag;     /* without its dashes */
    const char *value;    /* in capitals; NULL: it takes none */
    unsigned int special; /* of enum ctl_takes: what a command must take for it; 0: for all */
    const char *help;
};

extern const struct command ctl_commands[];
extern const size_t ctl_num_commands;
extern const struct ctl_option ctl_options[];
extern const size_t ctl_num_options;

/* Whether the command takes the flag, which need not be given. */
bool options_take(const struct command *command, const struct ctl_option *option);

/*
 * Reads the command line into `ctl`: the command to run; or NULL and the exit status, after
 * standard output has the help that was asked for or standard error what is wrong.
 */
const struct command *options_read(int argc, char **argv, struct ctl *ctl, int *ret_exit);

#endif
