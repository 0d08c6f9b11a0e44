/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What f8ctl says of itself, made of the tables of options.h: its commands, one command with its
 * flags, and what somebody who mistyped may have meant. Called by options.c.
 */
#ifndef F8CTL_HELP_H
#define F8CTL_HELP_H

#include "client/ctl/options.h"

/* All commands, flags and exit statuses; or those of one command. On standard output. */
void help_print(void);
void help_print_command(const struct command *command);

/*
 * The command, or the flag without its dashes, that the word looks most like; NULL if it looks like
 * none. A flag's dashes and value may be there.
 */
const char *help_suggest_command(const char *word);
const char *help_suggest_flag(const char *word);

#endif
