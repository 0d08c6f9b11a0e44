/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks before something is destroyed: see confirm.h. A script cannot be asked, so it must say
 * --yes; whoever sits at a terminal types the word in full. On the one thread of f8ctl.
 */
#include "client/ctl/confirm.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Whether standard input, a terminal, gives the word. */
static bool types_yes(void)
{
    char line[16];

    if (fgets(line, sizeof(line), stdin) == NULL) {
        fprintf(stderr, "\n");
        return false;
    }
    line[strcspn(line, "\n")] = '\0';
    return strcmp(line, "yes") == 0;
}

int ctl_confirm(const struct ctl *ctl, const char *format, ...)
{
    char what[512];
    va_list arguments;

    if (ctl->given & CTL_TAKES_YES) {
        return CTL_OK;
    }
    va_start(arguments, format);
    vsnprintf(what, sizeof(what), format, arguments);
    va_end(arguments);
    if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO)) {
        fprintf(stderr, "f8ctl: this %s: give --yes, as there is no terminal to ask at\n", what);
        return CTL_USAGE;
    }
    fprintf(stderr, "This %s. Type \"yes\" to go on: ", what);
    fflush(stderr);
    if (types_yes()) {
        return CTL_OK;
    }
    fprintf(stderr, "f8ctl: nothing was done\n");
    return CTL_REFUSED;
}
