/* SPDX-License-Identifier: Apache-2.0 */
/* Runs f8ctl on a terminal of its own; $F8CTL names it. */
#ifndef F8_TESTS_CTL_TERMINAL_H
#define F8_TESTS_CTL_TERMINAL_H

#include <stddef.h>

/*
 * What it writes to a terminal of that many columns, without the carriage returns, in `text`. The
 * exit status. `environment` is put before the command, as a shell would read it: "NO_COLOR=1".
 */
int ctl_run_on_terminal(
    const char *environment, const char *arguments, int columns, char *text, size_t size);

#endif
