/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Colours of what f8ctl prints: on a terminal and nowhere else, and not where NO_COLOR or TERM=dumb
 * asks for none. Called by whatever prints for people; single-threaded.
 */
#ifndef F8CTL_COLOUR_H
#define F8CTL_COLOUR_H

#include <stdbool.h>
#include <stdio.h>

/* What a text is, rather than how it looks. */
enum colour {
    COLOUR_NONE,    /* as the text around it */
    COLOUR_HEADING, /* bold */
    COLOUR_QUIET,   /* faint: what can be passed over */
    COLOUR_GOOD,    /* green */
    COLOUR_WARNING, /* yellow */
    COLOUR_ALARM,   /* red */
    COLOUR_FIRST,   /* cyan and magenta: two curves of one plot */
    COLOUR_SECOND,
};

/* Whether that stream shows colours. Asked each time: a stream may be turned elsewhere. */
bool colour_shown(FILE *to);

/* What to print before a text, and after it: static, and empty on a stream without colours. */
const char *colour_begin(FILE *to, enum colour colour);
const char *colour_end(FILE *to, enum colour colour);

#endif
