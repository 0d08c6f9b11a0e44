/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why something was refused or failed, as a sentence for the peer: filled where the names and
 * values are known, carried up unread, and written into the reply. Open to all rooms; no state.
 */
#ifndef F8_DAEMON_REASON_H
#define F8_DAEMON_REASON_H

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define REASON_SIZE 512

struct reason {
    char text[REASON_SIZE]; /* NUL-terminated; a longer one is cut */
};

/* Names may be any UTF-8: takes away what a cut has left of a character at the end. */
static inline void reason_trim(struct reason *reason)
{
    size_t end = strlen(reason->text), lead = end;
    while (lead > 0 && ((unsigned char)reason->text[lead - 1] & 0xc0) == 0x80)
        lead--;
    if (lead == 0)
        return;
    unsigned char first = (unsigned char)reason->text[--lead];
    size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 1;
    if (end - lead < size)
        reason->text[lead] = '\0';
}

/* Writes the sentence and returns `status`, so that a check can be one return statement. */
__attribute__((format(printf, 3, 4))) static inline int reason_set(
    struct reason *reason, int status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(reason->text, sizeof(reason->text), format, args);
    va_end(args);
    reason_trim(reason);
    return status;
}

/* Goes on with the sentence; what does not fit is cut. */
__attribute__((format(printf, 2, 3))) static inline void reason_append(
    struct reason *reason, const char *format, ...)
{
    size_t used = strlen(reason->text);
    va_list args;
    va_start(args, format);
    (void)vsnprintf(reason->text + used, sizeof(reason->text) - used, format, args);
    va_end(args);
    reason_trim(reason);
}

#endif
