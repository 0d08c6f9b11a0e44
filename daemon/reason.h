/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why something was refused or failed, as a sentence for the peer: filled where the names and
 * values are known, carried up unread, and written into the reply. Open to all rooms; no state.
 */
#ifndef F8_DAEMON_REASON_H
#define F8_DAEMON_REASON_H

#include <stdarg.h>
#include <stdio.h>

#define REASON_SIZE 512

struct reason {
    char text[REASON_SIZE]; /* NUL-terminated; a longer one is cut */
};

/* Writes the sentence and returns `status`, so that a check can be one return statement. */
__attribute__((format(printf, 3, 4))) static inline int reason_set(
    struct reason *reason, int status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(reason->text, sizeof(reason->text), format, args);
    va_end(args);
    return status;
}

#endif
