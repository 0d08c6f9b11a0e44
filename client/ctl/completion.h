/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What shells complete after f8ctl: scripts made of the tables of options.h, and the names of what
 * there is, which these scripts ask f8ctl for. completion.c is the command; a shell's script is in
 * a file of its own.
 */
#ifndef F8CTL_COMPLETION_H
#define F8CTL_COMPLETION_H

#include <stdio.h>

#include "client/ctl/options.h"

/* What belongs at a place: X(KIND, "word by which a script asks f8ctl for them" or NULL). */
#define COMPLETION_KINDS(X)                                                                        \
    X(NOTHING, NULL) /* numbers, patterns: only who types knows */                                 \
    X(FILES, NULL)                                                                                 \
    X(COLUMNS, NULL) /* of the command's list */                                                   \
    X(SHELL, NULL)                                                                                 \
    X(WEIGHTS, "weights")                                                                          \
    X(DELAYED, "delayed") /* weights that have a history */                                        \
    X(JOBS, "jobs")                                                                                \
    X(EVICTABLE, "evictable") /* jobs without clients */                                           \
    X(GROUPS, "groups")

enum completion_kind {
#define COMPLETION_ENUM(kind, word) COMPLETION_##kind,
    COMPLETION_KINDS(COMPLETION_ENUM)
#undef COMPLETION_ENUM
};

/* The word of a kind; NULL if f8ctl is not asked for it. */
const char *completion_word(enum completion_kind kind);

/* What the n-th argument of a command is, and the value of a flag that has one. */
enum completion_kind completion_of_argument(const struct command *command, int n);
enum completion_kind completion_of_value(const struct ctl_option *option);

/* How many arguments a command takes. */
int completion_num_arguments(const struct command *command);

/* The columns of a list, by spaces, "name job -name -job"; "" if it is none. Static. */
const char *completion_columns(const struct command *command);

/* A text in single quotes, as bash and zsh, or fish, read it. */
void completion_quote(FILE *to, const char *text);
void completion_quote_fish(FILE *to, const char *text);

/* The scripts. */
#define COMPLETION_SHELLS "bash zsh fish"
void completion_bash(FILE *to);
void completion_zsh(FILE *to);
void completion_fish(FILE *to);

#endif
