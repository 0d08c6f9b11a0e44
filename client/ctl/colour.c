/* SPDX-License-Identifier: Apache-2.0 */
/* Colours: see colour.h. The sequences are those that every terminal of today knows. */
#include "client/ctl/colour.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const sequences[] = {
    [COLOUR_NONE] = "",
    [COLOUR_HEADING] = "\033[1m",
    [COLOUR_QUIET] = "\033[2m",
    [COLOUR_GOOD] = "\033[32m",
    [COLOUR_WARNING] = "\033[33m",
    [COLOUR_ALARM] = "\033[31m",
    [COLOUR_FIRST] = "\033[36m",
    [COLOUR_SECOND] = "\033[35m",
};

/* https://no-color.org: set and not empty means none. */
bool colour_shown(FILE *to)
{
    const char *no_color = getenv("NO_COLOR"), *terminal = getenv("TERM");

    if ((no_color != NULL && no_color[0] != '\0') ||
        (terminal != NULL && strcmp(terminal, "dumb") == 0)) {
        return false;
    }
    return isatty(fileno(to)) != 0;
}

const char *colour_begin(FILE *to, enum colour colour)
{
    return colour != COLOUR_NONE && colour_shown(to) ? sequences[colour] : "";
}

const char *colour_end(FILE *to, enum colour colour)
{
    return colour != COLOUR_NONE && colour_shown(to) ? "\033[0m" : "";
}
